"""Which process of a program ended first, what it was doing, and why, as far as the system tells; and what would have helped.

What none of these tells is not concluded from their silence. Each row of advice has its source.
"""

from __future__ import annotations

import errno
import math
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

from otel_quant.diagnosis.bounds import STALLED
from otel_quant.diagnosis.spots import Grown
from otel_quant.launcher.observer import Observation
from otel_quant.launcher.program import signal_name
from otel_quant.launcher.surroundings import SHARED_MEMORY, Disk, ProcessUse
from otel_quant.recordings.failures import failed_steps, first_failure, handled_last, has_ended
from otel_quant.recordings.model import (
    Advice,
    Attributes,
    Certainty,
    RecordedRun,
    RecordedStep,
    Recording,
    forecast_of,
    number,
)
from otel_quant.schema import semconv
from otel_quant.schema.dataclass import dataclass, field
from otel_quant.schema.readings import UNITS, GpuReading, ProfileStep
from otel_quant.schema.units import counted, duration_text, share_text, size

ENDS_WORKERS: Final = frozenset({"SIGTERM", "SIGINT", "SIGHUP", "SIGPIPE"})
"""Signals that end workers when their program is done with them, and the stages of a shell before `head`."""

# A shell exits with this and the number of the signal that ended its last command
_BY_SHELL: Final = 128
_TOLD_BY_SHELLS: Final = frozenset(
    {"SIGKILL", "SIGABRT", "SIGSEGV", "SIGBUS", "SIGXCPU", "SIGXFSZ"}
)
"""Signals that nobody else than such a shell means by its exit code."""


@dataclass(frozen=True, slots=True)
class Victim:
    """A process that was killed or failed."""

    pid: int | None  # The process; None if it is not known
    signal: str | None  # The signal that ended it; None if none did, or it is not known
    run: RecordedRun | None  # Its run; None if it has recorded none
    # Steps that were open then, outermost first; of a run that failed, those that the exception
    # has ended
    steps: tuple[RecordedStep, ...]
    time: float  # When, in seconds since the recording began


def find_victim(seen: Observation, recording: Recording) -> Victim | None:
    """Returns the process that was killed or failed, of several the first: the others end because of it."""
    end = (seen.time_ns - recording.began_ns) / 1e9
    own = _newest([run for run in recording.runs if run.pid == seen.pid])
    if seen.signal is not None:
        # Workers of a program that is killed may be open too, but nothing has happened to them before.
        run = own or _newest([run for run in recording.runs if _open(run)])
        # Python ends its steps by KeyboardInterrupt before Ctrl-C ends it.
        return Victim(seen.pid, seen.signal, run, _open(run) or _failed(run), end)
    # Of several the others may have been ended because of the first.
    first = min(
        _killed_or_failed(seen, recording, end),
        key=lambda victim: (victim.signal in ENDS_WORKERS, victim.time),
        default=None,
    )
    if first is not None or not seen.exit_code:
        return first
    name, steps = _signal_of_child(seen), handled_last(own)
    is_soon = any(end - (step.end or end) < _SOON for step in steps)
    is_it = is_soon and shortage_in(steps[-1].error, steps[-1].error_message) is not None
    return Victim(seen.pid if name is None else None, name, own, steps if is_it else (), end)


_SOON: Final = 5.0  # Seconds within which a program ends because of an exception that it handled


