"""Models that onnxruntime or onnx.checker refuses: what is said mends them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, version_converter

from otel_quant.inference.onnx_session import REFUSALS, text_of, with_remedy
from tests.fixtures.onnx_builder import model_of_text

onnxruntime = pytest.importorskip("onnxruntime")

Change = Callable[[onnx.ModelProto], Any]


def model(nodes: str, opset: int = 17, dtype: str = "float", **constants: Any) -> onnx.ModelProto:
    imports = f'"" : {opset}, "own" : 1, "com.amd.quark" : 1'
    text = f"net ({dtype}[2, 8] x) => ({dtype}[2, 8] y) {{ {nodes} }}"
    return model_of_text(f"<ir_version: 9, opset_import: [{imports}]> {text}", **constants)


def int16() -> onnx.ModelProto:
    made = model("q = QuantizeLinear (x, s, z) y = DequantizeLinear (q, s, z)", s=np.float32(0.1))
    made.graph.initializer.append(helper.make_tensor("z", TensorProto.INT16, [], [0]))
    return made


def in_order(made: onnx.ModelProto) -> None:
    made.graph.node.reverse()


def of_ir(version: int) -> Change:
    def change(made: onnx.ModelProto) -> onnx.ModelProto:
        made.ir_version = version
        return made

    return change


def of_type(dtype: int) -> Change:
    def change(made: onnx.ModelProto) -> None:
        for info in (*made.graph.input, *made.graph.output):
            info.type.tensor_type.elem_type = dtype

    return change


def with_cast(made: onnx.ModelProto) -> None:
    made.graph.node[0].input[1] = "wide"
    made.graph.node.insert(0, helper.make_node("Cast", ["half"], ["wide"], to=TensorProto.FLOAT))


def renamed(made: onnx.ModelProto) -> None:
    made.graph.node[1].name = "b"


ONNXRUNTIME: dict[str, tuple[onnx.ModelProto, Change]] = {
    "it is newer than this onnxruntime; expected a newer one, or model.ir_version = ": (
        of_ir(99)(model("y = Relu (x)")), of_ir(9),
    ),
    "it is newer than this onnxruntime; expected a newer one, or the model exported with opset ": (
        model("y = Relu (x)", 99), lambda _: model("y = Relu (x)", 21),
    ),
    "int16 is of opset 21; expected onnx.version_converter.convert_version(model, 21): ": (
        int16(), lambda made: version_converter.convert_version(made, 21),
    ),
    "there is no kernel of Relu for its types; expected float32, or another provider: ": (
        model("y = Relu (x)", dtype="bfloat16"), of_type(TensorProto.FLOAT),
    ),
    "two nodes have one name; expected another name for one of a: ": (
        model("[a] h = Relu (x) [a] y = Relu (h)"), renamed,
    ),
    "a node has operands of float and float16; expected a Cast before one of them: ": (
        model("y = Add (x, half)", half=np.ones(8, np.float16)), with_cast,
    ),
}  # fmt: skip


@pytest.mark.parametrize("said", ONNXRUNTIME)
def test_what_onnxruntime_refuses_is_mended_by_what_is_said(said: str, tmp_path: Path) -> None:
    made, mend = ONNXRUNTIME[said]
    path = tmp_path / "model.onnx"
    path.write_bytes(made.SerializeToString())
    with pytest.raises(Exception, match="ONNXRuntimeError") as refused:
        onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert text_of(refused.value).startswith(said)
    path.write_bytes((mend(made) or made).SerializeToString())
    onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def test_a_file_of_weights_that_is_missing_and_operators_of_others_are_named(
    tmp_path: Path,
) -> None:
    path = tmp_path / "model.onnx"
    made = model("y = Add (x, w)", w=np.ones(8, np.float32))
    onnx.save(made, path, save_as_external_data=True, location="w", size_threshold=0)
    (tmp_path / "w").rename(tmp_path / "away")
    said = []
    for each in (
        path.read_bytes(),
        *(model(f"y = {it}.Odd (x)").SerializeToString() for it in ("own", "com.amd.quark")),
    ):
        path.write_bytes(each)
        with pytest.raises(Exception, match="ONNXRuntimeError") as refused:
            onnxruntime.InferenceSession(path)
        said.append(text_of(refused.value).partition(": ")[0])
    assert said == [
        "a file with its weights is missing; expected it where it was beside the model",
        "this onnxruntime has no Odd of own; expected --custom-ops with the library that has it",
        "it has operators of AMD Quark; expected --custom-ops quark",
    ]


@pytest.mark.parametrize(
    ("made", "mend", "said"),
    [
        (model("y = Relu (h) h = Relu (x)"), in_order,
         "expected its nodes in order, as onnxruntime.quantization.quant_pre_process or otel-quant fix writes them: "),
        (of_ir(3)(model("y = Add (x, w)", w=np.ones(8, np.float32))), of_ir(4),
         "expected model.ir_version = 4 or more in onnx: "),
    ],
)  # fmt: skip
def test_what_the_checker_refuses_is_mended_by_what_is_said(
    made: onnx.ModelProto, mend: Change, said: str
) -> None:
    with pytest.raises(onnx.checker.ValidationError) as refused:
        onnx.checker.check_model(made)
    assert with_remedy(str(refused.value)).startswith(said)
    mend(made)
    onnx.checker.check_model(made)


def test_int8_weights_of_dynamic_convolutions_are_named_which_older_versions_refuse() -> None:
    # Of onnxruntime 1.21.1, where uint8 was tried; 1.32 takes both.
    said = "Could not find an implementation for ConvInteger(10) node with name 'conv_quant'"
    expected = "expected quantize_dynamic with weight_type=QuantType.QUInt8, or a newer one: "
    assert f"{expected}NotImplemented" in with_remedy(
        f"NotImplemented: [ONNXRuntimeError] : 9 : {said}"
    )


def test_every_row_is_tried_above_and_other_errors_stay_as_they_are() -> None:
    assert len(REFUSALS) == len(ONNXRUNTIME) + 3 + 2 + 1
    assert (
        with_remedy("Fail: Type 'tensor(int8)' of x is invalid")
        == "Fail: Type 'tensor(int8)' of x is invalid"
    )
