"""Spans, log records and metrics of inference.

In a program that has providers, :func:`report` is all that is needed: the span belongs to the current
trace. Commands have none; :mod:`otel_quant.sending.send` makes them where an endpoint is configured.
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
from otel_quant.export.otel.automatic_providers import PROVIDERS, Providers
from otel_quant.export.otel.logs import emit_event
from otel_quant.export.otel.service_name import made_name, model_name
from otel_quant.inference.results import InferenceResult, ModelResult, RanKernel
from otel_quant.schema import semconv
from otel_quant.schema.catalog import METRIC_BY_NAME
from otel_quant.schema.events import present
from otel_quant.version import VERSION

MOST_OPERATORS: Final = 10  # Operators, and kernels, of a model that are sent: the slowest
MOST_FINDINGS: Final = 20  # Findings of a model that are sent: the ones that take most time


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a measurement belongs to."""

    # The context whose current span is to be the parent; None for the current one
    context: Context | None = None
    # Name of the run; empty for the run of the step that it is measured in; without one the name is
    # made of the service and the time of the first measurement
    run: str = ""
    paths: bool = True  # Whether file paths may be sent


def report(
    result: InferenceResult, began_ns: int, ended_ns: int, belongs: RunContext | None = None,
    providers: Providers | None = None,
) -> None:  # fmt: skip
    """Sends what was measured of each model, the baseline first. Never raises."""
    with FAULTS.kept_in("telemetry of an inference"):
        report = _Report(result, began_ns, belongs or RunContext(), providers or PROVIDERS.current)
        report.send(ended_ns)


class _Report:
    def __init__(
        self, result: InferenceResult, began_ns: int, belongs: RunContext, providers: Providers
    ) -> None:
        self._result, self._began_ns, self._belongs = result, began_ns, belongs
        tracers = providers.tracer or trace.get_tracer_provider()
        loggers = providers.logger or get_logger_provider()
        meters = providers.meter or metrics.get_meter_provider()
        url = semconv.SCHEMA_URL
        self._tracer: Tracer = tracers.get_tracer(semconv.SCOPE, VERSION, schema_url=url)
        self._logger: Logger = loggers.get_logger(semconv.SCOPE, VERSION, schema_url=url)
        self._meter: Meter = meters.get_meter(semconv.SCOPE, VERSION, schema_url=url)
        span: Any = trace.get_current_span(belongs.context)
        above = (getattr(span, "attributes", None) or {}).get(semconv.RUN_NAME)  # of a step
        self._run = {semconv.RUN_NAME: belongs.run or above or _name_of_process()}
        self._library = {
            semconv.LIBRARY_NAME: result.runtime or None,
            semconv.LIBRARY_VERSION: result.version or None,
        }

    def send(self, ended_ns: int) -> None:
        """Sends the span of all, and what there is of each model."""
        result = self._result
        name = semconv.BENCHMARK_SPAN if result.baseline else semconv.INFERENCE_SPAN
        counts = {
            semconv.INFERENCE_MODELS: len(result.models),
            semconv.INFERENCE_NOISE: result.noise,
        }
        attributes = {**self._run, **self._library, **counts}
        span, context = self._span(name, self._belongs.context, attributes)
        self._set(semconv.INFERENCE_START, self._began_ns / 1e9, self._run, context)
        names = names_of(result, paths=self._belongs.paths)
        for name, model in zip(names, _baseline_first(result), strict=True):
            self._model(name, model, context).end(ended_ns)
        span.end(ended_ns)

    def _model(self, name: str, model: ModelResult, above: Context) -> Span:
        """Sends a model's span, log records of what ran and was found, and metrics; the span is still open."""
        labels = {**self._run, semconv.MODEL_NAME: name, semconv.MODEL_ROLE: model.role}
        provider = {semconv.INFERENCE_PROVIDER: model.main_provider}
        paths = self._belongs.paths
        problem = model.problem if paths and model.problem else None
        attributes = {
            **{name: getattr(getattr(model, part), of, None) for name, part, of in _FIELDS},
            semconv.MODEL_PATH: model.path if paths and _is_file(model, self._result) else None,
            semconv.INFERENCE_KERNEL_TIME: model.ran and model.ran.kernel_micros / 1e6,
            semconv.INFERENCE_PROBLEM: problem,
            semconv.INFERENCE_FINDINGS: None if model.ran is None else len(model.findings),
            semconv.INFERENCE_CONVERSIONS: model.converting,
        }
        shown = {**labels, **self._library, **provider, **attributes}
        span, context = self._span(semconv.MODEL_SPAN, above, shown)
        if model.problem:
            span.set_status(StatusCode.ERROR, problem)
            text = problem or "the model could not be measured"
            self._emit(semconv.INFERENCE_FAILED_EVENT, text, labels, context, SeverityNumber.WARN)
        if model.ran is not None:
            for operator in model.ran.operators[:MOST_OPERATORS]:
                self._timed(operator, None, labels, context)
            for kernel in model.ran.kernels[:MOST_OPERATORS]:
                self._timed(kernel, kernel.node or kernel.name, labels, context)
        for finding in model.findings[:MOST_FINDINGS]:
            told = {
                **labels,
                semconv.FINDING_KIND: finding.kind,
                semconv.FINDING_NODE: finding.node,
                semconv.FINDING_SHARE: finding.share,
            }
            self._emit(semconv.FINDING_EVENT, finding.sentence, told, context)
        keyed = present({**labels, **provider})
        for metric in filter(METRIC_BY_NAME.__contains__, present(attributes)):
            self._set(metric, attributes[metric], keyed, context)
        return span

    def _timed(
        self, timed: RanKernel, name: str | None, labels: Mapping[str, Any], context: Context
    ) -> None:
        """Sends a kernel, or without a name all kernels of an operator as one."""
        told = {
            **labels, semconv.INFERENCE_PROVIDER: timed.provider,
            semconv.OPERATOR_TYPE: timed.op_type, semconv.OPERATOR_NAME: name,
            semconv.OPERATOR_KERNELS: 1 if name else round(timed.calls),
            semconv.OPERATOR_TYPES: timed.types or None,
            semconv.OPERATOR_DURATION: timed.micros / 1e6, semconv.OPERATOR_SHARE: timed.share,
            semconv.OPERATOR_MAC_RATE: timed.macs_per_second,
        }  # fmt: skip
        self._emit(semconv.OPERATOR_EVENT, name or timed.op_type, told, context)

    def _span(
        self, name: str, above: Context | None, attributes: Mapping[str, Any]
    ) -> tuple[Span, Context]:
        given, began_ns = present(attributes), self._began_ns
        span = self._tracer.start_span(name, above, attributes=given, start_time=began_ns)
        return span, trace.set_span_in_context(span, above)

    def _emit(
        self, event: str, text: str, attributes: Mapping[str, Any], context: Context,
        severity: SeverityNumber = SeverityNumber.INFO,
    ) -> None:  # fmt: skip
        known = present(attributes)
        emit_event(self._logger, event, text, known, context, time.time_ns(), severity)

    def _set(self, name: str, value: Any, labels: Mapping[str, Any], context: Context) -> None:
        metric = METRIC_BY_NAME[name]
        gauge = self._meter.create_gauge(name, metric.unit, metric.brief)
        gauge.set(value, labels, context)