def _killed_or_failed(seen: Observation, recording: Recording, end: float) -> Iterator[Victim]:
    last = {pid: (each.time_ns - recording.began_ns) / 1e9 for pid, each in seen.last_seen.items()}
    signals, runs = seen.signals, recording.runs
    if seen.exit_code:
        own = _newest([run for run in runs if run.pid == seen.pid])
        first = first_failure(recording, own, seen.exit_code)
        if first is not None:
            pid, run = first.run.pid or 0, first.run if first.run.has_events else None
            failed = max(first.steps, _failed(run), key=len)
            at = next((each.end for each in failed[-1:] if each.end is not None), first.time)
            yield Victim(pid, signals.get(pid), run, failed, min(at, end))
    for run in runs:
        # Without steps it was waiting for work; with exit code 0 it may have been ended on purpose.
        if run.end is None and run.state != "running" and (steps := _open(run)):
            name = signals.get(run.pid or 0) or _signal_of_child(seen)
            if seen.exit_code or _is_kill(name, seen):
                yield Victim(run.pid, name, run, steps, last.get(run.pid or 0, end))
    # Of those without a run, those that were large
    without = signals.keys() & last.keys() - {run.pid for run in runs if run.has_events}
    for pid in without:
        if _is_kill(signals[pid], seen):
            yield Victim(pid, signals[pid], None, (), last[pid])


def _is_kill(name: str | None, seen: Observation) -> bool:
    if name is not None:
        return name not in ENDS_WORKERS
    kills = seen.oom_kills
    return kills is not None and kills.kills > 0 and not kills.is_of_host


def _signal_of_child(seen: Observation) -> str | None:
    """Returns the signal that a shell, or a program that does the same, reports in its exit code."""
    name = signal_name((seen.exit_code or 0) - _BY_SHELL)
    return name if name in _TOLD_BY_SHELLS else None


def _newest(runs: Sequence[RecordedRun]) -> RecordedRun | None:
    return max(runs, key=lambda run: (bool(_open(run)), run.start), default=None)


def _open(run: RecordedRun | None) -> tuple[RecordedStep, ...]:
    if run is None or run.end is not None:
        return ()
    return tuple(step for step in run.steps if step.end is None)


def _failed(run: RecordedRun | None) -> tuple[RecordedStep, ...]:
    """Returns the steps that the exception which ended a run has ended, outermost first."""
    if run is None or run.end is None:
        return ()
    # Where there is no memory, to report one exception may raise another.
    of_memory = run.error is None or shortage_in(run.error, run.error_message) is not None
    ended = run.end
    return failed_steps(
        run,
        lambda step: (
            has_ended(run, step)
            or (of_memory and shortage_in(step.error, step.error_message) is not None)
            # The second Ctrl-C ended the program as it went on to end because of the first.
            or (step.error == run.error == "KeyboardInterrupt" and ended - (step.end or 0) < _SOON)
        ),
    )


# --- why ----------------------------------------------------------------------------------

CPU_TIME: Final = "limit of CPU time"
FILE_SIZE: Final = "limit of the size of a file"
ADDRESS_SPACE: Final = "limit of the address space"
DISK_FULL: Final = "disk full"
SHARED_MEMORY_FULL: Final = "shared memory full"
HANG: Final = "a hang"
OUT_OF: Final[dict[Where | None, str]] = {"host": "out of memory", "gpu": "out of GPU memory"}
"""By an exception; the kernel's out-of-memory killer is known otherwise."""

_UNSEEN: Final = 1.0  # Seconds of CPU time that a process may have used after the last reading, if nobody saw it end
_NEAR: Final = 0.9
"""Part of the limit of addresses from which on it is the cause: the next request may be for the rest."""

_AT_THE_LIMIT: Final = 0.95
"""Part of the limit at which memory counts as used up: the kernel's own share is in it as well."""

_FULL: Final = 1 << 20  # Bytes. A disk with less is full

_NO_SHARED_MEMORY: Final = re.compile(
    r"</torch_\w+>: No space left|shared memory.*No space left|out of shared memory"
)
_NO_SPACE: Final = re.compile(
    rf"\[Errno {errno.ENOSPC}\]|No space left on device|{_NO_SHARED_MEMORY.pattern}"
)

_SENT: Final = frozenset({"SIGKILL", "SIGTERM", "SIGINT", "SIGXCPU", "SIGUSR1", "SIGUSR2"})
"""Signals by which batch systems end a job that is over its limit."""


