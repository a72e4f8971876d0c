"""The columns of the local files of this process: values of all metrics, the program's own included."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.export.quark_yaml import metrics
from otel_quant.export.quark_yaml.metrics import FigureMetric, Metric, MetricContext
from otel_quant.schema import figures, semconv
from otel_quant.schema.events import Event
from otel_quant.schema.figures import Figure, Resource, YamlColumn, total_used
from otel_quant.schema.readings import Peaks, Reading

_BUILT_IN: Final[frozenset[type]] = frozenset(
    (*metrics.CHECKPOINT_METRICS, *metrics.SUMMARY_METRICS, FigureMetric)
)
"""The classes of the metrics that are there unless a program removes them."""

_QUARKS_OWN: Final = "quark.common.profiler."
_QUARKS_METRICS: Final = "metrics of Quark's profiler"

_MIB: Final = 1 << 20
_SECOND: Final = 1_000_000_000  # an int: with 1e9, today's nanoseconds would be rounded twice

Kind = Literal["checkpoint_metrics", "summary_metrics"]


class ProgramMetrics:
    """The metrics of all runs of this process; a change by the program applies to every run."""

    def __init__(self, resources: Sequence[Resource]) -> None:
        shown = [(each.name, f, f.column) for each in resources for f in each.figures if f.column]
        self._figures = [(name, figure) for name, figure, its in shown if not its.in_quark]
        # What the built-in metrics of a checkpoint collect, of the event: to fill a context for them would take a
        # twentieth of a step.
        self._of_event: dict[str, Callable[[Event], object]] = {
            metrics.StepNameMetric.name: lambda event: event.name,
            metrics.TimestampMetric.name: lambda event: event.time_ns / _SECOND,
            metrics.RelativeTimeMetric.name: lambda event: event.elapsed,
        } | {its.key: _column(name, figure, its) for name, figure, its in shown}
        self._adopted: Any = None
        # Values of Quark's checkpoints, each until ours of that name is taken.
        self._of_quark: dict[str, dict[str, object]] = {}
        self.reset()

    def reset(self) -> None:
        """Takes out what the program has added, and puts back what it has removed."""
        self.checkpoint_metrics: list[Metric] = [metric() for metric in metrics.CHECKPOINT_METRICS]
        self.checkpoint_metrics += [FigureMetric(figure) for _, figure in self._figures]
        self.summary_metrics: list[Metric] = [metric() for metric in metrics.SUMMARY_METRICS]
        self._built_in = list(self.checkpoint_metrics)
        of = self._of_event
        self._columns = [(m.name, of[m.name]) for m in self._built_in if m.name in of]

    def at_checkpoint(self, name: str, reading: Reading, baseline: Reading) -> dict[str, object]:
        """Returns the values of the program's own metrics at a checkpoint, by name."""
        if self.checkpoint_metrics == self._built_in and name not in self._of_quark:
            return {}  # as in most programs
        values = self._of_quark.pop(name, {})
        if added := [metric for metric in self.checkpoint_metrics if _is_added(metric)]:
            context = self._context(name, reading, baseline)
            values = _values(added, lambda metric, _: metric.collect(context)) | values
        return values

    def at_end(self, reading: Reading, baseline: Reading, peaks: Peaks) -> dict[str, object]:
        """Returns the values of the program's own metrics of the run, by name."""
        if not (added := [*filter(_is_added, self._all("summary_metrics"))]):
            return {}  # as in most programs
        context = _context_at_end(reading, baseline, peaks)
        context.process = _process(os.getpid())
        return _values(added, lambda metric, _: metric.collect(context))

    def columns(self, event: Event, *, strict: bool = False) -> dict[str, object]:
        """Returns the columns of a checkpoint, by key, in the order of the metrics."""
        metrics = self._all("checkpoint_metrics", strict)
        if metrics == self._built_in:  # as in most programs
            return {name: value for name, of in self._columns if (value := of(event)) is not None}

        def value_of(metric: Metric, name: str) -> object:
            if type(metric) not in _BUILT_IN:
                return event.custom.get(name)  # it has been asked for it
            return self._of_event[name](event) if name in self._of_event else None

        return _values(metrics, value_of)

    def summary(self, end: Event) -> dict[str, object]:
        """Returns the figures of a run, by key, in the order of the metrics."""
        assert end.reading is not None
        assert end.baseline is not None
        assert end.peaks is not None
        context = _context_at_end(end.reading, end.baseline, end.peaks)
        custom = end.latest_custom

        def value_of(metric: Metric, name: str) -> object:
            return metric.collect(context) if type(metric) in _BUILT_IN else custom.get(name)

        return _values(self._all("summary_metrics"), value_of)

    def definitions(self, kind: Kind, *, strict: bool = False) -> list[tuple[str, str]]:
        """Returns the keys of metrics, each with its definition."""
        found = []
        for metric in self._all(kind, strict):
            with FAULTS.kept_in(f"definition of {type(metric).__name__}"):
                name, definition = str(metric.name), ""
                with FAULTS.kept_in(f"definition of {name}"):
                    definition = str(metric.get_definition())
                found.append((name, definition))
        return found

    def adopt(self, profiler: Any, checkpoint: str, record: Mapping[str, object]) -> None:
        """Includes the metrics that the program has added to Quark's own profiler.

        They are part of this process's metrics from now on. At a checkpoint they are not asked
        again, because the program may count the calls: ours of that name has the values of Quark's
        record. Metrics of the run are asked at the end of the run, if Quark's profiler is on.
        """
        self._adopted = profiler
        with FAULTS.kept_in(_QUARKS_METRICS):
            if record:
                names = {str(m.name) for m in profiler.checkpoint_metrics if _is_added(m)}
                self._of_quark[checkpoint] = {name: record[name] for name in names & record.keys()}

    def _all(self, kind: Kind, strict: bool = False) -> list[Metric]:
        """Returns all metrics of a kind, an adopted profiler's last."""
        metrics: list[Metric] = getattr(self, kind)
        if strict:
            metrics = [metric for metric in metrics if type(metric) is not FigureMetric]
        if self._adopted is not None:
            with FAULTS.kept_in(_QUARKS_METRICS):
                if self._adopted.enabled:
                    adopted = getattr(self._adopted, kind)
                    return [*metrics, *filter(_is_added, adopted)]
        return metrics

    def _context(self, name: str, reading: Reading, baseline: Reading) -> MetricContext:
        """Describes a checkpoint to metrics."""
        context = _context_of(reading, baseline)
        context.process, context.step_name = _process(os.getpid()), name
        context.current_time = reading.time_ns / _SECOND
        if self._figures:
            now, first = reading.resources, baseline.resources
            values = {
                figure.name: figure.since(first.get(resource), now.get(resource))
                for resource, figure in self._figures
            }
            context.figures = {key: value for key, value in values.items() if value is not None}
        return context


