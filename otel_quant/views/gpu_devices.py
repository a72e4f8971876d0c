"""GPUs beside each other: what each did over time, what steps used of each, and which is nearest to its limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any, Final, NamedTuple

from otel_quant.format import series
from otel_quant.recordings.model import Attributes, RecordedRun, Recording, number, steps_in
from otel_quant.schema import semconv
from otel_quant.schema.figures import GPU, GPU_POWER, GPU_UTILIZATION
from otel_quant.schema.units import cut, size
from otel_quant.views.charts import Chart, ChartSeries, Style
from otel_quant.views.document import ONE, Column, Row, Table
from otel_quant.views.steps import most_telling, process_name
from otel_quant.views.text import number_text, of_limit, share_of

_LONGEST_NAME: Final = 120

_MOST_STEPS: Final = 60

_MUCH: Final = 0.05
"""Share of a GPU's memory from which on a model is on it."""

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
            mean = number_text(fmean(each for each in values if each is not None), figure.unit)
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
    of: Attributes

    def figure(self, name: str) -> float | None:
        """Returns the part of a figure that is shown: what was added, or the highest."""
        figure = next(each for each in GPU.device_figures if each.name == name)
        part = "peak" if "peak" in figure.parts else figure.parts[0]
        return number(self.of, figure.attribute(part, GPU.device_stem))

    @property
    def gpu(self) -> int:
        return int(number(self.of, GPU.device_stem + semconv.DEVICE_INDEX) or 0)

    @property
    def memory(self) -> float | None:
        """The highest memory of the program; of all programs where no more is known."""
        own = self.figure("process_memory")
        return self.figure("memory") if own is None else own

    @property
    def share(self) -> float | None:
        return share_of(self.memory, self.figure("memory.limit"))


def _of(name: str, heading: str, unit: str, key: str) -> Column[_Use]:
    made = Column[_Use](heading, unit, lambda each: each.figure(name), f"gpu_{key}")
    return made._replace(shown_in=ONE, absent="-", spare=1)


_COLUMNS: Final = (
    Column[_Use]("STEP", None, lambda each: each.step),
    Column[_Use]("PROCESS", None, lambda each: each.process),
    Column[_Use]("GPU", "", lambda each: each.gpu, "gpu"),
    Column[_Use]("NAME", None, lambda each: each.of.get(semconv.HW_NAME, ""), spare=2),
    Column[_Use](
        "MEM PEAK", "By", lambda each: each.memory, "gpu_memory_peak_bytes", shown_in=ONE, absent="-",
        title="of the program; of all programs where the driver tells no more",
    ),
    Column[_Use]("OF LIMIT", "1", lambda each: each.share, "gpu_limit_share", shown_in="%", absent="-"),
    _of("utilization", "HIGHEST UTILIZATION", "1", "utilization_peak"),
    _of("power", "HIGHEST POWER", "W", "power_peak_watts"),
    _of("energy", "ENERGY", "J", "energy_joules"),
)  # fmt: skip


def _uses(recording: Recording, runs: Sequence[RecordedRun]) -> Iterator[_Use]:
    """Yields what runs have used of each GPU, and the steps of these that tell most."""
    for run in runs:
        process = process_name(recording, run) if len(recording.runs) > 1 else None
        for each in run.devices:
            yield _Use(WHOLE_RUN, 0, process, each)
        for placed in most_telling(steps_in(recording, [run]), _MOST_STEPS):
            for each in placed.step.devices:
                name = cut(placed.step.name, _LONGEST_NAME)
                yield _Use(name, placed.depth, process, each)


def device_table(recording: Recording, runs: Sequence[RecordedRun]) -> Table:
    """Returns what runs and their steps have used of each GPU."""
    return Table.of(
        _COLUMNS, list(_uses(recording, runs)), row=lambda each, cells: Row(cells, each.depth),
        known_only=True, id="gpus", caption="GPUs",
        note="Energy is of the device, whatever program used it.",
    )  # fmt: skip


def nearest_to_its_limit(recording: Recording) -> Iterator[str]:
    """Yields which of several GPUs with the program's memory is nearest to its limit."""
    fullest: dict[int, _Use] = {}
    for each in _uses(recording, recording.runs):
        known = fullest.get(each.gpu)
        # Of equal ones a step, which knows where it was
        if each.share and (known is None or each.share >= (known.share or 0)):
            fullest[each.gpu] = each
    own = [each for each in fullest.values() if (each.share or 0) >= _MUCH]
    own = [each for each in own if each.figure("process_memory") is not None]
    if len(own) > 1:
        most = max(own, key=lambda each: each.share or 0)
        where = "" if most.step == WHOLE_RUN else f" in {most.step}"
        near = of_limit(most.memory or 0, most.figure("memory.limit"))
        yield f"Of {len(own)} GPUs GPU {most.gpu} came nearest to its limit{where}: {size(most.memory or 0)}, {near}."
