"""``rules="onnx_tool"`` gives onnx_tool's own totals wherever that tool gives any.

Where the totals differ, the tool has a wrong shape or type of a tensor: `WRONG` names the models. test_shapes.py checks
that our totals equal the totals of a real run.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from otel_quant.cost import InputSpec, analyze
from tests.integration.cost.backend_data import light_models, recorded_models
from tests.integration.cost.exporting import Case
from tests.integration.cost.family.models import FAMILY

GIVES_UP = {
    # model of the family: what onnx_tool 1.0.1 aborts at
    "bert_dynamic": "IsNaN",
    "bert_dynamo_dynamic": "Squeeze of an axis that is not 1, which it folded itself",
    "gpt2_dynamo": "Squeeze of an axis that is not 1, which it folded itself",
    "decoder": "a Reshape to a shape that it computed itself",
    "recurrent": "RNN",
    "qoperator": "QLinearSigmoid",
    "dynamic_int8": "DynamicQuantizeLinear",
    "four_bit": "MatMulNBits",
    "fused": "FusedMatMul",
    "fused_attention": "com.microsoft Attention",
    "control_flow": "Loop",
}

OLD_DROPOUT = {"light_bvlc_alexnet", "light_inception_v1", "light_squeezenet", "light_vgg19"}
"""Before version 10 a Dropout's mask had the data's type; onnx_tool takes it for bool, and has other bytes."""


WRONG = {
    # models of the backend test data: what onnx_tool 1.0.1 has wrong in them
    "test_cast_*": "8 bytes for bfloat16 and float8, and for types below a byte",
    "test_cast*_expanded": "8 bytes for bfloat16 and float8, and for types below a byte",
    "test_quantizelinear_*int[24]": "types below a byte",
    "test_quantizelinear_float4e2m1": "types below a byte",
    "test_qlinearconv": "the result's type: float32 for uint8",
    "test_round": "the result's type: bool for float32",
    "test_matmul_bcast": "a batch that both operands broadcast",
    "test_convtranspose_autopad_same": "auto_pad",
    "test_averagepool_2d_ceil_last_window_starts_on_pad": "a window that starts in the padding",
    "test_maxpool_2d_ceil_output_size_reduce_by_one": "a window that starts in the padding",
    "test_reduce_*default*": "a reduction over all axes when none is named",
    "test_reduce_l2_*": "axes that a ReduceL2 has as an operand",
    "test_resize_*_axes_*": "axes of a Resize",
    "test_resize_*_not_*": "a Resize that keeps its aspect ratio",
    "test_shape_*": "start and end of a Shape",
    "test_gathernd_example_int32_batch_dim1": "batch_dims of a GatherND",
    "test_ai_onnx_ml_array_feature_extractor": "the rank of its result",
    "test_causal_conv_with_state_*_expanded": "a Slice between computed ends",
    "test_gru_*": "bytes of a first result that the node leaves out",
    "test_lstm_*": "bytes of a first result that the node leaves out",
    "test_nonmaxsuppression_*": "a size that only the data decide",
    "test_nonzero_example": "a size that only the data decide",
    "test_range_bfloat16_type_positive_delta": "nothing: the tool gets elements of a type that is not given to us",
}


def tool_graph(path: Path, feeds: dict[str, np.ndarray] | None) -> object:
    """Returns onnx_tool's graph after profiling, or raises what it raises."""
    from onnx_tool.model import Model

    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        graph = Model(str(path), {"verbose": False}).graph
        graph.graph_reorder_nodes()
        graph.shape_infer(feeds)
        graph.profile()
    return graph


def totals(graph: object) -> dict[str, int]:
    return {
        "macs": int(graph.macs[0]),
        "params": int(graph.params),
        "memory_bytes": int(graph.memory),
    }


def ours(path: Path, given: dict[str, tuple[int, ...]] | dict[str, InputSpec]) -> dict[str, int]:
    total = analyze(path, rules="onnx_tool", inputs=given).to_json_dict()["total"]
    return {key: total[key] for key in ("macs", "params", "memory_bytes")}


