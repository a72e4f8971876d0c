"""What telemetry needs of variants."""

from __future__ import annotations

from otel_quant.inference.bench.results import BenchResult, VariantResult
from otel_quant.inference.measurement import MeasuredModel, Measurement, Role


def measurement_of_bench(result: BenchResult, began_ns: int, ended_ns: int) -> Measurement:
    """Returns what telemetry needs of a result."""
    baseline_first = sorted(result.variants, key=lambda each: each.name != result.baseline)
    library = next((name for name in ("torch", "onnxruntime") if name in result.settings), "")
    return Measurement(
        "benchmark",
        tuple(map(_model, baseline_first)),
        library,
        result.settings.get(library, ""),
        began_ns,
        ended_ns,
        result.noise,
    )


def _model(variant: VariantResult) -> MeasuredModel:
    call, memory, error = variant.call, variant.memory, variant.error
    is_path = variant.name.endswith(".onnx")  # on the command line: paths may not be told
    name, path = (None, variant.name) if is_path else (variant.name, None)
    if call is None or memory is None:
        return MeasuredModel(name, path, problem=variant.problem)
    return MeasuredModel(
        name,
        path,
        role=_role(variant),
        provider=variant.provider or None,
        median=call.median,
        speedup=call.speedup if call.is_apart else None,
        memory_peak=memory.process if memory.gpu is None else memory.gpu,
        weights=variant.disk,
        sqnr=None if error is None else error.sqnr,
    )


def _role(variant: VariantResult) -> Role | None:
    if variant.is_quantized is None:
        return None
    return "quantized" if variant.is_quantized else "float"
