"""Spans, log records and metrics of models at work.

In a program that has providers, :func:`report` is all that is needed: the span belongs to the current
trace. Commands have none; :mod:`otel_quant.recordings.sending.inference` makes them where an endpoint is configured.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry import metrics, trace
from opentelemetry._logs import Logger, SeverityNumber, get_logger_provider
from opentelemetry.context import Context
from opentelemetry.metrics import Meter
from opentelemetry.trace import Span, StatusCode, Tracer

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.export.otel.logs import emit_event
from otel_quant.export.otel.providers import PROVIDERS, Providers
from otel_quant.export.otel.run_name import made_name, model_name
from otel_quant.inference.measurement import (
    MOST_FINDINGS,
    Fault,
    MeasuredModel,
    Measurement,
    TimedOperator,
)
from otel_quant.schema import semconv
from otel_quant.schema.catalog import METRIC_BY_NAME
from otel_quant.version import VERSION

_SPANS: Final = {"inference": semconv.INFERENCE_SPAN, "benchmark": semconv.BENCHMARK_SPAN}


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a measurement belongs to."""

    # The context whose current span is to be the parent; None for the current one
    context: Context | None = None
    # Name of the run; empty for that of the step that it is measured in, else for one of the
    # service and the time of the first measurement
    run: str = ""
    paths: bool = True  # Whether file paths may be told


def report(
    measurement: Measurement,
    belongs: RunContext | None = None,
    providers: Providers | None = None,
) -> None:
    """Tells of models at work what they came to. Never raises."""
    with FAULTS.kept_in("telemetry of an inference"):
        _Report(measurement, belongs or RunContext(), providers or PROVIDERS.current).send()


