"""What a recording says of the whole: how it stands, and how the launcher saw it end."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final

from otel_quant.recordings.model import Ending, Recording
from otel_quant.rendering.document import Facts, Lines, Part

_MIB: Final = 1 << 20

_STATES: Final[Mapping[str, str]] = {
    "running": "is running",
    "ended": "has ended",
    "failed": "has failed",
    "killed": "was killed",
    "lost": "is gone without having said why",
}


def summary_parts(recording: Recording) -> Iterator[Part]:
    """Yields what is printed of a recording before its runs."""
    rows = [("recording", f"{_STATES[recording.state]}, {recording.duration:,.1f} s")]
    if recording.ending is not None:
        rows += _ending(recording.ending)
    yield Facts(tuple(rows), str(recording.path))
    if recording.problems:
        yield Lines(recording.problems)
    if not recording.runs:
        yield Lines(("no run: the program has opened no step",))


def summary_data(recording: Recording) -> dict[str, Any]:
    """Returns the same for programs."""
    return {
        "path": str(recording.path),
        "state": recording.state,
        "duration_secs": recording.duration,
        "problems": list(recording.problems),
        **({"ending": dataclasses.asdict(recording.ending)} if recording.ending else {}),
    }


def _ending(ending: Ending) -> Iterator[tuple[str, str]]:
    how = ending.signal or f"exit code {ending.exit_code}"
    if ending.out_of_memory is not None:
        how += f", out of memory ({ending.out_of_memory})"
    yield "ended by", how
    for name, text in (("because", ending.evidence), ("in", ending.where)):
        if text:
            yield name, text
    if ending.memory is not None:
        source = f" ({ending.memory_limit_source})" if ending.memory_limit_source else ""
        limit = (
            f", limit {ending.memory_limit / _MIB:,.1f} MiB{source}" if ending.memory_limit else ""
        )
        yield "memory then", f"{ending.memory / _MIB:,.1f} MiB{limit}"
    if ending.memory_per_sample is not None:
        yield "for each sample", f"{ending.memory_per_sample / _MIB:+,.1f} MiB"
    for title, sizes in (("processes", ending.processes), ("disk", ending.disk)):
        if sizes:
            yield title, ", ".join(f"{name} {size / _MIB:,.1f} MiB" for name, size in sizes)
    for advice in ending.advice:
        yield "what would help", f"{advice.text} [{advice.source}]"
