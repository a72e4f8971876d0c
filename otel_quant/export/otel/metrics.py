"""Sink that turns steps and the state of the run into metrics.

A run's name is on four series of each process (`quant.run.start`, `.last_seen`, `.memory.peak`, `.end`), and
dashboards join the others by process: as an attribute of every metric it would begin new series with
each run, and the SDK goes on to send the old ones. `quant.run.end` shows that a run has ended, because
steps may be shorter than an export; an end that no collection has seen is kept for the next one.
"""

from __future__ import annotations

import functools
import math
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.base.log import LOG
from otel_quant.schema import catalog, semconv
from otel_quant.schema.dataclass import dataclass
from otel_quant.schema.events import Event, Sink, custom_value, present
from otel_quant.schema.figures import Figure, Metric, Number, Resource
from otel_quant.schema.readings import ALL_STEPS, UNITS, Forecast, Reading, RunInfo, StepInfo
from otel_quant.version import VERSION

_Observe: TypeAlias = Callable[[CallbackOptions], Iterable[Observation]]

_WRITES: Final = {"histogram": "record", "counter": "add", "gauge": "set"}
"""The method that writes a value, for each kind of instrument that is not observed."""


_MODEL_GAUGES: Final = (
    semconv.MODEL_SIZE, semconv.MODEL_PARAMS, semconv.MODEL_MACS_CONTRACTION,
    semconv.MODEL_AUDIT_PROBLEMS,
)  # fmt: skip
"""Each shows the figure of a costed model that is named as its name ends."""

_Labels: TypeAlias = Mapping[str, str]  # Attributes of a metric's point
_LABELS: Final = (*semconv.STEP_LABELS, semconv.ERROR_TYPE)

_Kind: TypeAlias = tuple[str, str | None, str | None]
"""What the points of a step's metrics are told apart by: values of `semconv.STEP_LABELS`."""


class _Live(NamedTuple):
    """A figure that a metric shows while the run goes on."""

    resource: str
    figure: Figure
    labels: _Labels
    is_of_devices: bool

    def observations(self, baseline: Reading, now: Reading) -> list[Observation]:
        """Returns its value, or one for each device."""
        figure, record = self.figure, now.resources.get(self.resource)
        if self.is_of_devices:
            labels = self.labels
            found = [(figure.value(it), {**labels, semconv.HW_ID: it.id}) for it in record or ()]
        else:
            first = baseline.resources.get(self.resource)
            found = [(figure.since(first, record), dict(self.labels))]
        return [Observation(value, labels) for value, labels in found if value is not None]


class _Rows(NamedTuple):
    """What is written at the end of the steps of a kind, by the attribute of the event."""

    labels: _Labels
    write_duration: Callable[..., None]
    histograms: list[tuple[str, Callable[..., None], _Labels]]
    pending: list[tuple[str, _PendingSeries]]  # Counters and gauges


@dataclass(slots=True)
class _Progress:
    """Progress of a step through its samples or its layers."""

    step: int
    total: int
    done: int = 0

    def share(self) -> float | None:
        """Returns the share that is done; None if the total is 0 or was exceeded."""
        return self.done / self.total if 0 < self.total >= self.done else None