class Cause(NamedTuple):
    """Why a process has ended."""

    name: str | None  # One of the names above; None if it is not known
    evidence: str | None  # What shows it, or what else is known
    out_of_memory: Certainty | None = None  # Whether the kernel's out-of-memory killer did it


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a process that was killed or failed."""

    seen: Observation
    victim: Victim
    memory: int | None  # RSS of the process tree then, in bytes
    error: str  # The exception and its message; empty for none
    shortage: Where | None  # Whose memory ran out, according to the exception

    @property
    def model(self) -> str:
        """Path of the float model's file; empty if it is not known."""
        run, steps = self.victim.run, self.victim.steps
        spans = [each.attributes for each in (*steps[::-1], run) if each is not None]
        return str(next(filter(None, (each.get(semconv.INPUT_PATH) for each in spans)), ""))

    @property
    def model_bytes(self) -> int:
        """Its size; 0 if it is not known."""
        try:
            return Path(self.model).stat().st_size if self.model else 0
        except OSError:
            return 0

    @property
    def use(self) -> ProcessUse:
        """Its limits; without the id of a process, the limits of the process that used most CPU time."""
        uses = self.seen.uses
        if self.victim.pid is not None:
            return uses.get(self.victim.pid, _NO_LIMITS)
        return max(uses.values(), key=lambda use: use.cpu_time, default=_NO_LIMITS)


_NO_LIMITS: Final = ProcessUse(
    is_over=False, cpu_time=0.0, cpu_limit=None, last_cpu_limit=None, file_size_limit=None,
    address_space=None, addresses=0,
)  # fmt: skip


def cause_of(known: Known) -> Cause:
    """Returns why a process has ended; with the exception, where one ended it, in the evidence."""
    by_error = Cause(OUT_OF.get(known.shortage), None)
    found = next(filter(None, (row(known) for row in _ROWS)), by_error)
    is_known = found.name is not None or found.out_of_memory == "known"
    job = None if is_known or known.victim.signal not in _SENT else known.seen.batch_job
    evidence = "; ".join(filter(None, (known.error, found.evidence, job)))
    return found._replace(evidence=evidence or None)


def _cpu_time(known: Known) -> Cause | None:
    use = known.use
    first, last = use.cpu_limit or 0, use.last_cpu_limit or 0
    # With each SIGXCPU the kernel raises the first limit by a second.
    limits = {"SIGXCPU": (first, first - 1), "SIGKILL": (last,)}.get(known.victim.signal or "", ())
    least = use.cpu_time + (0 if use.is_over else _UNSEEN)
    limit = next((each for each in limits if 0 < each <= least), None)
    if limit is None:
        return None
    used = f"{use.cpu_time:.2f} s{'' if use.is_over else ' at the last reading'}"
    return Cause(CPU_TIME, f"CPU time was {used}, the limit is {limit} s (RLIMIT_CPU, ulimit -t)")


def _file_size(known: Known) -> Cause | None:
    most = known.use.file_size_limit
    is_over = known.victim.signal == "SIGXFSZ" or f"[Errno {errno.EFBIG}]" in known.error
    if most is None or not is_over:
        return None
    return Cause(FILE_SIZE, f"no file may be larger than {size(most)} (RLIMIT_FSIZE, ulimit -f)")


def _address_space(known: Known) -> Cause | None:
    most, run = known.use.address_space or 0, known.victim.run
    # The launcher may not have looked since the process took the last of them.
    told = number(run.attributes, semconv.ADDRESS_SPACE_PEAK) if run is not None else None
    share = max(known.use.addresses, told or 0) / (most or math.inf)
    is_near = share >= _NEAR
    # C++ code aborts when it gets no memory.
    is_short = known.shortage == "host" or (is_near and known.victim.signal == "SIGABRT")
    if not share or not is_short:
        return None
    return Cause(
        ADDRESS_SPACE if is_near else None,
        f"its addresses reached {share_text(share)} of the limit of {size(most)} (RLIMIT_AS, ulimit -v)",
    )


