"""What has been measured of models, as immutable records, and their JSON, which both commands write.

Times are in seconds, times of kernels in microseconds as the profiler has them; sizes in bytes;
shares from 0 to 1. What could not be measured is None.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from inspect import signature
from itertools import chain
from math import inf
from operator import attrgetter
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

SCHEMA: Final = 1
"""Version of the JSON: raised when a key changes its meaning or goes away."""

Role = Literal["float", "quantized"]

_ROLES: Final[Mapping[bool | None, Role]] = {True: "quantized", False: "float"}

CONVERSIONS: Final = frozenset({
    "Cast", "Transpose", "ReorderInput", "ReorderOutput", "MemcpyFromHost", "MemcpyToHost",
})  # fmt: skip
"""Kernels that only convert: the runtime puts them in where kernels do not fit each other."""

_QUANTIZES: Final = frozenset({
    "QuantizeLinear", "DequantizeLinear", "com.microsoft:QuantizeLinear", "com.microsoft:DequantizeLinear",
    "DynamicQuantizeLinear", "ExtendedQuantizeLinear", "ExtendedDequantizeLinear", "BFPQuantizeDequantize",
    "MXQuantizeDequantize",
})  # fmt: skip

_PRODUCT: Final = re.compile("Attention|Conv|Gemm|LSTM|MatMul")
_FEW_BITS: Final = re.compile(r"q?u?int[1-8](x\d)?|float[48].*|bits.*")
"""Types in which the numbers of a float model are not, as ONNX and torch name them."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Time of a run, measured without the profiler."""

    # Of the rounds' medians; of several processes the mean of theirs, without the lowest and
    # the highest quarter
    median: float
    p10: float | None = None  # A tenth of the runs was faster
    p90: float | None = None  # A tenth of the runs was slower
    runs: int | None = None  # Timed runs; None where a block of calls was timed at once
    first: float | None = None  # The very first run, which nothing of this counts
    # Half the distance between the first and the third quartile of the rounds' medians, as a
    # share of the median
    noise: float = 0.0
    # This model's time divided by the first model's, or the baseline's, in the rounds beside it
    ratio: float | None = None
    is_apart: bool | None = None  # Whether the machine was quiet enough to tell the two apart
    why: str = ""  # Why they cannot be told apart
    # Whether the ratio is of CPU time, which other programs do not change, since the clock could not tell
    is_by_cpu: bool = False
    cpu: float | None = None  # Seconds of CPU time in a run, of all threads
    # Whether the fastest tenths of the runs have another ratio than the medians: the machine was busy. Of
    # the two ``ratio`` is the one nearer to 1, unless it is of CPU time
    is_in_doubt: bool = False
    processes: tuple[float, ...] = ()  # Median of the rounds' medians of each process
    gpu_energy: float | None = None  # Joules of all visible GPUs in a run, idle ones included
    cpu_energy: float | None = None  # Joules of the processors' packages in a run

    @property
    def speedup(self) -> float | None:
        """Times as fast as the first model; None where there is none to compare with."""
        return 1 / self.ratio if self.ratio else None

    @property
    def is_at_least(self) -> bool:
        """Whether the ratio is the smaller one of two that a busy machine has left."""
        return self.is_in_doubt and not self.is_by_cpu

    @property
    def clear_speedup(self) -> float | None:
        """The same where the machine was quiet enough to tell the two apart."""
        return self.speedup if self.is_apart else None


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Memory of the process and of the session."""

    # The kernel's mark of the highest RSS while the model ran; of a PyTorch model on a GPU, in
    # the program's own process, the mark of torch's allocator
    peak: int | None
    load_peak: int | None  # The same until it was timed: loading and quantization included
    grown: int | None = None  # How much the RSS grew when the session was made
    arena_used: int | None = None  # The most of the session's arena that was in use
    # The file with its external data; of a variant of torch the saved state dict
    weights_on_disk: int | None = None
    # Constants of the graph that onnxruntime has made of it, before kernels pack their own
    # copies; of a PyTorch model its parameters and buffers
    weights_in_memory: int | None = None
    run_growth: int | None = None  # How far the mark was above what was held before the run
    allocated: int | None = None  # Bytes that a run allocates, as torch's profiler adds them up
    alive: int | None = None  # The most of them that was held at once
    gpu: int | None = None  # Of a variant the mark of torch's allocator, over all GPUs

    @property
    def highest(self) -> int | None:
        """The mark of where it ran."""
        return self.gpu or self.peak

    @property
    def weights(self) -> int | None:
        """Its constants."""
        return self.weights_on_disk or self.weights_in_memory


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
    micros: float  # The least time in a run; of a PyTorch model the mean
    share: float  # Part of the time of all kernels
    calls: float  # How often it runs in a run
    inputs: tuple[str, ...]  # Types and shapes of its operands
    outputs: tuple[str, ...]  # Types and shapes of its results
    macs: int | None = None  # Of one run
    allocated: int | None = None  # Bytes that it allocates in a run
    # Whether its provider has compiled a part of the graph into it: nobody tells what runs within
    is_compiled: bool = False
    # The node or module that its time counts for: of conversions the contraction on their integers
    layer: str | None = None
    parts: tuple[str, ...] = ()  # The other nodes that it does the work of, without conversions
    rounds_to: str = ""  # The type that it rounds its first operand to itself, if any
    is_scaling: bool = False  # Whether it makes floats of the integers that a contraction has made
    # How far a quarter of its times is above the least, in microseconds
    spread: float | None = None
    weights: int | None = None  # Bytes of the constants of its nodes, as stored
    activations: int | None = None  # Bytes of its other operands and its results

    @property
    def macs_per_second(self) -> float | None:
        """MACs per second."""
        return 1e6 * self.macs / self.micros if self.macs and self.micros else None

    @property
    def multiplies(self) -> tuple[str, ...]:
        """ConvInteger or, of others, no name, and the types of eight bits that it multiplies; none where they are not known."""
        kinds = (each.partition(" ") for each in self.inputs)
        found = [kind for kind, _, shape in kinds if kind in ("int8", "uint8") and "x" in shape]
        if self.op_type in ("DynamicQuantizeMatMul", "DynamicQuantizeLSTM"):
            found.insert(0, "uint8")
        operator = self.op_type if self.op_type == "ConvInteger" else ""
        is_product = self.macs and _PRODUCT.search(self.op_type) and len(found) > 1
        return (operator, *found[:2]) if is_product else ()

    @property
    def runs_in(self) -> str:
        """Type of its first operand or, where it quantizes that itself, of its weights; may be empty."""
        types = [self.rounds_to or each.partition(" ")[0] for each in self.inputs]
        if self.op_type.startswith("DynamicQuantize") and self.op_type not in _QUANTIZES:
            return next(filter(has_few_bits, types), "int8")  # packed ones may be left out
        return next(iter(types), "")

    @property
    def types(self) -> str:
        """Types and shapes of the first operands, without scalars, and of the first results."""
        taken = [each for each in self.inputs if not each.endswith(" scalar")]
        sides = ", ".join(taken[:3]), ", ".join(self.outputs[:2])
        return " -> ".join(sides) if any(sides) else ""

    @property
    def is_conversion(self) -> bool:
        """Whether it only converts; a Transpose of the file is the model's own work."""
        is_inserted = self.op_type != "Transpose" or self.node is None
        converts = self.op_type in _QUANTIZES or self.is_scaling
        return converts or (self.op_type in CONVERSIONS and is_inserted)


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
    """What a library below the operators reports to have run."""

    library: str  # Which library
    primitive: str  # What it was asked for
    implementation: str  # Which of its implementations, with its instruction set; may be empty
    types: str  # Of operands and results; may be empty
    calls: int  # How often it ran in a run
    node: str  # The module that it ran in first
    nodes: int  # How many modules it ran in


