"""What bounds a step: a table of verdicts, each with the evidence that it needs.

The evidence is where the step's thread was (:mod:`otel_quant.diagnosis.stack_trees`) and the step's own figures. A
verdict is given where one thing takes most of the time; else no cause is known, and the line with the most time is told.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

from otel_quant.diagnosis.gpus import GpuEvidence
from otel_quant.diagnosis.growth import Line
from otel_quant.diagnosis.spots import (
    CHILD,
    DISK,
    EVENTS,
    FOR_THREADS,
    FUTEX,
    LOCK,
    NETWORK,
    PIPE,
    PROCESS,
    SLEEP,
    TIME,
    Lines,
    Stack,
    grown_in,
    importing,
    is_loading,
    line_within,
    spot_of,
    top_spot,
)
from otel_quant.diagnosis.stack_trees import by_last_line
from otel_quant.diagnosis.tasks import Garbage, TasksBeside
from otel_quant.schema import semconv
from otel_quant.schema.code_lines import NOTHING, Amounts, Node, Place, total_of
from otel_quant.schema.dataclass import dataclass, field
from otel_quant.schema.units import counted, duration_text, size

_SHORTEST: Final = 1.0
"""Seconds that the thread must have been seen: with fewer than some ten samples, shares are chance."""

_MOST: Final = 0.5
_WAITS: Final = 0.3
_BUSY: Final = 0.8
_ONE: Final = 1.2  # Processors that a step uses at most that runs on one: other threads of the program do a little
_FAULTS: Final = 200  # Major page faults a second: at 0.5 ms each they are a tenth of the time
# Share of the limit of memory by which a step grows at least that memory bounds
_GROWS: Final = 0.2
_IDLE: Final = 0.2  # Share of the time that a GPU computes at most that waits for Python
# Bytes a second, read and written, below which a disk is hardly what a step waits for
_RATE: Final = 20e6
_COMPILERS: Final = ("torch/_dynamo/convert_frame.py", "torch/_inductor/graph.py", "torch/utils/cpp_extension.py", "triton/compiler/", "numba/core/")  # fmt: skip
"""Files that only a compilation goes through. Others of TorchDynamo, TorchInductor and Triton also call what
they have compiled, as often as it runs."""

_DOWNLOADS: Final = ("huggingface_hub/file_download.py", "urllib/request.py", "requests/api.py", "torch/hub.py")  # fmt: skip

_TAKE_DATA: Final = ("onnxruntime/", "quark/", "torch/utils/data/")
"""Code that calls the program for calibration data. Libraries call programs for much else: IPython and
click for all that they do, ``torch.nn`` for a model's ``forward``."""

_READS: Final = ("onnxruntime/", "quark/onnx/")
"""Of it what calls a reader's ``get_next``. It calls functions of the program's also in place of its own, as ``Session.run``."""

# Bytes a second from which on a network that a thread waits for does something
_CARRIED: Final = 1000
# Threads for each processor that are ready to run from which on they are too many
_CROWDED: Final = 2
# Share of the time in which a control group was kept from processors that bounds a step
_KEPT: Final = 0.2
_KEEPING: Final = ("Percentile", "Entropy")
"""Calibration methods that keep all that they have seen of an activation, at the end of their names."""


# Share of the time that the garbage collector takes at least that bounds a step
_COLLECTED: Final = 0.2
_OLD: Final = "of objects that were there before"
_FOR_OTHERS: Final = "for another thread"
_LONGER: Final = "longer for each sample than for the one before"
_SLOWLY: Final = "less than half of what its link takes"


class Bound(NamedTuple):
    """What bounds a step."""

    name: str  # The value of ``quant.step.bound_by``
    evidence: str  # What shows it, one sentence without its full stop


