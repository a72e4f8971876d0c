"""Spans, log records and metrics of inference, given to the configured exporters."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import NonRecordingSpan

from otel_quant.export.otel.automatic_providers import Providers
from otel_quant.export.otel.inference import RunContext, names_of, report
from otel_quant.export.otel.service_name import made_name, of_this_process
from otel_quant.inference.results import InferenceResult
from otel_quant.recordings.reader import read
from otel_quant.recordings.sending.replay import Identifiers, Kept
from otel_quant.recordings.sending.send import configured_endpoint, send
from otel_quant.schema import semconv
from otel_quant.schema.settings import Settings

_SERVICE: Final = "otel-quant"
_TIMEOUT: Final = "OTEL_EXPORTER_OTLP_TIMEOUT"
"""Seconds that an exporter goes on trying."""


def send_inference(result: InferenceResult, recording: Path | None, settings: Settings) -> None:
    """Sends all three signals, for ``OTEL_QUANT_EXIT_TIMEOUT`` at most; NotSentError if it cannot.

    The parent of the span is the span in ``TRACEPARENT``, else the run of the recording.
    """
    os.environ.setdefault(_TIMEOUT, f"{max(1, round(settings.exit_timeout))}")
    endpoint = configured_endpoint()
    resource = getattr(trace.get_tracer_provider(), "resource", None) or Resource.create()
    if str(resource.attributes.get("service.name")).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": _SERVICE}))
    resource = of_this_process(resource)
    service = str(resource.attributes["service.name"])
    belongs = _belonging(result, recording, settings, service)

    kept, points = Kept(resource), InMemoryMetricReader()
    meters = MeterProvider([points], resource, shutdown_on_exit=False)
    providers = Providers(kept.tracers, meters, kept.loggers)
    report(result, result.began_ns, result.ended_ns, belongs, providers)
    with suppress_instrumentation():  # no spans for the requests
        if kept.spans:  # none of a trace that is sampled out
            send(endpoint.spans, kept.spans)
        send(endpoint.records, kept.records)
        send(endpoint.points, points.get_metrics_data())


def _belonging(
    result: InferenceResult, recording: Path | None, settings: Settings, service: str
) -> RunContext:
    headers = {
        name: os.environ.get(name.upper()) for name in ("traceparent", "tracestate", "baggage")
    }
    context = propagate.extract({name: text for name, text in headers.items() if text}, Context())
    name = settings.run_name
    recorded = None if recording is None else read(recording, in_brief=True)
    if recorded is not None and recorded.runs:
        run = recorded.runs[0]
        name = name or str(run.attributes.get(semconv.RUN_NAME, ""))
        if not trace.get_current_span(context).get_span_context().is_valid:
            above = NonRecordingSpan(Identifiers(recorded).of_run(run))
            context = trace.set_span_in_context(above, context)
    if not name:
        first = names_of(result, paths=settings.paths)[0] if settings.paths else None
        name = made_name(first, result.began_ns, service)
    return RunContext(context, name, settings.paths)
