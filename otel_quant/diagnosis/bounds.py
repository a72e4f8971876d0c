"""What bounds a step: a table of verdicts, each with the evidence that it needs.

The evidence is where the step's thread was (:mod:`otel_quant.diagnosis.stack_trees`) and the step's own figures. A
verdict is given where one thing takes most of the time; else the verdict is that nothing stands out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

from otel_quant.diagnosis.stack_trees import by_last_line
from otel_quant.schema.code_lines import NOTHING, Amounts, Node, Place, total_of
from otel_quant.schema.units import size

_SHORTEST: Final = 1.0
"""Seconds that the thread must have been seen: with fewer than some ten samples, shares are chance."""

_MOST: Final = 0.5
_WAITS: Final = 0.3
_BUSY: Final = 0.8
_ONE: Final = 1.2
"""Processors that a step uses at most that runs on one: other threads of the program do a little."""

_FAULTS: Final = 200
"""Major page faults a second: at 0.5 ms each they are a tenth of the time."""

_GROWS: Final = 0.2
"""Share of the limit of memory by which a step grows at least that memory bounds."""

_IDLE: Final = 0.2
"""Share of the time that a GPU computes at most that waits for Python."""

_RATE: Final = 20e6
"""Bytes a second, read and written, below which a disk is hardly what a step waits for."""

_COMPILERS: Final = ("torch/_dynamo/convert_frame.py", "torch/_inductor/graph.py", "torch/utils/cpp_extension.py", "triton/compiler/", "numba/core/")  # fmt: skip
"""Files that only a compilation goes through. Others of TorchDynamo, TorchInductor and Triton also call what
they have compiled, as often as it runs."""

_TAKE_DATA: Final = ("onnxruntime/", "quark/", "torch/utils/data/")
"""Code that calls the program for calibration data. Libraries call programs for much else: IPython and
click for all that they do, ``torch.nn`` for a model's ``forward``."""

_KEEPING: Final = ("Percentile", "Entropy")
"""Calibration methods that keep all that they have seen of an activation, at the end of their names."""


class Share(float):
    """A share, as text in percent."""

    def __str__(self) -> str:
        return f"{100 * self:.0f} %"


class Bound(NamedTuple):
    """What bounds a step."""

    name: str  # The value of ``quant.step.bound_by``
    evidence: str  # What shows it, one sentence without its full stop


@dataclass
class Evidence:
    """What is known of a step."""

    root: Node
    duration: float  # Seconds
    figures: Mapping[str, Any]  # Attributes of its span
    cpus: float | None  # Processors that the process may use
    limit: int | None = None  # Bytes of memory that it may use
    per_sample: float | None = None  # Bytes by which memory grows with each sample, if it does
    gpu: float | None = None  # Share of the time that the GPUs computed on which it has memory

    @cached_property
    def stacks(self) -> list[tuple[tuple[Place, ...], Amounts]]:
        """Its stacks, outermost line first; read once, because the sampler may still add to them."""
        return [(lines, node.own) for lines, node in self.root.walk() if node.own != NOTHING]

    @cached_property
    def total(self) -> Amounts:
        """What was seen of it; not of steps within it."""
        return total_of(own for _, own in self.stacks)

    @cached_property
    def by_line(self) -> dict[Place, Amounts]:
        """What was seen at each line itself."""
        return by_last_line(self.stacks)

    @property
    def computed(self) -> Share:
        """Share of the time that the GPUs computed; 0 if that is not known."""
        return Share(self.gpu or 0.0)

    @property
    def ran(self) -> Share:
        """Share of the time in which its thread ran."""
        return Share(self.total.cpu / self.total.time)

    @property
    def waited(self) -> Share:
        """Share of the time in which its thread waited for a processor."""
        return Share(self.total.waiting / self.total.time)

    @property
    def blocked(self) -> Share:
        """Share of the time in which its thread neither ran nor waited for a processor."""
        seen = self.total
        return Share(1 - (seen.cpu + seen.waiting) / seen.time if seen.cpu else 0.0)

    @property
    def cores(self) -> float:
        """Processors that the process tree has used, on average; NaN if that is not known."""
        user, system = map(self.figures.get, ("quant.cpu.user", "quant.cpu.system"))
        return math.nan if user is None or system is None else (user + system) / self.duration

    @property
    def load(self) -> float:
        """Share of the processors that it may use; NaN if that is not known."""
        return self.cores / (self.cpus or math.nan)

    def rate(self, *names: str) -> float:
        """Returns the sum of figures in a second."""
        return sum(self.figures.get(name) or 0 for name in names) / self.duration

    @property
    def line(self) -> str:
        """The line with the most time of its own, with its share."""
        place = max(self.by_line, key=lambda place: self.by_line[place].time)
        share = self.by_line[place].time / self.total.time
        return f"{Share(share)} of its time at {place.short}"