def _context_at_end(reading: Reading, baseline: Reading, peaks: Peaks) -> MetricContext:
    """Describes a run that has ended to metrics."""
    context = _context_of(reading, baseline)
    wanted = figures.ALL_GPUS_MEMORY.name, figures.CACHE_GROWTH.name
    gpu_peak, grown = map(peaks.figures.get, wanted)
    context.end_time = reading.time_ns / _SECOND
    context.gpu_available = gpu_peak is not None
    context.gpu_peak_memory = int(gpu_peak or 0)
    context.cache_dir_peak_disk_mb = grown / _MIB if grown else None
    # In exact mode the kernel's mark is lowered during the run, so the last mark alone would be
    # too low.
    marks = [r.memory.high_water for r in (baseline, reading) if r.memory]
    known = [mark for mark in (*marks, peaks.process_memory) if mark is not None]
    context.peak_memory = max(known, default=None)
    return context


def _context_of(reading: Reading, baseline: Reading) -> MetricContext:
    used = total_used(reading.gpus)
    context = MetricContext(
        start_time=baseline.time_ns / _SECOND, base_memory=getattr(baseline.memory, "tree_rss", 0),
        current_memory=getattr(reading.memory, "tree_rss", 0),
        gpu_available=used is not None, gpu_baseline_memory=total_used(baseline.gpus) or 0,
        gpu_current_memory=used or 0, elapsed=(reading.clock_ns - baseline.clock_ns) / 1e9,
    )  # fmt: skip
    first, disk = (each.resources.get("disk") for each in (baseline, reading))
    if first and disk:
        context.disk_io_available = True
        context.baseline_disk_read_bytes = first.read
        context.baseline_disk_write_bytes = first.write
        context.current_disk_read_bytes = disk.read
        context.current_disk_write_bytes = disk.write
    return context


@functools.lru_cache(maxsize=1)
def _process(pid: int) -> Any:
    import psutil  # takes as long to load as all probes together, and few programs have metrics of their own

    return psutil.Process(pid)  # cached by process id: a forked child needs its own object


def _is_added(metric: Metric) -> bool:
    """Whether a metric was made by the program, not by this package or Quark."""
    kind = type(metric)
    return kind not in _BUILT_IN and not kind.__module__.startswith(_QUARKS_OWN)


def _values(
    metrics: Iterable[Metric], value_of: Callable[[Metric, str], object]
) -> dict[str, object]:
    """Returns the values of metrics, by name, in their order; one that fails is left out."""
    values: dict[str, object] = {}
    for metric in metrics:
        with FAULTS.kept_in(f"metric {type(metric).__qualname__}"):
            name = str(metric.name)
            with FAULTS.kept_in(f"metric {name}"):
                value = value_of(metric, name)
                if value is not None:
                    values[name] = value
    return values


def _column(resource: str, figure: Figure, column: YamlColumn) -> Callable[[Event], object]:
    """Returns what takes a figure from a checkpoint."""
    attribute = semconv.CHECKPOINT_PREFIX + figure.checkpoint

    def of(event: Event) -> float | None:
        if figure.checkpoint:
            value: Any = event.checkpoint.get(attribute)
        else:
            assert event.reading is not None
            assert event.baseline is not None
            first, now = event.baseline.resources, event.reading.resources
            value = figure.since(first.get(resource), now.get(resource))
        return None if value is None else round(max(value, 0) / column.scale, 2)

    return of
