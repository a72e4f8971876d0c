"""What has been measured, as immutable records, and the JSON made of them.

Times are in seconds, those of kernels in microseconds as the profiler has them; sizes in bytes;
shares from 0 to 1. What could not be measured is None.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from otel_quant.inference.findings.record import Finding

SCHEMA: Final = 1
"""Version of the JSON: raised when a key changes its meaning or goes away."""

MOST_BYTES: Final = 1_000_000
"""Largest JSON of a result; the quickest kernels are left out beyond it, with their number."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Time of a run, measured without the profiler."""

    median: float  # In seconds
    p10: float  # A tenth of the runs was faster
    p90: float  # A tenth of the runs was slower
    runs: int  # Timed runs
    first: float  # The very first run, which nothing of this counts
    # Half the distance between the first and the third quartile of the rounds' medians, as a
    # share of the median
    noise: float
    # Median of the ratios of this model's rounds to the first model's beside them
    ratio: float | None = None
    is_apart: bool | None = None  # Whether the machine was quiet enough to tell the two apart
    profiled: float | None = None  # Time with the profiler on as a multiple of the time without


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Memory of the process and of the session."""

    # The kernel's mark of the highest RSS while the model ran; of a PyTorch model on a GPU the
    # mark of torch's allocator
    peak: int | None
    load_peak: int | None  # The same until it had run first, the loading included
    grown: int | None  # How much the RSS grew when the session was made
    arena_held: int | None  # What the session's arena had taken from the system
    arena_used: int | None  # The most of it that was in use
    weights_on_disk: int | None  # Constants as the file has them
    # Constants of the graph that onnxruntime has made of it, before kernels pack their own
    # copies; of a PyTorch model its parameters and buffers
    weights_in_memory: int | None
    run_growth: int | None = None  # How far the mark was above what was held before the run
    allocated: int | None = None  # Bytes that a run allocates, as torch's profiler adds them up
    alive: int | None = None  # The most of them that was held at once


@dataclass(frozen=True, slots=True)
class RanKernel:
    """A kernel as it ran."""

    name: str  # Its name
    op_type: str  # Its operator
    # The node of the file that it is named by; None where the runtime has put it in. Of a PyTorch
    # model the path of the module.
    node: str | None
    nodes: int  # How many nodes of the file it does the work of
    provider: str  # Who ran it
    micros: float  # Mean time in a run
    share: float  # Part of the time of all kernels
    calls: float  # How often it runs in a run
    inputs: tuple[str, ...]  # Types and shapes of its operands
    outputs: tuple[str, ...]  # Types and shapes of its results
    macs: int | None  # Of one run
    macs_per_second: float | None  # MACs per second
    allocated: int | None = None  # Bytes that it allocates in a run

    @property
    def types(self) -> str:
        """Types and shapes of the first operands, without scalars, and of the first results."""
        taken = [each for each in self.inputs if not each.endswith(" scalar")]
        sides = ", ".join(taken[:3]), ", ".join(self.outputs[:2])
        return " -> ".join(sides) if any(sides) else ""


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """The kernels of one operator together: as in :class:`RanKernel`."""

    op_type: str
    provider: str
    kernels: int
    micros: float
    share: float
    macs: int | None
    macs_per_second: float | None
    allocated: int | None = None


@dataclass(frozen=True, slots=True)
class Conversion:
    """Operators that change how numbers are stored, those that do the same together."""

    # ``quantize``, ``dequantize``, ``convert`` (between types), ``choose scales`` or ``observe``
    # (fake quantization)
    kind: str
    types: str  # From which type to which, where it is known
    calls: int  # How often it happens in a run
    micros: float  # Time in a run
    share: float  # Part of the time of all kernels


@dataclass(frozen=True, slots=True)
class BackendKernel:
    """What a library below the operators says it has run."""

    library: str  # Which library
    primitive: str  # What it was asked for
    implementation: str  # Which of its implementations, with its instruction set; may be empty
    types: str  # Of operands and results; may be empty
    calls: int  # How often it ran in a run
    node: str  # The module that it ran in first
    nodes: int  # How many modules it ran in


@dataclass(frozen=True, slots=True)
class Ran:
    """What ran, by the profiler."""

    runs: int  # Profiled runs that this is the mean of
    run_micros: float  # Time of a run
    kernel_micros: float  # Time of its kernels
    between_micros: float  # What the runtime spends between them
    kernels: tuple[RanKernel, ...]  # Those that took longest first
    left_out: int  # Kernels left out for the size of the result
    left_out_micros: float  # Their time
    operators: tuple[OperatorTime, ...]  # By operator and provider


@dataclass(frozen=True, slots=True)
class OutputError:
    """How far an output is off from the first model's."""

    name: str  # The output
    # Signal to quantization noise in dB; None where they are equal or there is no signal
    sqnr: float | None
    cosine: float | None  # Cosine of the angle between the two; None where one of them is all zero
    max_abs: float | None  # Largest absolute difference


