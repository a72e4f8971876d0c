"""Sink that turns steps and the state of the run into metrics."""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Instrument, MeterProvider, Observation

from otel_quant.base.fault_boundary import error_type
from otel_quant.export.otel.custom_gauges import CustomGauges
from otel_quant.export.otel.run_times import RunTimes
from otel_quant.schema import catalog, semconv
from otel_quant.schema.figures import Metric, Resource
from otel_quant.schema.records import (
    AttributeValue,
    Checkpoint,
    CostedModel,
    Forecast,
    Peaks,
    Reading,
    RunInfo,
    RunProgress,
    RunRecord,
    StepInfo,
    StepRecord,
)
from otel_quant.schema.sink import Sink
from otel_quant.schema.step_names import ALL_STEPS
from otel_quant.version import VERSION

_Observe: TypeAlias = Callable[[CallbackOptions], Iterable[Observation]]

_WRITES: Final = {"histogram": "record", "counter": "add", "gauge": "set"}
"""The method that writes a value, for each kind of instrument that is not observed."""

_MODEL_GAUGES: Final = (
    semconv.MODEL_SIZE, semconv.MODEL_PARAMS, semconv.MODEL_MACS_CONTRACTION,
)  # fmt: skip
"""Each shows the figure of a costed model that is named as the last part of its name."""

_Kind: TypeAlias = tuple[str, str | None, str | None]
"""What the points of a step's metrics are told apart by: values of `semconv.STEP_LABELS`."""


@dataclass(slots=True)
class _Calibration:
    """Progress of a calibration step."""

    step: int
    total: int
    samples: int = 0

    def share(self) -> float | None:
        """Returns the share that is done; None if the total is 0 or was exceeded."""
        if not 0 < self.total >= self.samples:
            return None
        return self.samples / self.total


