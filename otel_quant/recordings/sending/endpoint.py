"""Where telemetry goes: the exporters that the environment configures."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Final

from opentelemetry import metrics, trace
from opentelemetry._logs import get_logger_provider
from opentelemetry.sdk._logs import export as log_exporters
from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.trace.export import SpanExporter

from otel_quant.base.fault_boundary import LastResort
from otel_quant.export.otel.default_exporters import defaults_in
from otel_quant.export.otel.sdk_workarounds import objects_within

_EXPORTERS: Final = (
    SpanExporter,
    MetricExporter,
    # Named LogExporter until 1.39.
    getattr(log_exporters, "LogRecordExporter", None) or log_exporters.LogExporter,
)


class NotSentError(Exception):
    """Something could not be sent. The message says why, in one line."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The exporters of each signal; empty for one that is configured not to be sent."""

    spans: tuple[Any, ...]
    records: tuple[Any, ...]
    points: tuple[Any, ...]


def configured_endpoint() -> Endpoint:
    """Returns the exporters that ``opentelemetry-instrument`` would give to a program."""
    if defaults_in(os.environ, os.environ) is not None:
        raise NotSentError(
            "no endpoint is set; expected one in OTEL_EXPORTER_OTLP_ENDPOINT, "
            "such as http://localhost:4317, or other settings of OpenTelemetry"
        )
    with LastResort() as end, _CapturedLog():  # any distribution may be there, and raise anything
        for group, chosen in (
            ("opentelemetry_distro", os.environ.get("OTEL_PYTHON_DISTRO")),
            ("opentelemetry_configurator", os.environ.get("OTEL_PYTHON_CONFIGURATOR")),
        ):
            for point in entry_points(group=group):
                if chosen in (None, point.name):
                    point.load()().configure()
                    break
    if end.error is not None:
        raise NotSentError(f"the settings of OpenTelemetry cannot be used: {end.error}")
    providers = trace.get_tracer_provider(), get_logger_provider(), metrics.get_meter_provider()
    found = Endpoint(*(tuple(_exporters(provider)) for provider in providers))
    if not (found.spans or found.records or found.points):
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
        with _CapturedLog() as said:
            try:
                failed = getattr(exporter.export(batch), "name", "") == "FAILURE"
            except OSError as error:  # in 1.38 those over HTTP raise it if nothing listens
                reason = str(error)
        if failed:
            raise NotSentError(said.last or reason)


class Kept:
    """An exporter that keeps what it gets."""

    def __init__(self, made: list[Any]) -> None:
        self._made = made

    def export(self, batch: Iterable[Any]) -> None:
        """Keeps a batch."""
        self._made.extend(batch)

    def shutdown(self) -> None:
        """Nothing is open."""


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
