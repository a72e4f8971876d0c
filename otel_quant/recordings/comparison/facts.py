"""What differs between runs beside their figures, and which figures that changes.

It is a table, a row for each fact: to leave out all figures where anything differs would leave none
between two machines of a CI system.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import Final, TypeAlias

from otel_quant.recordings.comparison.runs import ComparedRun
from otel_quant.recordings.model import script_of
from otel_quant.recordings.summary import MEMORY_PEAK, is_of_program, outermost_runs, peak
from otel_quant.schema import semconv
from otel_quant.schema.quantities import QUANTITIES

Value: TypeAlias = str | int | float | bool

_ALL: Final = frozenset(quantity.kind for quantity in QUANTITIES)
_NOTHING: Final[frozenset[str]] = frozenset()
_TIME: Final[frozenset[str]] = frozenset({"time"})
_TIME_MEMORY: Final[frozenset[str]] = frozenset({"time", "memory"})
_TIME_MEMORY_GPU: Final[frozenset[str]] = frozenset({"time", "memory", "gpu"})

_NEARLY: Final = 0.01
"""Two machines of one kind have a memory that differs by some pages."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that is known of a run."""

    name: str  # What it is
    attribute: str  # Name of the attribute that says so, of the run or of its steps; empty for none
    # Figures that are not compared where it differs, by their kinds or names
    changes: frozenset[str] = _NOTHING
    unit: str = ""  # Unit of a number: ``By`` or nothing


FACTS: Final[tuple[Fact, ...]] = (
    Fact("command", semconv.PROCESS_COMMAND_LINE),
    Fact("library", semconv.LIBRARY_NAME),
    Fact("calibration method", semconv.CALIBRATION_METHOD),
    Fact("calibration samples", semconv.CALIBRATION_SAMPLE_COUNT),
    Fact("configuration", semconv.CONFIG_NAME),
    Fact("format", semconv.FORMAT),
    Fact("weight type", semconv.WEIGHT_TYPE),
    Fact("activation type", semconv.ACTIVATION_TYPE),
    Fact("per channel", semconv.PER_CHANNEL),
    Fact("bits", semconv.BITS),
    Fact("block size", semconv.BLOCK_SIZE),
    Fact("algorithms", semconv.ALGORITHMS),
    Fact("layers", semconv.LAYER_COUNT),
    Fact("model read", semconv.INPUT_PATH),
    Fact("model written", semconv.OUTPUT_PATH),
    Fact("SHA-256 of the float model", "quant.model.float.sha256"),
    Fact("SHA-256 of the quantized model", "quant.model.quantized.sha256"),
    Fact("processes of the launcher", semconv.RUN_WORLD_SIZE, _TIME_MEMORY_GPU),
    Fact("machine", semconv.HOST_NAME),
    Fact("system", semconv.OS_DESCRIPTION, _TIME),
    Fact("CPU", semconv.CPU_MODEL, _TIME),
    Fact("CPUs", semconv.CPU_COUNT, _TIME_MEMORY),
    Fact("limit of CPUs", semconv.CPU_LIMIT, _TIME_MEMORY),
    Fact("limit of memory", semconv.MEMORY_LIMIT, _TIME_MEMORY, "By"),
    Fact("limit of addresses", semconv.ADDRESS_SPACE_LIMIT, _TIME_MEMORY, "By"),
    Fact("limit of file sizes", semconv.FILE_SIZE_LIMIT, _NOTHING, "By"),
    Fact("GPUs", semconv.GPU_NAMES, _TIME_MEMORY_GPU),
    Fact("GPU drivers", semconv.GPU_DRIVERS, _TIME_MEMORY_GPU),
    Fact("Python", semconv.PYTHON_VERSION, _TIME_MEMORY),
    Fact("otel-quant", semconv.OTEL_QUANT_VERSION, _TIME_MEMORY),
    Fact("commit", semconv.VCS_REVISION),
    Fact("branch", semconv.VCS_REF),
    Fact("uncommitted changes", semconv.VCS_DIRTY),
)  # fmt: skip
"""What may differ, in the order in which it is shown. RSS depends on the number of threads, which
follows the processors; the processor's model and the system change how fast it is reached."""


@dataclass(frozen=True, slots=True)
class FactDifference:
    """A fact in which sides differ."""

    name: str  # What it is
    # For each side the values of its runs, each once; empty for one that is not known
    values: tuple[tuple[Value, ...], ...]
    changes: frozenset[str]  # Figures that are not compared for it, by their kinds or names
    unit: str = ""  # Unit of the values

    def is_unlike(self, at: int) -> bool:
        """Whether a side is known to differ from the base."""
        base, new = self.values[0], self.values[at]
        return bool(base and new) and not (_are_among(base, new) and _are_among(new, base))


