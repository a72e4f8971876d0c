"""What memory a quantization will need, before it is started.

>>> from otel_quant.cost.estimate import estimate, methods, read
>>> model = read("model.onnx", dims={"batch": 1})
>>> for method in methods(["onnxruntime:MinMax"]):
...     found = estimate(model, method, samples=512)
...     print(found.peak, found.fits(16 << 30))

How the calibration methods of the libraries hold memory is one record each. The numbers of copies
are what the libraries' code does with its default options, and were counted in real runs: memory
was read before and after each call, with freed memory given back. How well they do is in
docs/estimate.md.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Final, Literal, TypeAlias, get_args

from otel_quant.cost import InputSpec, ModelCost, TensorCost, analyze, dtypes
from otel_quant.cost.model_reader import read_model
from otel_quant.cost.operation import volume
from otel_quant.cost.structure import Graph, GraphNode
from otel_quant.schema import semconv
from otel_quant.schema.readings import OWN_MEMORY
from otel_quant.schema.units import counted, size

_BOTH: Final = (
    "Add ArgMax AveragePool Clip Concat Conv ConvTranspose EmbedLayerNormalization Gather Gemm "
    "GlobalAveragePool InstanceNormalization LayerNormalization LeakyRelu MatMul MaxPool Mul Pad "
    "Relu Reshape Resize Sigmoid Softmax Split Squeeze Transpose Unsqueeze Where"
)


@dataclass(frozen=True, slots=True)
class QuantizationLibrary:
    """What all methods of a library have in common."""

    name: str  # ``onnxruntime`` or ``quark``
    versions: str  # What the figures were measured with
    base: int  # Bytes of a process that has imported it and opened a session
    # Copies of the weights while the session of the calibration is opened, which is when there
    # are most
    model_copies: int
    copies_are: str  # Which copies these are
    disk_copies: int  # Copies of the weights in temporary files during the calibration
    disk_copies_are: str  # Which files these are
    preparing_copies: int  # Further ones before the calibration, gone when it begins
    # Operators that it quantizes unless it is told which: the tensors that these read and make
    # are calibrated
    quantized: frozenset[str]
    removed: frozenset[str]  # Operators that it takes out of the model first
    keeps_inputs: bool  # It reads all samples before it begins, and keeps them
    # Bytes of torch, which ``quant_pre_process`` imports where it is installed; 0 if ``base`` has it
    torch: int = 0


@dataclass(frozen=True, slots=True)
class Method:
    """How a calibration method holds memory."""

    library: QuantizationLibrary  # Whose it is
    name: str  # As the library names it
    # Of how many samples all calibrated tensors are kept at once; None for all samples
    kept: int | None
    # Copies of the largest calibrated tensor, of all samples that are kept, while its values are
    # sorted into a histogram
    tensor_copies: int = 0
    bins: int = 0  # Bins of each tensor's histogram; 0 for none
    bin_bytes: int = 0  # Bytes of a bin with its edge
    disk_samples: int = 0  # Samples whose calibrated tensors are in temporary files at once
    below: float = 0.2  # Share of an estimate by which a real peak may lie below it
    above: float = 0.13  # Share of an estimate by which a real peak may lie above it

    @property
    def title(self) -> str:
        """Its name on the command line: ``quark:MinMax``."""
        return f"{self.library.name}:{self.name}"


ONNXRUNTIME: Final = QuantizationLibrary(
    name="onnxruntime", versions="onnxruntime 1.31, onnx 1.22, Python 3.11, Linux x86-64", base=84_000_000,
    model_copies=4,
    copies_are="the model that is quantized, the one that is calibrated, and its session: twice while it is opened",
    disk_copies=1, disk_copies_are="MODEL-inferred.onnx beside the model, then augmented_model.onnx", preparing_copies=0,
    quantized=frozenset(f"{_BOTH} BatchNormalization CumSum Flatten GatherElements Slice TopK".split()),
    removed=frozenset(), keeps_inputs=False, torch=535_000_000,
)  # fmt: skip

QUARK: Final = QuantizationLibrary(
    name="quark", versions="amd-quark 0.13, torch 2.13 for CPUs, onnxruntime 1.31, Python 3.11, Linux x86-64",
    base=805_000_000, model_copies=11,
    copies_are="the model as read, with shapes, as up to four steps of the preparation leave it, "
    "sorted, and as calibrated; its bytes; its session: twice while it is opened",
    disk_copies=2, disk_copies_are="cache_model.onnx, optimized_model.onnx", preparing_copies=1,
    quantized=frozenset(f"{_BOTH} Gelu Tanh".split()),
    removed=frozenset({"BatchNormalization", "Constant", "Dropout", "Identity"}), keeps_inputs=True,
)  # fmt: skip

METHODS: Final[tuple[Method, ...]] = (
    # Reductions come after all other nodes, so every tensor lives until then; the second run
    # allocates one block for all, beside what the first one used.
    Method(ONNXRUNTIME, "MinMax", kept=2),
    Method(ONNXRUNTIME, "Entropy", kept=None, tensor_copies=2, bins=128, bin_bytes=12),
    Method(ONNXRUNTIME, "Percentile", kept=None, tensor_copies=2, bins=2048, bin_bytes=12),
    Method(ONNXRUNTIME, "Distribution", kept=None, tensor_copies=2, bins=2048, bin_bytes=12),
    # The reductions are in the order of a Python set, which differs from run to run: half of the
    # tensors live until the end, or all, and without an arena some memory is allocated twice.
    Method(QUARK, "MinMax", kept=1, below=0.3, above=0.35),
    Method(QUARK, "NonOverflow", kept=1, below=0.3, above=0.35),
    # The histograms are made sample by sample, from files.
    Method(QUARK, "Entropy", 1, tensor_copies=2, bins=128, bin_bytes=16, disk_samples=1),
    Method(QUARK, "Percentile", 1, tensor_copies=2, bins=2048, bin_bytes=12, disk_samples=1),
    Method(QUARK, "Distribution", 1, tensor_copies=2, bins=2048, bin_bytes=12, disk_samples=1),
    Method(QUARK, "LayerWisePercentile", kept=1, tensor_copies=2, bins=2048, bin_bytes=12),
    # Its values are made float64.
    Method(QUARK, "MinMSE", 1, tensor_copies=5, bins=2048, bin_bytes=16, disk_samples=1),
)
"""Every method, with the options that the libraries have by default."""


class UnknownMethodError(ValueError):
    """A method was asked for that no library has."""


def methods(names: Sequence[str] = ()) -> tuple[Method, ...]:
    """Returns the methods that are asked for."""
    known = {name for method in METHODS for name in _names(method)}
    for name in names:
        if name.lower() not in known:
            titles = ", ".join(method.title for method in METHODS)
            expected = f"one of {titles}, or only the part before or behind the colon"
            raise UnknownMethodError(f"{name!r} is no calibration method; expected {expected}")
    wanted = {name.lower() for name in names} or known
    return tuple(method for method in METHODS if not wanted.isdisjoint(_names(method)))


def method_of(step: Mapping[str, object]) -> Method | None:
    """Returns the method that the attributes of a recorded step have."""
    library, name = (str(step.get(it)) for it in (semconv.LIBRARY_NAME, semconv.CALIBRATION_METHOD))
    alike = (it for it in METHODS if it.library.name in library and name.endswith(it.name))
    return max(alike, key=lambda it: len(it.name), default=None)


def _names(method: Method) -> set[str]:
    return {method.title.lower(), method.name.lower(), method.library.name}


Answer: TypeAlias = Literal["yes", "perhaps", "no"]  # Whether a quantization fits into a limit
ANSWERS: Final[tuple[Answer, ...]] = get_args(Answer)
MOST_SAMPLES: Final = 10**12  # So many are taken for any number


@dataclass(frozen=True, slots=True)
class EstimatePart:
    """One part of an estimate."""

    name: str  # What the memory holds
    bytes: int  # How much
    computed_from: str  # The arithmetic, or what was assumed or measured, in words


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a quantization with one method needs."""

    library: str  # ``onnxruntime`` or ``quark``
    method: str  # The calibration method, as the library names it
    samples: int  # Calibration samples
    # The parts of the process's largest resident memory; they add up to ``peak``
    memory: tuple[EstimatePart, ...]
    disk: tuple[EstimatePart, ...]  # The parts of what lies in temporary folders at most
    lowest: int  # Bytes that the peak is expected to have at least
    # Bytes that it is expected to have at most; None where sizes of tensors are not known, so
    # that there is no such bound
    highest: int | None
    probed: int = 0  # Samples of the real run from which it was extrapolated; 0 for none
    # Bytes of torch in ``highest``, which only a program that prepares its model imports
    torch: int = 0
    is_installed: bool = True  # Its library is: else what that takes is not known
    # Seconds: the least, the expected and the most, by the real run's samples; empty if not known
    seconds: tuple[float, ...] = ()
    most: int | None = None  # Samples up to which it is sure to fit into a limit; None if not known

    @property
    def peak(self) -> int:
        """Largest resident memory of the process, in bytes."""
        return sum(part.bytes for part in self.memory)

    @property
    def disk_bytes(self) -> int:
        """Bytes in temporary folders at most."""
        return sum(part.bytes for part in self.disk)

    def fits(self, limit: int) -> Answer:
        """Returns whether it fits into a number of bytes."""
        if self.lowest > limit:
            return "no"
        is_below = self.highest is not None and self.highest <= limit and self.is_installed
        return "yes" if is_below else "perhaps"


