"""Sends the telemetry of a recording, or of a measured inference, with the exporters that the environment configures."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from opentelemetry import metrics, propagate, trace
from opentelemetry._logs import get_logger_provider
from opentelemetry.context import Context
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk._logs import export as log_exporters
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.trace import NonRecordingSpan

from otel_quant.base.destinations import sends
from otel_quant.base.environment import settings_from
from otel_quant.base.fault_boundary import LastResort
from otel_quant.export.otel.automatic_providers import Providers
from otel_quant.export.otel.sdk_workarounds import objects_within
from otel_quant.export.otel.service_name import made_name, of_this_process
from otel_quant.inference.results import InferenceResult
from otel_quant.inference.telemetry import RunContext, names_of, report
from otel_quant.recordings.model import Recording
from otel_quant.recordings.reader import read
from otel_quant.schema import semconv
from otel_quant.schema.settings import Settings
from otel_quant.sending.identifiers import Identifiers, MadeIds
from otel_quant.sending.replay import Replay, program_span
from otel_quant.sending.sdk_parts import Kept

_BATCH: Final = 512  # Spans or log records of one request, as the SDK sends by default


@dataclass(slots=True)
class Sent:
    """How much has been sent."""

    spans: int = 0
    records: int = 0
    points: int = 0
    profiles: int = 0

    def __str__(self) -> str:
        text = f"{self.spans} spans, {self.records} log records, {self.points} points of metrics"
        return f"{text}, {self.profiles} profiles" if self.profiles else text


def send_recording(
    recording: Recording, warn: Callable[[str], None], *, ending_lines: Sequence[str] = (),
    only_unended: bool = False,
) -> Sent:  # fmt: skip
    """Sends the telemetry of a recording to the configured endpoint; `ending_lines` describe how the program ended."""
    over = (run for run in recording.runs if only_unended or run.state != "running")
    runs = [run for run in over if run.is_unended or not only_unended]
    sent = Sent()
    if not runs and recording.span is None:
        return sent
    endpoint = configured_endpoint()
    if late := endpoint.too_late(recording.began_ns):
        warn(late)
    identifiers = Identifiers(recording)
    requests: list[Any] = []
    try:
        with suppress_instrumentation():  # no spans for the requests
            program = recording.span if only_unended else identifiers.program
            if whole := program_span(recording, program):
                sent.spans += send(endpoint.spans, whole, len(whole))
            for run in runs:
                replay = Replay(run, recording, identifiers, ending_lines)
                replay.play(only_unended=only_unended)
                for batch in _batches(replay.kept.spans):
                    sent.spans += send(endpoint.spans, batch, len(batch))
                for batch in _batches(replay.kept.records):
                    sent.records += send(endpoint.records, batch, len(batch))
                for data, number in replay.meters.all():
                    sent.points += send(endpoint.points, data, number)
                requests += replay.profiles() if endpoint.profiles else ()
            for request in requests:  # last: not every receiver takes profiles
                (of_run,) = request.resource_profiles
                profiles = of_run.scope_profiles[0].profiles
                sent.profiles += send(endpoint.profiles, request, len(profiles))
    except NotSentError as error:
        raise NotSentError(
            f"the endpoint did not take it: {error}; before that {sent} were sent; the recording "
            "is as it was and can be sent again"
        ) from error
    return sent


def _batches(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (items[first : first + _BATCH] for first in range(0, len(items), _BATCH))


_EXPORTERS: Final = (
    SpanExporter,
    MetricExporter,
    # Named LogExporter until 1.39.
    getattr(log_exporters, "LogRecordExporter", None) or log_exporters.LogExporter,
)


class NotSentError(Exception):
    """Something could not be sent. The message names the reason, in one line."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The exporters of each signal; empty for one that is configured not to be sent."""

    spans: tuple[Any, ...]
    records: tuple[Any, ...]
    points: tuple[Any, ...]
    profiles: tuple[Any, ...]

    def too_late(self, began_ns: int) -> str:
        """Returns what the stack of this repository refuses of a run that began then; empty if it takes all."""
        days = (time.time_ns() - began_ns) / _DAY_NS
        if days < TAKEN_DAYS or not (self.points or self.records):
            return ""
        return (
            f"began {days:.0f} days ago: Prometheus and Loki, as collector/backends sets them up, refuse metrics and "
            f"log records that are older than {TAKEN_DAYS} days. Only the alert StackDataLost tells of it"
        )


