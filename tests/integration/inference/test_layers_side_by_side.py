"""A kernel is named by the contraction in it, and layers of two models are joined whatever quantizers call them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.matmul_nbits_quantizer import (
    DefaultWeightOnlyQuantConfig,
    MatMulNBitsQuantizer,
)

from otel_quant.inference.measure import measure_files
from otel_quant.inference.results import ModelResult
from otel_quant.inference.subjects import Options
from otel_quant.views.inference import document
from otel_quant.views.layers_beside import Beside
from otel_quant.views.writers import written
from tests.fixtures.onnx_builder import FLOAT16, Builder, model_of_text
from tests.integration.inference.conftest import measured

LAYERS = {"/dense/MatMul", "/fc/Gemm", "/att/MatMul"}


def _dense(dtype: type = np.float32) -> Builder:
    """MatMul + Add, Gemm + Relu and MatMul x scale, each of which onnxruntime makes one kernel."""
    graph = Builder([64, 128], dtype=FLOAT16 if dtype is np.float16 else 1)
    value = graph.node("MatMul", ["x", graph.weights("w0", 128, 128, dtype=dtype)], "/dense/MatMul")
    value = graph.node("Add", [value, graph.weights("b0", 128, dtype=dtype)], "/dense/Add")
    operands = [
        value,
        graph.weights("w1", 128, 128, dtype=dtype),
        graph.weights("b1", 128, dtype=dtype),
    ]
    value = graph.node("Relu", [graph.node("Gemm", operands, "/fc/Gemm")], "/fc/Relu")
    value = graph.node("MatMul", [value, graph.weights("w2", 128, 128, dtype=dtype)], "/att/MatMul")
    graph.output(graph.node("Mul", [value, graph.constant("s", dtype(0.125))], "/att/Scale"))
    return graph


class _Samples(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
    def __init__(self) -> None:
        self._left = iter([{"x": np.ones((64, 128), np.float32)}])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._left, None)


def _static(before: Path, after: Path, form: QuantFormat) -> None:
    quantize_static(
        before, after, _Samples(), quant_format=form, op_types_to_quantize=["MatMul", "Gemm"]
    )


def _four_bits(before: Path, after: Path, level: int = 0) -> None:
    form = QuantFormat.QOperator
    config = DefaultWeightOnlyQuantConfig(
        block_size=32, quant_format=form, accuracy_level=level or None
    )
    quantizer = MatMulNBitsQuantizer(onnx.load(before), algo_config=config)
    quantizer.process()
    quantizer.model.save_model_to_file(str(after))


QUANTIZED = {
    "QDQ": lambda before, after: _static(before, after, QuantFormat.QDQ),
    "QOperator": lambda before, after: _static(before, after, QuantFormat.QOperator),
    "dynamic": quantize_dynamic,
    "4 bits": _four_bits,
    "float16": lambda _, after: _dense(np.float16).save(after),
}


@pytest.mark.parametrize("kind", QUANTIZED)
def test_each_contraction_has_one_row_with_its_time_in_both_models(
    kind: str, tmp_path: Path
) -> None:
    before, after = _dense().save(tmp_path / "float.onnx"), tmp_path / "other.onnx"
    QUANTIZED[kind](before, after)
    result = measure_files([str(before), str(after)], Options(runs=4, threads=1))
    lines = "".join(written(document(result, 20), "table")).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("layer "))
    rows = lines[at + 3 : lines.index("", at) - 1]
    found = {row.split()[0]: row.split()[1:3] for row in rows}
    assert found.keys() == LAYERS  # what one of the two models has fused is no row of its own
    assert all("-" not in found[each] for each in LAYERS), rows
    assert not {name for name in found if name.endswith(("_quant", "_Q4", "Fusion", "Gemm_MatMul"))}
    first, other = (each.ran for each in result.models)
    assert first is not None
    assert other is not None
    assert {each.node for each in first.kernels} == LAYERS
    assert sum(each.micros for each in other.kernels) == pytest.approx(other.kernel_micros)


@pytest.mark.parametrize(("level", "ran"), [(0, "float32"), (1, "float32"), (4, "int8")])
def test_a_product_with_weights_of_four_bits_ran_in_what_its_accuracy_level_has_it_round_to(
    level: int, ran: str, tmp_path: Path
) -> None:
    before, after = _dense().save(tmp_path / "float.onnx"), tmp_path / "other.onnx"
    _four_bits(before, after, level)
    [result] = measure_files([str(after)], Options(runs=2, threads=1)).models
    assert result.ran is not None
    types = {each.runs_in for each in result.ran.kernels if each.op_type == "MatMulNBits"}
    assert types == {ran}
    assert f"{ran} by weights" in result.facts["types"]
    # A product of floats is exact; one of int8 is not.
    exact, made = (
        ort.InferenceSession(str(path)).run(None, {"x": np.eye(64, 128, dtype=np.float32) + 0.01})
        for path in (after, _at_level(after, tmp_path / "exact.onnx"))
    )
    assert np.allclose(exact[0], made[0], rtol=1e-5, atol=1e-6) == (ran == "float32")


def _at_level(path: Path, to: Path) -> Path:
    """Returns a model without accuracy levels."""
    model = onnx.load(path)
    for node in model.graph.node:
        for each in [it for it in node.attribute if it.name == "accuracy_level"]:
            node.attribute.remove(each)
    onnx.save(model, to)
    return to


def test_conversions_count_for_the_contraction_on_their_integers_and_as_converting(
    tmp_path: Path,
) -> None:
    graph = Builder([1, 16, 32, 32])
    weights = graph.weights("w", 16, 16, 3, 3, dtype=np.float32)
    value = graph.node("Conv", ["x", weights, graph.weights("b", 16, dtype=np.float32)], "conv")
    graph.output(graph.node("Softmax", [value], "soft"))
    before, after = graph.save(tmp_path / "float.onnx"), tmp_path / "dynamic.onnx"
    quantize_dynamic(before, after)
    [result] = measure_files([str(after)], Options(runs=4, threads=1)).models
    assert result.ran is not None
    layers = {each.op_type: each.layer for each in result.ran.kernels}
    own = {"ConvInteger", "DynamicQuantizeLinear", "Cast", "Mul", "Add"}
    assert layers == {**dict.fromkeys(own, "conv_quant"), "Softmax": "soft"}
    converting = sum(
        each.share for each in result.ran.kernels if each.op_type in own - {"ConvInteger"}
    )
    assert result.converting == pytest.approx(converting)


def test_bytes_on_disk_and_in_memory_count_external_data_and_bodies(tmp_path: Path) -> None:
    graph, helper = Builder([8, 64]), onnx.helper
    graph.output(graph.node("MatMul", ["x", graph.weights("w", 64, 64, dtype=np.float32)], "top"))
    result = helper.make_tensor_value_info("t", 1, [8, 64])
    of_body = onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "of_body")
    inner = helper.make_node("MatMul", ["top", "of_body"], ["t"], "inner")
    body = helper.make_graph([inner], "b", [], [result], [of_body])
    flag = graph.constant("flag", np.array(True))
    graph.output(graph.node("If", [flag], "cond", then_branch=body, else_branch=body))
    path = tmp_path / "external.onnx"
    onnx.save(graph.model(), path, save_as_external_data=True, location="w.bin", size_threshold=64)
    [found] = measure_files([str(path)], Options(runs=2, threads=1)).models
    assert found.memory is not None
    assert found.memory.weights_on_disk == path.stat().st_size + (tmp_path / "w.bin").stat().st_size
    assert (found.memory.weights_in_memory or 0) >= 2 * 64 * 64 * 4


class _Drawn:
    """Inputs of a model as they are drawn, with whole numbers below 40."""

    def __init__(self, model: onnx.ModelProto) -> None:
        [given] = model.graph.input
        shape = [each.dim_value for each in given.type.tensor_type.shape.dim]
        random = np.random.default_rng(0)
        is_float = given.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        drawn = (
            random.standard_normal(shape, np.float32) if is_float else random.integers(0, 40, shape)
        )
        self._left = iter([{given.name: drawn}])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._left, None)


def _quantized(
    folder: Path, text: str, weights: dict[str, np.ndarray], form: QuantFormat = QuantFormat.QDQ
) -> ModelResult:
    """Returns what is known of a model by onnxruntime's quantizer, beside the float one."""
    model = model_of_text(text)
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(it, name) for name, it in weights.items()
    )
    paths = [str(folder / name) for name in ("float.onnx", "int8.onnx")]
    onnx.save(model, paths[0])
    quantize_static(*paths, _Drawn(model), quant_format=form, activation_type=QuantType.QUInt8)
    np.savez(folder / "data.npz", **(_Drawn(model).get_next() or {}))
    first, result = measured(paths, Options(runs=3, data=str(folder / "data.npz")))
    beside = Beside(first, result)
    assert [
        name for name in beside.names if "conv" in name and not beside.pair(name, [name]).change
    ] == []
    return result