_LIKE: Final = 0.1  # Share by which more or less may be taken than a real run tells


@dataclass(frozen=True, slots=True)
class RealRun:
    """What a real quantization took, from which others are extrapolated."""

    method: Method  # Its calibration method
    samples: int  # Its calibration samples
    peak: int  # Largest memory of its calibration, without what otel-quant takes itself, in bytes
    torch: int = 0  # Bytes of torch that its model's preparation would have added
    kept: int = 0  # Bytes of each sample that its program has kept, beyond what the method does
    highest: int = 0  # Largest memory before and after the calibration
    is_cut: bool = False  # Whether it ended before its last sample
    # Those that do not depend on the samples; of a sample the least, the mean and the most. Or none
    seconds: tuple[float, ...] = ()


def estimate(model: EstimatedModel, method: Method, samples: int) -> Estimate:
    """Estimates what a quantization needs, here by what is installed, of which nothing is imported."""
    library = method.library
    sizes = model.calibrated_sizes(library)
    memory = tuple(part for part in _memory(model, method, samples, sizes) if part.bytes)
    disk = tuple(part for part in _disk(model, method, sizes) if part.bytes)
    torch = library.torch if find_spec("torch") is not None else 0
    is_installed = find_spec(library.name) is not None
    found = Estimate(library.name, method.name, samples, memory, disk, 0, 0, 0, torch, is_installed)
    return _bounded(found, method.below, None if model.unsized else method.above)