def backend_kernels(
    ran: Iterable[tuple[tuple[str, str, str, str], str]],
) -> tuple[BackendKernel, ...]:
    """Counts what has run in which module, the most frequent first."""
    found = []
    for told, alike in grouped(ran, lambda each: each[0]).items():
        modules = [module for _, module in alike]
        found.append(BackendKernel(*told, len(modules), modules[0], len(set(modules))))
    return tuple(sorted(found, key=lambda each: -each.calls))


@dataclass(frozen=True, slots=True)
class Ran:
    """What ran, by the profiler."""

    runs: int  # Profiled runs that this is the mean of
    run_micros: float  # Time of a run
    kernels: tuple[RanKernel, ...]  # Those that took longest first

    @property
    def kernel_micros(self) -> float:
        """Time of its kernels."""
        return sum(kernel.micros for kernel in self.kernels)

    @property
    def between_micros(self) -> float:
        """What the runtime spends between them."""
        return max(0.0, self.run_micros - self.kernel_micros)

    @property
    def operators(self) -> tuple[RanKernel, ...]:
        """The kernels of each operator and provider as one, the slowest first."""
        groups = grouped(self.kernels, attrgetter("op_type", "provider"))
        found = [together(op_type, alike) for (op_type, _), alike in groups.items()]
        return tuple(sorted(found, key=lambda each: -each.micros))


