"""OpenTelemetry instrumentation for model quantization.

A script that runs under ``opentelemetry-instrument`` needs no change. For your own steps there is
a small API::

    import otel_quant

    with otel_quant.step("Model Loading"):
        model = load()

    @otel_quant.step(otel_quant.ProfileStep.MODEL_EVALUATION)
    def evaluate(model): ...

A notebook needs nothing else::

    with otel_quant.run() as run:
        quantize(model)

    run              # a table of its steps
    run.memory_peak  # bytes

Inference of PyTorch models, float beside quantized::

    print(otel_quant.measure_inference({"float": model, "int8": quantized}, inputs))

A quantized ONNX model that is no faster, rewritten so that it is::

    otel_quant.fix("int8.onnx", "fixed.onnx", float_model="float.onnx")

Which layers of a quantized ONNX model to leave in float::

    otel_quant.advise("float.onnx", "int8.onnx", budget="sqnr>=35dB").nodes

A checkpoint that was written, against its configuration::

    assert otel_quant.audit("Llama-3.1-8B-int4").passed

A program that configures OpenTelemetry itself calls
``otel_quant.QuantInstrumentor().instrument()``.
"""

from __future__ import annotations

from otel_quant.version import VERSION

TYPE_CHECKING = False  # not typing's, which takes a third of Python's own start to load
if TYPE_CHECKING:
    from typing import Any

    from otel_quant.auditing.audit import audit
    from otel_quant.auditing.results import Audit
    from otel_quant.capture.scope import step
    from otel_quant.program.advised_model import advise
    from otel_quant.program.fixed_model import fix
    from otel_quant.program.instrumentor import QuantInstrumentor
    from otel_quant.program.measured_inference import MeasuredInference, measure_inference
    from otel_quant.program.measured_run import Run, RunFigures, RunStep, run
    from otel_quant.schema.readings import ProfileStep

__version__ = VERSION

__all__ = [
    "Audit",
    "MeasuredInference",
    "ProfileStep",
    "QuantInstrumentor",
    "Run",
    "RunFigures",
    "RunStep",
    "__version__",
    "advise",
    "audit",
    "fix",
    "measure_inference",
    "run",
    "step",
]

# Imported on first use: the import of this package must be fast, because
# `opentelemetry-instrument` imports it into every Python program.
_MODULES = {
    "Audit": "otel_quant.auditing.results",
    "MeasuredInference": "otel_quant.program.measured_inference",
    "ProfileStep": "otel_quant.schema.readings",
    "QuantInstrumentor": "otel_quant.program.instrumentor",
    "Run": "otel_quant.program.measured_run",
    "RunFigures": "otel_quant.program.measured_run",
    "RunStep": "otel_quant.program.measured_run",
    "advise": "otel_quant.program.advised_model",
    "audit": "otel_quant.auditing.audit",
    "fix": "otel_quant.program.fixed_model",
    "measure_inference": "otel_quant.program.measured_inference",
    "run": "otel_quant.program.measured_run",
    "step": "otel_quant.capture.scope",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(__import__(_MODULES[name], fromlist=[name]), name)
    # No descriptor is free: the next use tries again. Of asyncio, a second import says NameError.
    except (OSError, NameError) as error:
        if name != "step":
            raise
        import sys

        for each in [*sys.modules]:
            if each.partition(".")[0] not in sys.modules:  # left of a package that was cut off
                del sys.modules[each]
        if not _UnrecordedStep.is_told:
            sys.stderr.write(
                f"otel-quant: steps are not recorded: {getattr(error, 'strerror', error)}\n"
            )
        _UnrecordedStep.is_told = True
        return _UnrecordedStep
    globals()[name] = value
    return value


class _UnrecordedStep:
    """A block or function that is not recorded, as :func:`step` makes it where this package cannot be loaded."""

    is_told = False

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, function: Any) -> Any:
        return function

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *_: object) -> None:
        pass