@pytest.mark.parametrize("name", FAMILY)
def test_totals_of_the_family_equal_onnx_tools_and_exist_where_it_aborts(
    family: Callable[[str], Case], name: str
) -> None:
    case = family(name)
    if name not in GIVES_UP:
        assert ours(case.path, case.given) == totals(tool_graph(case.path, case.feeds))
        return
    with pytest.raises(AssertionError if name == "decoder" else (NotImplementedError, ValueError)):
        tool_graph(case.path, case.feeds)
    assert analyze(case.path, rules="onnx_tool", inputs=case.given).uncosted_ops == {}


@pytest.mark.parametrize("path", light_models(), ids=lambda path: path.stem)
def test_totals_of_the_zoo_topologies_equal_onnx_tools(path: Path) -> None:
    tool, mine = totals(tool_graph(path, None)), ours(path, {})
    if path.stem in OLD_DROPOUT:
        assert mine.pop("memory_bytes") > tool.pop("memory_bytes")
    assert mine == tool


def test_totals_of_the_backend_test_data_equal_onnx_tools_unless_it_is_wrong() -> None:
    same = 0
    unexplained = []
    named = set()
    for case in recorded_models():
        if case.path.parts[-3] == "real":
            continue
        try:
            graph = tool_graph(case.path, case.feeds)
        except (Exception, SystemExit):  # noqa: BLE001  # whatever it gives up with
            continue
        mine = ours(case.path, case.specs)
        if mine == totals(graph):
            same += 1
            continue
        name = case.path.parent.name
        reasons = {pattern for pattern in WRONG if fnmatch(name, pattern)}
        named |= reasons
        if not reasons:
            unexplained.append((name, mine, totals(graph)))
    assert unexplained == []
    assert named == set(WRONG)
    assert same > 850


LEFT_OUT = {
    "Silu": "(float[2, 3] x) => (float[2, 3] y) { y = Silu (x) }",
    "QLinearConv": """(uint8[1, 2, 5, 5] x, float s, uint8 z, int8[4, 2, 3, 3] w, int8 v)
        => (uint8[1, 4, 3, 3] y) { y = QLinearConv (x, s, z, w, s, v, s, z) }""",
    "QLinearConv with bias": """(uint8[1, 2, 5, 5] x, float s, uint8 z, int8[4, 2, 3, 3] w, int8 v,
        int32[4] b) => (uint8[1, 4, 3, 3] y) { y = QLinearConv (x, s, z, w, s, v, s, z, b) }""",
    "LSTM": """(float[5, 3, 8] x, float[1, 64, 8] w, float[1, 64, 16] r, float[1, 128] b)
        => (float[5, 1, 3, 16] y, float[1, 3, 16] h, float[1, 3, 16] c)
        { y, h, c = LSTM <hidden_size = 16> (x, w, r, b) }""",
    "GRU": """(float[5, 3, 8] x, float[1, 48, 8] w, float[1, 48, 16] r, float[1, 96] b)
        => (float[5, 1, 3, 16] y, float[1, 3, 16] h) { y, h = GRU <hidden_size = 16> (x, w, r, b) }""",
}
"""Operators of which no model of the test data has the tool's totals. All operands
but the first become constants."""


@pytest.mark.parametrize("name", LEFT_OUT)
def test_totals_of_operators_missing_in_the_test_data_equal_onnx_tools(
    name: str, tmp_path: Path
) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 17]> g {LEFT_OUT[name]}')
    first, *others = model.graph.input
    del model.graph.input[1:]
    for info in others:
        dims = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        model.graph.initializer.append(numpy_helper.from_array(np.ones(dims, dtype), info.name))
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(first.type.tensor_type.elem_type)
    dims = [dim.dim_value for dim in first.type.tensor_type.shape.dim]

    tool = totals(tool_graph(path, {"x": np.ones(dims, dtype)}))

    if name == "QLinearConv":  # the tool has the type of its result wrong, as above
        tool["memory_bytes"] -= 3 * 4 * 3 * 3
    assert tool["macs"] > 0
    assert ours(path, {}) == tool