_ADDED: Final = ("nodes", "micros", "share", "calls", "macs", "allocated", "spread", "weights")
"""What kernels have together is the sum of what is known of each."""


def together(name: str, kernels: Sequence[RanKernel]) -> RanKernel:
    """Returns kernels as one."""
    sums: dict[str, Any] = {}
    for added in _ADDED:
        known = [value for each in kernels if (value := getattr(each, added)) is not None]
        sums[added] = sum(known) if known else None
    held = [each.activations for each in kernels if each.activations is not None]
    sums["activations"] = max(held, default=None)
    return replace(kernels[0], name=name, node=None, layer=None, inputs=(), outputs=(), **sums)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that went wrong in a model."""

    kind: str  # Kind of the defect
    node: str  # Node of the file, or module
    sentence: str  # What is wrong, with its share of the time
    remedy: str  # What would change it; may be empty
    micros: float  # Time of its kernels in a run
    share: float  # Their part of the time of all kernels
    kernels: tuple[str, ...]  # Their names
    source: str  # Address of the source that documents it
    alike: str = ""  # The text for several findings of the kind with the same reason
    is_about_accuracy: bool = False
    rewrites: str = ""  # Kinds of rewrites of ``otel-quant fix`` that write the remedy


@dataclass(frozen=True, slots=True)
class OutputError:
    """How far an output is off from the first model's."""

    name: str  # The output
    # Signal to quantization noise in dB; None where they are equal or there is no signal
    sqnr: float | None
    cosine: float | None  # Cosine of the angle between the two; None where one of them is all zero
    max_abs: float | None  # Largest absolute difference
    # The operator that makes it, if it is probabilities, and the dB of what that takes
    behind: str | None = None
    sqnr_in_front: float | None = None


POOR: Final = 30.0
"""dB of outputs from which nothing alone is found to be at fault."""

LOST: Final = 0.5
"""dB that outputs have to lose by a layer alone: a tenth of their noise."""

_MOST_LOST: Final = 6.0
"""The same where three quarters of it are of that layer."""