def _memory(
    model: EstimatedModel, method: Method, samples: int, sizes: Sequence[int]
) -> Iterator[EstimatePart]:
    """Yields the parts of the largest resident memory; ``sizes`` are those of calibrated tensors."""
    library = method.library
    calibrated, largest, count = sum(sizes), max(sizes, default=0), len(sizes)
    kept = samples if method.kept is None else min(method.kept, samples)
    tensors, kept_samples = counted(count, "calibrated tensor"), counted(kept, "sample")
    yield EstimatePart("libraries", library.base, f"assumed: as measured with {library.versions}")
    yield _copies("model copies", library.model_copies, model, f": {library.copies_are}")
    live = "largest sum of activations that one run holds at once"
    yield EstimatePart("session", model.cost.peak_activation_bytes, live)
    text = f"{kept_samples} x {size(calibrated)} of {tensors}"
    yield EstimatePart("activations kept", kept * calibrated, text)
    text = f"{method.tensor_copies} copies x {kept_samples} x {size(largest)} of the largest calibrated tensor"
    yield EstimatePart("values of one tensor", method.tensor_copies * kept * largest, text)
    text = f"{tensors} x {method.bins:,} bins x {method.bin_bytes} B"
    yield EstimatePart("histograms", method.bins * method.bin_bytes * count, text)
    text = f"{counted(samples, 'sample')} x {size(model.input_bytes)} of inputs"
    yield EstimatePart("inputs kept", samples * model.input_bytes * library.keeps_inputs, text)


def _disk(model: EstimatedModel, method: Method, sizes: Sequence[int]) -> Iterator[EstimatePart]:
    """Yields the parts of what lies in temporary folders at most."""
    library, tensors = method.library, counted(len(sizes), "calibrated tensor")
    yield _copies("model files", library.disk_copies, model, f": {library.disk_copies_are}")
    text = f"{counted(method.disk_samples, 'sample')} x {size(sum(sizes))} of {tensors}"
    cache = EstimatePart("activation cache", method.disk_samples * sum(sizes), text)
    when = ", before the calibration"
    prepared = _copies("model being prepared", library.preparing_copies, model, when)
    yield max(cache, prepared, key=lambda part: part.bytes)


def _copies(name: str, copies: int, model: EstimatedModel, what: str) -> EstimatePart:
    weights = model.weight_bytes
    return EstimatePart(name, copies * weights, f"{copies} x {size(weights)} of weights{what}")


