"""Columns of the local file for a checkpoint and for a run: one value for each metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.export.quark_yaml import metric_contexts
from otel_quant.export.quark_yaml.metrics import FigureMetric, Metric, MetricContext
from otel_quant.export.quark_yaml.program_metrics import BUILT_IN, ProgramMetrics, is_added
from otel_quant.schema.events import Event


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
