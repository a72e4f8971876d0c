"""Points of metrics of what was recorded: what ended steps used, their samples, and models.

A histogram has a point at the end of each step, with the sum of the steps up to it. What is observed
while a run goes on (memory in use, progress, forecasts) is not here: a recording has no such points;
but its start, end and peak are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.trace import SpanContext

from otel_quant.export.otel.run_name import model_name
from otel_quant.recordings.model import RecordedRun, RecordedStep, Recording
from otel_quant.recordings.sending.identifiers import Identifiers
from otel_quant.recordings.sending.source import SCOPE, resource_of
from otel_quant.schema import semconv
from otel_quant.schema.catalog import METRIC_BY_NAME
from otel_quant.schema.figures import RESOURCES
from otel_quant.schema.step_names import ALL_STEPS

_MOST: Final = 1000
"""Points of one request: a receiver takes 4 MiB by default."""

_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE

_FIGURES: Final = tuple(
    (figure.attribute(series.part), series)
    for resource in RESOURCES
    for figure in resource.figures
    for series in figure.steps
)
"""The attribute of a step's span that each metric of steps shows."""

_DATA: Final[Mapping[str, Callable[[list[Any]], Any]]] = {
    "histogram": lambda points: Histogram(points, _CUMULATIVE),
    "counter": lambda points: Sum(points, _CUMULATIVE, True),
    "gauge": Gauge,
    "observable_gauge": Gauge,
}
"""What the points of each kind of instrument are put in."""

_MODEL_GAUGES: Final = (
    semconv.MODEL_SIZE, semconv.MODEL_PARAMS, semconv.MODEL_MACS_CONTRACTION,
)  # fmt: skip

_OF_START: Final = (semconv.CALIBRATION_METHOD, semconv.CONFIG_NAME)
"""Attributes of the step that begins a run that the point of its start has too."""


class Points:
    """The points of one run."""

    def __init__(self, run: RecordedRun, recording: Recording, identifiers: Identifiers) -> None:
        self._run, self._ids = run, identifiers
        self._began_ns = recording.began_ns
        self._start_ns = self._ns(run.start)
        self._resource = resource_of(run)
        self._latest: dict[tuple[str, frozenset[tuple[str, str]]], Any] = {}
        self._found: dict[str, list[Any]] = {}
        for time, step in sorted(
            ((step.end or _latest_sample(step), step) for step in run.steps),
            key=lambda each: each[0],
        ):
            self._add_step(step, self._ns(time))
        for model in run.models:
            self._add_model(model)
        self._add_times()

    def all(self) -> Iterator[tuple[MetricsData, int]]:
        """Yields the points as exporters take them, with their number: some of a metric at once."""
        for name, points in self._found.items():
            metric = METRIC_BY_NAME[name]
            for first in range(0, len(points), _MOST):
                some = points[first : first + _MOST]
                data = _DATA[metric.instrument](some)
                shown = Metric(name, metric.brief, metric.unit, data)
                scope = ScopeMetrics(SCOPE, [shown], semconv.SCHEMA_URL)
                yield MetricsData([ResourceMetrics(self._resource, [scope], "")]), len(some)

    def _add_step(self, step: RecordedStep, time_ns: int) -> None:
        labels = {semconv.STEP_KIND: step.kind}
        if step.name in ALL_STEPS:
            labels[semconv.STEP_NAME] = step.name
        library = step.attributes.get(semconv.LIBRARY_NAME)
        if library is not None:
            labels[semconv.LIBRARY_NAME] = str(library)
        if step.samples:
            self._add(semconv.CALIBRATION_SAMPLES, step.samples, labels, time_ns)
        if step.end is None:
            return
        if step.error is not None:
            labels = {**labels, semconv.ERROR_TYPE: step.error}
        ids = self._ids.of_step(self._run, step)
        self._add(semconv.STEP_DURATION, round(step.end - step.start, 9), labels, time_ns, ids)
        for attribute, series in _FIGURES:
            value = step.attributes.get(attribute)
            if isinstance(value, int | float):
                self._add(series.metric.name, value, {**labels, **series.labels}, time_ns, ids)

    def _add_model(self, model: Mapping[str, Any]) -> None:
        for name in _MODEL_GAUGES:
            value = model.get("figures", {}).get(name.rpartition(".")[2])
            if isinstance(value, int) and "ended" in model:
                labels = {semconv.MODEL_ROLE: str(model.get("role"))}
                point = NumberDataPoint(labels, 0, model["ended"], value)
                self._found.setdefault(name, []).append(point)

    def _add_times(self) -> None:
        """Adds when the run began and ended, by which dashboards list runs, and its peak."""
        run, known = self._run, self._run.attributes
        if semconv.RUN_NAME not in known:
            return
        name = {semconv.RUN_NAME: known[semconv.RUN_NAME]}
        first = run.steps[0].attributes if run.steps else {}
        model = first.get(semconv.INPUT_PATH)
        trace = f"{self._ids.of_run(run).trace_id:032x}"
        ended = None if run.end is None else self._ns(run.end)
        time_ns = ended or self._ns(max((step.start for step in run.steps), default=run.start))
        told: tuple[tuple[str, Any, dict[str, Any]], ...] = (
            (
                semconv.RUN_START,
                self._start_ns / 1e9,
                {
                    **name,
                    semconv.RUN_RANK: run.rank,
                    semconv.PROCESS_PID: run.pid,
                    semconv.RUN_TRACE_ID: trace,
                    semconv.INPUT_NAME: model_name(model) if isinstance(model, str) else None,
                    **{key: first.get(key) for key in _OF_START},
                },
            ),
            (semconv.RUN_MEMORY_PEAK, known.get(semconv.MEMORY_PEAK), name),
            (semconv.RUN_END, None if ended is None else ended / 1e9, name),
        )
        for metric, value, labels in told:
            if value is not None:
                present = {key: each for key, each in labels.items() if each is not None}
                point = NumberDataPoint(present, 0, time_ns, value)
                self._found.setdefault(metric, []).append(point)

    def _add(
        self,
        name: str,
        value: float,
        labels: Mapping[str, str],
        time_ns: int,
        ids: SpanContext | None = None,
    ) -> None:
        key = name, frozenset(labels.items())
        before = self._latest.get(key)
        metric = METRIC_BY_NAME[name]
        exemplars = [Exemplar({}, value, time_ns, ids.span_id, ids.trace_id)] if ids else []
        point: Any
        if metric.instrument == "histogram":
            counts = list(before.bucket_counts) if before else [0] * (len(metric.buckets) + 1)
            counts[bisect_left(metric.buckets, value)] += 1
            point = HistogramDataPoint(
                labels,
                self._start_ns,
                time_ns,
                count=before.count + 1 if before else 1,
                sum=before.sum + value if before else value,
                bucket_counts=counts,
                explicit_bounds=metric.buckets,
                min=min(before.min, value) if before else value,
                max=max(before.max, value) if before else value,
                exemplars=exemplars,
            )
        else:
            is_sum = metric.instrument == "counter"
            total = before.value + value if before and is_sum else value
            point = NumberDataPoint(labels, self._start_ns, time_ns, total, exemplars)
        self._latest[key] = point
        self._found.setdefault(name, []).append(point)

    def _ns(self, time: float) -> int:
        return self._began_ns + round(time * 1e9)


def _latest_sample(step: RecordedStep) -> float:
    return step.progress[-1][0] if step.progress else step.start