class MetricsSink(Sink):
    """The metrics of :mod:`otel_quant.schema.catalog`.

    A process has one of it, however many runs there are, because an instrument exists as long as
    its meter.
    """

    name = "metrics"

    def __init__(
        self,
        resources: Sequence[Resource],
        read_now: Callable[[], Reading | None],
        context_of: Callable[[StepInfo | None], Context | None],
        provider: MeterProvider | None = None,
        peak_now: Callable[[], Number | None] = lambda: None,
    ) -> None:
        self._of_steps = tuple(
            (figure.attribute(series.part), series)
            for resource in resources
            for figure in resource.figures
            for series in figure.steps
        )
        self._of_devices = tuple(
            (figure.attribute(series.part, resource.device_stem), series)
            for resource in resources
            for figure in resource.device_figures
            for series in figure.steps
        )
        self._readings = _OnePerCollection(read_now)
        self._context_of = context_of
        get = metrics.get_meter if provider is None else provider.get_meter
        self._meter = get(semconv.SCOPE, VERSION, schema_url=semconv.SCHEMA_URL)
        self._custom = CustomGauges(self._meter)
        self._runs = _RunTimes(peak_now)
        self.forget()
        observers = self._observers(resources)
        self._write: dict[str, Callable[..., None]] = {}
        for metric in catalog.METRICS:
            if "<" in metric.name:
                continue
            more: dict[str, Any] = {}
            if metric.name in observers:
                more["callbacks"] = [observers[metric.name]]
            elif metric.instrument == "histogram":
                more["explicit_bucket_boundaries_advisory"] = metric.buckets
            create = getattr(self._meter, f"create_{metric.instrument}")
            made = create(metric.name, unit=metric.unit, description=metric.brief, **more)
            if metric.instrument in _WRITES:
                self._write[metric.name] = getattr(made, _WRITES[metric.instrument])

    def forget(self) -> None:
        """Drops the run. In a forked child, a thread that does not exist may hold the lock."""
        # Reentrant: a garbage-collected generator may end its step while this thread has the lock.
        self._lock = threading.RLock()
        self._run: RunInfo | None = None
        self._baseline: Reading | None = None
        self._rows: dict[tuple[_Kind, str | None], _Rows] = {}
        self._series: dict[tuple[object, ...], _PendingSeries] = {}
        self._forget_steps()
        self._custom.forget()
        self._runs.forget()

    def _forget_steps(self) -> None:
        self._active: Counter[_Kind] = Counter()
        self._progress: dict[str, dict[_Kind, _Progress]] = {unit: {} for unit in UNITS}
        self._forecasts: dict[_Kind, Forecast] = {}

    def _observers(self, resources: Sequence[Resource]) -> dict[str, _Observe]:
        """Returns what observes each metric that is not written, by its name."""
        partial = functools.partial
        live: dict[str, list[_Live]] = {}
        for resource in resources:
            for figure in (*resource.figures, *resource.device_figures):
                if figure.live is not None:
                    of_devices = figure in resource.device_figures
                    shown = _Live(resource.name, figure, figure.live.labels, of_devices)
                    live.setdefault(figure.live.metric.name, []).append(shown)
        return {
            semconv.STEP_ACTIVE: self._observe_active,
            semconv.RUN_MEMORY_LIMIT: self._observe_limit,
            **{each.share: partial(self._observe_progress, unit) for unit, each in UNITS.items()},
            semconv.FORECAST_TIME_LEFT: partial(self._observe_forecast, "time_left"),
            semconv.FORECAST_STALLED: partial(self._observe_forecast, "stalled"),
            semconv.FORECAST_MEMORY: partial(self._observe_growth, "memory"),
            semconv.FORECAST_GPU_MEMORY: partial(self._observe_growth, "gpu"),
            semconv.RUN_START: self._runs.observe_starts,
            semconv.RUN_LAST_SEEN: self._runs.observe_last_seen,
            semconv.RUN_MEMORY_PEAK: self._runs.observe_peaks,
            semconv.RUN_END: self._runs.observe_ends,
            **{name: partial(self._observe_figures, name, shown) for name, shown in live.items()},
        }

    def run_started(self, event: Event) -> None:
        """Starts to observe the run."""
        self._run, self._baseline = event.run, event.reading
        span = trace.get_current_span(self._context_of(None)).get_span_context()
        trace_id = trace.format_trace_id(span.trace_id) if span.is_valid else None
        self._runs.began(event, trace_id)
        with self._lock:
            self._forget_steps()
        self.checkpoint(event)

    def step_started(self, event: Event) -> None:
        """Counts the step as open."""
        assert event.step is not None
        kind = _kind_of(event.step)
        with self._lock:
            self._active[kind] += 1
            for of_unit in self._progress.values():
                of_unit.pop(kind, None)
        self.checkpoint(event)

    def step_ended(self, event: Event) -> None:
        """Records the step's figures, in the context of its span."""
        assert event.step is not None
        kind, error = _kind_of(event.step), event.error
        context, attributes = self._context_of(event.step), event.attributes
        with self._lock:
            rows = self._rows.get((kind, error)) or self._rows_of(kind, error)
            self._active[kind] -= 1
            if kind in self._forecasts:
                self._forecasts = {key: it for key, it in self._forecasts.items() if key != kind}
            for name, written in rows.pending:
                if name in attributes:
                    written.write(attributes[name], context)
        rows.write_duration(event.duration, rows.labels, context)
        for name, write, labels in rows.histograms:
            if name in attributes:
                write(attributes[name], labels, context)
        for device in event.devices:
            for name, series in self._of_devices:
                if name in device:
                    labels = {**rows.labels, **series.labels}
                    labels[semconv.HW_ID] = str(device[semconv.HW_ID])
                    self._write[series.metric.name](device[name], labels, context)
        self.checkpoint(event)

    def progress_expected(self, event: Event) -> None:
        """Starts to observe the step's progress."""
        assert event.step is not None
        unit, (done, total) = event.counts.newest, event.counts.current
        assert unit is not None
        assert total is not None
        with self._lock:
            self._progress[unit][_kind_of(event.step)] = _Progress(event.step.index, total, done)

    def counted(self, step: StepInfo, unit: str, count: int) -> None:
        """Adds to the samples or the layers."""
        kind = _kind_of(step)
        with self._lock:
            progress = self._progress[unit].get(kind)
            if progress is not None and progress.step == step.index:
                progress.done += count
            metric = catalog.METRIC_BY_NAME[UNITS[unit].metric]
            self._series_of(metric, _labels_of(kind)).write(count)

    def reading_taken(self, event: Event) -> None:
        """Starts to observe the newest forecasts."""
        newest = {_kind_of(step.info): step.forecast for step in event.steps}
        if newest or self._forecasts:
            with self._lock:
                self._forecasts = {kind: it for kind, it in newest.items() if self._active[kind]}

    def models_costed(self, event: Event) -> None:
        """Records the totals of each model."""
        for cost in event.models:
            for metric in _MODEL_GAUGES:
                value = cost.figures.get(metric.removeprefix(semconv.MODEL_PREFIX))
                if isinstance(value, int):
                    self._write[metric](value, {semconv.MODEL_ROLE: cost.role}, None)

    def checkpoint(self, event: Event) -> None:
        """Records the values of custom metrics."""
        if event.custom:
            step = event.step
            labels = {} if step is None else _labels_of((*_kind_of(step)[:2], None))
            self._custom.set(event.custom, labels)

    def flush(self) -> None:
        """Gives the SDK what steps have written to counters and gauges since the last time."""
        with self._lock:
            for each in self._series.values():
                each.flush()

    def run_ended(self, event: Event) -> None:
        """Records the last values of custom metrics, and when the run ended."""
        self._runs.ended(event)
        self._custom.set(event.latest_custom, {})
        self.flush()

    # --- within -----------------------------------------------------------------------------

    def _rows_of(self, kind: _Kind, error: str | None) -> _Rows:
        labels: _Labels = _labels_of(kind, error)
        duration = self._write[semconv.STEP_DURATION]
        rows = self._rows[kind, error] = _Rows(labels, duration, [], [])
        for name, series in self._of_steps:
            metric, its_labels = series.metric, {**labels, **series.labels}
            if metric.instrument == "histogram":
                rows.histograms.append((name, self._write[metric.name], its_labels))
            else:
                rows.pending.append((name, self._series_of(metric, its_labels)))
        return rows

    def _series_of(self, metric: Metric, labels: _Labels) -> _PendingSeries:
        known = metric.name, *labels.items()
        if known not in self._series:
            self._series[known] = _PendingSeries(metric, self._write[metric.name], labels)
        return self._series[known]

    def _observe_active(self, options: CallbackOptions) -> Iterable[Observation]:
        self.flush()  # a callback runs before the SDK collects what it was given
        with self._lock:
            active = dict(self._active)
        for kind, count in active.items():
            yield Observation(count, _labels_of(kind))

    def _observe_progress(self, unit: str, options: CallbackOptions) -> Iterable[Observation]:
        with self._lock:
            progress = dict(self._progress[unit])
        for kind, each in progress.items():
            if (share := each.share()) is not None:
                yield Observation(share, _labels_of(kind))

    def _observe_forecast(self, field: str, options: CallbackOptions) -> Iterable[Observation]:
        for kind, forecast in self._forecasts.items():
            if (value := getattr(forecast, field)) is not None:
                yield Observation(value, _labels_of(kind))

    def _observe_growth(self, resource: str, options: CallbackOptions) -> Iterable[Observation]:
        for kind, forecast in self._forecasts.items():
            for growth in forecast.growths:
                if growth.resource == resource:
                    device = {} if growth.device is None else {semconv.HW_ID: growth.device}
                    yield Observation(growth.at_end, {**_labels_of(kind), **device})

    def _observe_limit(self, options: CallbackOptions) -> Iterable[Observation]:
        is_running = self._readings.of(semconv.RUN_MEMORY_LIMIT) is not None
        limit = self._run.limits.memory if self._run is not None else None
        return [Observation(limit)] if is_running and limit is not None else []

    def _observe_figures(
        self, metric: str, shown: Sequence[_Live], options: CallbackOptions
    ) -> Iterable[Observation]:
        """Yields the figures of resources and devices that a metric shows."""
        reading, baseline = self._readings.of(metric), self._baseline
        if reading is not None and baseline is not None:
            for each in shown:
                yield from each.observations(baseline, reading)


