"""A notebook: Quark is imported long before us, and OpenTelemetry is set up after the first step.

Arguments: folder of the float models, folder for the output. Sends to where
OTEL_EXPORTER_OTLP_ENDPOINT says, over HTTP. Writes what it finds out about itself to report.json.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import pickle
import sys
from pathlib import Path
from typing import Any

import quark.onnx
from opentelemetry import metrics, trace
from opentelemetry._logs import get_logger_provider, set_logger_provider
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from quark.common.profiler import GlobalProfiler
from quark.onnx import quantize_dynamic
from quark.onnx.quantization import quantize as defining

from otel_quant import QuantInstrumentor
from otel_quant.capture.instruments.processes import PROCESSES
from otel_quant.capture.instruments.shared.hooks import libraries

Place = tuple[str, str]


def hooked_attributes() -> dict[Place, Any]:
    """Returns the object at every place that may be hooked, and at every alias of one."""
    found: dict[Place, Any] = {}
    for hook in (hook for library in (*libraries(), PROCESSES) for hook in library.hooks):
        *path, name = hook.target.split(".")
        holder: Any = sys.modules.get(hook.module)
        for part in path:
            holder = getattr(holder, part, None)
        if holder is not None and name in vars(holder):
            found[hook.module, hook.target] = vars(holder)[name]
    known = {id(value) for value in found.values()}
    for module_name, module in list(sys.modules.items()):
        for name, value in list(vars(module).items()) if module is not None else ():
            if id(value) in known:
                found[module_name, name] = value
    return found


def differing(one: dict[Place, Any], other: dict[Place, Any]) -> list[Place]:
    """Returns the places with another object."""
    return sorted(place for place in one if other.get(place) is not one[place])


def set_providers() -> None:
    """Does what an application does that configures OpenTelemetry itself."""
    tracers = TracerProvider()
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(tracers)
    meters = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())])
    metrics.set_meter_provider(meters)
    loggers = LoggerProvider()
    loggers.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
    set_logger_provider(loggers)


def flush() -> None:
    """Sends what there is: a worker of a pool ends without exit handlers."""
    for provider in (trace.get_tracer_provider(), get_logger_provider()):
        provider.force_flush()


def main(models: Path, out: Path) -> None:
    original = quantize_dynamic
    before = hooked_attributes()

    QuantInstrumentor().instrument()
    hooked = hooked_attributes()
    QuantInstrumentor().instrument()
    hooked_twice = hooked_attributes()

    quantize_dynamic(str(models / "matmul.onnx"), str(out / "too_early.onnx"))
    set_providers()
    quantize_dynamic(str(models / "matmul.onnx"), str(out / "alias.onnx"))
    quark.onnx.quantize_dynamic(str(models / "matmul.onnx"), str(out / "package.onnx"))
    with GlobalProfiler().scope("User-Defined", user_msg="Look at it"):
        pass
    with multiprocessing.get_context("fork").Pool(1) as pool:
        pool.starmap(quantize_dynamic, [(str(models / "matmul.onnx"), str(out / "pool.onnx"))])
        pool.apply(flush)  # the pool has one worker
        pool.close()
        pool.join()
    pickles = pickle.loads(pickle.dumps(quantize_dynamic)) is quantize_dynamic
    replaced = quantize_dynamic is not original and quantize_dynamic.__wrapped__ is original

    QuantInstrumentor().uninstrument()
    after = hooked_attributes()
    quantize_dynamic(str(models / "matmul.onnx"), str(out / "too_late.onnx"))
    QuantInstrumentor().instrument()
    again = hooked_attributes()

    (out / "report.json").write_text(
        json.dumps(
            {
                "hooked": differing(before, hooked),
                "by a second instrument()": differing(hooked, hooked_twice),
                "left by uninstrument()": differing(before, after),
                "hooked again": differing(after, again),
                "alias replaced": replaced,
                "pickles": pickles,
                "restored": quantize_dynamic is not original
                and after["__main__", "quantize_dynamic"] is original
                and after[defining.__name__, "quantize_dynamic"] is original,
            }
        )
    )


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