def bound_of(evidence: Evidence) -> Bound | None:
    """Returns what bounds a step; None of one of which too little was seen."""
    seen = evidence.total.time / 1e9
    if seen < max(_SHORTEST, _MOST * evidence.duration):
        return None
    for verdict in VERDICTS:
        if (found := verdict.find(evidence)) is not None:
            return Bound(verdict.name, found)
    return Bound(NOTHING_STANDS_OUT, f"at most {evidence.line}")


Lines = tuple[Place, ...]


def _most_at(evidence: Evidence, line_of: Callable[[Lines], Place | None]) -> str | None:
    """Returns which line has most of the time, if most of it is in stacks that have a line."""
    found = ((line_of(lines), own) for lines, own in evidence.stacks)
    times = by_last_line(((line,), own) for line, own in found if line is not None)
    share = total_of(times.values()).time / evidence.total.time
    if share < _MOST:
        return None
    return (
        f"{Share(share)} of its time, most at {max(times, key=lambda line: times[line].time).short}"
    )


def _waiting_for_a_build(lines: Lines) -> Place | None:
    """Returns PyTorch's line that waits for a lock of the package filelock: the kernel frees it when its holder dies."""
    above = list(itertools.takewhile(lambda line: not line.file.startswith("filelock/"), lines))
    if not any(line.function.endswith(".acquire") for line in lines[len(above) :]):
        return None
    callers = [line for line in above if line.file != "torch/utils/_filelock.py"]
    return callers[-1] if callers and callers[-1].library == "torch" else None


def _first(lines: Iterable[Place]) -> Place | None:
    return next(iter(lines), None)


def _taking_data(lines: Lines) -> Place | None:
    """Returns the program's innermost line below one that takes data."""
    for at, (above, line) in enumerate(itertools.pairwise(lines), 1):
        # Files of code that was generated, by numpy for example, are "<...>".
        if above.file.startswith(_TAKE_DATA) and line.is_own and line.file[0] != "<":
            return [each for each in lines[at:] if each.is_own][-1]
    return None


def _calibration_data(evidence: Evidence) -> str | None:
    # Quark takes all samples in a step of its own before it calibrates: then the program's reader shows it.
    counts = evidence.figures.get("quant.calibration.sample_count")
    return _most_at(
        evidence,
        lambda lines: _taking_data(lines) if counts or any(map(_is_reader, lines)) else None,
    )


def _is_reader(line: Place) -> bool:
    return line.is_own and line.function.endswith("get_next")


def _if(holds: Callable[[Evidence], bool], text: str) -> Callable[[Evidence], str | None]:
    """Returns what finds evidence where something holds: a text with attributes of the evidence in braces."""
    return lambda evidence: text.format(e=evidence) if holds(evidence) else None


def _memory_growth(evidence: Evidence) -> str | None:
    samples = evidence.figures.get("quant.calibration.sample_count") or 0
    each, limit, lines = evidence.per_sample or 0.0, evidence.limit or 0, evidence.by_line
    if not limit or each * samples < _GROWS * limit:
        return None
    text = f"{size(each)} with each of {samples:,} samples, {Share(each * samples / limit)} of the limit of {size(limit)}"
    place = max(lines, key=lambda place: lines[place].grown)
    if evidence.total.grown:
        text += (
            f"; {Share(lines[place].grown / evidence.total.grown)} of the growth at {place.short}"
        )
    return text


def _page_faults(evidence: Evidence) -> str | None:
    rate = evidence.rate("quant.page_faults.major")
    if evidence.blocked < _WAITS or rate < _FAULTS:
        return None
    return f"{rate:,.0f} page faults a second read from storage; its thread was blocked {evidence.blocked} of its time"


def _disk(evidence: Evidence) -> str | None:
    rate = evidence.rate("quant.disk.read", "quant.disk.write")
    if evidence.blocked < _MOST or rate < _RATE:
        return None
    text = f"{rate / 1e6:,.0f} MB a second read and written; its thread was blocked {evidence.blocked} of its time"
    cache = evidence.figures.get("quant.cache.disk.peak")
    return f"{text}; its cache directory grew by {size(cache)}" if cache else text