@dataclass
class Evidence:
    """What is known of a step. What is not known is NaN: no comparison with it holds, so no verdict is given by it."""

    root: Node
    duration: float  # Seconds
    figures: Mapping[str, Any]  # Attributes of its span
    cpus: float = math.nan  # Processors that the process may use
    limit: float = math.nan  # Bytes of memory that it may use
    per_sample: float = math.nan  # Bytes by which memory grows with each sample, if it does
    gpus: GpuEvidence = field(default_factory=GpuEvidence)
    tasks: TasksBeside = field(default_factory=TasksBeside)
    garbage: Garbage = field(default_factory=Garbage)
    # Shares of the time in C code that waits, by what it waits for
    waits: Mapping[str, float] = field(default_factory=dict)
    # How the CPU time of its data reader grows with the samples, in seconds
    calls: Line | None = None
    stall: tuple[float, str] = (0.0, "")  # The longest time without progress, in seconds, in words
    is_start: bool = False  # Whether it is the time before the first step
    function: str = ""  # The library's function that is the step; empty if it is the program's

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
    def blocked(self) -> float:
        """Share of the time in which its thread neither ran nor waited for a processor."""
        seen = self.total
        return 1 - (seen.cpu + seen.waiting) / seen.time if seen.cpu else 0.0

    @property
    def cores(self) -> float:
        """Processors that the process tree has used, on average."""
        used = (self.figure(name, math.nan) for name in (semconv.CPU_USER, semconv.CPU_SYSTEM))
        return sum(used) / self.duration

    @property
    def ran(self) -> float:
        """Share of the time in which its thread was on a processor."""
        return self.total.cpu / self.total.time

    @property
    def runnable(self) -> float:
        """Threads of the process that ran or waited for a processor, on average."""
        return self.ran + self.waiting + self.tasks.ran + self.tasks.waited

    def at(self, *what: str) -> float:
        """Returns the share of the time in which its thread was where it waits for something."""
        waits = (seen for lines, seen in self.stacks if spot_of(lines).waits_for in what)
        in_c = sum(self.waits.get(each, 0.0) for each in what)
        return total_of(waits).time / self.total.time + in_c

    @property
    def for_children(self) -> float:
        """Share of the time in which it waited for child processes: at such a call, or while they alone ran."""
        at = self.at(CHILD, PROCESS) + (self.at(PIPE) if self.tasks.child else 0.0)
        return max(at, min(self.blocked, self.cores - self.ran) if self.is_idle else 0.0)

    @property
    def for_network(self) -> float:
        """Share of the time in which it waited for the network: at such a call, or a loop that no timer ends while no thread ran."""
        is_loops = self.is_idle and self.tasks.connections >= _CARRIED
        return self.at(NETWORK) + (self.waits.get(EVENTS, 0.0) if is_loops else 0.0)

    @property
    def is_idle(self) -> bool:
        """Whether neither its thread nor others of the process did much."""
        return self.blocked >= _BUSY and self.tasks.ran + self.tasks.waited < 1 - _BUSY

    @property
    def waiting(self) -> float:
        """Share of the time in which its thread waited for a processor."""
        return self.total.waiting / self.total.time

    def figure(self, name: str, unmeasured: float = 0) -> float:
        """Returns a figure of the step."""
        value: float = self.figures.get(name, unmeasured)
        return value

    def rate(self, *names: str) -> float:
        """Returns the sum of figures in a second."""
        return sum(map(self.figure, names)) / self.duration

    @property
    def line(self) -> str:
        """Where most of its time was, with its share."""
        top = top_spot(self.stacks, TIME, lambda lines: line_within(lines, self.function))
        assert top is not None  # else there is no verdict
        spot, seen = top
        is_known = self.total.cpu > 0
        is_blocked = is_known and seen.cpu + seen.waiting <= (1 - _BUSY) * seen.time
        where = ", where it was blocked" if is_blocked else ""
        return f"{_percent(seen.time / self.total.time)} of its time at {spot.words}{where}"


def bound_of(evidence: Evidence) -> Bound | None:
    """Returns what bounds a step; None of one of which too little was seen."""
    seen = evidence.total.time / 1e9
    if seen < max(_SHORTEST, _MOST * evidence.duration):
        return None
    for verdict in VERDICTS:
        if found := verdict.find(evidence):
            return Bound(verdict.name, found)
    return Bound(NOTHING_STANDS_OUT, evidence.line)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


# What finds a verdict returns its evidence, or nothing.


def _most_at(line_of: Callable[[Lines], Place | None]) -> Callable[[Evidence], str]:
    """Returns what finds whether most of the time is in stacks that have a line, and which line has most of it."""

    def find(evidence: Evidence) -> str:
        found = total_of(seen for lines, seen in evidence.stacks if line_of(lines) is not None)
        top = top_spot(evidence.stacks, TIME, line_of, names_leaf=line_of is not importing)
        share = found.time / evidence.total.time
        if top is None or share < _MOST:
            return ""
        return f"{_percent(share)} of its time, most at {top[0].words}"

    return find


