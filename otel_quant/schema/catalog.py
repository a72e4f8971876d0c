"""Every attribute and every metric: those of `semconv.py` and those of the resources.

`docs/telemetry.md` is generated from it, and dashboards may use only what is in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from otel_quant.schema import semconv
from otel_quant.schema.figures import (
    LEVEL,
    MATTERS,
    MODEL_FIGURES,
    PREFIX,
    RESOURCES,
    Figure,
    Kind,
    Metric,
    Over,
    Part,
    Resource,
)
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


# --- quantities ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number of a whole recording, a process or a step, by which runs are compared.

    `otel_quant.recordings.summary` computes it from all that a recording holds, as this says.
    """

    name: str  # ``memory.peak``
    unit: str  # UCUM unit
    kind: Kind
    brief: str
    heading: str = ""  # In tables; empty for a quantity that only its name brings up
    attributes: tuple[str, ...] = ()  # Of spans; several are added up
    device: str = ""  # Attribute of records of devices, added up over the devices
    checkpoint: str = ""  # Attribute of checkpoints: the highest counts
    reading: str = ""  # Attribute of the last reading: the highest so far
    now: str = ""  # Attribute of the last reading: the value then
    at_least: tuple[str, ...] = ()  # Attributes of runs, which the whole cannot be below
    curve: str = ""  # Series of the launcher's curve, which counts for the whole program
    over_processes: Over = "highest"
    over_steps: Over = "highest"
    is_smaller_better: bool = True
    is_of_steps: bool = True  # Steps have it too
    matters: float = 0.0  # Smallest difference that does
    former: tuple[str, ...] = ()


def _quantities(resources: tuple[Resource, ...]) -> Iterator[Quantity]:
    """Yields the peak of each level and the amount of each total."""
    for resource in resources:
        for figure in resource.figures:
            part: Part = "delta" if figure.is_total else "peak"
            if part not in figure.parts:
                continue
            attribute = figure.attribute(part)
            read = "" if figure.is_total else figure.checkpoint
            over: Over = "sum" if figure.is_total else "highest"
            least = MATTERS.get(figure.unit, 0.0) if figure.matters is None else figure.matters
            yield Quantity(
                attribute.removeprefix(PREFIX),
                figure.unit,
                figure.kind,
                figure.brief if figure.is_total else f"{figure.brief}: the highest",
                f"{figure.heading} PEAK"
                if figure.heading and figure.parts == LEVEL
                else figure.heading,
                (attribute,),
                checkpoint=f"quant.checkpoint.{read}" if read else "",
                reading=f"quant.reading.{read}_peak" if read else "",
                now=f"quant.reading.{read}" if read else "",
                curve=figure.curve,
                over_processes=figure.over_processes or over,
                over_steps=over,
                is_smaller_better=figure.is_smaller_better,
                matters=least,
                former=tuple(
                    name if figure.is_total else f"{name}.{part}" for name in figure.former
                ),
            )


def _of_models() -> Iterator[Quantity]:
    for role in ("float", "quantized"):
        for figure in MODEL_FIGURES:
            if figure.compared:
                name = f"model.{role}.{figure.name}"
                yield Quantity(
                    name, figure.unit, "cost", f"{role} model: {figure.compared}",
                    attributes=(PREFIX + name,),
                    is_smaller_better=figure.is_smaller_better,
                    is_of_steps=False,
                )  # fmt: skip


def quantities(resources: tuple[Resource, ...] = RESOURCES) -> tuple[Quantity, ...]:
    """Returns every quantity, in the order of tables."""
    made = {each.name: each for each in _quantities(resources)}
    first = (
        Quantity("duration", "s", "time", "Time from start to end", "TIME", over_steps="sum", matters=0.25),
        Quantity(
            "cpu.time", "s", "time", "CPU time of the process tree", "CPU",
            ("quant.cpu.user", "quant.cpu.system"), curve="cpu",
            over_processes="sum", over_steps="sum", matters=0.25,
        ),
        made.pop("cpu.wait"),
        Quantity(
            "cpu.waits", "s", "time", "Time for which threads waited for a processor, added up, at most",
            curve="cpu.waits", over_processes="sum", over_steps="sum", matters=0.25,
        ),
        Quantity(
            "calibration.sample_rate", "{sample}/s", "time", "Calibration samples per second",
            "SAMPLES/S",
            attributes=("quant.calibration.sample_rate",), is_smaller_better=False,
        ),
        # The highest tree held at least what its main process held.
        replace(made.pop("memory.peak"), at_least=("quant.memory.process_peak",)),
        Quantity(
            "memory.seen", "By", "memory", "RSS of the process tree: the highest at a checkpoint", "MEM SEEN",
            checkpoint="quant.checkpoint.memory", matters=MATTERS["By"],
        ),
        Quantity(
            "memory.process_peak", "By", "memory", "RSS of the main process alone: the highest",
            attributes=("quant.memory.process_peak",), is_of_steps=False, matters=MATTERS["By"],
        ),
        made.pop("gpu.memory.peak"),
        Quantity(
            "gpu.torch_allocated.peak", "By", "gpu", "Memory that torch has allocated on all GPUs: the highest",
            "GPU ALLOCATED",
            device="quant.gpu.device.torch_allocated.peak", over_processes="sum",
            matters=MATTERS["By"],
        ),
    )  # fmt: skip
    return tuple(chain(first, made.values(), _of_models()))


QUANTITIES: Final[tuple[Quantity, ...]] = quantities()
"""Every quantity, in the order of tables."""
