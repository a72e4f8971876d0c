"""The metrics of the local files of this process, with those that the program has added, and their values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Literal

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.export.quark_yaml import metric_contexts
from otel_quant.export.quark_yaml.metrics import (
    CHECKPOINT_METRICS,
    SUMMARY_METRICS,
    FigureMetric,
    Metric,
    MetricContext,
)
from otel_quant.schema.events import Event
from otel_quant.schema.figures import Resource
from otel_quant.schema.records import Peaks, Reading
from otel_quant.schema.step_names import ProfileStep

BUILT_IN: Final[frozenset[type]] = frozenset((*CHECKPOINT_METRICS, *SUMMARY_METRICS, FigureMetric))
"""The classes of the metrics that are there unless a program removes them."""

_QUARKS_OWN: Final = "quark.common.profiler."
_QUARKS_METRICS: Final = "metrics of Quark's profiler"

_NOTHING: Final[Mapping[str, object]] = {}
# Name of the checkpoint that Quark's profiler has just taken, and its values of added metrics.
_ADOPTED: Final[ContextVar[tuple[str, Mapping[str, object]]]] = ContextVar(
    "otel_quant_adopted", default=("", _NOTHING)
)

Kind = Literal["checkpoint_metrics", "summary_metrics"]


class ProgramMetrics:
    """The metrics of all runs of this process; a change by the program applies to every run."""

    def __init__(self, resources: Sequence[Resource]) -> None:
        self.figures = tuple(
            (resource.name, figure)
            for resource in resources
            for figure in resource.figures
            if figure.column is not None and not figure.column.in_quark
        )
        self._adopted: Any = None
        self._adopted_at_end = _NOTHING
        self.reset()

    def reset(self) -> None:
        """Takes out what the program has added, and puts back what it has removed."""
        self.checkpoint_metrics: list[Metric] = [metric() for metric in CHECKPOINT_METRICS]
        self.checkpoint_metrics += [FigureMetric(figure) for _, figure in self.figures]
        self.summary_metrics: list[Metric] = [metric() for metric in SUMMARY_METRICS]

    def at_checkpoint(self, name: str, reading: Reading, baseline: Reading) -> dict[str, object]:
        """Returns the values of the program's own metrics at a checkpoint, by name."""
        added = [metric for metric in self.checkpoint_metrics if is_added(metric)]
        values: dict[str, object] = {}
        if added:
            context = metric_contexts.at_checkpoint(name, reading, baseline, self.figures)
            values = _collect(added, context)
        checkpoint, adopted = _ADOPTED.get()
        if name == ProfileStep.END:
            adopted, self._adopted_at_end = self._adopted_at_end, _NOTHING
        elif name != checkpoint:
            adopted = _NOTHING
        return {**values, **adopted}

    def at_end(self, reading: Reading, baseline: Reading, peaks: Peaks) -> dict[str, object]:
        """Returns the values of the program's own metrics of the whole run, by name."""
        added = [metric for metric in self.every("summary_metrics") if is_added(metric)]
        if not added:
            return {}
        return _collect(added, metric_contexts.at_end(reading, baseline, peaks))

    @contextmanager
    def adopted(
        self, profiler: Any, checkpoint: str = "", record: Mapping[str, object] = _NOTHING
    ) -> Iterator[None]:
        """Includes the metrics that the program has added to Quark's own profiler.

        They are part of this process's metrics from now on. At a checkpoint they are not asked
        again, because the program may count the calls: within the block, the checkpoint of that
        name has the values of Quark's record. Those of the whole run are asked at the end of the
        run, if Quark's profiler is on.
        """
        self._adopted = profiler
        token = _ADOPTED.set((checkpoint, _values_of(profiler, record)))
        try:
            yield
        finally:
            _ADOPTED.reset(token)

    def adopt_end(self, profiler: Any, record: Mapping[str, object]) -> None:
        """Takes the values of the last checkpoint of Quark's profiler for the end of our run."""
        self._adopted_at_end = _values_of(profiler, record)

    def every(self, kind: Kind) -> list[Metric]:
        """Returns all metrics of a kind, those of an adopted profiler last."""
        metrics = list(
            self.checkpoint_metrics if kind == "checkpoint_metrics" else self.summary_metrics
        )
        if self._adopted is None:
            return metrics
        with FAULTS.kept_in(_QUARKS_METRICS):
            if self._adopted.enabled:
                metrics += [m for m in getattr(self._adopted, kind) if not _is_quarks_own(m)]
        return metrics


def is_added(metric: Metric) -> bool:
    """Whether a metric was made by the program, not by this package or Quark."""
    return type(metric) not in BUILT_IN and not _is_quarks_own(metric)


def _is_quarks_own(metric: object) -> bool:
    return type(metric).__module__.startswith(_QUARKS_OWN)


def _values_of(profiler: Any, record: Mapping[str, object]) -> Mapping[str, object]:
    """Returns the values of the metrics that the program has added to Quark's profiler."""
    if record:
        with FAULTS.kept_in(_QUARKS_METRICS):
            names = [str(m.name) for m in profiler.checkpoint_metrics if is_added(m)]
            return {name: record[name] for name in names if name in record}
    return _NOTHING


def _collect(metrics: Sequence[Metric], context: MetricContext) -> dict[str, object]:
    values: dict[str, object] = {}
    for metric in metrics:
        with FAULTS.kept_in(f"metric {type(metric).__qualname__}"):
            name = str(metric.name)
            with FAULTS.kept_in(f"metric {name}"):
                value = metric.collect(context)
                if value is not None:
                    values[name] = value
    return values


def checkpoint_columns(
    metrics: ProgramMetrics, event: Event, *, strict: bool = False
) -> dict[str, object]:
    """Returns the columns of a checkpoint, by key, in the order of the metrics."""
    assert event.reading is not None
    assert event.baseline is not None
    context = metric_contexts.at_checkpoint(
        event.name, event.reading, event.baseline, metrics.figures
    )
    return _columns(metrics.every("checkpoint_metrics"), context, event.custom, strict)


def summary_columns(metrics: ProgramMetrics, end: Event) -> dict[str, object]:
    """Returns the figures of a run, by key, in the order of the metrics."""
    assert end.reading is not None
    assert end.baseline is not None
    assert end.peaks is not None
    context = metric_contexts.at_end(end.reading, end.baseline, end.peaks)
    return _columns(metrics.every("summary_metrics"), context, end.latest_custom, strict=False)


def definitions(metrics: Iterable[Metric], *, strict: bool = False) -> list[tuple[str, str]]:
    """Returns the definitions of metrics."""
    found = []
    for metric in metrics:
        if strict and isinstance(metric, FigureMetric):
            continue
        with FAULTS.kept_in(f"definition of {type(metric).__name__}"):
            name, definition = str(metric.name), ""
            with FAULTS.kept_in(f"definition of {name}"):
                definition = str(metric.get_definition())
            found.append((name, definition))
    return found


def _columns(
    metrics: Iterable[Metric], context: MetricContext, custom: Mapping[str, object], strict: bool
) -> dict[str, object]:
    columns: dict[str, object] = {}
    for metric in metrics:
        kind = type(metric)
        if kind in BUILT_IN:  # without the boundary, which costs as much as the value
            value = metric.collect(context)
            if value is not None and not (strict and kind is FigureMetric):
                columns[metric.name] = value
            continue
        with FAULTS.kept_in(f"metric {kind.__qualname__}"):
            name = str(metric.name)
            value = custom.get(name) if is_added(metric) else metric.collect(context)
            if value is not None:
                columns[name] = value
    return columns