def while_reading(method: Method, found: Estimate) -> int:
    """Returns the peak in bytes without what a method that keeps all samples takes after the last one."""
    late = ("values of one tensor", "histograms") if method.kept is None else ()
    return sum(part.bytes for part in found.memory if part.name not in late)


def extrapolated(
    model: EstimatedModel, method: Method, run: RealRun | None, samples: int
) -> Estimate:
    """Estimates from a real run, if there is one of the library: what the arithmetic has for it is taken off."""
    wanted = estimate(model, method, samples)
    if run is None or run.method.library is not method.library:
        return wanted
    alike, further = estimate(model, run.method, run.samples), samples - run.samples
    more = wanted.peak - (while_reading(run.method, alike) if run.is_cut else alike.peak)
    of = counted(abs(further), "more sample" if further >= 0 else "fewer sample")
    ran, is_other = counted(run.samples, "sample"), method is not run.method
    added = f"what the arithmetic adds for {of}{f' with {method.name}' * is_other}"
    kept = f"{further:,} x {size(run.kept)} that the program has kept of each"
    highest = max(0, run.highest - (run.peak + more + further * run.kept))
    found = (
        EstimatePart("real run", run.peak, f"measured: peak of a run of {ran}"),
        EstimatePart("further samples", more, added),
        EstimatePart("kept by the program", further * run.kept, kept),
        EstimatePart("outside", highest, "memory was higher before or after its calibration"),
    )
    memory, (rest, *each) = tuple(part for part in found if part.bytes), run.seconds or (0.0,)
    spread = zip(each, (1 - _LIKE, 1, 1 + _LIKE), strict=False)
    seconds = tuple((rest + samples * it) * part for it, part in spread if not is_other)
    torch = run.torch if wanted.torch else 0
    wanted = replace(wanted, memory=memory, probed=run.samples, torch=torch, seconds=seconds)
    below, above = (method.below, method.above) if is_other else (_LIKE, _LIKE)
    return _bounded(wanted, below, None if wanted.highest is None else above)


def most_samples(limit: int, estimated: Callable[[int], Estimate]) -> int | None:
    """Returns up to how many samples are sure to fit into a limit; None if that is not known."""
    first = estimated(1)
    if first.highest is None or not first.is_installed:
        return None
    every = range(1, MOST_SAMPLES + 1)
    return bisect_right(every, limit, key=lambda samples: estimated(samples).highest or 0)


def _bounded(found: Estimate, below: float, above: float | None) -> Estimate:
    own = OWN_MEMORY + found.torch  # the estimate is of a run that is not recorded
    highest = None if above is None else round(found.peak * (1 + above)) + own
    return replace(found, lowest=round(found.peak * (1 - below)), highest=highest)


# What estimates need to know of a model, from its structure alone.

_CALIBRATED: Final = frozenset({"float32", "float16"})
"""Types of the tensors whose ranges are looked for."""


_TUNED: Final = frozenset(
    {"Conv", "ConvTranspose", "Gemm", "InstanceNormalization", "LayerNormalization", "MatMul"}
)
"""Operators whose weights Quark fine-tunes."""

_FLOAT: Final = 4
_PER_PARAMETER: Final = 1 + 3
"""The parameter, and what Quark counts for Adam: momentum, variance, and the parameter again."""


@dataclass(frozen=True, slots=True)
class Layer:
    """The layer with the largest estimate."""

    name: str  # Its node
    bytes: int  # The estimate
    computed_from: str  # The arithmetic in words


@dataclass(frozen=True, slots=True)
class ActivationTensor:
    """A tensor of the main graph that is no constant."""

    dtype: str  # Its element type, ``float32`` for example
    bytes: int | None  # Its size; None if it is not known
    made_by: str  # Operator that makes it; empty for an input of the model
    operators: frozenset[str]  # Those that make it or read it

    def calibrated(self, quantized: Collection[str], removed: Collection[str]) -> bool:
        """Whether a library that quantizes some operators looks for its range."""
        is_touched = not self.operators.isdisjoint(quantized) and self.made_by not in removed
        return self.dtype in _CALIBRATED and is_touched


