"""What onnxruntime's quantizers, converters and optimizers make of exported networks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import onnx

from tests.integration.cost.exporting import Case, samples
from tests.integration.cost.family.exported_models import EXPORTED


def static(case: Case, to: Path, style: str) -> None:
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    quantize_static(
        case.path, to, samples(case.feeds), quant_format=QuantFormat[style],
        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
    )  # fmt: skip


def dynamic_int8(case: Case, to: Path) -> None:
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(case.path, to)


def four_bit(case: Case, to: Path) -> None:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(onnx.load(case.path), block_size=16, is_symmetric=False)
    quantizer.process()
    quantizer.model.save_model_to_file(str(to))


def half(case: Case, to: Path) -> None:
    """float16, by the converter that appends its input Casts last."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(onnx.load(case.path), keep_io_types=True), to)


def external(case: Case, to: Path) -> None:
    stored = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
    onnx.save(onnx.load(case.path), to, **stored)


def fused(case: Case, to: Path) -> None:
    """What onnxruntime makes of a transformer: its own fused operators."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(to)
    options.log_severity_level = 3
    ort.InferenceSession(str(case.path), options, providers=["CPUExecutionProvider"])


def fused_attention(case: Case, to: Path) -> None:
    """What onnxruntime's transformer optimizer makes: Attention, SkipLayerNormalization ..."""
    from onnxruntime.transformers import optimizer

    made = optimizer.optimize_model(
        str(case.path), model_type="bert", num_heads=4, hidden_size=32, opt_level=0
    )
    made.save_model_to_file(str(to))


def converted(folder: Path, source: str, convert: Callable[[Case, Path], None]) -> Case:
    case = EXPORTED[source](folder)
    convert(case, folder / "converted.onnx")
    return Case(folder / "converted.onnx", case.feeds, case.given)


CONVERTED: Final = {
    name: partial(converted, source=source, convert=convert)
    for name, source, convert in (
        ("qdq", "cnn", partial(static, style="QDQ")),
        ("qoperator", "cnn", partial(static, style="QOperator")),
        ("dynamic_int8", "bert_static", dynamic_int8),
        ("four_bit", "bert_static", four_bit),
        ("half", "cnn", half),
        ("external", "cnn", external),
        ("fused", "bert_dynamic", fused),
        ("fused_attention", "bert_static", fused_attention),
    )
}
