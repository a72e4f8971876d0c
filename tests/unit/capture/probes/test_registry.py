"""Resources that are listed do not take each other's names, and Quark's columns are all there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from otel_quant.export.quark_yaml.metrics import CHECKPOINT_METRICS
from otel_quant.schema import catalog
from otel_quant.schema.figures import RESOURCES

FIGURES = [figure for resource in RESOURCES for figure in resource.figures]
NOT_MEASURED = {"step", "timestamp", "relative_time_secs"}


def repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def test_no_two_resources_figures_or_columns_have_one_name() -> None:
    assert repeated(resource.name for resource in RESOURCES) == []
    assert repeated(figure.name for figure in FIGURES) == []
    assert repeated(figure.checkpoint for figure in FIGURES if figure.checkpoint) == []
    assert repeated(figure.column.key for figure in FIGURES if figure.column) == []


def test_quarks_columns_are_those_that_the_figures_declare() -> None:
    declared = {f.column.key for f in FIGURES if f.column is not None and f.column.in_quark}
    assert declared == {str(metric.name) for metric in CHECKPOINT_METRICS} - NOT_MEASURED


def test_every_attribute_of_a_metric_is_documented() -> None:
    documented = {attribute.name for attribute in catalog.attributes_on("metric")}
    assert {key for metric in catalog.METRICS for key in metric.attributes} - documented == set()
