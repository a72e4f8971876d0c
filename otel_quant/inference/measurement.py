"""What telemetry and comparisons need of models at work, whatever has measured them.

Times are in seconds, sizes in bytes, shares from 0 to 1. What is not known is None.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from otel_quant.cost.graph import DEQUANTIZES, QUANTIZES, dtypes
from otel_quant.inference.file_graph import FileGraph
from otel_quant.inference.join import CONVERSIONS
from otel_quant.inference.results import InferenceResult, ModelResult, Ran, RanKernel

Role = Literal["float", "quantized"]

MOST_OPERATORS: Final = 10
"""Operators, and kernels, of a model that are told: the slowest."""

MOST_FINDINGS: Final = 20
"""Findings of a model that are told: those that take most time."""

_BY_NAME: Final = re.compile(r"quantize|int[248]|_int_mm", re.IGNORECASE)
"""Operators of ONNX and of PyTorch that only quantized models have."""

_EIGHT_BITS: Final = ("int8", "uint8", "int4", "uint4", "int2", "uint2", "float8", "float4")
"""Beginnings of the names of types in which the numbers of a float model are not."""

_QUANTIZES: Final = (
    QUANTIZES
    | DEQUANTIZES
    | {
        "DynamicQuantizeLinear",
        "ExtendedQuantizeLinear",
        "ExtendedDequantizeLinear",
        "BFPQuantizeDequantize",
        "MXQuantizeDequantize",
    }
)


@dataclass(frozen=True, slots=True)
class TimedOperator:
    """A kernel, or all kernels of an operator."""

    operator: str  # The operator
    provider: str | None  # Who ran it
    seconds: float  # Time in a run
    share: float  # Part of the time of all kernels
    # Node of the model, or the kernel; None for all kernels of the operator
    name: str | None = None
    kernels: int = 1  # How many kernels
    # Types and shapes of operands and results of a kernel: ``uint8 8x64 -> float32 8x64``
    types: str = ""
    macs_per_second: float | None = None  # MACs per second


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that went wrong: kind, node of the model, sentence and share of the time."""

    kind: str
    node: str
    sentence: str
    share: float


@dataclass(frozen=True, slots=True)
class MeasuredModel:
    """One model at work."""

    name: str | None = None  # What the program calls it; None for one that is known by its path
    path: str | None = None  # Its file; None for one that has none
    role: Role | None = None  # What it is: by what ran, not by its place; None if nothing did
    provider: str | None = None  # Execution provider or engine that took most of the time
    median: float | None = None  # Time of a run
    p10: float | None = None  # A tenth of the runs was faster
    p90: float | None = None  # A tenth of the runs was slower
    runs: int | None = None  # Timed runs
    # Times as fast as the first model; None where the two cannot be told apart
    speedup: float | None = None
    memory_peak: int | None = None  # Highest memory while it ran
    weights: int | None = None  # Size of its weights
    kernel_time: float | None = None  # Time of all kernels in a run
    conversions: float | None = None  # Share of it that only converts
    # What went wrong, what takes longest first; None if nobody has looked
    findings: tuple[Fault, ...] | None = None
    sqnr: float | None = None  # Of the worst output against the first model's, in dB
    problem: str = ""  # Why it could not be measured; empty if it could
    slowest: tuple[TimedOperator, ...] = ()  # Its slowest operators and then its slowest kernels


@dataclass(frozen=True, slots=True)
class Measurement:
    """Models that were measured beside each other."""

    kind: Literal["inference", "benchmark"]  # What has measured them
    models: tuple[MeasuredModel, ...]  # The first is the baseline
    library: str  # The runtime, as its distribution is called; empty if it is not known
    version: str  # Its version; empty if it is not known
    began_ns: int  # When it began, in nanoseconds since the epoch
    ended_ns: int  # When it ended
    noise: float | None = None  # Of the noisiest model, as a share of its median