def _waiting_for_a_build(lines: Lines) -> Place | None:
    """Returns PyTorch's line that waits for a lock of the package filelock: the kernel frees it when its holder dies."""
    above = list(itertools.takewhile(lambda line: not line.file.startswith("filelock/"), lines))
    is_waiting = any(line.function.endswith(".acquire") for line in lines[len(above) :])
    callers = [line for line in above if line.file != "torch/utils/_filelock.py"]
    is_torch = bool(callers) and callers[-1].library == "torch"
    return callers[-1] if is_waiting and is_torch else None


def _compiling(lines: Lines) -> Place | None:
    """Returns the line of a compiler that is at work, and is not just imported."""
    line = next((each for each in lines if each.file.startswith(_COMPILERS)), None)
    return None if line is None or line.function == "<module>" else line


def _start_of(lines: Lines) -> str:
    """Returns what a program does at a stack as it starts; nothing if it is something else."""
    if _compiling(lines) is not None:
        return "compiling"
    if importing(lines) is not None:
        return "importing"
    if any(line.file.startswith(_DOWNLOADS) for line in lines):
        return "downloading"
    return "loading a model" if is_loading(lines) else ""


def _startup(evidence: Evidence) -> str:
    """Most of the time before the first step is importing, compiling, downloading and loading a model."""
    found: dict[str, int] = {}
    for lines, seen in evidence.stacks if evidence.is_start else ():
        if what := _start_of(lines):
            found[what] = found.get(what, 0) + seen.time
    if sum(found.values()) < _MOST * evidence.total.time or not found:
        return ""
    parts = sorted(found.items(), key=lambda part: -part[1])
    shares = ", ".join(f"{_percent(time / evidence.total.time)} {what}" for what, time in parts)
    most = [(lines, seen) for lines, seen in evidence.stacks if _start_of(lines) == parts[0][0]]
    top = top_spot(most, TIME, lambda lines: line_within(lines, ""), names_leaf=False)
    return f"{shares}, most at {top[0].words}" if top else shares


def _taking_data(lines: Lines) -> Place | None:
    """Returns the program's innermost line below one that takes data."""
    for at, (above, line) in enumerate(itertools.pairwise(lines), 1):
        # Files of code that was generated, by numpy for example, are "<...>".
        is_called = above.file.startswith(_TAKE_DATA) and line.is_own and line.file[0] != "<"
        if is_called and (not above.file.startswith(_READS) or _has_reader(lines[at:])):
            return [each for each in lines[at:] if each.is_own][-1]
    return None


def _has_reader(lines: Lines) -> bool:
    return any(line.is_own and line.function.endswith("get_next") for line in lines)


def _reading_data(lines: Lines) -> Place | None:
    """The same, only below a data reader: Quark takes all samples in a step of its own before it calibrates."""
    return _taking_data(lines) if _has_reader(lines) else None


def _calibration_data(evidence: Evidence) -> str:
    """Most of the time is in the program's code that yields the calibration data."""
    is_calibration = evidence.figure(semconv.CALIBRATION_SAMPLE_COUNT) > 0
    line_of, calls = _taking_data if is_calibration else _reading_data, evidence.calls
    found = _most_at(line_of)(evidence)
    loads = total_of(seen for lines, seen in evidence.stacks if line_of(lines) is not None)
    share = loads.time / evidence.total.time
    # What the rest of the step cannot have waited
    waits = sum(evidence.waits.get(what, 0.0) for what in (LOCK, FUTEX)) - (1 - share)
    if found and waits >= _MOST * share:
        return f"{found}; it waits {_FOR_OTHERS}"
    if not found or calls is None:
        return found
    longer = calls.per_sample * calls.samples**2 / 2  # Seconds, all of them together
    each = f"it computes {duration_text(calls.per_sample)} {_LONGER}"
    return f"{found}; {each}" if longer >= _MOST * loads.time / 1e9 else found


def _memory_growth(evidence: Evidence) -> str:
    """Each sample adds memory, and all of them a good part of the limit."""
    each, samples = evidence.per_sample, evidence.figure(semconv.CALIBRATION_SAMPLE_COUNT)
    share = each * samples / evidence.limit
    if math.isnan(share) or share < _GROWS:
        return ""
    text = f"{size(each)} with each of {samples:,} samples, {_percent(share)} of the limit of {size(evidence.limit)}"
    method = str(evidence.figures.get(semconv.CALIBRATION_METHOD, ""))
    if (grown := grown_in(evidence.stacks, evidence.function, method)) is not None:
        text += f"; {_percent(grown.share)} of the growth at {grown.spot.words}"
    return text


