"""Every attribute and every metric: those of `semconv.py` and those of the resources.

`docs/telemetry.md` is generated from it, and dashboards may use only what is in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from otel_quant.schema import semconv
from otel_quant.schema.figures import RESOURCES, Figure, Metric, Part, Resource
from otel_quant.schema.semconv import Attribute, Place

_SENTENCES: Final[dict[Part, str]] = {
    "start": "{}, at the start of the step or the run.",
    "end": "{}, at its end.",
    "delta": "{}: the value at the end minus the value at the start; negative if it fell.",
    "peak": "{}: the highest value from start to end.",
}


def attributes(resources: Sequence[Resource]) -> tuple[Attribute, ...]:
    """Returns every attribute, in the order of the documentation."""
    made = (attribute for resource in resources for attribute in _attributes_of(resource))
    return (*semconv.ATTRIBUTES, *made, *_labels_of(resources))


def metrics(resources: Sequence[Resource]) -> tuple[Metric, ...]:
    """Returns every metric, in the order of the documentation."""
    made: dict[str, Metric] = {}
    for resource in resources:
        for figure in (*resource.figures, *resource.device_figures):
            device = (semconv.HW_ID,) if figure in resource.device_figures else ()
            for series in figure.steps:
                labels = (*semconv.STEP_LABELS, *series.labels, *device, semconv.ERROR_TYPE)
                made[series.metric.name] = replace(series.metric, attributes=labels)
            if figure.live is not None:
                metric = figure.live.metric
                made[metric.name] = replace(metric, attributes=(*figure.live.labels, *device))
    return (*semconv.METRICS, *made.values())


def _attributes_of(resource: Resource) -> Iterator[Attribute]:
    stem = resource.device_stem
    if resource.device_figures:
        yield Attribute(
            stem + semconv.DEVICE_INDEX,
            "int",
            "",
            "Position of the device among those that the process can see, from 0.",
            ("device",),
            "0",
        )
    places: tuple[tuple[str, Sequence[Figure], tuple[Place, ...]], ...] = (
        (semconv.PREFIX, resource.figures, ("run", "step")),
        (stem, resource.device_figures, ("device",)),
    )
    for prefix, figures, where in places:
        for figure in figures:
            for part in figure.parts:
                yield _attribute(prefix, figure, part, where)
    for figure in resource.figures:
        if figure.checkpoint:
            since = ", since the run began" if figure.is_total else ""
            records: list[tuple[str, Place]] = [(semconv.CHECKPOINT_PREFIX, "checkpoint")]
            if resource.is_sampled:
                records.append((semconv.READING_PREFIX, "reading"))
            for prefix, place in records:
                yield Attribute(
                    prefix + figure.checkpoint,
                    "double" if figure.unit == "s" else "int",
                    figure.unit,
                    f"{figure.brief}{since}.",
                    (place,),
                    figure.example,
                )


def _labels_of(resources: Sequence[Resource]) -> Iterator[Attribute]:
    """Yields the attributes of metrics that tell figures of one metric apart."""
    values: dict[str, dict[str, None]] = {}
    for resource in resources:
        for figure in (*resource.figures, *resource.device_figures):
            for series in (*figure.steps, *([figure.live] if figure.live else [])):
                for key, value in series.labels.items():
                    values.setdefault(key, {})[value] = None
    for key, known in values.items():
        brief = " or ".join(f"`{value}`" for value in known)
        yield Attribute(key, "string", "", f"{brief}.", ("metric",), next(iter(known)))


def _attribute(stem: str, figure: Figure, part: Part, places: tuple[Place, ...]) -> Attribute:
    name = figure.attribute(part, stem)
    sentence = "{}." if name == stem + figure.name else _SENTENCES[part]
    return Attribute(
        name,
        "double" if figure.unit == "s" else "int",
        figure.unit,
        sentence.format(figure.brief),
        places,
        figure.example,
    )


ATTRIBUTES: Final = attributes(RESOURCES)
"""Every attribute, in the order of the documentation."""

METRICS: Final = metrics(RESOURCES)
"""Every metric, in the order of the documentation."""

METRIC_BY_NAME: Final = {metric.name: metric for metric in METRICS}


def attributes_on(place: Place) -> Iterator[Attribute]:
    """Yields the attributes that are used at a place, in the order of the documentation."""
    return (attribute for attribute in ATTRIBUTES if place in attribute.places)


def former_names(resources: Sequence[Resource] = RESOURCES) -> dict[str, str]:
    """Returns the present name of each attribute that older recordings have under another."""
    found = {old: each.name for each in semconv.ATTRIBUTES for old in each.former}
    for resource in resources:
        places = (
            (semconv.PREFIX, resource.figures),
            (resource.device_stem, resource.device_figures),
        )
        for stem, figures in places:
            for figure in figures:
                for old in figure.former:
                    before = replace(figure, name=old)
                    found |= {
                        before.attribute(part, stem): figure.attribute(part, stem)
                        for part in figure.parts
                    }
    return found


FORMER: Final = former_names()
"""The present name of each attribute that was renamed, by its former one."""