def _disk(known: Known) -> Cause | None:
    is_error = _NO_SPACE.search(known.error) is not None
    full = full_disks(known)
    # SIGBUS: memory that is a file, for which there was no room.
    if not is_error and not (known.victim.signal == "SIGBUS" and full):
        return None
    every = (*full, *(each for each in known.seen.disks if each not in full))
    shown = ", ".join(f"{size(each.free)} of {size(each.size)} ({each.places})" for each in every)
    free = [f"free at the least that was seen: {shown}"] if shown else []
    is_shared = [each.places for each in full] == [SHARED_MEMORY]
    if not is_shared and any(each.size < known.model_bytes for each in full):
        free.append(f"the model has {size(known.model_bytes)}")
    return Cause(SHARED_MEMORY_FULL if is_shared else DISK_FULL, "; ".join(free) or None)


def full_disks(known: Known) -> list[Disk]:
    """Returns the disks that were full: the one that the error means, those seen to be, or that cannot hold the model."""
    disks = known.seen.disks
    if _NO_SHARED_MEMORY.search(known.error):
        return [disk for disk in disks if SHARED_MEMORY in disk.places]
    full = [disk for disk in disks if disk.free < _FULL]
    return full or [disk for disk in disks if disk.size < known.model_bytes]


def _out_of_memory(known: Known) -> Cause | None:
    victim, kills, limit = known.victim, known.seen.oom_kills, known.seen.limits.memory
    is_unseen = victim.signal is None and victim.run is not None and victim.run.end is None
    if known.shortage is not None or (victim.signal != "SIGKILL" and not is_unseen):
        return None
    if kills is not None and kills.kills:
        told = f"the kernel has counted {counted(kills.kills, 'out-of-memory kill')}: oom_kill in {kills.counter}"
        if kills.is_of_host:
            told += ", which counts all processes of the machine"
            return Cause(None, told, None if is_unseen else "guessed")
        group = " (memory.oom.group: every process of the group)" if kills.of_groups else ""
        return Cause(None, f"{told}{group}", "known")
    if known.memory is None or not limit or is_unseen:
        return None
    share = f"memory was at {share_text(known.memory / limit)} of the limit"
    if kills is not None:  # whoever sent it: earlyoom and batch systems do so for memory too
        return Cause(None, f"{share}, and the kernel has counted no out-of-memory kill")
    if known.memory >= _AT_THE_LIMIT * limit:
        return Cause(None, f"{share}, and no counter of the kernel could be read", "guessed")
    return None


def _hang(known: Known) -> Cause | None:
    """A step had not moved for long when somebody ended the program."""
    run, steps, kills = known.victim.run, known.victim.steps, known.seen.oom_kills
    is_ended = known.victim.signal in _SENT or known.error.startswith("KeyboardInterrupt")
    if run is None or not steps or not is_ended or (kills is not None and kills.kills):
        return None
    step = steps[-1]
    if step.attributes.get(semconv.STEP_BOUND_BY) == STALLED:
        return Cause(HANG, str(step.attributes.get(semconv.STEP_BOUND_EVIDENCE, "")))
    stalled = number(forecast_of(run, step), semconv.FORECAST_STALLED)
    if stalled is None or run.last is None:
        return None
    at = f", at {step.line.waiting_words}" if step.line is not None else ""
    silent = stalled + max(0.0, known.victim.time - run.last.time)
    after = f" after {step.counts}" if step.counts else ""
    return Cause(HANG, f"no progress for {duration_text(silent)}{after}{at}")


_ROWS: Final[tuple[Callable[[Known], Cause | None], ...]] = (
    _cpu_time, _file_size, _disk, _address_space, _hang, _out_of_memory,
)  # fmt: skip
"""The first that finds something counts; else whose memory ran out, according to the exception."""

# --- errors that mean that memory ran out ---------------------------------------------------

Where = Literal["host", "gpu"]