@dataclass(frozen=True, slots=True)
class EstimatedModel:
    """What estimates need to know of a model."""

    cost: ModelCost  # Its static cost
    weight_bytes: int  # Bytes of its constants, those that no node reads included
    inputs: tuple[TensorCost, ...]  # Its inputs of known shape
    input_bytes: int  # Bytes of all of them
    activations: tuple[ActivationTensor, ...]  # Inputs of the main graph, and what its nodes make
    unsized: int  # How many of these have no known size; estimates leave them out
    layers: Mapping[str, Layer]  # The layers with the largest estimates, by whose arithmetic

    def calibrated_sizes(self, library: QuantizationLibrary) -> list[int]:
        """Returns the bytes of each tensor of known size whose range a library looks for."""
        return [
            tensor.bytes
            for tensor in self.activations
            if tensor.bytes is not None and tensor.calibrated(library.quantized, library.removed)
        ]


def read(
    path: str | os.PathLike[str],
    inputs: Mapping[str, InputSpec] | None = None,
    dims: Mapping[str, int] | None = None,
) -> EstimatedModel:
    """Reads what estimates need of a model; it is not run and its weights are not read."""
    graph = read_model(path).graph
    cost = analyze(path, inputs=inputs, dims=dims, tensors=True)
    operators: defaultdict[str, set[str]] = defaultdict(set)
    made_by: dict[str, str] = {}
    for node in graph.nodes:
        for name in (*node.inputs, *node.outputs):
            operators[name].add(node.op_type)
        made_by.update(dict.fromkeys(node.outputs, node.op_type))
    constants = {tensor.name for tensor in graph.initializers}
    declared = {info.name: info.type for info in graph.inputs if info.name not in constants}
    given = []
    for name, shape in cost.input_shapes.items():
        count = volume(shape)
        if name in declared and count is not None:
            dtype = declared[name].dtype
            stored = dtypes.stored_bytes(dtype, count)
            given.append(TensorCost(name, dtypes.name_of(dtype), shape, stored, node=""))
    made = [tensor for tensor in cost.tensors or () if not tensor.in_body]
    activations = [
        ActivationTensor(
            it.dtype, it.bytes, made_by.get(it.name, ""), frozenset(operators[it.name])
        )
        for it in (*given, *made)
    ]
    sizes = {tensor.name: volume(tensor.shape) for tensor in made}
    elements = {name: count for name, count in sizes.items() if count is not None}
    return EstimatedModel(
        cost=cost._replace(tensors=None),
        weight_bytes=cost.weight_bytes + cost.unused_weight_bytes,
        inputs=tuple(given),
        input_bytes=sum(tensor.bytes or 0 for tensor in activations[: len(given)]),
        activations=tuple(activations),
        unsized=sum(tensor.bytes is None for tensor in activations) + len(declared) - len(given),
        layers=_largest_layers(graph, elements, cost),
    )


def _largest_layers(
    graph: Graph, elements: Mapping[str, int], cost: ModelCost
) -> Mapping[str, Layer]:
    """Finds the layers with the largest estimates: by the arithmetic of Quark, and by ours.

    Quark's comes from its option ``select_max_mem_layer``, which fine-tunes only that layer: of each
    layer with weights, four bytes for a parameter, for three more figures that it counts for Adam,
    and for an element of the result. An activation function behind the layer is a layer's part only
    where Quark leaves it in the quantized model, which it does not by default.
    """
    found = {}
    weights = {tensor.name: tensor.elements for tensor in graph.initializers}
    nodes = (node for node in graph.nodes if node.op_type in _TUNED)
    tuned = [layer for node in nodes if (layer := _tuned(node, weights, elements))]
    if tuned:
        found["quark"] = max(tuned, key=lambda layer: layer.bytes)
    largest = next((node for node in cost.nodes if node.name == cost.max_memory_node), None)
    if largest is not None and largest.memory_bytes is not None:
        found["otel-quant"] = Layer(
            largest.name, largest.memory_bytes, "its weights and results, as they are stored"
        )
    return found


def _tuned(
    node: GraphNode, weights: Mapping[str, int], elements: Mapping[str, int]
) -> Layer | None:
    """Returns Quark's estimate of a layer; None if it has no weight, or no result of known size."""
    if len(node.inputs) < 2 or node.inputs[1] not in weights or node.outputs[0] not in elements:
        return None
    parameters = sum(weights.get(name, 0) for name in node.inputs[1:3])
    results = elements[node.outputs[0]]
    return Layer(
        node.name or node.outputs[0],
        _FLOAT * (_PER_PARAMETER * parameters + results),
        f"{_FLOAT} B x ({_PER_PARAMETER} x {parameters:,} parameters + {results:,} elements of "
        "its result)",
    )