def measurement_of(
    result: InferenceResult,
    began_ns: int,
    ended_ns: int,
    unreadable: Mapping[str, str] | None = None,
    library: str = "onnxruntime",
) -> Measurement:
    """Returns what telemetry needs of a result."""
    known = [_model(model) for model in result.models]
    if library != "onnxruntime":
        known = [replace(each, name=each.path, path=None) for each in known]
    failed = (MeasuredModel(path=path, problem=why) for path, why in (unreadable or {}).items())
    return Measurement(
        "inference",
        (*known, *failed),
        library,
        result.version,
        began_ns,
        ended_ns,
        result.noise,
    )


def role_of(kernels: Iterable[RanKernel]) -> Role:
    """Returns what a model is by the kernels that ran."""
    found = any(
        tells_quantized(
            kernel.op_type, kernel.macs, (operand.split(" ")[0] for operand in kernel.inputs)
        )
        for kernel in kernels
    )
    return "quantized" if found else "float"


def tells_quantized(operator: str, macs: int | None, types: Iterable[str]) -> bool:
    """Returns whether only quantized models have such an operator."""
    if _BY_NAME.search(operator):
        return True
    return bool(macs) and operator not in CONVERSIONS and any(map(is_of_few_bits, types))


def is_quantized(graph: FileGraph) -> bool:
    """Returns whether a file has operators that only quantized models have."""
    return any(
        tells_quantized(
            op.kind,
            run.macs.contraction if run.macs is not None else None,
            (dtypes.name_of(value.dtype) for value in op.inputs if value is not None),
        )
        for op, run in graph.runs.items()
    )


def is_of_few_bits(type_name: str) -> bool:
    """Returns whether a float model's numbers are not of this type."""
    return type_name.startswith(_EIGHT_BITS)


def _model(model: ModelResult) -> MeasuredModel:
    latency, memory, ran = model.latency, model.memory, model.ran
    if latency is None or memory is None or ran is None:
        return MeasuredModel(path=model.path, problem=model.problem)
    errors = () if model.accuracy is None else model.accuracy.outputs
    return MeasuredModel(
        path=model.path,
        role="quantized" if model.is_quantized else role_of(ran.kernels),
        provider=_provider(ran) or next(iter(model.providers), None),
        median=latency.median,
        p10=latency.p10,
        p90=latency.p90,
        runs=latency.runs,
        speedup=1 / latency.ratio if latency.ratio and latency.is_apart else None,
        memory_peak=memory.peak,
        weights=memory.weights_on_disk or memory.weights_in_memory,
        kernel_time=ran.kernel_micros / 1e6,
        conversions=sum((each.share for each in ran.kernels if _converts(each)), 0.0),
        findings=tuple(
            Fault(each.kind, each.node, each.sentence, each.share) for each in model.findings
        ),
        sqnr=min((each.sqnr for each in errors if each.sqnr is not None), default=None),
        slowest=_slowest(ran),
    )


def _provider(ran: Ran) -> str | None:
    times: dict[str, float] = {}
    for operator in ran.operators:
        times[operator.provider] = times.get(operator.provider, 0.0) + operator.micros
    return max(times, key=lambda provider: times[provider], default=None)


def _converts(kernel: RanKernel) -> bool:
    # A Transpose of the file is the model's own work.
    is_put_in = kernel.op_type != "Transpose" or kernel.node is None
    return kernel.op_type in _QUANTIZES or (kernel.op_type in CONVERSIONS and is_put_in)


def _slowest(ran: Ran) -> tuple[TimedOperator, ...]:
    operators = (
        TimedOperator(
            each.op_type,
            each.provider,
            each.micros / 1e6,
            each.share,
            kernels=each.kernels,
            macs_per_second=each.macs_per_second,
        )
        for each in ran.operators[:MOST_OPERATORS]
    )
    kernels = (
        TimedOperator(
            each.op_type,
            each.provider,
            each.micros / 1e6,
            each.share,
            each.node or each.name,
            types=each.types,
            macs_per_second=each.macs_per_second,
        )
        for each in ran.kernels[:MOST_OPERATORS]
    )
    return (*operators, *kernels)