@dataclass(frozen=True, slots=True)
class TensorError:
    """SQNR of a layer's result in dB: ``own`` of its quantization alone, ``all`` of all before it too."""

    name: str
    own: float | None = None
    all: float | None = None
    node: str = ""  # The node of the file that makes it, where that is known
    carried: float | None = None  # Of what came in, and of its weights, without its own
    weights: float | None = None  # Of its weights
    low: float | None = None  # Share of its values at the lowest code
    high: float | None = None  # The same of the highest one
    used: float | None = None  # Share of the codes between the lowest and the highest of its values
    # Of the float model's own values with this scale: their share beyond its codes, their part of its
    # range, the dB that are left, and those that the scale of these values would leave
    clipped: float | None = None
    span: float | None = None
    direct: float | None = None
    best: float | None = None
    best_scale: float | None = None
    best_zero: int | None = None
    weights_best: float | None = None  # The dB that scales by channel would leave of the weights
    weights_used: float | None = None  # Share of the codes that they use
    weights_scales: int | None = None  # How many scales they have
    # The dB by which the outputs are better where the worse of its result and its weights stays in float; tried of few
    lost: float | None = None
    # A mask among its values, more than 1,000 times as far from 0 as the others, which alone are compared then
    extreme: float | None = None
    # Share of its values that a Relu or Clip of the float model would change, which is left to the quantization
    passed: float | None = None

    @property
    def worst(self) -> float:
        """The lower dB of its own and of its weights."""
        return min((each for each in (self.own, self.weights) if each is not None), default=inf)

    def hurts(self, outputs: float, *, is_named: bool) -> bool:
        """Whether outputs of so many dB lose much by it, or something if a finding about accuracy names it."""
        if self.lost is None:
            return is_named and self.worst <= outputs
        return self.lost >= LOST if is_named else outputs < POOR and self.lost >= _MOST_LOST


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How far a model is off from the first one."""

    outputs: tuple[OutputError, ...] = ()  # Its outputs
    # Its tensors, the worst first; empty if they were not asked for
    layers: tuple[TensorError, ...] = ()
    problem: str = ""  # Why it could not be told; empty if it could
    # The lowest SQNR in dB with sums of 32 bits, as its layers have them; None unless its own saturate
    sqnr_of_layers: float | None = None

    @property
    def lowest_sqnr(self) -> float | None:
        """The lowest SQNR that is known, in dB."""
        return min((each.sqnr for each in self.outputs if each.sqnr is not None), default=None)

    @property
    def decisive_sqnr(self) -> float | None:
        """The lowest SQNR of the outputs, in dB; of probabilities that before their Softmax or Sigmoid."""
        known = [it.sqnr_in_front if it.behind else it.sqnr for it in self.outputs]
        return min((each for each in known if each is not None), default=None)

    @property
    def worst(self) -> OutputError | None:
        """The output that is furthest off; None if none is known."""
        known = (each for each in self.outputs if each.max_abs is not None)
        # Without noise, one that is equal is above all others.
        return min(known, key=lambda each: (each.sqnr is None, each.sqnr), default=None)


@dataclass(frozen=True, slots=True)
class ModelResult:
    """What is known of one model."""

    path: str  # As the user gave it; of a PyTorch model and of a variant its name
    problem: str = ""  # Why it could not be measured; empty if it was
    # Type and shape of what it was fed, by input
    inputs: Mapping[str, str] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()  # Lengths that nothing gives, as the options that set them
    providers: tuple[str, ...] = ()  # Of the session, in order; ``cpu`` or ``cuda`` of torch
    # Nodes before fusion by provider; None where onnxruntime does not tell
    assigned: Mapping[str, int] | None = None
    latency: Latency | None = None  # None where it was not measured; so the others
    memory: MemoryUse | None = None  # Its memory
    ran: Ran | None = None  # What ran; None of variants
    findings: tuple[Finding, ...] = ()  # What took longest first
    accuracy: Accuracy | None = None  # How far it is off; None for the first model
    # What quantizes, dequantizes and converts; of PyTorch models alone, as the next
    conversions: tuple[Conversion, ...] = ()
    backend: tuple[BackendKernel, ...] = ()  # What libraries below the operators have run
    # What else is known of the model, as names and values
    facts: Mapping[str, str] = field(default_factory=dict)
    # Whether it is: a torch module by its weights or what ran, a variant by its weights, a file by
    # its operators; None if that is not known
    is_quantized: bool | None = None
    kind: str | None = None  # What runs a variant: ``torch`` or ``onnx``
    # Time of the function that makes a variant; None if it was there already
    quantize: float | None = None
    # What the first calls of a variant took beyond a usual one; of an ONNX file with the session
    compile: float | None = None

    @property
    def role(self) -> Role | None:
        """What it is; None if that is not known."""
        return _ROLES.get(self.is_quantized)

    @property
    def converting(self) -> float | None:
        """Part of the time of all kernels in which numbers are only converted; None if not known."""
        if self.ran is None or any(kernel.is_compiled for kernel in self.ran.kernels):
            return None
        kernels = (kernel for kernel in self.ran.kernels if kernel.is_conversion)
        return float(sum(each.share for each in self.conversions or kernels))

    @property
    def main_provider(self) -> str | None:
        """Who took most of the time."""
        times = defaultdict[str, float](float)
        for each in () if self.ran is None else self.ran.operators:
            times[each.provider] += each.micros
        return max(times, key=times.__getitem__, default=next(iter(self.providers), None))


@dataclass(frozen=True, slots=True)
class InferenceResult:
    """What is known of all models."""

    models: tuple[ModelResult, ...]  # In the order of the command line
    version: str  # Of the runtime; empty if no model was loaded
    settings: Mapping[str, str]  # How sessions were made, as names and values
    # Load of the machine before, processes that wanted a core on average of a minute; None on Windows
    load: float | None
    cores: int  # Cores that this process may use
    runtime: str = "onnxruntime"  # What ran the models
    # Of variants that `otel-quant bench` has measured: the one that the others are compared with
    baseline: str = ""
    command: str = ""  # The command line that repeats it
    # When a command has measured them, in nanoseconds since the epoch; 0 where an earlier version did
    began_ns: int = 0
    ended_ns: int = 0

    @property
    def first(self) -> ModelResult:
        """The model that the others are compared with."""
        known = (each for each in self.models if self.baseline in ("", each.path))
        return next(known, self.models[0])

    @property
    def noise(self) -> float | None:
        """The largest noise of a model; None if none was measured."""
        return max((each.noise for each in self._latencies), default=None)

    @property
    def process_spread(self) -> float | None:
        """How far the processes of a model differ at most; None if there is one of each."""
        known = (each.processes for each in self._latencies if len(each.processes) > 1)
        return max((max(each) / min(each) - 1 for each in known), default=None)

    @property
    def _latencies(self) -> list[Latency]:
        return [model.latency for model in self.models if model.latency is not None]

    def to_json(self) -> str:
        """Returns the JSON."""
        plain = {"schema": SCHEMA, **asdict(self), "noise": self.noise}
        for each, model in zip(plain["models"], self.models, strict=True):
            if model.ran is not None:
                each["ran"] |= {
                    "kernel_micros": model.ran.kernel_micros,
                    "between_micros": model.ran.between_micros,
                    "operators": list(map(asdict, model.ran.operators)),
                }
        # Without what is not known, and numbers that JSON does not have.
        known = json.loads(
            json.dumps(plain),
            parse_float=lambda text: float(f"{float(text):.6g}"),
            parse_constant=lambda _: None,
            object_hook=lambda found: {key: found[key] for key in found if found[key] is not None},
        )
        return json.dumps(known, ensure_ascii=False) + "\n"


_Item = TypeVar("_Item")
_Key = TypeVar("_Key")


def grouped(items: Iterable[_Item], key: Callable[[_Item], _Key]) -> dict[_Key, list[_Item]]:
    """Returns items by their keys, in the order in which each key comes first."""
    groups: dict[_Key, list[_Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def has_few_bits(type_name: str) -> bool:
    """Returns whether a float model's numbers are not of this type."""
    return _FEW_BITS.fullmatch(type_name) is not None