_FUSED = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[1,32,24,24] x) => (float[1,32,24,24] y) <float low = {0.0}, float high = {6.0}> {
    [conv0] a = Conv<pads=[1,1,1,1]>(x, w0)
    [clip] b = Clip(a, low, high)
    [conv1] c = Conv<pads=[1,1,1,1], group=32>(b, w1)
    [swish] d = HardSwish(c)
    [pool] p = GlobalAveragePool(d)
    [conv2] q = Conv(p, w3)
    [relu] r = Relu(q)
    [conv3] s = Conv(r, w3)
    [scaled] e = Mul(s, d)
    [conv4] f = Conv<pads=[1,1,1,1]>(e, w0)
    [relu2] g = Relu(f)
    [conv5] y = Conv(g, w3)
}"""


def test_a_convolution_whose_kernel_has_the_name_of_its_activation_is_the_same_layer(
    tmp_path: Path,
) -> None:
    shapes = {"w0": (32, 32, 3, 3), "w1": (32, 1, 3, 3), "w3": (32, 32, 1, 1)}
    random = np.random.default_rng(1)
    _quantized(
        tmp_path, _FUSED, {it: random.standard_normal(shapes[it], np.float32) / 9 for it in shapes}
    )


_TABLE = """
<ir_version: 8, opset_import: ["" : 17]>
net (int64[2,64] i) => (float[2,64,16] y) {
    [table] e = Gather(w, i)
    [dense] y = MatMul(e, v)
}"""


def test_the_error_of_a_table_of_embeddings_with_an_outlier_is_named(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    weights = {
        "w": random.standard_normal((200, 32), np.float32),
        "v": np.eye(32, 16, dtype=np.float32),
    }
    weights["w"][199] *= 40
    found = _quantized(tmp_path, _TABLE, weights).findings
    [finding] = [each for each in found if (each.kind, each.node) == ("weights", "table")]
    assert finding.remedy == "leave it in float"


_LEFT = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[1,16,16,16] x) => (float[1,16,16,16] y) {
    [conv] a = Conv<pads=[1,1,1,1]>(x, w0)
    [up] b = ConvTranspose<strides=[2,2]>(a, w1)
    [down] c = Conv<strides=[2,2]>(b, w1)
    [conv2] y = Conv<pads=[1,1,1,1]>(c, w0)
}"""


def test_what_the_quantizer_left_in_float_is_one_finding(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    shapes = {"w0": (16, 16, 3, 3), "w1": (16, 16, 2, 2)}
    weights = {it: random.standard_normal(shapes[it], np.float32) / 9 for it in shapes}
    result = _quantized(tmp_path, _LEFT, weights, QuantFormat.QOperator)
    of_it = [each.kind for each in result.findings if "`up`" in each.sentence]
    assert [kind for kind in of_it if kind != "inserted"] == ["left_in_float"]