class MetricsSink(Sink):
    """The metrics of :mod:`otel_quant.schema.catalog`.

    A process has one of it, however many runs there are, because an instrument exists as long as
    its meter.
    """

    name = "metrics"

    def __init__(
        self,
        resources: Sequence[Resource],
        latest: Callable[[], Reading | None],
        context_of: Callable[[StepInfo | None], Context | None],
        provider: MeterProvider | None = None,
        peaks: Callable[[], Peaks | None] = lambda: None,
    ) -> None:
        self._resources = resources
        self._of_steps = tuple(
            (resource.name, figure)
            for resource in resources
            for figure in resource.figures
            if figure.steps
        )
        self._of_devices = tuple(
            (resource, figure)
            for resource in resources
            for figure in resource.device_figures
            if figure.steps
        )
        self._latest = latest
        self._context_of = context_of
        get = metrics.get_meter if provider is None else provider.get_meter
        self._meter = get(semconv.SCOPE, VERSION, schema_url=semconv.SCHEMA_URL)
        # Reentrant: a garbage-collected generator may end its step while this thread has the lock.
        self._lock = threading.RLock()
        self._run: RunInfo | None = None
        self._baseline: Reading | None = None
        self._active: Counter[_Kind] = Counter()
        self._calibrations: dict[_Kind, _Calibration] = {}
        self._forecasts: dict[_Kind, Forecast] = {}
        self._custom = CustomGauges(self._meter)
        self._runs = RunTimes(peaks)
        observers: dict[str, _Observe] = {
            semconv.STEP_ACTIVE: self._observe_active,
            semconv.RUN_MEMORY_LIMIT: self._observe_limit,
            semconv.CALIBRATION_PROGRESS: self._observe_progress,
            semconv.FORECAST_TIME_LEFT: self._observe_time_left,
            semconv.FORECAST_MEMORY: functools.partial(self._observe_growth, "memory"),
            semconv.FORECAST_GPU_MEMORY: functools.partial(self._observe_growth, "gpu"),
            semconv.RUN_START: self._runs.observe_starts,
            semconv.RUN_MEMORY_PEAK: self._runs.observe_peaks,
            semconv.RUN_END: self._runs.observe_ends,
        }
        for resource in resources:
            for figure in (*resource.figures, *resource.device_figures):
                if figure.live is not None:
                    name = figure.live.metric.name
                    observers[name] = functools.partial(self._observe_figures, name)
        self._write: dict[str, Callable[..., None]] = {}
        for metric in catalog.metrics(resources):
            if "<" not in metric.name:
                instrument = self._create(metric, observers.get(metric.name))
                if metric.instrument in _WRITES:
                    self._write[metric.name] = getattr(instrument, _WRITES[metric.instrument])

    def run_started(self, run: RunInfo, checkpoint: Checkpoint) -> None:
        """Starts to observe the run."""
        self._run, self._baseline = run, checkpoint.reading
        span = trace.get_current_span(self._context_of(None)).get_span_context()
        trace_id = trace.format_trace_id(span.trace_id) if span.is_valid else None
        self._runs.began(run, checkpoint.reading, trace_id)
        with self._lock:
            self._active.clear()
            self._calibrations.clear()
            self._forecasts = {}
        self._record_custom(checkpoint)

    def step_started(
        self, step: StepInfo, checkpoint: Checkpoint, attributes: Mapping[str, AttributeValue]
    ) -> None:
        """Counts the step as open."""
        kind = _kind_of(step)
        with self._lock:
            self._active[kind] += 1
            self._calibrations.pop(kind, None)
        self._record_custom(checkpoint)

    def step_ended(self, record: StepRecord, checkpoint: Checkpoint) -> None:
        """Records the step's figures, in the context of its span."""
        info = record.info
        kind = _kind_of(info)
        with self._lock:
            self._active[kind] -= 1
            self._forecasts = {key: each for key, each in self._forecasts.items() if key != kind}
        labels = _labels_of(kind)
        if record.error is not None:
            labels[semconv.ERROR_TYPE] = error_type(record.error)
        context = self._context_of(info)
        self._record(semconv.STEP_DURATION, record.duration, labels, context)
        for resource, figure in self._of_steps:
            first, last = record.start.resources.get(resource), record.end.resources.get(resource)
            peak = record.peaks.figures.get(figure.name)
            if first is None and last is None and peak is None:
                continue
            parts = figure.between(first, last, peak, record.duration)
            for series in figure.steps:
                value = parts[series.part]
                if value is not None:
                    directed = {**labels, **series.labels} if series.labels else labels
                    self._record(series.metric.name, value, directed, context)
        for owner, figure in self._of_devices:
            records = (each.resources.get(owner.name) for each in (record.start, record.end))
            for before, after in owner.devices(*records):
                device = after or before
                highest = record.peaks.devices.get(owner.name, {}).get(device.index, {})
                parts = figure.between(before, after, highest.get(figure.name), record.duration)
                for series in figure.steps:
                    value = parts[series.part]
                    if value is not None:
                        of_device = {**labels, **series.labels, semconv.HW_ID: device.id}
                        self._record(series.metric.name, value, of_device, context)
        self._record_custom(checkpoint)

    def samples_expected(self, step: StepInfo, total: int) -> None:
        """Starts to observe the step's progress."""
        with self._lock:
            self._calibrations[_kind_of(step)] = _Calibration(step.index, total)

    def samples_counted(self, step: StepInfo, count: int) -> None:
        """Adds to the calibration samples."""
        with self._lock:
            calibration = self._calibrations.get(_kind_of(step))
            if calibration is not None and calibration.step == step.index:
                calibration.samples += count
        self._record(semconv.CALIBRATION_SAMPLES, count, _labels_of(_kind_of(step)), None)

    def run_progressed(self, progress: RunProgress) -> None:
        """Starts to observe the newest forecasts."""
        steps = [step for step in progress.steps if step.forecast is not None]
        if steps or self._forecasts:
            with self._lock:
                self._forecasts = {
                    _kind_of(step.info): step.forecast
                    for step in steps
                    if step.forecast is not None and self._active[_kind_of(step.info)]
                }

    def models_costed(self, costs: Sequence[CostedModel]) -> None:
        """Records the totals of each model."""
        for cost in costs:
            for metric in _MODEL_GAUGES:
                value = cost.figures.get(metric.rpartition(".")[2])
                if isinstance(value, int):
                    self._record(metric, value, {semconv.MODEL_ROLE: cost.role}, None)

    def point(self, checkpoint: Checkpoint) -> None:
        """Records the values of custom metrics."""
        self._record_custom(checkpoint)

    def run_ended(self, record: RunRecord, checkpoint: Checkpoint) -> None:
        """Records the last values of custom metrics, and when the run ended."""
        self._runs.ended(record)
        self._custom.set(record.custom, {})

    def forget(self) -> None:
        """Drops the run. In a forked child, a thread that does not exist may hold the lock."""
        self._lock = threading.RLock()
        self._run = self._baseline = None
        self._active = Counter()
        self._calibrations = {}
        self._forecasts = {}
        self._custom.forget()
        self._runs.forget()

    # --- within -----------------------------------------------------------------------------

    def _create(self, metric: Metric, observe: _Observe | None) -> Instrument:
        described = {"unit": metric.unit, "description": metric.brief}
        create = getattr(self._meter, f"create_{metric.instrument}")
        if observe is not None:
            observed: Instrument = create(metric.name, callbacks=[observe], **described)
            return observed
        if metric.instrument == "histogram":
            return self._meter.create_histogram(
                metric.name, explicit_bucket_boundaries_advisory=metric.buckets, **described
            )
        instrument: Instrument = create(metric.name, **described)
        return instrument

    def _record(
        self,
        name: str,
        value: float,
        labels: Mapping[str, str],
        context: Context | None,
    ) -> None:
        self._write[name](value, labels, context)

    def _record_custom(self, checkpoint: Checkpoint) -> None:
        if not checkpoint.custom:
            return
        step = checkpoint.step
        labels = _labels_of((*_kind_of(step)[:2], None)) if step is not None else {}
        self._custom.set(checkpoint.custom, labels)

    def _observe_active(self, options: CallbackOptions) -> Iterable[Observation]:
        with self._lock:
            active = dict(self._active)
        for kind, count in active.items():
            yield Observation(count, _labels_of(kind))

    def _observe_progress(self, options: CallbackOptions) -> Iterable[Observation]:
        with self._lock:
            shares = [(kind, each.share()) for kind, each in self._calibrations.items()]
        for kind, share in shares:
            if share is not None:
                yield Observation(share, _labels_of(kind))

    def _observe_time_left(self, options: CallbackOptions) -> Iterable[Observation]:
        for kind, forecast in self._forecasts.items():
            if forecast.time_left is not None:
                yield Observation(forecast.time_left, _labels_of(kind))

    def _observe_growth(self, resource: str, options: CallbackOptions) -> Iterable[Observation]:
        for kind, forecast in self._forecasts.items():
            for growth in forecast.growths:
                if growth.resource == resource:
                    device = {} if growth.device is None else {semconv.HW_ID: growth.device}
                    yield Observation(growth.at_end, {**_labels_of(kind), **device})

    def _observe_limit(self, options: CallbackOptions) -> Iterable[Observation]:
        if self._latest() is None:
            return  # no run
        if self._run is not None and self._run.limits.memory is not None:
            yield Observation(self._run.limits.memory)

    def _observe_figures(self, metric: str, options: CallbackOptions) -> Iterable[Observation]:
        """Yields the figures of resources and devices that a metric shows."""
        reading, baseline = self._latest(), self._baseline
        if reading is None or self._run is None:
            return
        for resource in self._resources:
            now = reading.resources.get(resource.name)
            first = baseline.resources.get(resource.name) if baseline is not None else None
            for figure in resource.figures:
                if figure.live is not None and figure.live.metric.name == metric:
                    value = figure.since(first, now)
                    if value is not None:
                        yield Observation(value, dict(figure.live.labels))
            for figure in resource.device_figures:
                if figure.live is not None and figure.live.metric.name == metric:
                    for device in now or ():
                        value = figure.value(device)
                        if value is not None:
                            labels = {**figure.live.labels, semconv.HW_ID: device.id}
                            yield Observation(value, labels)


def _kind_of(step: StepInfo) -> _Kind:
    # Without a label that is free text: each one would be a series of its own, for ever.
    return step.kind, step.label if step.label in ALL_STEPS else None, step.library


def _labels_of(kind: _Kind) -> dict[str, str]:
    name, label, library = kind
    labels = {semconv.STEP_KIND: name}
    if label is not None:
        labels[semconv.STEP_NAME] = label
    if library is not None:
        labels[semconv.LIBRARY_NAME] = library
    return labels
