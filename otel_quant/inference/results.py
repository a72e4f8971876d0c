"""What has been measured of models, as immutable records, and the JSON of both commands.

`inference.json` is what the records are. `bench.json` has the same under keys of its own:
:func:`_bench_plain` and :func:`_of_bench` are the two directions.

Times are in seconds, those of kernels in microseconds as the profiler has them; sizes in bytes;
shares from 0 to 1. What could not be measured is None.
"""

from __future__ import annotations

import json
import math
import re
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

SCHEMA: Final = 1
"""Version of the JSON: raised when a key changes its meaning or goes away."""

MOST_BYTES: Final = 1_000_000
"""Largest JSON of a result; the quickest kernels are left out beyond it, with their number."""

Role = Literal["float", "quantized"]

CONVERSIONS: Final = frozenset(
    {"Cast", "Transpose", "ReorderInput", "ReorderOutput", "MemcpyFromHost", "MemcpyToHost"}
)
"""Kernels that only convert: the runtime puts them in where kernels do not fit each other."""

_QUANTIZES: Final = frozenset(
    {
        *(f"{prefix}{name}" for prefix in ("", "com.microsoft:")
          for name in ("QuantizeLinear", "DequantizeLinear")),
        "DynamicQuantizeLinear", "ExtendedQuantizeLinear", "ExtendedDequantizeLinear",
        "BFPQuantizeDequantize", "MXQuantizeDequantize",
    }
)  # fmt: skip

_BY_NAME: Final = re.compile(r"quantize|int[248]|_int_mm", re.IGNORECASE)
"""Operators of ONNX and of PyTorch that only quantized models have."""

_EIGHT_BITS: Final = ("int8", "uint8", "int4", "uint4", "int2", "uint2", "float8", "float4")
"""Beginnings of the names of types in which the numbers of a float model are not."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Time of a run, measured without the profiler; of a variant in each of its processes."""

    # Of all runs; of processes the mean of their medians, without the lowest and highest quarter
    median: float
    p10: float | None = None  # A tenth of the runs was faster
    p90: float | None = None  # A tenth of the runs was slower
    runs: int | None = None  # Timed runs; None where a block of calls was timed at once
    first: float | None = None  # The very first run, which nothing of this counts
    # Half the distance between the first and the third quartile of the rounds' medians, as a
    # share of the median
    noise: float = 0.0
    # This model's time to that of the first model, or of the baseline, in the rounds beside it
    ratio: float | None = None
    is_apart: bool | None = None  # Whether the machine was quiet enough to tell the two apart
    profiled: float | None = None  # Time with the profiler on as a multiple of the time without
    # Distance between the quartiles of all blocks of calls, in which each round counts the same
    iqr: float | None = None
    blocks: int | None = None  # Blocks of calls that were timed, in all rounds
    rounds: int | None = None  # Rounds of all processes
    processes: tuple[float, ...] = ()  # Median of the rounds' medians of each process

    @property
    def speedup(self) -> float | None:
        """Times as fast as the first model; None where there is none to compare with."""
        return 1 / self.ratio if self.ratio else None


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Memory of the process and of the session."""

    # The kernel's mark of the highest RSS while the model ran; of a PyTorch model on a GPU, in
    # the program's own process, the mark of torch's allocator
    peak: int | None
    load_peak: int | None  # The same until it was timed: loading and quantization included
    grown: int | None = None  # How much the RSS grew when the session was made
    arena_held: int | None = None  # What the session's arena had taken from the system
    arena_used: int | None = None  # The most of it that was in use
    # Constants as the file has them; of a variant the saved state dict, or the file as it lies
    weights_on_disk: int | None = None
    # Constants of the graph that onnxruntime has made of it, before kernels pack their own
    # copies; of a PyTorch model its parameters and buffers
    weights_in_memory: int | None = None
    run_growth: int | None = None  # How far the mark was above what was held before the run
    allocated: int | None = None  # Bytes that a run allocates, as torch's profiler adds them up
    alive: int | None = None  # The most of them that was held at once
    gpu: int | None = None  # Of a variant the mark of torch's allocator, over all GPUs
    # Of a variant to the baseline's: on a GPU of the allocator's marks, else of the kernel's
    ratio: float | None = None


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
    macs: int | None = None  # Of one run
    macs_per_second: float | None = None  # MACs per second
    allocated: int | None = None  # Bytes that it allocates in a run
    # Whether its provider has compiled a part of the graph into it: nobody tells what runs within
    is_compiled: bool = False

    @property
    def types(self) -> str:
        """Types and shapes of the first operands, without scalars, and of the first results."""
        taken = [each for each in self.inputs if not each.endswith(" scalar")]
        sides = ", ".join(taken[:3]), ", ".join(self.outputs[:2])
        return " -> ".join(sides) if any(sides) else ""

    @property
    def is_conversion(self) -> bool:
        """Whether it only converts; a Transpose of the file is the model's own work."""
        is_put_in = self.op_type != "Transpose" or self.node is None
        return self.op_type in _QUANTIZES or (self.op_type in CONVERSIONS and is_put_in)


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