def merged_facts(facts: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Returns what is known of models as one list: what differs is listed for each by its name."""
    found: dict[str, str] = {}
    for fact in dict.fromkeys(chain.from_iterable(facts.values())):
        texts = {f"{fact} of {name}": each[fact] for name, each in facts.items() if each.get(fact)}
        values = set(texts.values())
        found |= {fact: values.pop()} if len(values) == 1 else texts
    return found


def alike_inputs(fed: Mapping[str, str]) -> Mapping[str, str]:
    """Returns inputs without the width of floats: the same values are rounded to it."""
    return {name: re.sub(r"^b?float\d+ ", "float ", text) for name, text in fed.items()}


def tensor_text(dtype: object, shape: Iterable[object]) -> str:
    """Returns the type and shape of a tensor: ``float32 1x3x224x224``."""
    return f"{dtype} {'x'.join(map(str, shape)) or 'scalar'}"


def runtime_of(settings: Mapping[str, str]) -> tuple[str, str]:
    """Returns what has run most variants, and its version; empty if nothing is known."""
    library = next((name for name in ("torch", "onnxruntime") if name in settings), "")
    return library, settings.get(library, "")


def read_result(text: str) -> InferenceResult:
    """Returns the result of a JSON text of either command."""
    document = json.loads(text)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ValueError(f"the schema is not {SCHEMA}")
    found: InferenceResult = _made(InferenceResult, document)
    return found


_PLAIN: Final[Mapping[Any, tuple[type, ...]]] = {
    str: (str,), bool: (bool,), int: (int,), float: (float, int),
}  # fmt: skip
"""What JSON may have for a plain value."""


def _made(kind: Any, value: Any) -> Any:
    """Returns what a JSON value is as one of the types of the records above."""
    origin, arguments = get_origin(kind), get_args(kind)
    if type(value) in _PLAIN.get(kind, ()):
        return kind(value)
    if type(None) in arguments:
        return None if value is None else _made(arguments[0], value)
    if origin is tuple and isinstance(value, list):
        return tuple(_made(arguments[0], each) for each in value)
    if origin is Mapping and isinstance(value, dict):
        return {str(key): _made(arguments[1], each) for key, each in value.items()}
    if is_dataclass(kind) and isinstance(value, dict):
        record: Any = kind
        parameters, hints = signature(record).parameters.items(), get_type_hints(record)
        # What it has to have is None where the JSON has left that out.
        given = {name: None for name, each in parameters if each.default is each.empty} | value
        return record(**{name: _made(hints[name], given[name]) for name in hints if name in given})
    raise ValueError(f"{value!r:.80} is not {kind}")
