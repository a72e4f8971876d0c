"""Where the time and the memory of steps went, by line of code: what the sampler has seen of a recording."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from otel_quant.export.recording import layout
from otel_quant.export.recording.event_file import mapping_in
from otel_quant.recordings.model import PlacedStep, RecordedRun, Recording, steps_in
from otel_quant.schema.recorded_files import STACKS, LeftOut
from otel_quant.schema.stacks import (
    DEEPEST,
    OTHER,
    OUTSIDE,
    Amounts,
    Place,
    by_last_line,
)


@dataclass(frozen=True, slots=True)
class SeenStack:
    """What was seen at one stack of a step."""

    step: PlacedStep | None  # None for threads without a step, and steps too many to keep apart
    lines: tuple[Place, ...]  # Outermost first
    seen: Amounts

    where: str = "other steps"  # What stands for a step that is None

    @property
    def call(self) -> Place:
        """The innermost line of the program's own code; the outermost line if none is."""
        return next((line for line in reversed(self.lines) if line.is_own), self.lines[0])


def stacks_in(recording: Recording, runs: Sequence[RecordedRun] | None = None) -> list[SeenStack]:
    """Returns what was seen of all or some runs of a recording, stack by stack; nothing of a profile."""
    steps = {(each.run.id, str(each.step.index)): each for each in steps_in(recording)}
    found: list[SeenStack] = []
    for run in (runs or recording.runs) if recording.path.is_dir() else ():
        left_out = LeftOut()
        path = layout.stacks_path(recording.path, run.process, run.id)
        known = STACKS.take(mapping_in(path), left_out)
        if known is None or left_out:  # without one of them, others have the wrong numbers
            continue
        for index, rows in known["steps"].items():
            step = steps.get((run.id, index))
            where = "outside of steps" if index == str(OUTSIDE) else "other steps"
            found += (SeenStack(step, *each, where) for each in _stacks(rows, known["places"]))
    return found


def _stacks(
    rows: Sequence[Sequence[int]], places: Sequence[Place]
) -> Iterator[tuple[tuple[Place, ...], Amounts]]:
    """Yields the stacks of a step: a row names the row of its caller and its own place."""
    lines: list[tuple[Place, ...]] = []
    for above, place, *amounts in rows:
        known = lines[above] if 0 <= above < len(lines) else ()
        is_line = 0 <= place < len(places) and len(known) <= DEEPEST  # and what was folded below
        lines.append((*known, places[place]) if is_line else known)
        if any(amounts):  # steps that were folded whole have no lines
            yield lines[-1] or (OTHER,), Amounts(*amounts)


def of_step(stacks: Iterable[SeenStack], name: str) -> list[SeenStack]:
    """Returns those that were seen in steps of a name, or in steps within these."""
    return [each for each in stacks if each.step is not None and name in each.step.names]


def by_line(stacks: Iterable[SeenStack]) -> dict[Place, Amounts]:
    """Returns what was seen at each line itself, not in what it calls."""
    return by_last_line((each.lines, each.seen) for each in stacks)


def by_call(stacks: Iterable[SeenStack]) -> dict[Place, Amounts]:
    """Returns what was seen below each line of the program's own code."""
    return by_last_line(((each.call,), each.seen) for each in stacks)
