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

    QuantInstrumentor().instrument()
    hooked = quantize_dynamic
    QuantInstrumentor().instrument()
    is_hooked_once = quantize_dynamic is hooked

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
    places = (quantize_dynamic, quark.onnx.quantize_dynamic, defining.quantize_dynamic)
    restored = all(place is original for place in places)
    quantize_dynamic(str(models / "matmul.onnx"), str(out / "too_late.onnx"))
    QuantInstrumentor().instrument()
    again = quantize_dynamic is not original

    (out / "report.json").write_text(
        json.dumps(
            {
                "alias replaced": replaced,
                "hooked once": is_hooked_once,
                "pickles": pickles,
                "restored": restored,
                "hooked again": again,
            }
        )
    )


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