class _Report:
    def __init__(self, measurement: Measurement, belongs: RunContext, providers: Providers) -> None:
        self._measurement, self._belongs = measurement, belongs
        tracers = providers.tracer or trace.get_tracer_provider()
        loggers = providers.logger or get_logger_provider()
        meters = providers.meter or metrics.get_meter_provider()
        url = semconv.SCHEMA_URL
        self._tracer: Tracer = tracers.get_tracer(semconv.SCOPE, VERSION, schema_url=url)
        self._logger: Logger = loggers.get_logger(semconv.SCOPE, VERSION, schema_url=url)
        self._meter: Meter = meters.get_meter(semconv.SCOPE, VERSION, schema_url=url)
        self._names = names_of(measurement, paths=belongs.paths)
        span: Any = trace.get_current_span(belongs.context)
        above = (getattr(span, "attributes", None) or {}).get(semconv.RUN_NAME)  # of a step
        self._run = {semconv.RUN_NAME: belongs.run or above or _name_of_process()}
        self._library = {
            semconv.LIBRARY_NAME: measurement.library or None,
            semconv.LIBRARY_VERSION: measurement.version or None,
        }

    def send(self) -> None:
        """Sends the span of all, and what there is of each model."""
        measurement = self._measurement
        span = self._span(
            _SPANS[measurement.kind],
            self._belongs.context,
            {
                **self._run,
                **self._library,
                semconv.INFERENCE_MODELS: len(measurement.models),
                semconv.INFERENCE_NOISE: measurement.noise,
            },
        )
        context = trace.set_span_in_context(span, self._belongs.context)
        self._set(semconv.INFERENCE_START, measurement.began_ns / 1e9, self._run, context)
        for name, model in zip(self._names, measurement.models, strict=True):
            self._model(name, model, context)
        span.end(measurement.ended_ns)

    def _model(self, name: str, model: MeasuredModel, above: Context) -> None:
        labels = {
            **self._run,
            semconv.MODEL_NAME: name,
            semconv.MODEL_ROLE: model.role,
        }
        figures = _figures_of(model)
        is_failed = bool(model.problem)
        problem = model.problem if self._belongs.paths and is_failed else None
        span = self._span(
            semconv.MODEL_SPAN,
            above,
            {
                **labels,
                **self._library,
                semconv.INFERENCE_PROVIDER: model.provider,
                semconv.MODEL_PATH: model.path if self._belongs.paths else None,
                semconv.INFERENCE_RUNS: model.runs,
                semconv.INFERENCE_WEIGHTS: model.weights,
                semconv.INFERENCE_KERNEL_TIME: model.kernel_time,
                semconv.INFERENCE_PROBLEM: problem,
                **figures,
            },
        )
        context = trace.set_span_in_context(span, above)
        if is_failed:
            span.set_status(StatusCode.ERROR, problem)
            text = problem or "the model could not be measured"
            self._emit(semconv.INFERENCE_FAILED_EVENT, text, labels, context, SeverityNumber.WARN)
        for operator in model.slowest:
            self._operator(operator, labels, context)
        for fault in (model.findings or ())[:MOST_FINDINGS]:
            self._finding(fault, labels, context)
        keyed = _present({**labels, semconv.INFERENCE_PROVIDER: model.provider})
        for metric, value in figures.items():
            if value is not None:
                self._set(metric, value, keyed, context)
        span.end(self._measurement.ended_ns)

    def _operator(
        self, operator: TimedOperator, labels: Mapping[str, Any], context: Context
    ) -> None:
        self._emit(
            semconv.OPERATOR_EVENT,
            operator.name or operator.operator,
            {
                **labels,
                semconv.INFERENCE_PROVIDER: operator.provider,
                semconv.OPERATOR_TYPE: operator.operator,
                semconv.OPERATOR_NAME: operator.name,
                semconv.OPERATOR_KERNELS: operator.kernels,
                semconv.OPERATOR_DURATION: operator.seconds,
                semconv.OPERATOR_SHARE: operator.share,
                semconv.OPERATOR_TYPES: operator.types or None,
                semconv.OPERATOR_MAC_RATE: operator.macs_per_second,
            },
            context,
        )

    def _finding(self, fault: Fault, labels: Mapping[str, Any], context: Context) -> None:
        self._emit(
            semconv.FINDING_EVENT,
            fault.sentence,
            {
                **labels,
                semconv.FINDING_KIND: fault.kind,
                semconv.FINDING_NODE: fault.node,
                semconv.FINDING_SHARE: fault.share,
            },
            context,
        )

    def _span(self, name: str, above: Context | None, attributes: Mapping[str, Any]) -> Span:
        return self._tracer.start_span(
            name, above, attributes=_present(attributes), start_time=self._measurement.began_ns
        )

    def _emit(
        self,
        event: str,
        text: str,
        attributes: Mapping[str, Any],
        context: Context,
        severity: SeverityNumber = SeverityNumber.INFO,
    ) -> None:
        emit_event(self._logger, event, text, attributes, context, time.time_ns(), severity)

    def _set(self, name: str, value: float, labels: Mapping[str, Any], context: Context) -> None:
        metric = METRIC_BY_NAME[name]
        gauge = self._meter.create_gauge(name, metric.unit, metric.brief)
        gauge.set(value, labels, context)


def names_of(measurement: Measurement, *, paths: bool) -> list[str]:
    """Returns a name for each model, no two alike: metrics are told apart by it."""
    names: list[str] = []
    for number, model in enumerate(measurement.models, 1):
        path = model.path if paths and model.path else ""
        name = model.name or model_name(path) or f"model {number}"
        names.append(f"{name} ({number})" if name in names else name)
    return names


@functools.cache
def _name_of_process() -> str:
    # One name for all: a gauge goes on to send every set of attributes that it has had.
    return made_name(None, time.time_ns())


def _figures_of(model: MeasuredModel) -> dict[str, float | None]:
    """Returns what the gauges of a model show, and its span."""
    return {
        semconv.INFERENCE_MEDIAN: model.median,
        semconv.INFERENCE_P10: model.p10,
        semconv.INFERENCE_P90: model.p90,
        semconv.INFERENCE_MEMORY_PEAK: model.memory_peak,
        semconv.INFERENCE_SPEEDUP: model.speedup,
        semconv.INFERENCE_SQNR: model.sqnr,
        semconv.INFERENCE_FINDINGS: None if model.findings is None else len(model.findings),
        semconv.INFERENCE_CONVERSIONS: model.conversions,
    }


def _present(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}
