"""Sends the telemetry of a recording with the exporters that the environment configures."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Final

from opentelemetry import metrics, trace
from opentelemetry._logs import get_logger_provider
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk._logs import export as log_exporters
from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.trace.export import SpanExporter

from otel_quant.base.environment import settings_from
from otel_quant.base.fault_boundary import LastResort
from otel_quant.export.otel.default_exporters import defaults_in
from otel_quant.export.otel.sdk_workarounds import objects_within
from otel_quant.recordings.model import RecordedRun, Recording
from otel_quant.recordings.sending.replay import Identifiers, Replay, program_span

_BATCH: Final = 512
"""Spans or log records of one request, as the SDK sends by default."""


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
    recording: Recording, *, ending_lines: Sequence[str] = (), only_unended: bool = False
) -> Sent:
    """Sends the telemetry of a recording to the endpoint that the environment configures.

    `ending_lines` describe how the program ended, the most important first.
    """
    runs = unended(recording) if only_unended else [
        run for run in recording.runs if run.state != "running"
    ]  # fmt: skip
    sent = Sent()
    if not runs and recording.span is None:
        return sent
    endpoint = configured_endpoint()
    identifiers = Identifiers(recording)
    requests: list[Any] = []
    try:
        with suppress_instrumentation():  # no spans for the requests
            if whole := program_span(recording):
                send(endpoint.spans, whole)
                sent.spans += len(whole) if endpoint.spans else 0
            for run in runs:
                replay = Replay(run, recording, identifiers, ending_lines)
                replay.play(only_unended=only_unended)
                for batch in _batches(replay.kept.spans):
                    send(endpoint.spans, batch)
                    sent.spans += len(batch) if endpoint.spans else 0
                for batch in _batches(replay.kept.records):
                    send(endpoint.records, batch)
                    sent.records += len(batch) if endpoint.records else 0
                for data, number in replay.meters.all():
                    send(endpoint.points, data)
                    sent.points += number if endpoint.points else 0
                requests += replay.profiles() if endpoint.profiles else ()
            for request in requests:  # last: not every receiver takes profiles
                send(endpoint.profiles, request)
                (of_run,) = request.resource_profiles
                sent.profiles += len(of_run.scope_profiles[0].profiles)
    except NotSentError as error:
        raise NotSentError(
            f"the endpoint did not take it: {error}; before that {sent} were sent; the recording "
            "is as it was and can be sent again"
        ) from error
    return sent


def unended(recording: Recording) -> list[RecordedRun]:
    """Returns the runs of an SDK whose spans have not ended and never will."""
    return [
        run
        for run in recording.runs
        if run.end is None and run.state != "running" and run.span_id is not None
    ]


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


def configured_endpoint() -> Endpoint:
    """Returns the exporters that ``opentelemetry-instrument`` would give to a program."""
    # A protocol sets how to send, not where.
    where = {name: each for name, each in os.environ.items() if not name.endswith("_PROTOCOL")}
    if defaults_in(where, where) is not None:
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
            from otel_quant.export.otel.profile_exporters import exporter  # only for those who ask

            profiles = (exporter(),)
    if end.error is not None:
        raise NotSentError(f"the settings of OpenTelemetry cannot be used: {end.error}")
    providers = trace.get_tracer_provider(), get_logger_provider(), metrics.get_meter_provider()
    spans, records, points = (tuple(_exporters(provider)) for provider in providers)
    found = Endpoint(spans, records, points, profiles)
    if not (spans or records or points or profiles):
        raise NotSentError(
            "the settings of OpenTelemetry name no exporter: expected otlp in "
            "OTEL_TRACES_EXPORTER, OTEL_LOGS_EXPORTER or OTEL_METRICS_EXPORTER, or none of them set"
        )
    return found


def _exporters(provider: Any) -> Iterable[Any]:
    return (item for item in list(objects_within([provider])) if isinstance(item, _EXPORTERS))


def send(exporters: Iterable[Any], batch: Any) -> None:
    """Sends a batch to each exporter."""
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