def _disk(evidence: Evidence) -> str:
    """The disk is busy while the thread is blocked."""
    rate, blocked = evidence.rate(semconv.DISK_READ, semconv.DISK_WRITE), evidence.blocked
    is_busy = rate >= _RATE and evidence.at(SLEEP) < _MOST
    if blocked < _MOST or not (is_busy or evidence.at(DISK) >= _MOST):
        return ""
    text = f"{rate / 1e6:,.0f} MB a second read and written; its thread was blocked {_percent(blocked)} of its time"
    cache = evidence.figure(semconv.CACHE_GROWTH)
    grown = f"; its cache directory grew by {size(cache)}" if cache else ""
    return f"{text}{grown}; {evidence.line}"


def _collections(evidence: Evidence) -> str:
    """What the garbage collector did."""
    seen = evidence.garbage
    full = f", {counted(seen.full, 'full collection')} of {duration_text(seen.mean)} on average"
    each = full if seen.full else ""
    old = f" {_OLD}" if seen.is_old else ""
    return f"it ran for {_percent(seen.share)} of the time{each}{old}; {(seen.line and f'the last at {seen.line}') or evidence.line}"


def _where(
    holds: Callable[[Evidence], bool], words: Callable[[Evidence], str]
) -> Callable[[Evidence], str]:
    """Returns what finds the evidence in these words where that holds."""
    return lambda evidence: words(evidence) if holds(evidence) else ""


def _on_gpu(
    holds: Callable[[GpuEvidence], bool],
    words: Callable[[GpuEvidence], str] = lambda gpus: gpus.text,
) -> Callable[[Evidence], str]:
    """Returns the same of what GPUs show, with the program's own line."""
    return _where(lambda step: holds(step.gpus), lambda step: f"{words(step.gpus)}; {step.line}")


CALIBRATION_DATA: Final = "calibration_data"
COMPILING: Final = "compiling"
IMPORTING: Final = "importing"
MEMORY_GROWTH: Final = "memory_growth"
OTHER_PROGRAMS: Final = "other_programs"
STALLED: Final = "stalled"
NOTHING_STANDS_OUT: Final = "nothing_stands_out"


class Verdict(NamedTuple):
    """A row of the table."""

    name: str  # Value of ``quant.step.bound_by``
    words: str  # After "bound by"
    find: Callable[[Evidence], str]  # Finds its evidence; empty where there is none
    certainty: Literal["known", "probable"] = "known"
    # What helped where it was tried (benchmarks/remedies.py, scripts/gpu_check.py); empty where nothing was
    remedy: str = ""


