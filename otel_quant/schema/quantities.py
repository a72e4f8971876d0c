"""What a person compares of runs, made of every figure: each level's peak, each total, models and a few more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from otel_quant.schema.figures import (
    LEVEL,
    MATTERS,
    MODEL_FIGURES,
    PREFIX,
    RESOURCES,
    Kind,
    Over,
    Part,
    Resource,
)


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
