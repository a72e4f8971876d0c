"""What onnxruntime's quantizers leave in float is named with its reason; what they quantize is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.matmul_nbits_quantizer import (
    DefaultWeightOnlyQuantConfig,
    MatMulNBitsQuantizer,
)

from otel_quant.cost import analyze
from otel_quant.inference.measure import measure_files
from otel_quant.inference.subjects import Options
from tests.fixtures.onnx_builder import Builder

NAMES = "nothing was quantized: no node has a name or operator that the quantizer was given"
EXCLUDED = "options of the quantizer exclude the name or operator, or list only others"
COMPUTED = "no operand is a constant"
BODY = "the quantizer leaves alone what is in a body of If, Loop or Scan"


def _no(form: str, kind: str) -> str:
    return f"onnxruntime's quantizer has no {form} form of {kind}"


def _image() -> Builder:
    graph = Builder([1, 8, 8, 8])
    value = graph.node("Conv", ["x", graph.weights("w0", 8, 8, 3, 3, dtype=np.float32)], "c0")
    value = graph.node("Conv", [value, graph.weights("w1", 8, 8, 1, 1, dtype=np.float32)], "c1")
    graph.output(
        graph.node(
            "ConvTranspose", [value, graph.weights("w2", 8, 8, 2, 2, dtype=np.float32)], "up"
        )
    )
    return graph


def _layers(kind: str = "Gemm") -> Builder:
    graph, value = Builder([8, 32]), "x"
    for name in ("fc0", "fc1"):
        value = graph.node(
            kind, [value, graph.weights(f"{name}_w", 32, 32, dtype=np.float32)], name
        )
    graph.output(value)
    return graph


def _attention() -> Builder:
    graph = Builder([32, 32])
    q = graph.node("MatMul", ["x", graph.weights("wq", 32, 32, dtype=np.float32)], "q")
    graph.output(graph.node("MatMul", [q, q], "scores"))
    return graph


def _sum() -> Builder:
    graph = Builder([8, 32])
    value = graph.node("MatMul", ["x", graph.weights("w", 32, 32, dtype=np.float32)], "product")
    graph.output(graph.node("Add", [value, value], "sum"))
    return graph


def _recurrent() -> Builder:
    graph = Builder([4, 1, 16])
    operands = [graph.weights(f"{name}", 1, 48, 16, dtype=np.float32) for name in "WR"]
    value = graph.node("GRU", ["x", *operands], "gru", hidden_size=16)
    graph.output(
        graph.node("MatMul", [value, graph.weights("fc_w", 16, 16, dtype=np.float32)], "fc")
    )
    return graph


def _with_body() -> Builder:
    graph = _layers("MatMul")
    helper, flag = onnx.helper, graph.constant("flag", np.array(True))
    result = helper.make_tensor_value_info("t", 1, [8, 32])
    body = helper.make_graph(
        [helper.make_node("MatMul", ["fc1", "fc0_w"], ["t"], "inner")], "b", [], [result]
    )
    graph.output(graph.node("If", [flag], "cond", then_branch=body, else_branch=body))
    return graph


class _Samples(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
    def __init__(self, path: Path) -> None:
        shape = [
            each.dim_value for each in onnx.load(path).graph.input[0].type.tensor_type.shape.dim
        ]
        self._left = iter([{"x": np.ones(shape, np.float32)}])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._left, None)


Quantize = Callable[[Path, Path], Any]


def dynamic(**options: Any) -> Quantize:
    return lambda before, after: quantize_dynamic(before, after, **options)


def static(form: QuantFormat = QuantFormat.QDQ, **options: Any) -> Quantize:
    return lambda before, after: quantize_static(
        before, after, _Samples(before), quant_format=form, **options
    )


def weight_only(before: Path, after: Path) -> None:
    config = DefaultWeightOnlyQuantConfig(block_size=16, quant_format=QuantFormat.QOperator)
    quantizer = MatMulNBitsQuantizer(onnx.load(before), algo_config=config)
    quantizer.process()
    quantizer.model.save_model_to_file(str(after))


CASES: list[tuple[Callable[[], Builder], Quantize, dict[str, tuple[int, str]]]] = [
    (_image, dynamic(), {"up": (1, _no("dynamic", "ConvTranspose"))}),
    (_image, static(QuantFormat.QOperator), {"up": (1, _no("QOperator", "ConvTranspose"))}),
    (_image, static(nodes_to_exclude=["c0"]), {"c0": (1, EXCLUDED)}),
    (_layers, dynamic(nodes_to_quantize=["fc0", "fc1"]), {"fc0_MatMul": (2, NAMES)}),
    (_layers, dynamic(nodes_to_quantize=["fc0_MatMul"]), {"fc1_MatMul": (1, EXCLUDED)}),
    (_sum, static(op_types_to_quantize=["Add"]), {"product": (1, EXCLUDED)}),
    (_attention, dynamic(), {"scores": (1, COMPUTED)}),
    (_recurrent, dynamic(), {"gru": (1, _no("dynamic", "GRU"))}),
    (_with_body, dynamic(), {"cond/then/inner": (1, BODY)}),
    # Healthy ones
    (_image, static(), {}),
    (_layers, dynamic(), {}),
    (_layers, static(QuantFormat.QOperator), {}),
    (lambda: _layers("MatMul"), weight_only, {}),
    (_attention, static(), {}),
    (_attention, weight_only, {}),
    (_attention, dynamic(extra_options={"MatMulConstBOnly": False}), {}),
    (_with_body, dynamic(extra_options={"EnableSubgraph": True}), {}),
    (_layers, lambda before, after: before.rename(after), {}),
]  # fmt: skip


@pytest.mark.parametrize(("build", "quantize", "expected"), CASES)
def test_what_was_left_in_float_is_named_with_its_reason(
    build: Callable[[], Builder],
    quantize: Quantize,
    expected: dict[str, tuple[int, str]],
    tmp_path: Path,
) -> None:
    before, after = build().save(tmp_path / "float.onnx"), tmp_path / "other.onnx"
    quantize(before, after)
    cost = analyze(after)
    found = {each.first: (sum(each.ops.values()), each.reason) for each in cost.left_in_float}
    assert found == expected
    assert cost.left_text.endswith(")") == bool(expected)
    assert sum(each.macs_share for each in cost.left_in_float) <= 1


def test_a_model_that_a_run_has_quantized_is_known_to_be_meant_so(tmp_path: Path) -> None:
    path = _layers().save(tmp_path / "float.onnx")
    assert analyze(path).left_text == ""
    assert analyze(path, quantized=True).left_text.startswith(
        "2 of 2 contractions, 100.0 % of their MACs, stay in float, because nothing was quantized"
    )


def test_an_excluded_layer_that_onnxruntime_quantizes_on_loading_is_named(tmp_path: Path) -> None:
    before, after = _image().save(tmp_path / "float.onnx"), tmp_path / "other.onnx"
    static(nodes_to_exclude=["c1"])(before, after)
    cost = analyze(after)
    [found] = cost.on_loading
    assert (cost.left_in_float, found.first, dict(found.ops)) == ((), "c1", {"Conv": 1})
    assert "WeightBiasQuantization" in cost.left_text
    assert "disabled_optimizers=['WeightBiasQuantization']" in cost.left_text
    [result] = measure_files([str(after)], Options(runs=2, threads=1)).models
    assert [each.node for each in result.findings if each.kind == "undone"] == ["c1"]
    assert [each for each in result.findings if each.kind == "unexpected"] == []
    assert "ran in int8" in result.facts["types"]