VERDICTS: Final = (
    Verdict(STALLED, "a hang", _where(
        lambda step: step.stall[0] >= _MOST * step.duration, lambda step: step.stall[1],
    )),
    Verdict("lock_file", "a lock file that another build holds, or one that was killed has left",
        _most_at(lambda lines: lines[-1] if lines[-1].file.endswith("torch/utils/file_baton.py") else None),
        remedy="if no other build is running, delete the file lock below TORCH_EXTENSIONS_DIR"),
    Verdict("other_build", "another build, which has the lock that it waits for", _most_at(_waiting_for_a_build)),
    Verdict(COMPILING, "compiling code",
        _most_at(_compiling),
        remedy="keep what was compiled for the next run, in TORCH_EXTENSIONS_DIR and TORCHINDUCTOR_CACHE_DIR"),
    Verdict(IMPORTING, "importing modules", _most_at(importing)),
    Verdict("startup", "its start", _startup),
    Verdict(MEMORY_GROWTH, "memory that grows with each sample", _memory_growth),
    Verdict(CALIBRATION_DATA, "the loader of the calibration data", _calibration_data),
    Verdict("gpu", "the GPU, which computes all the time", _on_gpu(lambda gpus: gpus.computes)),
    Verdict("gpu_copies", "copies to the GPU or from it", _on_gpu(
        lambda gpus: gpus.is_copied_to,
        lambda gpus: f"{gpus.work.pcie / 1e9:.1f} GB a second to the GPU or from it{f', {_SLOWLY}' * gpus.is_slow}{gpus.others}, and the thread waited for copies {_percent(gpus.copied)} of its time",
    )),
    Verdict("garbage_collector", "Python's garbage collector", _where(
        lambda step: step.garbage.share >= _COLLECTED, _collections,
    )),
    Verdict("gpu_launches", "starting many small kernels, for each of which the GPU waits", _where(
        lambda step: step.gpus.is_launched_on and step.ran + step.waiting >= _BUSY and step.waiting < _WAITS,
        lambda step: f"{step.gpus.text}, and its thread ran {_percent(step.ran)} of its time; {step.line}",
    ), "probable", "work on whole tensors instead of one channel after the other, or record what repeats as a CUDA graph (torch.cuda.CUDAGraph)"),
    Verdict("gpu_waits", "results of the GPU, fetched one by one", _on_gpu(
        lambda gpus: gpus.is_fetched_from,
        lambda gpus: f"{gpus.text}, and the thread waited for it {_percent(gpus.waited)} of its time",
    ), "probable", "unless each decides what comes next, keep the results on the GPU and fetch them once, after the loop (torch.stack)"),
    Verdict("gpu_idle", "Python, for which the GPU waits", _where(
        lambda step: step.gpus.work.busy <= _IDLE and step.blocked <= _MOST and step.gpus.at_calls < _MOST,
        lambda step: f"the GPU computed {_percent(step.gpus.work.busy)} of its time, and its thread was blocked {_percent(step.blocked)}; {step.line}",
    ), "probable"),
    Verdict("throttled", "the control group's limit of processors", _where(
        lambda step: step.tasks.throttled >= _KEPT and (step.waiting + step.ran >= _WAITS or step.tasks.is_ready),
        lambda step: f"its control group was kept from processors for {_percent(min(1.0, step.tasks.throttled))} of the time, while the program used {step.cores:.1f}; {step.line}",
    )),
    Verdict("pinned", "the processors that its threads are pinned to", _where(
        lambda step: step.tasks.pinned < step.cpus and step.waiting >= _WAITS and step.cores >= _BUSY * step.tasks.pinned,
        lambda step: f"its thread waited {_percent(step.waiting)} of its time for a processor, of which it may use {step.tasks.pinned:g} of {step.cpus:g}; {step.line}",
    )),
    Verdict("oversubscribed", "more threads than processors", _where(
        lambda step: step.runnable > _CROWDED * step.cpus,
        lambda step: f"{step.runnable:.1f} threads of the program were ready to run, on average, and it may use {step.cpus:g} processors; {step.line}",
    )),
    Verdict("gil", "Python's global lock (GIL), which one thread at a time has", _where(
        lambda step: step.tasks.gil >= _WAITS,
        lambda step: f"{'threads that it waits for' if step.at(*FOR_THREADS) >= _MOST else 'its thread'} waited for it {_percent(step.tasks.gil)} of its time, while the program used {step.cores:.1f} of {step.cpus:g} processors; {step.line}",
    )),
    Verdict(OTHER_PROGRAMS, "other programs, which keep the processors busy", _where(
        lambda step: step.waiting >= _WAITS and step.cores < _BUSY * step.cpus,  # else its own threads have them
        lambda step: f"its thread waited {_percent(step.waiting)} of its time for a processor, while the program used {step.cores:.1f} of {step.cpus:g}",
    ), "probable"),
    Verdict("all_processors", "the processors, all of which it uses", _where(
        # Without the thread while it asked again and again whether a GPU is done
        lambda step: step.cores - min(step.ran, step.gpus.at_calls) >= _BUSY * step.cpus,
        lambda step: f"it used {step.cores:.1f} of {step.cpus:g} processors{(step.blocked >= _BUSY and step.tasks.line and f', its other threads most at {step.tasks.line}') or ''}; {step.line}",
    )),
    Verdict("page_faults", "reading mapped files or swapped memory", _where(
        lambda step: step.blocked >= _WAITS and step.rate(semconv.MAJOR_FAULTS) >= _FAULTS,
        lambda step: f"{step.rate(semconv.MAJOR_FAULTS):,.0f} page faults a second read from storage; its thread was blocked {_percent(step.blocked)} of its time; {step.line}",
    ), "probable"),
    Verdict("child", "another process, for which it waits", _where(
        lambda step: step.blocked >= _MOST and step.for_children >= _MOST,
        lambda step: f"{_percent(step.for_children)} of its time it waited for {step.tasks.child or PROCESS}, while the program used {step.cores:.2f} processors; {step.line}",
    )),
    Verdict("network", "the network", _where(
        lambda step: step.blocked >= _MOST and step.for_network >= _MOST and step.tasks.network >= _CARRIED,
        lambda step: f"{_percent(step.for_network)} of its time it waited for the network, which carried {size(step.tasks.network)} a second; {step.line}",
    ), "probable"),
    Verdict("lock", "a lock that another thread has", _where(
        lambda step: step.at(LOCK) >= _MOST,
        lambda step: f"its thread waited {_percent(step.at(LOCK))} of its time for a lock{step.tasks.holder and f', one of whose name a thread has at {step.tasks.holder}'}; {step.line}",
    )),
    Verdict("own_threads", "threads of its own, for which it waits", _where(
        lambda step: step.blocked >= _BUSY and step.tasks.ran + step.tasks.waited >= _MOST and step.at(SLEEP) < _MOST,
        lambda step: f"its thread was blocked {_percent(step.blocked)} of its time, while {step.tasks.ran:.1f} others ran, on average, and {step.tasks.waited:.1f} waited for a processor{step.tasks.line and f', most at {step.tasks.line}'}; {step.line}",
    )),
    Verdict("disk", "the disk", _disk, "probable"),
    Verdict("waiting", "waiting", _where(
        lambda step: step.blocked >= _BUSY and step.cores <= 1 - _BUSY and not step.tasks.is_ready,
        lambda step: f"its thread was blocked {_percent(step.blocked)} of its time, and the program used {step.cores:.2f} processors; {step.line}",
    )),
    Verdict("one_processor", "one processor of several", _where(
        lambda step: step.ran - step.gpus.at_calls >= _BUSY and step.cores <= _ONE and step.cpus >= 2 and not step.gpus.may_be_waited_for,
        lambda step: f"it used {step.cores:.1f} of {step.cpus:g} processors, and its thread ran {_percent(step.ran)} of its time; {step.line}",
    )),
)  # fmt: skip
"""The first that finds its evidence counts."""