CALIBRATION_DATA: Final = "calibration_data"
COMPILING: Final = "compiling"
IMPORTING: Final = "importing"
MEMORY_GROWTH: Final = "memory_growth"
OTHER_PROGRAMS: Final = "other_programs"
NOTHING_STANDS_OUT: Final = "nothing_stands_out"


class Verdict(NamedTuple):
    """A row of the table."""

    name: str  # Value of ``quant.step.bound_by``
    words: str  # After "bound by"
    find: Callable[[Evidence], str | None]  # Finds its evidence
    certainty: Literal["known", "probable"] = "known"
    # What helped where it was tried (benchmarks/remedies.py); empty where nothing was
    remedy: str = ""


VERDICTS: Final = (
    Verdict("lock_file", "a lock file that another build holds, or one that was killed has left",
        lambda e: _most_at(e, lambda lines: _first(each for each in lines[-1:] if each.file.endswith("torch/utils/file_baton.py"))),
        remedy="if no other build is running, delete the file lock below TORCH_EXTENSIONS_DIR"),
    Verdict("other_build", "another build, which has the lock that it waits for", lambda e: _most_at(e, _waiting_for_a_build)),
    Verdict(COMPILING, "compiling code",
        lambda e: _most_at(e, lambda lines: _first(each for each in lines if each.file.startswith(_COMPILERS))),
        remedy="keep what was compiled for the next run, in TORCH_EXTENSIONS_DIR and TORCHINDUCTOR_CACHE_DIR"),
    Verdict(IMPORTING, "importing modules",
        lambda e: _most_at(e, lambda lines: _first(above for above, line in itertools.pairwise(lines) if line.file == "<frozen importlib._bootstrap>"))),
    Verdict(MEMORY_GROWTH, "memory that grows with each sample", _memory_growth),
    Verdict(CALIBRATION_DATA, "the loader of the calibration data", _calibration_data,
        remedy="load the next samples in another thread while one is calibrated"),
    Verdict("gpu_idle", "Python, for which the GPU waits",
        _if(lambda e: e.gpu is not None and e.gpu <= _IDLE and e.blocked <= _MOST,
            "the GPU computed {e.computed} of its time, and its thread was blocked {e.blocked}; {e.line}"), "probable"),
    Verdict(OTHER_PROGRAMS, "other programs that have the processors",
        # Else the program's own threads have them.
        _if(lambda e: e.waited >= _WAITS and e.load < _BUSY,
            "its thread waited {e.waited} of its time for a processor, while the program used {e.cores:.1f} of {e.cpus:g}"), "probable"),
    Verdict("all_processors", "the processors, all of which it uses",
        _if(lambda e: e.load >= _BUSY, "it used {e.cores:.1f} of {e.cpus:g} processors; {e.line}")),
    Verdict("page_faults", "reading mapped files or swapped memory", _page_faults, "probable"),
    Verdict("disk", "the disk", _disk, "probable"),
    Verdict("waiting", "waiting",
        _if(lambda e: e.blocked >= _BUSY and e.cores <= 1 - _BUSY,
            "its thread was blocked {e.blocked} of its time, and the program used {e.cores:.2f} processors; {e.line}")),
    Verdict("one_processor", "one processor of several",
        _if(lambda e: e.ran >= _BUSY and e.cores <= _ONE and (e.cpus or 0) >= 2,
            "it used {e.cores:.1f} of {e.cpus:g} processors, and its thread ran {e.ran} of its time; {e.line}")),
)  # fmt: skip
"""The first that finds its evidence counts."""

_WORDS: Final = {NOTHING_STANDS_OUT: "nothing stands out"} | {
    each.name: f"{'' if each.certainty == 'known' else 'probably '}bound by {each.words}"
    for each in VERDICTS
}
_REMEDIES: Final = {verdict.name: verdict.remedy for verdict in VERDICTS}


def words_of(name: str) -> str:
    """Returns a verdict in words, for the name of a step before it; of an unknown one its name."""
    return _WORDS.get(name, f"bound by {name}")


def remedy_of(name: str, method: str = "") -> str:
    """Returns what helped against it where it was tried, with a calibration method; else nothing."""
    if name == MEMORY_GROWTH and method.endswith(_KEEPING):
        return f"calibrate with MinMax instead of {method}, which keeps every activation"
    return _REMEDIES.get(name, "")