def _kind_of(step: StepInfo) -> _Kind:
    # Without a label that is free text: each one would be a series of its own, for ever.
    return step.kind, step.label if step.label in ALL_STEPS else None, step.library


def _labels_of(kind: _Kind, error: str | None = None) -> dict[str, str]:
    return {name: value for name, value in zip(_LABELS, (*kind, error), strict=True) if value}


class _PendingSeries:
    """One series of a counter or a gauge: what steps write between two collections is given to the SDK at once.

    The SDK takes 9 us for a value, and a step has five of these. A counter gets its first value immediately:
    that is when the series begins, and rates are computed from there. Callers have the sink's lock.
    """

    def __init__(self, metric: Metric, write: Callable[..., None], labels: _Labels) -> None:
        self._write, self._labels = write, labels
        self._adds_up = self._is_new = metric.instrument == "counter"
        self._value: Number | None = None
        self._context: Context | None = None  # Of the last step, for an exemplar

    def write(self, value: Any, context: Context | None = None) -> None:
        """Takes a value."""
        if self._adds_up and self._value is not None:
            value += self._value
        self._value, self._context = value, context
        if self._is_new:
            self._is_new = False
            self.flush()

    def flush(self) -> None:
        """Gives the SDK what has been written since the last time."""
        value, self._value = self._value, None
        if value is not None:
            self._write(value, self._labels, self._context)