PROBABLY: Final = "probably "
_PROBABLY: Final = {"known": "", "probable": PROBABLY}
_WORDS: Final = {NOTHING_STANDS_OUT: "no known cause"} | {
    each.name: f"{_PROBABLY[each.certainty]}bound by {each.words}" for each in VERDICTS
}
_REMEDIES: Final = {each.name: each.remedy for each in VERDICTS}


def words_of(name: str) -> str:
    """Returns a verdict in words, for the name of a step before it; of an unknown one its name."""
    return _WORDS.get(name, f"bound by {name}")


def remedy_of(
    name: str,
    stacks: Sequence[Stack],
    function: str = "",
    method: str = "",
    evidence: str = "",
    grew: float = math.inf,  # Bytes by which memory grew; lines have what was given back and taken again, too
) -> str:
    """Returns what helped against it where it was tried, and what it can win in a step with these stacks; else nothing."""
    if name == CALIBRATION_DATA:  # what goes through all samples before it is no loader's to share
        return "" if _LONGER in evidence or _FOR_OTHERS in evidence else _for_a_loader(stacks)
    grown = grown_in(stacks, function, method) if name == MEMORY_GROWTH else None
    if grown is not None and grown.is_librarys and method.endswith(_KEEPING):
        kept = size(min(grown.bytes, grew) * (1 - grown.own - grown.loaded))
        return f"calibrate with MinMax instead of {method}, which keeps every activation: {kept} at most"
    if name == "gpu_copies" and _SLOWLY in evidence:
        return "copy from pinned tensors and into them, made once (pin_memory=True), with non_blocking=True"
    if name == "garbage_collector" and _OLD in evidence:
        return "call gc.freeze() before it, so that what is there is not looked at again and again"
    return _REMEDIES.get(name, "")


_MOSTLY: Final = 0.7
"""Share of a loader from which on another thread beside the calibration wins little."""


def _for_a_loader(stacks: Sequence[Stack]) -> str:
    """Returns what helps a loader, by its share; nothing for one that only waits for others that load already."""
    loads = [stack for stack in stacks if _taking_data(stack[0]) is not None]
    queued = (seen for lines, seen in loads if spot_of(lines).waits_for in (*FOR_THREADS, PROCESS))
    whole, loading = (total_of(seen for _, seen in each).time for each in (stacks, loads))
    if total_of(queued).time >= _MOST * loading:
        return ""
    how, wins = "load the next samples in another thread while one is calibrated", whole - loading
    if loading > _MOSTLY * whole:
        how = "load samples in several processes, or keep them on disk as they are used"
        wins = whole
    saved, whole_text = (duration_text(each / 1e9) for each in (min(wins, loading), whole))
    return f"{how}, which can save {saved} of {whole_text} at most"
