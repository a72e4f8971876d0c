"""What onnxruntime's quantizers, converters and optimizers make of exported networks."""

from __future__ import annotations

from pathlib import Path

import onnx

from tests.integration.cost.exported_models import bert_dynamic, bert_static, cnn
from tests.integration.cost.exporting import Case, samples


def _static(folder: Path, name: str, style: str) -> Case:
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    case = cnn(folder)
    path = folder / f"{name}.onnx"
    quantize_static(
        str(case.path),
        str(path),
        samples(case.feeds),
        quant_format=QuantFormat[style],
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    return Case(path, case.feeds)


def qdq(folder: Path) -> Case:
    return _static(folder, "qdq", "QDQ")


def qoperator(folder: Path) -> Case:
    return _static(folder, "qoperator", "QOperator")


def dynamic_int8(folder: Path) -> Case:
    from onnxruntime.quantization import quantize_dynamic

    case = bert_static(folder)
    path = folder / "dynamic_int8.onnx"
    quantize_dynamic(str(case.path), str(path))
    return Case(path, case.feeds)


def four_bit(folder: Path) -> Case:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    case = bert_static(folder)
    path = folder / "four_bit.onnx"
    quantizer = MatMulNBitsQuantizer(onnx.load(case.path), block_size=16, is_symmetric=False)
    quantizer.process()
    quantizer.model.save_model_to_file(str(path))
    return Case(path, case.feeds)


def half(folder: Path) -> Case:
    """float16, by the converter that appends its input Casts last."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    case = cnn(folder)
    path = folder / "half.onnx"
    onnx.save(convert_float_to_float16(onnx.load(case.path), keep_io_types=True), path)
    return Case(path, case.feeds)


def external(folder: Path) -> Case:
    case = cnn(folder)
    path = folder / "external.onnx"
    onnx.save(
        onnx.load(case.path),
        path,
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    return Case(path, case.feeds)


def fused(folder: Path) -> Case:
    """What onnxruntime makes of a transformer: its own fused operators."""
    import onnxruntime as ort

    case = bert_dynamic(folder)
    path = folder / "fused.onnx"
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 3
    ort.InferenceSession(str(case.path), options, providers=["CPUExecutionProvider"])
    return Case(path, case.feeds, case.given)


def fused_attention(folder: Path) -> Case:
    """What onnxruntime's transformer optimizer makes: Attention, SkipLayerNormalization ..."""
    from onnxruntime.transformers import optimizer

    case = bert_static(folder)
    path = folder / "fused_attention.onnx"
    made = optimizer.optimize_model(
        str(case.path), model_type="bert", num_heads=4, hidden_size=32, opt_level=0
    )
    made.save_model_to_file(str(path))
    return Case(path, case.feeds)