class _OnePerCollection:
    """A reading for all instruments of one collection.

    The SDK calls instruments one after the other and does not announce a collection: an instrument
    that asks again belongs to the next. A reading costs a millisecond, and a collection would
    take one for each of a dozen instruments.
    """

    def __init__(self, read_now: Callable[[], Reading | None]) -> None:
        self._read_now = read_now
        # Replaced as a whole: readers of several threads may collect at the same time.
        self._kept: tuple[Reading | None, set[str]] = None, set()

    def of(self, metric: str) -> Reading | None:
        """Returns the reading of the collection that asks for a metric."""
        reading, asked = self._kept
        if reading is None or metric in asked:
            reading, asked = self._kept = self._read_now(), set()
        asked.add(metric)
        return reading


@dataclass(slots=True)
class _Run:
    """One run."""

    began: float  # Seconds since the epoch
    identity: dict[str, Any]  # Attributes of the point that has its start
    name: dict[str, Any]  # Attributes of its other points
    ended: float | None = None  # Seconds since the epoch; None while it goes on
    # Highest memory of a run that has ended, in bytes; None if it was not measured
    peak: Any = None


class _RunTimes:
    """Keeps the latest run, and those that ended since the last collection.

    A run may begin and end between two collections, and the next one begin before the second:
    without its end in the metrics it would be taken for one that was killed.
    """

    def __init__(self, peak_now: Callable[[], Number | None]) -> None:
        self._peak_now = peak_now
        self.forget()

    def began(self, event: Event, trace_id: str | None) -> None:
        """Notes that a run has begun."""
        run = event.run
        identity: dict[str, str | int | None] = {
            semconv.RUN_NAME: run.name, semconv.RUN_RANK: run.rank, semconv.PROCESS_PID: run.pid,
            semconv.RUN_TRACE_ID: trace_id, semconv.INPUT_NAME: run.model,
            semconv.CALIBRATION_METHOD: run.method, semconv.CONFIG_NAME: run.config,
        }  # fmt: skip
        with self._lock:
            name = {semconv.RUN_NAME: run.name}
            self._runs[run.id] = _Run(event.time_ns / 1e9, present(identity), name)

    def ended(self, event: Event) -> None:
        """Notes that a run has ended."""
        with self._lock:
            run = self._runs.get(event.run.id)
            if run is not None:
                run.ended = event.time_ns / 1e9
                run.peak = event.attributes.get(semconv.MEMORY_PEAK)

    def observe_starts(self, options: CallbackOptions) -> Iterable[Observation]:
        """Yields the start of each run."""
        return [Observation(run.began, run.identity) for run in self._kept()]

    def observe_last_seen(self, options: CallbackOptions) -> Iterable[Observation]:
        """Yields when each run ended, or now: nobody has to look through all points to know it."""
        now = time.time()
        return [Observation(run.ended or now, run.name) for run in self._kept()]

    def observe_peaks(self, options: CallbackOptions) -> Iterable[Observation]:
        """Yields the highest memory of each run so far."""
        for run in self._kept():
            peak = self._peak_now() if run.ended is None else run.peak
            if peak is not None:
                yield Observation(peak, run.name)

    def observe_ends(self, options: CallbackOptions) -> Iterable[Observation]:
        """Yields the end of each run that has ended, and drops all but the latest run."""
        kept = self._kept()
        with self._lock:
            # The rest has been observed: instruments are in the order in which they were made.
            for run in tuple(self._runs)[:-1]:
                del self._runs[run]
        return [Observation(run.ended, run.name) for run in kept if run.ended is not None]

    def forget(self) -> None:
        """Drops the runs. In a forked child, a thread that does not exist may hold the lock."""
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}

    def _kept(self) -> tuple[_Run, ...]:
        with self._lock:
            return tuple(self._runs.values())


