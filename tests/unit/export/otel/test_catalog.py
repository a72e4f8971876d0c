"""No two quantities share a name, no name is the beginning of others, and Quark's columns are all there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import product
from typing import Final

from otel_quant.export.quark_yaml.metrics import CHECKPOINT_METRICS
from otel_quant.schema import catalog, semconv
from otel_quant.schema.figures import RESOURCES
from otel_quant.schema.readings import ALL_STEPS

VARIABLE_PARTS: Final = {
    "<role>": ("float", "quantized"),
    "<type>": ("int8", "int8_weight_only"),
    "<name>": ("accuracy",),
}
EVENTS: Final = {event.name: event.brief for event in semconv.EVENTS}
ATTRIBUTES: Final = {each.name: (each.unit, each.brief) for each in catalog.ATTRIBUTES}
FIGURES: Final = [figure for resource in RESOURCES for figure in resource.figures]
METRICS: Final = {each.name: (each.unit, each.brief) for each in catalog.METRICS}


def spelled_out(name: str) -> set[str]:
    """Returns a name with each value of its variable parts."""
    parts = [part for part in VARIABLE_PARTS if part in name]
    names = set()
    for values in product(*(VARIABLE_PARTS[part] for part in parts)):
        filled = name
        for part, value in zip(parts, values, strict=True):
            filled = filled.replace(part, value)
        names.add(filled)
    assert not any("<" in filled for filled in names), "give the variable part a value above"
    return names


def repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def test_no_name_is_also_a_namespace() -> None:
    names = set().union(*map(spelled_out, [*ATTRIBUTES, *METRICS, *EVENTS]))
    assert [
        (name, other) for name in names for other in names if other.startswith(f"{name}.")
    ] == []


def test_each_name_is_listed_once_for_each_signal() -> None:
    for listed in (catalog.ATTRIBUTES, catalog.METRICS, semconv.EVENTS, RESOURCES, FIGURES):
        assert repeated(each.name for each in listed) == []
    assert repeated(figure.checkpoint for figure in FIGURES if figure.checkpoint) == []
    assert repeated(figure.column.key for figure in FIGURES if figure.column) == []


def test_a_name_of_two_signals_is_one_quantity_with_one_unit() -> None:
    shared = ATTRIBUTES.keys() & METRICS.keys()
    assert {name: METRICS[name] for name in shared} == {name: ATTRIBUTES[name] for name in shared}
    assert EVENTS.keys() & (ATTRIBUTES.keys() | METRICS.keys()) == set()


def test_a_metric_of_a_model_is_the_attribute_of_its_name() -> None:
    of_models = {
        metric.name: METRICS[metric.name]
        for metric in catalog.METRICS
        if metric.name.startswith("quant.model.")
    }
    names = ("size", "params", "macs_contraction", "audit.problem_count")
    assert set(of_models) == {f"quant.model.{name}" for name in names}
    of_inference = {
        metric.name: METRICS[metric.name]
        for metric in catalog.METRICS
        if semconv.MODEL_ROLE in metric.attributes and metric.name not in of_models
    }
    assert of_inference == {name: ATTRIBUTES[name] for name in of_inference}
    assert of_models == {
        name: ATTRIBUTES[name.replace("quant.model.", "quant.model.<role>.")] for name in of_models
    }


def test_there_are_26_step_names() -> None:
    assert len(ALL_STEPS) == 26


def test_each_metric_of_steps_shows_a_part_that_its_figure_has() -> None:
    shown = [(figure, series) for figure in FIGURES for series in figure.steps]
    assert shown
    assert [series.metric.name for figure, series in shown if series.part not in figure.parts] == []


NOT_MEASURED = {"step", "timestamp", "relative_time_secs"}


def test_quark_columns_are_the_columns_declared_by_figures() -> None:
    declared = {f.column.key for f in FIGURES if f.column is not None and f.column.in_quark}
    assert declared == {str(metric.name) for metric in CHECKPOINT_METRICS} - NOT_MEASURED


def test_every_attribute_of_a_metric_is_documented() -> None:
    documented = {attribute.name for attribute in catalog.attributes_on("metric")}
    assert {key for metric in catalog.METRICS for key in metric.attributes} - documented == set()
