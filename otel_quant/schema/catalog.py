"""What is made of all figures: every attribute, every metric, and the quantities by which runs are compared.

`docs/telemetry.md` is generated from it, and dashboards may use only what is in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, product
from operator import attrgetter
from typing import Final

from otel_quant.schema import figures, semconv
from otel_quant.schema.dataclass import dataclass, replace
from otel_quant.schema.semconv import Attribute, Place

_SENTENCES: Final[dict[figures.Part, str]] = {
    "start": "{}, at the start of the step or the run.",
    "end": "{}, at its end.",
    "delta": "{}: the value at the end minus the value at the start; negative if it fell.",
    "peak": "{}: the highest value from start to end.",
}


def _figures() -> Iterator[tuple[str, figures.Figure]]:
    """Yields every figure with the beginning of its attributes' names."""
    for resource in figures.RESOURCES:
        yield from ((figures.PREFIX, figure) for figure in resource.figures)
        yield from ((resource.device_stem, figure) for figure in resource.device_figures)


def _metrics() -> Iterator[figures.Metric]:
    for stem, figure in _figures():
        device = () if stem == figures.PREFIX else (semconv.HW_ID,)
        for series in figure.steps:
            labels = (*semconv.STEP_LABELS, *series.labels, *device, semconv.ERROR_TYPE)
            yield replace(series.metric, attributes=labels)
        if figure.live is not None:
            yield replace(figure.live.metric, attributes=(*figure.live.labels, *device))


def _attributes_of(resource: figures.Resource) -> Iterator[Attribute]:
    stem = resource.device_stem
    if resource.device_figures:
        index = "Position of the device among those that the process can see, from 0."
        yield Attribute(stem + semconv.DEVICE_INDEX, "int", "", index, ("device",), "0")
    for figure in resource.figures:
        yield from _parts_of(figures.PREFIX, figure, ("run", "step"))
    for figure in resource.device_figures:
        yield from _parts_of(stem, figure, ("device",))
    # On records of checkpoints, and of readings if there are any in between.
    for figure in filter(attrgetter("checkpoint"), resource.figures):
        brief = f"{figure.brief}, since the run began." if figure.is_total else f"{figure.brief}."
        yield _attribute(semconv.CHECKPOINT_PREFIX, figure, brief, ("checkpoint",))
        if resource.is_sampled:
            yield _attribute(semconv.READING_PREFIX, figure, brief, ("reading",))


def _parts_of(stem: str, figure: figures.Figure, places: tuple[Place, ...]) -> Iterator[Attribute]:
    for part in figure.parts:
        name = figure.attribute(part, stem)
        sentence = "{}." if name == stem + figure.name else _SENTENCES[part]
        made = _attribute(stem, figure, sentence.format(figure.brief), places)
        yield replace(made, name=name)


def _attribute(
    stem: str, figure: figures.Figure, brief: str, places: tuple[Place, ...]
) -> Attribute:
    kind: semconv.Type = "double" if "." in figure.example else "int"
    return Attribute(stem + figure.checkpoint, kind, figure.unit, brief, places, figure.example)


def _labels() -> Iterator[Attribute]:
    """Yields the attributes of metrics that tell figures of one metric apart."""
    values: dict[str, dict[str, None]] = {}
    for _, figure in _figures():
        for series in figure.series:
            for key, value in series.labels.items():
                values.setdefault(key, {})[value] = None
    for key, known in values.items():
        brief = " or ".join(f"`{value}`" for value in known)
        yield Attribute(key, "string", "", f"{brief}.", ("metric",), next(iter(known)))


ATTRIBUTES: Final = (
    *semconv.ATTRIBUTES,
    *chain.from_iterable(map(_attributes_of, figures.RESOURCES)),
    *_labels(),
)
"""Every attribute, in the order of the documentation."""

METRIC_BY_NAME: Final = {metric.name: metric for metric in (*semconv.METRICS, *_metrics())}
METRICS: Final = tuple(METRIC_BY_NAME.values())  # Every metric, in the order of the documentation

FORMER: Final = {old: each.name for each in semconv.ATTRIBUTES for old in each.former} | {
    replace(figure, name=old).attribute(part, stem): figure.attribute(part, stem)
    for stem, figure in _figures()
    for old in figure.former
    for part in figure.parts
}
"""The present name of each attribute that was renamed, by its former one."""


GROUPS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("Program", ("process.command", "process.executable", "service.")),
    ("Machine", ("host.", "os.", "hw.", "quant.host.", "quant.memory.", "quant.gpu.", "container.", "k8s.")),
    ("Versions", ("process.runtime.", "quant.otel_quant.", "quant.librar", "telemetry.")),
    ("Source and pipeline", ("vcs.", "quant.vcs.", "cicd.")),
    ("Quantization", (figures.PREFIX,)),
    ("Other", ("",)),
)  # fmt: skip
"""What made a run, in groups: the title of each, and how the names of its attributes begin."""


def attributes_on(place: Place) -> Iterator[Attribute]:
    """Yields the attributes that are used at a place, in the order of the documentation."""
    return (attribute for attribute in ATTRIBUTES if place in attribute.places)