@dataclass(frozen=True, slots=True)
class Shortage:
    """An error that means that there was no more memory."""

    error: str  # Pattern of the exception's class, its whole name
    message: str = ""  # Pattern within its message; empty for any
    where: Where | None = "host"  # Whose memory it was; None if the message has to name it


SHORTAGES: Final = (
    # torch.cuda.OutOfMemoryError is an alias of the first; both name the device in the message.
    Shortage(r"torch\.(cuda\.)?OutOfMemoryError", where="gpu"),
    Shortage(r"(\w+\.)*OutOfMemoryError", where=None),
    Shortage(r"(\w+\.)*\w*MemoryError"),
    Shortage(r".*", r"(CUDA|HIP|cuda) (error: )?out of memory|cudaErrorMemoryAllocation", "gpu"),
    Shortage(r".*", r"CU(BLAS|DNN|FFT)_STATUS_ALLOC_FAILED", "gpu"),
    # onnxruntime's arena of any device, torch's allocator of the CPU, and the C++ library.
    Shortage(r".*", r"BFCArena|Failed to allocate memory for requested buffer", None),
    Shortage(r".*", r"DefaultCPUAllocator: (can't|not enough)"),
    Shortage(r".*", r"std::bad_alloc|bad allocation"),
    Shortage(r".*", r"Cannot allocate memory"),
)
"""The first row that fits counts."""

_GPU: Final = re.compile(r"\b(GPU|CUDA|HIP|cuda)\b")


def shortage_in(error: str | None, message: str | None) -> Where | None:
    """Returns whose memory ran out, according to an exception."""
    if error is None:
        return None
    text = message or ""
    for row in SHORTAGES:
        if re.fullmatch(row.error, error) and re.search(row.message, text):
            return row.where or ("gpu" if _GPU.search(text) else "host")
    return None


# --- what would have helped ----------------------------------------------------------------

_MOST: Final = 5