def names_of(result: InferenceResult, *, paths: bool) -> list[str]:
    """Returns a name for each model, no two alike: metrics are told apart by it."""
    names: list[str] = []
    for number, model in enumerate(_baseline_first(result), 1):
        is_file = _is_file(model, result)
        told = model_name(model.path if paths else "") if is_file else model.path
        name = told or f"model {number}"
        names.append(f"{name} ({number})" if name in names else name)
    return names


def _baseline_first(result: InferenceResult) -> list[ModelResult]:
    base = result.baseline
    return sorted(result.models, key=lambda it: bool(base) and it.path != base)


def _is_file(model: ModelResult, result: InferenceResult) -> bool:
    """Whether a model is known by its path, which may not be told everywhere."""
    return model.path.endswith(".onnx") if result.baseline else result.runtime != "torch"


@functools.cache
def _name_of_process() -> str:
    # One name for all: a gauge goes on to send every set of attributes that it has had.
    return made_name(None, time.time_ns())


_FIELDS: Final = (
    (semconv.INFERENCE_RUNS, "latency", "runs"),
    (semconv.INFERENCE_WEIGHTS, "memory", "weights"),
    (semconv.INFERENCE_MEDIAN, "latency", "median"),
    (semconv.INFERENCE_P10, "latency", "p10"),
    (semconv.INFERENCE_P90, "latency", "p90"),
    (semconv.INFERENCE_MEMORY_PEAK, "memory", "highest"),
    (semconv.INFERENCE_GPU_ENERGY, "latency", "gpu_energy"),
    (semconv.INFERENCE_CPU_ENERGY, "latency", "cpu_energy"),
    (semconv.INFERENCE_SPEEDUP, "latency", "clear_speedup"),
    (semconv.INFERENCE_SQNR, "accuracy", "lowest_sqnr"),
)
"""Attributes of a model's span: which part of its result has it, if it was measured, and the field there.
Those that are metrics too are sent as gauges."""