def backend_kernels(
    ran: Iterable[tuple[tuple[str, str, str, str], str]],
) -> tuple[BackendKernel, ...]:
    """Counts what has run in which module, the most frequent first."""
    modules: dict[tuple[str, str, str, str], list[str]] = {}
    for key, module in ran:
        modules.setdefault(key, []).append(module)
    found = [
        BackendKernel(*key, len(within), within[0], len(set(within)))
        for key, within in modules.items()
    ]
    return tuple(sorted(found, key=lambda each: -each.calls))


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

    @classmethod
    def of(
        cls, runs: int, run_micros: float, kernels: Sequence[RanKernel], counts_calls: bool = False
    ) -> Ran:
        """Returns what ran in the mean of several runs, the slowest kernels and operators first."""
        groups: dict[tuple[str, str], list[RanKernel]] = {}
        for kernel in kernels:
            groups.setdefault((kernel.op_type, kernel.provider), []).append(kernel)
        operators = []
        for (op_type, provider), alike in groups.items():
            micros, macs = sum(each.micros for each in alike), _sum([each.macs for each in alike])
            operators.append(
                OperatorTime(
                    op_type,
                    provider,
                    sum(int(each.calls) for each in alike) if counts_calls else len(alike),
                    micros,
                    sum(each.share for each in alike),
                    macs,
                    1e6 * macs / micros if macs and micros else None,
                    _sum([each.allocated for each in alike]),
                )
            )
        whole = sum(kernel.micros for kernel in kernels)
        between = max(0.0, run_micros - whole)
        slowest = tuple(sorted(kernels, key=lambda each: -each.micros))
        by_operator = tuple(sorted(operators, key=lambda each: -each.micros))
        return cls(runs, run_micros, whole, between, slowest, 0, 0.0, by_operator)


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


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
    source: str  # Where what is said can be read
    alike: str = ""  # The same for findings of the kind that are so for the same reason


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

    outputs: tuple[OutputError, ...] = ()  # Its outputs; of a variant the worst one alone
    # Its tensors, the worst first; empty if they were not asked for
    layers: tuple[TensorError, ...] = ()
    problem: str = ""  # Why it could not be told; empty if it could


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
    kind: str | None = None  # What runs a variant: ``torch`` or ``onnx``
    # Time of the function that makes a variant; None if it was there already
    quantize: float | None = None
    # What the first calls of a variant took beyond a usual one; of an ONNX file with the session
    compile: float | None = None

    @property
    def role(self) -> Role | None:
        """What it is, by its weights or by what ran; None if neither tells."""
        if self.is_quantized or (self.ran is not None and role_of(self.ran.kernels) == "quantized"):
            return "quantized"
        return None if self.is_quantized is None and self.ran is None else "float"

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
        times: dict[str, float] = {}
        for operator in () if self.ran is None else self.ran.operators:
            times[operator.provider] = times.get(operator.provider, 0.0) + operator.micros
        return max(times, key=lambda each: times[each], default=next(iter(self.providers), None))


@dataclass(frozen=True, slots=True)
class InferenceResult:
    """What is known of all models."""

    models: tuple[ModelResult, ...]  # In the order of the command line
    version: str  # Of the runtime; empty if no model was loaded
    settings: Mapping[str, str]  # How sessions were made, as names and values
    load: float  # Load of the machine before, processes that wanted a core on average of a minute
    cores: int  # Cores that this process may use
    runtime: str = "onnxruntime"  # What ran the models
    # Of variants that `otel-quant bench` has measured: the one that the others are compared with,
    # and the command line that repeats it. Empty of `otel-quant inference`.
    baseline: str = ""
    command: str = ""

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
        """Returns the JSON, of at most ``MOST_BYTES``."""
        return _bounded(self)[1]

    def bounded(self) -> InferenceResult:
        """Returns what of it the JSON has."""
        return _bounded(self)[0]


def role_of(kernels: Iterable[RanKernel]) -> Role:
    """Returns what a model is by the kernels that ran."""
    found = any(
        tells_quantized(each.op_type, each.macs, (operand.split(" ")[0] for operand in each.inputs))
        for each in kernels
    )
    return "quantized" if found else "float"


def tells_quantized(operator: str, macs: int | None, types: Iterable[str]) -> bool:
    """Returns whether only quantized models have such an operator."""
    if _BY_NAME.search(operator):
        return True
    return bool(macs) and operator not in CONVERSIONS and any(map(is_of_few_bits, types))


def is_of_few_bits(type_name: str) -> bool:
    """Returns whether a float model's numbers are not of this type."""
    return type_name.startswith(_EIGHT_BITS)