_SPARE: Final = 1.1  # What is asked for, as a multiple of what is expected: samples differ
_ROOM: Final = 0.98  # Part of a limit that samples may fill
NO_STEP: Final = RecordedStep(index=0, name="", kind="", start=0.0, state="lost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What is known of a program when its memory ran out."""

    # The innermost open one with samples or layers, else the innermost
    step: RecordedStep = NO_STEP
    run: Attributes = field(default_factory=dict)  # The attributes of its run
    where: Where | None = None  # Whose memory ran out; None if it did not run out
    memory: int = 0  # RSS of the process tree then, in bytes; 0 if it is not known, as all below
    limit: int = 0  # The limit in force, in bytes
    limit_source: str | None = None  # Its source
    growth: int = 0  # Growth of memory with each sample or layer, in bytes
    # What the method adds after the last sample, of all of them, as a multiple of their growth; None
    # if that is not known
    after: float | None = 0.0
    grown: Grown | None = None  # What has grown, as its stacks show
    recording: str = ""  # The recording's path
    leak: int = 0  # Growth of memory each second that went on to the end, in bytes
    # Memory after the last of them as the program's own forecast has it, in bytes
    forecast: int | None = None
    gpus: tuple[GpuReading, ...] = ()  # The GPUs at the last reading

    def attribute(self, name: str) -> str:
        """Returns an attribute of the step, or else of the run, as text; empty for none."""
        return str({**self.run, **self.step.attributes}.get(name, ""))

    @property
    def library(self) -> str:
        """Distribution that the step's code belongs to; empty if it is not known."""
        return self.attribute(semconv.LIBRARY_NAME)

    @property
    def method(self) -> str:
        """Calibration method; empty if it is not known."""
        return self.attribute(semconv.CALIBRATION_METHOD)

    @property
    def calibrates(self) -> bool:
        """Whether memory ran out in a calibration, or in a step that consumed samples."""
        step = self.step
        return self.where == "host" and (step.samples is not None or "Calibration" in step.name)

    @property
    def has_batches(self) -> bool:
        """Whether a sample may be several items."""
        items = self.step.attributes.get(semconv.CALIBRATION_ITEM_COUNT)
        return not isinstance(items, int) or items > (self.step.samples or 0)

    @property
    def grows(self) -> bool:
        """Whether memory grew with each sample or layer."""
        return self.where == "host" and self.growth > 0 and self.memory > 0

    @property
    def expected(self) -> float | None:
        """Memory at its highest if it goes on growing, in bytes; None if that is not known."""
        done, total = self.step.counts.current
        at_end = self.memory + max(0, (total or 0) - done) * self.growth
        if self.where == "host" and self.forecast is not None:
            at_end = self.forecast
        elif not total or not self.grows:
            return None
        return at_end + (total or done) * self.growth * (self.after or 0)

    @property
    def fitting(self) -> int | None:
        """Samples that fit into the limit, fewer than failed; None if that is not known."""
        done, is_known = self.step.counts.current.done, self.grows and self.after is not None
        if self.limit_source == "RLIMIT_AS":  # what samples take of addresses is another matter
            return None
        if not done or self.step.counts.newest != "sample" or not is_known or not self.limit:
            return None
        before, each = self.memory - done * self.growth, self.growth * (1 + (self.after or 0))
        return min(done - 1, int((_ROOM * self.limit - before) / each))

    @property
    def leaks(self) -> bool:
        """Whether memory grew in the program's own code, or to the end and with nothing that is counted."""
        grown = self.grown
        if self.where != "host" or (grown is not None and grown.is_loaded):
            return False
        if grown is not None and grown.is_own:
            return self.grows or bool(self.leak)
        return bool(self.leak) and not self.growth and self.expected is None

    @property
    def keeps(self) -> bool:
        """Whether what has grown may be what the library keeps."""
        return not self.leaks and (self.grown is None or self.grown.is_librarys)


@dataclass(frozen=True, slots=True)
class _Row:
    """One piece of advice."""

    applies: Callable[[Situation], bool]  # Whether it would help
    text: str  # Its sentence, with names of what `advice_for` knows in braces
    source: str  # Where that is known from


def _is(library: str, *methods: str) -> Callable[[Situation], bool]:
    """Returns a condition: a calibration by a library, with one of these methods if there are any."""
    return lambda s: (
        s.calibrates
        and s.keeps
        and s.library.startswith(library)
        and (not methods or any(method in s.method for method in methods))
    )


_USE_MIN_MAX: Final = "Calibrate with MinMax instead of {method}: it keeps two values of each activation, not all of them."
_RECORDING: Final = "this recording: growth of memory with each sample or layer"
_QUARK_CALIBRATION: Final = "AMD Quark, quark.onnx.calibration: run_calibration"

_HISTOGRAMS: Final = ("Percentile", "Entropy", "Distribution")
"""Methods that keep the values, or histograms of them, of every activation."""

ROWS: Final = (
    _Row(lambda s: s.leaks,
        "Find what keeps growing{place}, by {leak}: a higher limit only delays the end of a leak. `otel-quant stacks {recording} --by memory` names the lines of code.",
        "this recording: memory over time"),
    _Row(lambda s: s.limit_source == "RLIMIT_AS" and not s.leaks,
        "Raise or lift the limit of the address space (ulimit -v), now {limit}: it counts addresses, of which libraries reserve many more than they use.",
        "getrlimit(2), RLIMIT_AS"),
    _Row(lambda s: s.expected is not None and 0 < s.limit < s.expected and s.limit_source != "RLIMIT_AS" and not s.leaks,
        "Give it more memory: about {needed} for all {every}, with a tenth to spare (estimated).",
        _RECORDING),
    _Row(lambda s: (s.fitting or 0) > 0 and not s.leaks,
        "Use fewer calibration samples: about {fitting} fit into {limit}{setting}.",
        _RECORDING),
    _Row(_is("amd-quark", *_HISTOGRAMS), _USE_MIN_MAX, _QUARK_CALIBRATION),
    _Row(_is("amd-quark", "MinMSE"),
        "Calibrate with NonOverflow instead of MinMSE: it keeps less of each activation.",
        _QUARK_CALIBRATION),
    _Row(_is("amd-quark"),
        "Leave CalibOptimizeMem on, which keeps activations on disk instead of in memory; LayerWisePercentile has it off.",
        "AMD Quark, quark.onnx.calibration: options of the calibration methods"),
    _Row(_is("onnxruntime", *_HISTOGRAMS), _USE_MIN_MAX,
        "ONNX Runtime, onnxruntime.quantization.calibrate"),
    _Row(lambda s: s.step.kind == ProfileStep.FAST_FINETUNE,
        "Set mem_opt_level=2 in the finetuning's configuration: its data is kept on disk instead of in memory (1 keeps one layer in memory, 0 all).",
        "AMD Quark, AdaRoundConfig and AdaQuantConfig"),
    _Row(lambda s: s.step.kind == ProfileStep.FAST_FINETUNE,
        "Reduce data_size, or batch_size, of the finetuning; with select_max_mem_layer=True the largest layer shows whether the others fit.",
        "AMD Quark, quark.onnx.algorithm.finetuning: fast_finetune"),
    _Row(lambda s: s.library == "llmcompressor",
        'Use the sequential pipeline (pipeline="sequential", not "basic"): one layer is in memory at a time; fewer num_calibration_samples and a smaller max_seq_length keep less between layers.',
        "LLM Compressor, guide Sequential Onloading"),
    _Row(lambda s: s.where == "gpu" and s.library != "llmcompressor",
        "Use smaller batches, or shorter sequences: activations on the GPU grow with both.",
        "PyTorch, FAQ: My model reports cuda runtime error(2): out of memory"),
    _Row(lambda s: s.where == "gpu" and any(_is_used_by_others(gpu) for gpu in s.gpus),
        "Look for other processes on the GPU: more than a tenth of its memory was not this program's.",
        "this recording: memory of the GPU, and of this program on it"),
    _Row(lambda s: s.where == "gpu" and "OutOfMemoryError" in (s.step.error or ""),
        "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True if much is reserved but not allocated: that is fragmentation.",
        "PyTorch, CUDA semantics: Optimizing memory usage"),
    _Row(lambda s: s.calibrates and not s.leaks and s.has_batches,
        "Use smaller batches: the activations of a whole batch are in memory at once.",
        "PyTorch, torch.utils.data.DataLoader: batch_size; ONNX Runtime, CalibrationDataReader"),
    _Row(lambda s: s.where == "host" and s.limit_source == "cgroup" and s.expected is None and not s.leaks,
        "Raise the container's limit of memory, now {limit} (docker run --memory, Kubernetes resources.limits.memory).",
        "Docker and Kubernetes, resource limits"),
)  # fmt: skip
"""Most useful first; the first of those that apply are given."""


def advice_for(situation: Situation) -> tuple[Advice, ...]:
    """Returns what would help where memory ran out, most useful first."""
    if situation.where is None:
        return ()
    counts, grown = situation.step.counts, situation.grown
    unit = counts.newest or "sample"
    rate = f"with each {unit}" if situation.growth else "a second"
    known = {
        "method": situation.method,
        "limit": size(situation.limit),
        "leak": f"{size(situation.growth or situation.leak)} {rate}",
        "place": f" at {grown.spot.words}" if grown is not None else "",
        "recording": shlex.quote(situation.recording),
        "needed": size((situation.expected or 0) * _SPARE),
        "every": f"{counts.current.total} {UNITS[unit].several}",
        "fitting": situation.fitting,
        "setting": " (Quark: CalibDataSize)" if situation.library == "amd-quark" else "",
    }
    found = [row for row in ROWS if row.applies(situation)][:_MOST]
    return tuple(Advice(text=row.text.format_map(known), source=row.source) for row in found)


def _is_used_by_others(gpu: GpuReading) -> bool:
    most, own = (gpu.limit or math.inf) / 10, gpu.process_used
    return own is not None and gpu.used - own > most
