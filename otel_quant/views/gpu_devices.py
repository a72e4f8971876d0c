"""GPUs beside each other: what each did over time, what steps used of each, and which is nearest to its limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from operator import attrgetter
from typing import Any, Final, NamedTuple

from otel_quant.diagnosis.headline import LONGEST_NAME, of_limit
from otel_quant.format import series
from otel_quant.recordings import model, summary
from otel_quant.recordings.gpus import gpu_limit_of_one
from otel_quant.schema import semconv
from otel_quant.schema.figures import GPU, GPU_POWER, GPU_UTILIZATION
from otel_quant.schema.units import cut, size
from otel_quant.views.charts import Chart, ChartSeries, Style
from otel_quant.views.document import ONE, Column, Row, Table
from otel_quant.views.steps import most_telling, process_name
from otel_quant.views.text import number_text, share_of

_MOST_STEPS: Final = 60
_MOST_GROWING: Final = 10
_MUCH: Final = 0.05  # Share of a GPU's memory from which on a model is on it
WHOLE_RUN: Final = "(whole run)"


def activity_charts(grid: Any) -> Iterator[Chart]:
    """Yields charts of what the GPUs did, of each figure one with all devices."""
    for figure in (GPU_UTILIZATION, GPU_POWER):
        found = sorted(
            (gpu[0], name)
            for name in grid.levels
            if (gpu := series.gpu_activity(name)) is not None and gpu[1] == figure.curve
        )
        shown: list[ChartSeries] = []
        texts = []
        for index, name in found:
            values = grid.values(name, "last")
            style: Style = "second" if shown else "main"
            shown.append(ChartSeries(f"GPU {index}", values, style))
            known = [each for each in values if each is not None]
            mean = number_text(sum(known) / len(known), figure.unit)
            highest = number_text(grid.peak(name)[0], figure.unit)
            texts.append(f"GPU {index}: {mean} on average, at most {highest}")
        if shown:
            title = f"{figure.name.capitalize()} of the GPU{'s' * (len(shown) > 1)}"
            yield Chart(f"gpus-{figure.name}", title, figure.unit, grid.times, shown,
                        summary=f"{'; '.join(texts)}.", every=grid.every)  # fmt: skip


class _Use(NamedTuple):
    """What a step, or a run, has used of one GPU."""

    step: str
    depth: int
    process: str | None  # None where there is one alone
    gpu: int
    name: str
    of: Mapping[str, float | None]  # By name of the figure: what was added, or the highest
    memory: float | None  # The highest of the program; of all programs where no more is known
    share: float | None  # Of what the device has


def _of(name: str, heading: str, unit: str, key: str) -> Column[_Use]:
    made = Column[_Use](heading, unit, lambda each: each.of[name], f"gpu_{key}")
    return made._replace(shown_in=ONE, absent="-", spare=1)


_COLUMNS: Final = (
    Column[_Use]("STEP", None, lambda each: each.step),
    Column[_Use]("PROCESS", None, lambda each: each.process),
    Column[_Use]("GPU", "", lambda each: each.gpu, "gpu"),
    Column[_Use]("NAME", None, lambda each: each.name, spare=2),
    Column[_Use]("MEM PEAK", "By", lambda each: each.memory, "gpu_memory_peak_bytes", shown_in=ONE, absent="-", title="of the program; of all programs where the driver tells no more"),
    Column[_Use]("OF LIMIT", "1", lambda each: each.share, "gpu_limit_share", shown_in="%", absent="-"),
    _of("utilization", "HIGHEST UTILIZATION", "1", "utilization_peak"),
    _of("power", "HIGHEST POWER", "W", "power_peak_watts"),
    _of("energy", "ENERGY", "J", "energy_joules"),
)  # fmt: skip

_ATTRIBUTES: Final = {
    each.name: each.attribute("peak" if "peak" in each.parts else each.parts[0], GPU.device_stem)
    for each in GPU.device_figures
}


def _uses(recording: model.Recording, runs: Sequence[model.RecordedRun]) -> Iterator[_Use]:
    """Yields what runs have used of each GPU, and the steps of these that tell most."""
    for run in runs:
        process = process_name(recording, run) if len(recording.runs) > 1 else None
        yield from _made(run.devices, WHOLE_RUN, 0, process)
        for placed in most_telling(model.steps_in(recording, [run]), _MOST_STEPS):
            name = cut(placed.step.name, LONGEST_NAME)
            yield from _made(placed.step.devices, name, placed.depth, process)


def _made(
    devices: Sequence[model.Attributes], step: str, depth: int, process: str | None
) -> Iterator[_Use]:
    for each in devices:
        of = {name: model.number(each, attribute) for name, attribute in _ATTRIBUTES.items()}
        own = of["memory"] if of["process_memory"] is None else of["process_memory"]
        index = int(model.number(each, GPU.device_stem + semconv.DEVICE_INDEX) or 0)
        called, share = str(each.get(semconv.HW_NAME, "")), share_of(own, of["memory.limit"])
        yield _Use(step, depth, process, index, called, of, own, share)


def device_table(recording: model.Recording, runs: Sequence[model.RecordedRun]) -> Table:
    """Returns what runs and their steps have used of each GPU."""
    return Table.of(
        _COLUMNS, list(_uses(recording, runs)), row=lambda each, cells: Row(cells, each.depth),
        known_only=True, id="gpus", caption="GPUs",
        note="A run of a process begins with its first step. Energy is of the device, whatever program used it.",
    )  # fmt: skip


def nearest_to_its_limit(recording: model.Recording) -> Iterator[str]:
    """Yields which of several GPUs with the program's memory is nearest to its limit."""
    fullest: dict[int, _Use] = {}
    for each in _uses(recording, recording.runs):
        known = fullest.get(each.gpu, each).share or 0
        # Of equal ones a step, which knows where it was
        if (each.share or 0) >= max(known, _MUCH) and each.of["process_memory"] is not None:
            fullest[each.gpu] = each
    if len(fullest) > 1:
        most = max(fullest.values(), key=lambda each: each.share or 0)
        where = "" if most.step == WHOLE_RUN else f" in {most.step}"
        memory = most.memory or 0
        near = of_limit(memory, most.of["memory.limit"])
        yield f"Of {len(fullest)} GPUs GPU {most.gpu} came nearest to its limit{where}: {size(memory)}, {near}."


def growing_on_gpus(recording: model.Recording, steps: Iterable[model.PlacedStep]) -> Iterator[str]:
    """Yields in which steps the program's memory on a GPU goes on growing with the samples, or the layers."""
    _, gpus = gpu_limit_of_one(recording)
    for each in nlargest(_MOST_GROWING, steps, attrgetter("duration")):
        done, unit = each.step.counts.current.done, each.step.counts.newest
        for index in range(int(gpus)) if done else ():
            name = series.gpu_process_used(index)
            if grown := summary.growing(recording, each, name):
                yield (
                    f"Memory of GPU {index} kept growing in {cut(each.step.name, LONGEST_NAME)}, by {size(grown / done)} with each "
                    f"{unit}, {size(grown)} in all: a leak, or data that is kept."
                )
