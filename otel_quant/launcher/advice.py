"""Errors that mean that memory ran out, and what would have helped: tables, each row with its source."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from otel_quant.recordings.model import Advice, RecordedRun, RecordedStep
from otel_quant.schema import semconv
from otel_quant.schema.records import GpuReading, ProfileStep
from otel_quant.schema.units import size

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
        if re.fullmatch(row.error, error) and (not row.message or re.search(row.message, text)):
            return row.where or ("gpu" if _GPU.search(text) else "host")
    return None


_MOST: Final = 5

_SPARE: Final = 1.1
"""What is asked for, as a multiple of what is expected: samples differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What is known of a program when its memory ran out."""

    step: RecordedStep | None = None  # The innermost open one with samples, else the innermost
    run: RecordedRun | None = None  # The run; None if nothing was recorded
    where: Where | None = None  # Whose memory ran out; None if it did not run out
    memory: int | None = None  # RSS of the process tree then, in bytes
    limit: int | None = None  # The limit in force, in bytes
    limit_source: str | None = None  # Its source
    growth: int | None = None  # Growth of memory with each sample, in bytes
    leak: int | None = None  # Growth of memory each second that went on to the end, in bytes
    # Memory after the last sample as the program's own forecast has it, in bytes
    forecast: int | None = None
    gpus: tuple[GpuReading, ...] = ()  # The GPUs at the last reading

    def attribute(self, name: str) -> str:
        """Returns an attribute of the step, or else of the run, as text; empty for none."""
        for owner in (self.step, self.run):
            if owner is not None and name in owner.attributes:
                return str(owner.attributes[name])
        return ""

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
        """Whether the step is a calibration, or consumed samples."""
        step = self.step
        return step is not None and (step.samples is not None or "Calibration" in step.name)

    @property
    def expected(self) -> float | None:
        """Memory at the last sample if it goes on growing, in bytes; None if that is not known."""
        if self.where == "host" and self.forecast is not None:
            return self.forecast
        step = self.step
        if step is None or not step.expected_samples or not self._grows or self.memory is None:
            return None
        left = step.expected_samples - (step.samples or 0)
        return self.memory + max(0, left) * (self.growth or 0)

    @property
    def fitting(self) -> int | None:
        """Samples that fit into the limit; None if that is not known."""
        step = self.step
        if step is None or not step.samples or not self._grows:
            return None
        if self.memory is None or self.limit is None:
            return None
        before = self.memory - step.samples * (self.growth or 0)
        return max(0, int((self.limit / _SPARE - before) / (self.growth or 1)))

    @property
    def leaks(self) -> bool:
        """Whether memory grew to the end, and nobody knows how much it would have needed."""
        return self.where == "host" and bool(self.leak) and self.expected is None

    @property
    def _grows(self) -> bool:
        return self.where == "host" and (self.growth or 0) > 0


@dataclass(frozen=True, slots=True)
class _Row:
    """One piece of advice."""

    applies: Callable[[Situation], bool]  # Whether it would help
    text: str | Callable[[Situation], str]  # Its sentence, or what makes it
    source: str  # Where that is known from


def _is(library: str, *methods: str) -> Callable[[Situation], bool]:
    """Returns a condition: a calibration by a library, with one of these methods if there are any."""
    return lambda s: (
        s.where == "host"
        and s.calibrates
        and s.library.startswith(library)
        and (not methods or any(method in s.method for method in methods))
    )


def _in_step(kind: str) -> Callable[[Situation], bool]:
    return lambda s: s.step is not None and s.step.kind == kind


def _use_min_max(s: Situation) -> str:
    return f"Calibrate with MinMax instead of {s.method}: it keeps two values of each activation, not all of them."


_RECORDING: Final = "this recording: growth of memory with each sample"
_QUARK_CALIBRATION: Final = "AMD Quark, quark.onnx.calibration: run_calibration"
_QUARK_FINETUNING: Final = "AMD Quark, AdaRoundConfig and AdaQuantConfig"
_QUARK_FINETUNING_STEP: Final = "AMD Quark, quark.onnx.algorithm.finetuning: fast_finetune"
_ONNXRUNTIME: Final = "ONNX Runtime, onnxruntime.quantization.quantize_static: extra_options"
_LLM_COMPRESSOR: Final = "LLM Compressor, guide Sequential Onloading"

_HISTOGRAMS: Final = ("Percentile", "Entropy", "Distribution")
"""Methods that keep the values, or histograms of them, of every activation."""

ROWS: Final = (
    _Row(lambda s: s.limit_source == "RLIMIT_AS" and not s.leaks,
        lambda s: f"Raise or lift the limit of the address space (ulimit -v), now {size(s.limit or 0)}: it counts addresses, of which libraries reserve many more than they use.",
        "getrlimit(2), RLIMIT_AS"),
    _Row(lambda s: s.expected is not None and s.limit is not None and s.expected > s.limit,
        lambda s: f"Give it more memory: about {size((s.expected or 0) * _SPARE)} for all {s.step.expected_samples if s.step else 0} samples, with a tenth to spare (estimated).",
        _RECORDING),
    _Row(lambda s: bool(s.fitting) and s.step is not None and (s.fitting or 0) < (s.step.expected_samples or 2**62),
        lambda s: f"Use fewer calibration samples: about {s.fitting} fit into {size(s.limit or 0)}{' (Quark: CalibDataSize)' if s.library == 'amd-quark' else ''}.",
        _RECORDING),
    _Row(_is("amd-quark", *_HISTOGRAMS),
        _use_min_max,
        _QUARK_CALIBRATION),
    _Row(_is("amd-quark", "MinMSE"),
        "Calibrate with NonOverflow instead of MinMSE: it keeps less of each activation.",
        _QUARK_CALIBRATION),
    _Row(_is("amd-quark"),
        "Leave CalibOptimizeMem on, which keeps activations on disk instead of in memory; LayerWisePercentile has it off.",
        "AMD Quark, quark.onnx.calibration: options of the calibration methods"),
    _Row(_is("onnxruntime", *_HISTOGRAMS),
        _use_min_max,
        "ONNX Runtime, onnxruntime.quantization.calibrate"),
    _Row(_is("onnxruntime", "MinMax"),
        "Set CalibMaxIntermediateOutputs in extra_options: ranges are then merged after so many outputs, with the same result.",
        _ONNXRUNTIME),
    _Row(_in_step(ProfileStep.FAST_FINETUNE),
        "Set mem_opt_level=2 in the finetuning's configuration: its data is kept on disk instead of in memory (1 keeps one layer in memory, 0 all).",
        _QUARK_FINETUNING),
    _Row(_in_step(ProfileStep.FAST_FINETUNE),
        "Reduce data_size, or batch_size, of the finetuning; with select_max_mem_layer=True the largest layer shows whether the others fit.",
        _QUARK_FINETUNING_STEP),
    _Row(lambda s: s.library == "llmcompressor",
        'Use the sequential pipeline (pipeline="sequential", not "basic"): one layer is in memory at a time; fewer num_calibration_samples and a smaller max_seq_length keep less between layers.',
        _LLM_COMPRESSOR),
    _Row(lambda s: s.leaks,
        lambda s: f"Find what keeps growing, by {size(s.leak or 0)} a second until the end: a higher limit only delays the end of a leak. `otel-quant stacks RECORDING --by memory` names the lines of code.",
        "this recording: memory over time"),
    _Row(lambda s: s.where == "gpu" and s.library != "llmcompressor",
        "Use smaller batches, or shorter sequences: activations on the GPU grow with both.",
        "PyTorch, FAQ: My model reports cuda runtime error(2): out of memory"),
    _Row(lambda s: s.where == "gpu" and any(_is_used_by_others(gpu) for gpu in s.gpus),
        "Look for other processes on the GPU: more than a tenth of its memory was not this program's.",
        "this recording: memory of the GPU, and of this program on it"),
    _Row(lambda s: s.where == "gpu" and "OutOfMemoryError" in _error(s),
        "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True if much is reserved but not allocated: that is fragmentation.",
        "PyTorch, CUDA semantics: Optimizing memory usage"),
    _Row(lambda s: s.where == "host" and s.calibrates,
        "Use smaller batches: the activations of a whole batch are in memory at once.",
        "PyTorch, torch.utils.data.DataLoader: batch_size; ONNX Runtime, CalibrationDataReader"),
    _Row(lambda s: s.where == "host" and s.limit_source == "cgroup" and s.expected is None and not s.leaks,
        lambda s: f"Raise the container's limit of memory, now {size(s.limit or 0)} (docker run --memory, Kubernetes resources.limits.memory).",
        "Docker and Kubernetes, resource limits"),
)  # fmt: skip
"""Most useful first; the first of those that apply are given."""


def advice_for(situation: Situation) -> tuple[Advice, ...]:
    """Returns what would help, most useful first; nothing unless memory ran out."""
    if situation.where is None:
        return ()
    found = [row for row in ROWS if row.applies(situation)][:_MOST]
    texts = [each.text if isinstance(each.text, str) else each.text(situation) for each in found]
    return tuple(
        Advice(text=text, source=row.source) for text, row in zip(texts, found, strict=True)
    )


def _is_used_by_others(gpu: GpuReading) -> bool:
    if gpu.process_used is None or not gpu.limit:
        return False
    return gpu.used - gpu.process_used > gpu.limit / 10


def _error(situation: Situation) -> str:
    return (situation.step.error if situation.step is not None else None) or ""