def fact_differences(sides: Sequence[Sequence[ComparedRun]]) -> list[FactDifference]:
    """Returns in what the runs of two or more sides differ.

    A fact that is not known of a side is shown and changes nothing: the side may be alike.
    """
    libraries = dict.fromkeys(name for side in sides for run in side for name in _libraries(run))
    facts: list[tuple[Fact, Callable[[ComparedRun], Value | None]]] = [
        (Fact("script", "", _ALL), _script),
        (Fact("memory was read", "", frozenset({MEMORY_PEAK})), _when_read),
        *((fact, partial(_value, name=fact.attribute)) for fact in FACTS),
        *(
            (Fact(name, "", _TIME_MEMORY_GPU), partial(_version, library=name))
            for name in libraries
        ),
    ]
    if not all(is_of_program(run.recording) for side in sides for run in side):
        # A profile has one process, and nobody knows what the others had added to its whole.
        facts.append((Fact("recorded processes", "", _ALL), _processes))
    found = []
    for fact, value_of in facts:
        values = tuple(_distinct(map(value_of, side)) for side in sides)
        known = [value for side in values for value in side]
        differs = not all(_is_alike(value, known[0]) for value in known)
        if differs or (known and not all(values)):
            changes = fact.changes if differs else _NOTHING
            found.append(FactDifference(fact.name, values, changes, fact.unit))
    return found


def without_common_step(base: Sequence[ComparedRun], new: Sequence[ComparedRun]) -> bool:
    """Whether two sides have steps, and none of them in common."""
    first, second = ({path for run in side for path in run.steps} for side in (base, new))
    return bool(first) and bool(second) and first.isdisjoint(second)


def _version(run: ComparedRun, library: str) -> Value | None:
    return _libraries(run).get(library)


def _value(run: ComparedRun, name: str) -> Value | None:
    """Returns the values of an attribute, wherever a recording has them, each once."""
    sources = [
        run.recording.origin,
        *(each.attributes for each in run.recording.runs),
        *(each.step.attributes for each in run.steps.values()),
    ]
    found = dict.fromkeys(
        ", ".join(map(str, value)) if isinstance(value, tuple) else value
        for source in sources
        if (value := source.get(name)) is not None
    )
    return ", ".join(map(str, found)) if len(found) > 1 else next(iter(found), None)


def _script(run: ComparedRun) -> str | None:
    command = run.recording.origin.get(semconv.PROCESS_COMMAND_LINE)
    return script_of(command) if isinstance(command, str) and command else None


def _processes(run: ComparedRun) -> int:
    return len(outermost_runs(run.recording))


def _when_read(run: ComparedRun) -> str | None:
    """Returns when memory was read: Quark's own profiler does so at checkpoints alone."""
    known = peak(run.recording)
    if known is None:
        return None
    sampled = any(
        name in attributes
        for each in run.recording.runs
        for attributes in (each.attributes, each.last.attributes if each.last else {})
        for name in (semconv.MEMORY_PEAK, semconv.READING_MEMORY_PEAK)
    )
    all_the_time = sampled or known.source in ("launcher", "ending", "process", "sampled")
    return "all the time" if all_the_time else "at checkpoints"


def _libraries(run: ComparedRun) -> Mapping[str, str]:
    listed = run.recording.origin.get(semconv.LIBRARIES)
    names = [listed] if isinstance(listed, str) else listed if isinstance(listed, tuple) else []
    pairs = (str(each).rpartition(" ") for each in names)
    return {name: version for name, _, version in pairs if name}


def _distinct(values: Iterable[Value | None]) -> tuple[Value, ...]:
    found: dict[Value, None] = {}
    for value in values:
        if value is not None and not any(_is_alike(value, other) for other in found):
            found[value] = None
    return tuple(found)


def _are_among(values: Iterable[Value], others: Sequence[Value]) -> bool:
    return all(any(_is_alike(value, other) for other in others) for value in values)


def _is_alike(first: Value, second: Value) -> bool:
    if isinstance(first, int) and isinstance(second, int) and first > 1 << 20:
        return abs(first - second) <= _NEARLY * first
    if isinstance(first, str) and isinstance(second, str) and "/" in (first[:1], second[:1]):
        return PurePath(first).name == PurePath(second).name  # folders differ between checkouts
    return first == second