# --- metrics that the program has added ---------------------------------------------------

_LONGEST: Final = 255
_NOT_ALLOWED: Final = re.compile(r"[^A-Za-z0-9_./-]")


class CustomGauges:
    """One gauge for each custom metric that has had a number as its value."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._gauges: dict[str, Any] = {}  # in lower case: OpenTelemetry ignores the case of names
        self.forget()

    def set(self, values: Mapping[str, object], labels: Mapping[str, str]) -> None:
        """Sets the gauges. A metric that fails does not prevent those after it."""
        for name, given in values.items():
            with FAULTS.kept_in(f"custom metric {name!r}"):
                value = custom_value(given)
                if isinstance(value, bool | str) or value is None or not math.isfinite(value):
                    continue
                self._gauge(name).set(value, labels)

    def forget(self) -> None:
        """In a forked child: another thread may have held the lock."""
        self._lock = threading.RLock()

    def _gauge(self, name: str) -> Any:
        """Returns the gauge of a metric; names that OpenTelemetry takes for the same share one."""
        wanted = semconv.CUSTOM_PREFIX + name
        valid = _NOT_ALLOWED.sub("_", wanted)[:_LONGEST]
        with self._lock:
            if valid.lower() not in self._gauges:
                what = "A custom metric of the program."
                self._gauges[valid.lower()] = self._meter.create_gauge(valid, description=what)
                if valid != wanted:
                    LOG.warning(
                        "custom metric %r is sent as the metric %r: OpenTelemetry accepts at most %d "
                        "ASCII letters, digits, '_', '.', '-' and '/'; give it such a name to choose it",
                        name,
                        valid,
                        _LONGEST,
                    )
            return self._gauges[valid.lower()]