TAKEN_DAYS: Final = 30
"""Days after which the stores of this repository refuse a point or a log record (collector/backends)."""
_DAY_NS: Final = 86_400 * 10**9


def configured_endpoint() -> Endpoint:
    """Returns the exporters that ``opentelemetry-instrument`` would give to a program."""
    if not sends(os.environ):
        raise NotSentError(
            "no endpoint is set; expected one in OTEL_EXPORTER_OTLP_ENDPOINT, "
            "such as http://localhost:4317, or other settings of OpenTelemetry"
        )
    profiles: tuple[Any, ...] = ()
    with LastResort() as end, _CapturedLog():  # any distribution may be there, and raise anything
        for group, chosen in (
            ("opentelemetry_distro", os.environ.get("OTEL_PYTHON_DISTRO")),
            ("opentelemetry_configurator", os.environ.get("OTEL_PYTHON_CONFIGURATOR")),
        ):
            for point in entry_points(group=group):
                if chosen in (None, point.name):
                    point.load()().configure()
                    break
        if settings_from(os.environ).profiles:
            from otel_quant.export.otel.profiles import exporter  # only for those who ask

            profiles = (exporter(),)
    if end.error is not None:
        raise NotSentError(f"the settings of OpenTelemetry cannot be used: {end.error}")
    providers = trace.get_tracer_provider(), get_logger_provider(), metrics.get_meter_provider()
    spans, records, points = (
        tuple(item for item in list(objects_within([each])) if isinstance(item, _EXPORTERS))
        for each in providers
    )
    found = Endpoint(spans, records, points, profiles)
    if not (spans or records or points or profiles):
        raise NotSentError(
            "the settings of OpenTelemetry name no exporter: expected otlp in "
            "OTEL_TRACES_EXPORTER, OTEL_LOGS_EXPORTER or OTEL_METRICS_EXPORTER, or none of them set"
        )
    return found


def send(exporters: Sequence[Any], batch: Any, number: int = 1) -> int:
    """Sends a number of items to each exporter; returns the number, 0 where there is none."""
    for exporter in exporters:
        reason, failed = type(exporter).__name__, True
        with _CapturedLog() as log:
            try:
                result = exporter.export(batch)
                failed = result is False or getattr(result, "name", "") == "FAILURE"
            except OSError as error:  # in 1.38 those over HTTP raise it if nothing listens
                reason = str(error)
        if failed:
            reason = log.last or reason
            address = getattr(exporter, "_endpoint", "")  # the exporters over gRPC log it
            raise NotSentError(reason if address in reason else f"{address}: {reason}")
    return number if exporters else 0


class _CapturedLog(logging.Handler):
    """Captures what exporters log; `last` is the latest message."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""
        self._log = logging.getLogger("opentelemetry")

    def emit(self, record: logging.LogRecord) -> None:
        self.last = " ".join(record.getMessage().split())

    def __enter__(self) -> _CapturedLog:
        self._propagated, self._log.propagate = self._log.propagate, False
        self._log.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._log.removeHandler(self)
        self._log.propagate = self._propagated


# --- inference ----------------------------------------------------------------------------

_SERVICE: Final = "otel-quant"
_TIMEOUT: Final = "OTEL_EXPORTER_OTLP_TIMEOUT"  # Seconds that an exporter goes on trying


def send_inference(result: InferenceResult, recording: Path | None, settings: Settings) -> None:
    """Sends all three signals, below the span in ``TRACEPARENT``, else below the run of the recording."""
    os.environ.setdefault(_TIMEOUT, f"{max(1, round(settings.exit_timeout))}")
    endpoint = configured_endpoint()
    resource = getattr(trace.get_tracer_provider(), "resource", None) or Resource.create()
    if str(resource.attributes.get("service.name")).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": _SERVICE}))
    resource = of_this_process(resource)
    service = str(resource.attributes["service.name"])
    belongs = _belonging(result, recording, settings, service)

    ids = MadeIds(f"{result.began_ns} {result.ended_ns}")  # a part may have arrived before
    kept, points = Kept(resource, id_generator=ids), InMemoryMetricReader()
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