@dataclass(frozen=True, slots=True)
class TensorError:
    """SQNR of a tensor in dB: ``own`` of its quantization alone, ``all`` of all before it too."""

    name: str
    own: float | None
    all: float | None


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How far a model is off from the first one."""

    outputs: tuple[OutputError, ...] = ()  # Its outputs
    # Its tensors, the worst first; empty if they were not asked for
    layers: tuple[TensorError, ...] = ()
    problem: str = ""  # Why it could not be told; empty if it could


@dataclass(frozen=True, slots=True)
class ModelResult:
    """What is known of one model."""

    path: str  # As the user gave it; of a PyTorch model its name
    problem: str = ""  # Why it could not be measured; empty if it was
    # Type and shape of what it was fed, by input
    inputs: Mapping[str, str] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()  # Lengths that nothing gives, as the options that set them
    providers: tuple[str, ...] = ()  # Of the session, in order
    # Nodes before fusion by provider; None where onnxruntime does not tell
    assigned: Mapping[str, int] | None = None
    latency: Latency | None = None  # None where it was not measured; so the others
    memory: MemoryUse | None = None  # Its memory
    ran: Ran | None = None  # What ran
    findings: tuple[Finding, ...] = ()  # What went wrong, what took longest first
    more_findings: int = 0  # Findings left out for the size of the result
    accuracy: Accuracy | None = None  # How far it is off; None for the first model
    # What quantizes, dequantizes and converts; of PyTorch models alone, as the next
    conversions: tuple[Conversion, ...] = ()
    backend: tuple[BackendKernel, ...] = ()  # What libraries below the operators have run
    # What else is known of the model, as names and values
    facts: Mapping[str, str] = field(default_factory=dict)
    # Whether it is: a torch module by its weights, a file by its operators; None if that is not
    # known
    is_quantized: bool | None = None


@dataclass(frozen=True, slots=True)
class InferenceResult:
    """What is known of all models."""

    models: tuple[ModelResult, ...]  # In the order of the command line
    version: str  # Of the runtime; empty if no model was loaded
    settings: Mapping[str, str]  # How sessions were made, as names and values
    load: float  # Load of the machine before, processes that wanted a core on average of a minute
    cores: int  # Cores that this process may use
    runtime: str = "onnxruntime"  # What ran the models

    @property
    def noise(self) -> float | None:
        """The largest noise of a model; None if none was measured."""
        known = [model.latency.noise for model in self.models if model.latency is not None]
        return max(known, default=None)

    def to_json(self) -> str:
        """Returns the JSON, of at most ``MOST_BYTES``."""
        return _bounded(self)[1]

    def bounded(self) -> InferenceResult:
        """Returns what of it the JSON has."""
        return _bounded(self)[0]


def _bounded(result: InferenceResult) -> tuple[InferenceResult, str]:
    while True:
        text = json.dumps(_plain(result), ensure_ascii=False, allow_nan=False) + "\n"
        most = max((_length(model) for model in result.models), default=0)
        if len(text.encode("utf-8", "backslashreplace")) <= MOST_BYTES or not most:
            return result, text
        models = tuple(_shortened(model, most // 2) for model in result.models)
        result = replace(result, models=models)


def _length(model: ModelResult) -> int:
    layers = 0 if model.accuracy is None else len(model.accuracy.layers)
    kernels = 0 if model.ran is None else len(model.ran.kernels)
    return max(layers, kernels, len(model.findings), len(model.backend))


def _shortened(model: ModelResult, most: int) -> ModelResult:
    """Returns a model with so many kernels, findings and layers at most."""
    ran, accuracy = model.ran, model.accuracy
    if ran is not None:
        rest = ran.kernels[most:]
        ran = replace(
            ran,
            kernels=ran.kernels[:most],
            left_out=ran.left_out + len(rest),
            left_out_micros=ran.left_out_micros + sum(kernel.micros for kernel in rest),
        )
    if accuracy is not None:
        accuracy = replace(accuracy, layers=accuracy.layers[:most])
    return replace(
        model,
        ran=ran,
        accuracy=accuracy,
        findings=model.findings[:most],
        more_findings=model.more_findings + len(model.findings[most:]),
        backend=model.backend[:most],
    )


def _plain(result: InferenceResult) -> dict[str, Any]:
    return {"schema": SCHEMA, **without_none(asdict(result)), "noise": result.noise}


def without_none(value: Any) -> Any:
    """Leaves out what is not known, and numbers that JSON does not have."""
    if isinstance(value, dict):
        found = {key: without_none(each) for key, each in value.items()}
        return {key: each for key, each in found.items() if each is not None}
    if isinstance(value, list | tuple):
        return [without_none(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