# --- quantities ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number of a whole recording, a process or a step, by which runs are compared.

    `otel_quant.recordings.summary` computes it from the recording, as these fields describe.
    """

    name: str  # ``memory.peak``
    unit: str  # UCUM unit
    kind: figures.Kind
    brief: str
    heading: str = ""  # In tables; empty for a quantity that only its name brings up
    attributes: tuple[str, ...] = ()  # Of spans; several are added up
    device: str = ""  # Attribute of records of devices, added up over the devices
    checkpoint: str = ""  # Attribute of checkpoints: the highest counts
    reading: str = ""  # Attribute of the last reading: the highest so far
    now: str = ""  # Attribute of the last reading: the value then
    at_least: tuple[str, ...] = ()  # Attributes of runs: lower bounds of the recording's value
    curve: str = ""  # Series of the launcher's curve, which counts for the program
    over_processes: figures.Over = "highest"
    over_steps: figures.Over = "highest"
    is_smaller_better: bool = True
    is_of_steps: bool = True  # Steps have it too
    matters: float = 0.0  # Smallest difference that does


def _quantity(figure: figures.Figure, part: figures.Part, over: figures.Over) -> Quantity:
    """Returns the quantity that a part of a figure is."""
    attribute = figure.attribute(part)
    return Quantity(
        semconv.short(attribute), figure.unit, figure.kind, figure.brief, figure.heading, (attribute,),
        curve=figure.curve, over_processes=figure.over_processes or over, over_steps=over,
        is_smaller_better=figure.is_smaller_better,
        matters=figures.MATTERS.get(figure.unit, 0.0) if figure.matters is None else figure.matters,
    )  # fmt: skip


def _peak(figure: figures.Figure) -> Quantity:
    """Returns the highest value of a figure that rises and falls, which records of the log have too."""
    peak = replace(_quantity(figure, "peak", "highest"), brief=f"{figure.brief}: the highest")
    if figure.parts == figures.LEVEL:
        peak = replace(peak, heading=f"{figure.heading} PEAK")
    if figure.checkpoint:
        now = semconv.READING_PREFIX + figure.checkpoint
        checkpoint = semconv.CHECKPOINT_PREFIX + figure.checkpoint
        peak = replace(peak, checkpoint=checkpoint, reading=f"{now}_peak", now=now)
    return peak


def _of_resources() -> Iterator[Quantity]:
    """Yields the amounts of figures that only rise, and the peaks of others."""
    for resource in figures.RESOURCES:
        for figure in resource.figures:
            if figure.is_total:
                yield _quantity(figure, "delta", "sum")
            elif "peak" in figure.parts:
                yield _peak(figure)


def _of_models() -> Iterator[Quantity]:
    compared = [figure for figure in figures.MODEL_FIGURES if figure.compared]
    for role, figure in product(("float", "quantized"), compared):
        attribute = semconv.of_model(role, figure.name)
        yield Quantity(
            semconv.short(attribute), figure.unit, "cost", f"{role} model: {figure.compared}",
            attributes=(attribute,), is_smaller_better=figure.is_smaller_better, is_of_steps=False,
        )  # fmt: skip


def _quantities() -> Sequence[Quantity]:
    made = {each.name: each for each in _of_resources()}
    first = (
        Quantity("duration", "s", "time", "Time from start to end", "TIME", over_steps="sum", matters=0.25),
        Quantity("cpu.time", "s", "time", "CPU time of the process tree", "CPU", (semconv.CPU_USER, semconv.CPU_SYSTEM), curve="cpu", over_processes="sum", over_steps="sum", matters=0.25),
        made.pop(semconv.short(semconv.CPU_WAIT)),
        Quantity("cpu.waits", "s", "time", "Time for which threads waited for a processor, added up, at most", curve="cpu.waits", over_processes="sum", over_steps="sum", matters=0.25),
        Quantity(semconv.short(semconv.CALIBRATION_SAMPLE_RATE), "{sample}/s", "time", "Calibration samples per second", "SAMPLES/S", (semconv.CALIBRATION_SAMPLE_RATE,), is_smaller_better=False),
        # The highest tree held at least what its main process held.
        replace(made.pop(semconv.short(semconv.MEMORY_PEAK)), at_least=(semconv.MEMORY_PROCESS_PEAK,)),
        Quantity("memory.seen", "By", "memory", "RSS of the process tree: the highest at a checkpoint", "MEM SEEN", checkpoint=semconv.CHECKPOINT_MEMORY, matters=figures.MATTERS["By"]),
        Quantity(semconv.short(semconv.MEMORY_PROCESS_PEAK), "By", "memory", "RSS of the main process alone: the highest", attributes=(semconv.MEMORY_PROCESS_PEAK,), is_of_steps=False, matters=figures.MATTERS["By"]),
        # Older recordings have it of each device alone.
        replace(made.pop(semconv.short(semconv.GPU_TREE_PEAK)), device=semconv.GPU_DEVICE_TREE_PEAK),
        made.pop(semconv.short(semconv.GPU_MEMORY_PEAK)),
        Quantity("gpu.torch_allocated.peak", "By", "gpu", "Memory that torch has allocated on all GPUs: the highest", "GPU ALLOCATED", device=semconv.GPU_ALLOCATED_PEAK, over_processes="sum", matters=figures.MATTERS["By"]),
    )  # fmt: skip
    return *first, *made.values(), *_of_models()


QUANTITIES: Final = tuple(_quantities())  # Every quantity, in the order of tables