def merged_facts(facts: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Returns what is known of models as one list: what differs is told of each by its name."""
    found: dict[str, str] = {}
    for fact in dict.fromkeys(fact for known in facts.values() for fact in known):
        texts = {name: known[fact] for name, known in facts.items() if known.get(fact)}
        if len(set(texts.values())) == 1:
            found[fact] = next(iter(texts.values()))
        else:
            found |= {f"{fact} of {name}": text for name, text in texts.items()}
    return found


def tensor_text(dtype: object, shape: Iterable[int]) -> str:
    """Returns the type and shape of a tensor: ``float32 1x3x224x224``."""
    return f"{dtype} {'x'.join(map(str, shape)) or 'scalar'}"


def _bounded(result: InferenceResult) -> tuple[InferenceResult, str]:
    while True:
        plain = _bench_plain(result) if result.baseline else _plain(result)
        text = json.dumps(_known({"schema": SCHEMA, **plain}), ensure_ascii=False) + "\n"
        most = max(map(_length, result.models), default=0)
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


def _plain(result: InferenceResult) -> Mapping[str, Any]:
    """Returns what ``inference.json`` has."""
    plain = asdict(result)
    del plain["baseline"], plain["command"]
    for model in plain["models"]:
        if model["latency"] is not None:
            del model["latency"]["processes"]
    return {**plain, "noise": result.noise}


_VARIANT: Final = ("kind", "problem", "is_quantized", "quantize", "compile")
_VARIANT_MEMORY: Final[Mapping[str, str]] = {
    "process": "peak",
    "gpu": "gpu",
    "until_timed": "load_peak",
    "ratio": "ratio",
}
"""Keys of ``bench.json`` that are fields of the records too, under this name or another."""


def _bench_plain(result: InferenceResult) -> Mapping[str, Any]:
    """Returns what ``bench.json`` has."""
    variants = []
    for model in result.models:
        latency, memory, accuracy = model.latency, model.memory, model.accuracy or Accuracy()
        variants.append({
            "name": model.path,
            **{key: getattr(model, key) for key in _VARIANT},
            "provider": next(iter(model.providers), ""),
            "call": latency and {**asdict(latency), "speedup": latency.speedup, "ratio": None},
            "memory": memory
            and {key: getattr(memory, name) for key, name in _VARIANT_MEMORY.items()},
            "disk": memory and memory.weights_on_disk,
            "error": asdict(accuracy.outputs[0]) if accuracy.outputs else None,
            "error_problem": accuracy.problem,
        })  # fmt: skip
    names = ("baseline", "settings", "load", "cores", "command")
    return {"variants": variants, **{name: getattr(result, name) for name in names}}


def _of_bench(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns what ``bench.json`` has as the records have it."""
    models = []
    for variant in document["variants"]:
        latency, memory = variant.get("call"), variant.get("memory")
        if latency and "speedup" in latency:
            latency["ratio"] = 1 / latency["speedup"]
        if memory is not None:
            memory = {name: memory.get(key) for key, name in _VARIANT_MEMORY.items()}
            memory["weights_on_disk"] = variant.get("disk")
        outputs = [variant["error"]] if "error" in variant else []
        accuracy = {"outputs": outputs, "problem": variant.get("error_problem", "")}
        models.append({
            "path": variant["name"],
            **{key: variant[key] for key in _VARIANT if key in variant},
            "providers": list(filter(None, [variant.get("provider")])),
            "latency": latency,
            "memory": memory,
            "accuracy": accuracy if any(accuracy.values()) else None,
        })  # fmt: skip
    runtime, version = runtime_of(document["settings"])
    return {**document, "models": models, "runtime": runtime, "version": version}


def runtime_of(settings: Mapping[str, str]) -> tuple[str, str]:
    """Returns what has run most variants, and its version; empty if nothing is known."""
    library = next((name for name in ("torch", "onnxruntime") if name in settings), "")
    return library, settings.get(library, "")


def _known(value: Any) -> Any:
    """Leaves out what is not known, and numbers that JSON does not have."""
    if isinstance(value, dict):
        found = {key: _known(each) for key, each in value.items()}
        return {key: each for key, each in found.items() if each is not None}
    if isinstance(value, list | tuple):
        return [_known(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def read_result(text: str) -> InferenceResult:
    """Returns the result of a JSON text of either command."""
    document = json.loads(text)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ValueError(f"the schema is not {SCHEMA}")
    if "variants" in document:
        try:
            document = _of_bench(document)
        except (AttributeError, KeyError, TypeError, ZeroDivisionError) as error:
            raise ValueError(f"not a result of variants: {error}") from error
    found = _made(InferenceResult, document)
    assert isinstance(found, InferenceResult)
    return found


def _made(kind: Any, value: Any) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        inner = next(each for each in arguments if each is not type(None))
        return None if value is None else _made(inner, value)
    if origin is tuple and isinstance(value, list):
        return tuple(_made(arguments[0], each) for each in value)
    if origin is Mapping and isinstance(value, dict):
        return {str(key): _made(arguments[1], each) for key, each in value.items()}
    if is_dataclass(kind) and isinstance(value, dict):
        hints, record = get_type_hints(kind), kind
        assert isinstance(record, type)
        return record(**{
            each.name: _made(hints[each.name], value.get(each.name))
            for each in fields(kind)
            if each.name in value
            or (each.default is MISSING and each.default_factory is MISSING)
        })  # fmt: skip
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if origin is None and isinstance(value, kind) and isinstance(value, bool) == (kind is bool):
        return value
    raise ValueError(f"{value!r:.80} is not {kind}")
