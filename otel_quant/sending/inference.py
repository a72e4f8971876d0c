"""Sends what a command has measured of models at work, where the environment says where to."""

from __future__ import annotations

import logging
import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_quant.environment import environment_at_start, settings_from
from otel_quant.fault_boundary import FAULTS
from otel_quant.telemetry.default_exporters import defaults_in

if TYPE_CHECKING:
    from otel_quant.inference.measurement import Measurement

_log = logging.getLogger("otel_quant")

_SERVICE: Final = "otel-quant"
_TIMEOUT: Final = "OTEL_EXPORTER_OTLP_TIMEOUT"


def send_inference(measurement: Measurement, recording: Path | None = None) -> None:
    """Sends spans, log records and metrics of models at work; the last thing that a command does.

    Nothing is loaded or sent where no endpoint and no exporter is configured. An endpoint that is away
    is told of in one line of the log, after ``OTEL_QUANT_EXIT_TIMEOUT`` at most, and nothing is raised.
    The parent of the span is what ``TRACEPARENT`` says, else the run of the recording.

    Args:
        measurement: The models.
        recording: The recording that the command adds its result to; None without one.
    """
    settings = settings_from(os.environ, warn=False)
    if (
        settings.sdk_disabled
        or defaults_in(os.environ, environment_at_start(os.environ)) is not None
    ):
        return
    if not all(map(find_spec, ("opentelemetry.sdk", "opentelemetry.distro"))):
        _log.warning(
            "an endpoint is configured and nothing was sent: that needs OpenTelemetry's SDK and an "
            "exporter: pip install 'otel-quant[otlp]'"
        )
        return
    os.environ.setdefault(_TIMEOUT, f"{max(1, round(settings.exit_timeout))}")
    with FAULTS.kept_in("sending of an inference"):
        _send(measurement, recording, settings.run_name, settings.paths)


def _send(measurement: Measurement, recording: Path | None, name: str, paths: bool) -> None:
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.instrumentation.utils import suppress_instrumentation
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    from otel_quant.sending.endpoint import NotSentError, configured_endpoint, send
    from otel_quant.sending.records import Kept
    from otel_quant.telemetry.inference import Belongs, names_of, report
    from otel_quant.telemetry.providers import Providers
    from otel_quant.telemetry.run_name import made_name

    headers = ("traceparent", "tracestate", "baggage")
    carrier = {each: os.environ[each.upper()] for each in headers if os.environ.get(each.upper())}
    context = propagate.extract(carrier, Context())
    if recording is not None:
        of_recording, known = _run_of(recording)
        name = name or known
        if not trace.get_current_span(context).get_span_context().is_valid:
            context = of_recording
    try:
        endpoint = configured_endpoint()
        resource = getattr(trace.get_tracer_provider(), "resource", None) or Resource.create()
        if str(resource.attributes.get("service.name")).startswith("unknown_service"):
            resource = resource.merge(Resource({"service.name": _SERVICE}))
        if not name:
            first = names_of(measurement, paths=paths)[0] if paths else None
            service = str(resource.attributes["service.name"])
            name = made_name(first, measurement.began_ns, service)
        spans: list[Any] = []
        records: list[Any] = []
        kept_spans: Any = Kept(spans)
        kept_records: Any = Kept(records)
        points = InMemoryMetricReader()
        tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        tracers.add_span_processor(SimpleSpanProcessor(kept_spans))
        loggers = LoggerProvider(resource, shutdown_on_exit=False)
        loggers.add_log_record_processor(SimpleLogRecordProcessor(kept_records))
        meters = MeterProvider([points], resource, shutdown_on_exit=False)
        report(measurement, Belongs(context, name, paths), Providers(tracers, meters, loggers))
        with suppress_instrumentation():
            send(endpoint.spans, spans)
            send(endpoint.records, records)
            send(endpoint.points, points.get_metrics_data())
    except NotSentError as error:
        _log.warning("the telemetry of the inference was not sent: %s", error)


def _run_of(folder: Path) -> tuple[Any, str]:
    """Returns the context of the first run of a recording, and its name; empty without one."""
    from opentelemetry.context import Context
    from opentelemetry.trace import NonRecordingSpan, set_span_in_context

    from otel_quant.recordings.reader import read
    from otel_quant.sending.identifiers import Identifiers
    from otel_quant.telemetry import semconv

    recording = read(folder, in_brief=True)
    if not recording.runs:
        return Context(), ""
    run = recording.runs[0]
    span = NonRecordingSpan(Identifiers(recording).of_run(run))
    return set_span_in_context(span, Context()), str(run.attributes.get(semconv.RUN_NAME, ""))
