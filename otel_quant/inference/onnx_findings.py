"""What goes wrong in ONNX models: conversions that were not fused, and kernels that were inserted or are slow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Any, Final, NamedTuple

from otel_quant.cost import graph
from otel_quant.cost.graph import (
    CLAMPS,
    QDQ,
    Fusion,
    Tensor,
    TypedNode,
    Value,
    dtypes,
    obstacles,
    printable,
)
from otel_quant.inference.findings import Findings, Found
from otel_quant.inference.onnx_kernels import CPU, FileGraph, Part, Placed
from otel_quant.inference.results import BackendKernel, Latency, TensorError, grouped, has_few_bits
from otel_quant.schema.units import counted, joined, share_text, speed_text

_OPTIMIZER: Final = "onnxruntime/core/optimizer/"
"""A folder of onnxruntime's repository, as are the other sources."""

_FUSES_QUANTIZED: Final = ("extended", "all")
"""Levels at which onnxruntime puts kernels on integers in place of QDQ groups."""

_LONGEST: Final = 80
_LISTED: Final = 3


class ExactSums(NamedTuple):
    """How far a model whose sums saturate on this processor is off with sums of 32 bits."""

    own: float  # SQNR in dB as it runs
    exact: float  # And with sums of 32 bits
    is_of_copy: bool  # Whether its nodes had to get weights and zero points of their own before
    latency: Latency | None = None  # With these sums, compared with as it runs


SATURATING: Final = ("", "uint8", "int8")
"""Products that a processor may add in 16 bits, as kernels have them: ConvInteger does not."""


@dataclass(frozen=True, slots=True)
class OnnxEvidence:
    """What is looked at."""

    file: FileGraph  # The model's file
    kernels: Sequence[Placed]  # The kernels that ran, in order
    asked: Sequence[str]  # Providers that the user asked for, in order
    level: str  # Level of graph optimization
    parts: Sequence[Part] = ()  # The graph before fusion, by provider; empty if that is not known
    layers: Sequence[TensorError] = ()  # Beside the float model
    not_finite: Mapping[str, Any] | None = None  # The first node whose results are not finite
    outputs: float = 0.0  # The dB of what is given out, if it is compared
    below: Sequence[BackendKernel] = ()  # What is reported to run in compiled kernels
    # By operator and types, how many times as long products take here as with the other type of weights, and that
    slower: Mapping[tuple[str, ...], tuple[float, str]] = field(default_factory=dict)
    is_told: bool = False  # Whether its session has arguments of a file beside it
    sums: ExactSums | None = None  # Where its own saturate

    def of(self, op_types: Collection[str]) -> Sequence[Placed]:
        """Returns the kernels of some operators."""
        return [kernel for kernel in self.kernels if kernel.ran.op_type in op_types]


FINDINGS: Final = Findings[OnnxEvidence]()


def title(op: TypedNode) -> str:
    """Returns a node's operator and name as sentences have them."""
    return f"{op.node.op_type} `{printable(op.name, _LONGEST)}`"


def listed(names: Sequence[str]) -> str:
    """Returns the first names of several, and how many more there are."""
    shown = [f"`{printable(name, _LONGEST)}`" for name in names[:_LISTED]]
    if more := len(names) - len(shown):
        shown.append(f"{more:,} more")
    return joined(shown)


QUARK: Final = "com.amd.quark:"

_IN_FLOAT: Final = frozenset({
    "Conv", "ConvTranspose", "FusedConv", "FusedGemm", "FusedMatMul", "Gemm", "MatMul", "NhwcFusedConv",
})  # fmt: skip
"""Contractions of floats, as operators of files and as kernels."""

_SELECTORS: Final = f"{_OPTIMIZER}qdq_transformer/selectors_actions/qdq_selectors.cc"


class _Island(NamedTuple):
    """A node that did not run on integers, though integers are next to it."""

    node: TypedNode
    why: obstacles.Obstacle
    conversions: Sequence[Placed]  # Kernels of the conversions next to it
    own: Sequence[Placed]  # Kernels that did its work in float
    weights: TypedNode | None  # What dequantizes its constant weights, if it ran in float

    def found(self, text: str) -> Found:
        """Returns the finding of a text."""
        reason, kernels = self.why.reason, [*self.conversions, *self.own]
        alike = f"{self.node.node.op_type}: {reason}"
        return Found(self.node.name, kernels, f"{text}: {reason}", *self.why.remedy, alike=alike)


@FINDINGS.row("in_float", _SELECTORS)
def _in_float(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields contractions that ran in float although their weights are integers."""
    for island in _islands(evidence):
        if island.weights is not None:
            held = dtypes.name_of(island.weights.input(0).dtype)
            yield island.found(f"{title(island.node)} ran in float although its weights are {held}")


def _of_nodes(evidence: OnnxEvidence, names: Sequence[str], text: str, *remedy: str) -> Found:
    """Returns a finding about nodes of the file, with the kernels that did their work."""
    known = set(names)
    kernels = [it for it in evidence.kernels if any(op.name in known for op in it.nodes)]
    first = next((op for op in evidence.file.ops if op.name == names[0]), None)
    operator = "" if first is None else f"{first.node.op_type} "
    return Found(names[0], kernels, f"{operator}{listed(names)} {text}", *remedy)


@FINDINGS.row("left_in_float", "onnxruntime/python/tools/quantization/registry.py")
def _left_in_float(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields contractions of a quantized model that the quantizer has left in float, by the reasons."""
    macs = sum(each.macs for each in evidence.file.contractions.values())
    for left in evidence.file.left_in_float():
        part = f"{share_text(left.macs / macs)} of the MACs of all contractions"
        text = f"stayed in float, {part}: {left.why.reason}"
        yield _of_nodes(evidence, left.names, text, *left.why.remedy)


def ran_in(kernels: Iterable[Placed], file: FileGraph) -> Mapping[TypedNode, str]:
    """Returns the type that each contraction ran in, as far as it was seen by itself."""
    return {
        op: f"{each.ran.runs_in} by weights" if each.ran.op_type in _BY_WEIGHTS else each.ran.runs_in
        for each in kernels
        for op in each.nodes
        if op in file.contractions and each.ran.runs_in and not each.ran.is_conversion and not each.ran.is_compiled
    }  # fmt: skip


_BY_WEIGHTS: Final = frozenset({"MatMulBnb4", "MatMulNBits"})
"""Kernels of floats by integers."""


def kind_of(type_name: str) -> str:
    """Returns which kernels a type has: those on integers, by integers as weights, or of floats."""
    if type_name.endswith(("weight-only", "by weights")):
        return "floats by integers"
    return "integers" if has_few_bits(type_name) else "float"


@FINDINGS.row("undone", f"{_OPTIMIZER}qdq_transformer/weight_bias_quantization.cc", 0.0)
def _undone(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields contractions that were left in float, and that onnxruntime has quantized on loading."""
    asked, (reason, remedy) = evidence.file.contractions, obstacles.ON_LOADING
    ran = {op: kind_of(it) for op, it in ran_in(evidence.kernels, evidence.file).items()}
    undone = [op.name for op in ran if (kind_of(asked[op].asked), ran[op]) == _UNDONE]
    if undone:
        yield _of_nodes(evidence, undone, f"ran in integers: {reason}", *remedy)


_UNDONE: Final = ("float", "integers")
"""What was asked for, and what ran."""


@FINDINGS.row("unexpected", "docs/cost.md")
def _unexpected(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields contractions that ran otherwise than the rules of ``cost`` have it."""
    if evidence.is_told or evidence.level not in _FUSES_QUANTIZED or set(evidence.asked) - {CPU}:
        return
    pairs: dict[tuple[str, str], list[str]] = {}
    for op, found in ran_in(evidence.kernels, evidence.file).items():
        pair = kind_of(evidence.file.contractions[op].expected), kind_of(found)
        pairs.setdefault(pair, []).append(op.name)
    for (expected, ran), names in pairs.items():
        if expected != ran:
            what = f"ran in {ran}, and `otel-quant cost` expects {expected}"
            yield _of_nodes(evidence, names, what)


@FINDINGS.row("unfused", _SELECTORS)
def _unfused(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields other conversions that ran as kernels of their own, with what ran in float between them."""
    left = {name for each in evidence.file.left_in_float() for name in each.names}
    for island in _islands(evidence):
        if island.weights is None and island.node.name not in left:
            were = "was" if len({each.place for each in island.conversions}) == 1 else "were"
            is_pair = island.node.kind in QDQ and were == "were"
            beside = "each other" if is_pair else title(island.node)
            yield island.found(f"{_named(island.conversions)} {were} not fused with {beside}")


def _islands(evidence: OnnxEvidence) -> Iterator[_Island]:
    """Yields the nodes without a kernel on integers, for each reason."""
    weights = _integer_weights(evidence.file)
    groups: dict[tuple[TypedNode, obstacles.Obstacle], list[Placed]] = {}
    own: dict[TypedNode, list[Placed]] = {}
    for kernel in evidence.kernels:
        if kernel.node is not None and kernel.node.kind in QDQ and kernel.ran.op_type in QDQ:
            if (reason := _reason(evidence, kernel.node)) is not None:
                groups.setdefault(reason, []).append(kernel)
            continue
        for op in _nodes_in_float(kernel, weights):
            own.setdefault(op, []).append(kernel)
            if op in weights and (why := _why(evidence, op, weights[op])) is not None:
                groups.setdefault((op, why), [])
    for (node, why), conversions in groups.items():
        floats = own.pop(node, ())
        yield _Island(node, why, conversions, floats, weights.get(node) if floats else None)


def _integer_weights(file: FileGraph) -> Mapping[TypedNode, TypedNode]:
    """Returns by contraction the DequantizeLinear of its constant weights."""
    contractions = (op for op in file.ops if op.node.op_type in _IN_FLOAT and op.has(1))
    found = ((op, _dequantizer(file, op.input(1))) for op in contractions)
    return {op: each for op, each in found if each and each.input(0).constant}


def _nodes_in_float(kernel: Placed, weights: Collection[TypedNode]) -> Sequence[TypedNode]:
    """Returns the nodes whose work a kernel did in float: those with integers as weights, if it has any."""
    in_float = kernel.ran.op_type in _IN_FLOAT
    makes_floats = any(each.startswith("float") for each in kernel.ran.outputs)
    nodes = [op for op in kernel.nodes if op in weights] or kernel.nodes
    return [op for op in nodes if (in_float if op.node.op_type in _IN_FLOAT else makes_floats)]


@FINDINGS.row("unfused", "AMD Quark's custom operators, quark.onnx")
def _foreign(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields the conversions of AMD Quark's own operators: onnxruntime does not fuse them."""
    kernels = [
        kernel
        for kernel in evidence.kernels
        if (op := kernel.node) and op.kind.startswith(QUARK) and graph.converts(op.kind)
    ]
    if kernels:
        why = "ran as they are: onnxruntime does not fuse operators of AMD Quark"
        yield Found(kernels[0].place, kernels, f"{_named(kernels)} {why}")


def _named(kernels: Sequence[Placed]) -> str:
    """Returns the operators of conversions with the nodes that they are next to."""
    operators = " and ".join(dict.fromkeys(each.ran.op_type for each in kernels))
    return f"{operators} {listed(list(dict.fromkeys(each.place for each in kernels)))}"


def _reason(evidence: OnnxEvidence, op: TypedNode) -> tuple[TypedNode, obstacles.Obstacle] | None:
    """Returns why a conversion was not fused, and the node; None if it has to run whatever is behind it."""
    # Of two that change the scale, the first stands for both.
    found = [
        (op if node.kind in graph.QUANTIZES else node, why)
        for node in _beside(evidence.file, op)
        if (why := _why(evidence, node, op)) is not None
    ]
    return min(found, key=lambda at: at[0] in evidence.file.fused.on_integers, default=None)


def _beside(file: FileGraph, op: TypedNode) -> Iterator[TypedNode]:
    """Yields the nodes that a conversion could be fused with: in front of one that quantizes, else behind it."""
    if op.kind in graph.QUANTIZES:
        if (maker := file.maker(op.input(0))) is not None:
            # A clamp is a part of the kernel in front, if there is one.
            clamped = file.maker(maker.input(0)) if maker.kind in CLAMPS else None
            yield clamped or maker
    elif not file.is_given_out(op.outputs[0]):
        # A constant is taken for an operand of what reads it in another shape.
        read = file.users if op.input(0).constant else file.readers
        yield from read(op.outputs[0])


def _why(evidence: OnnxEvidence, at: TypedNode, op: TypedNode) -> obstacles.Obstacle | None:
    """Returns why there is no kernel on integers for the node next to a conversion.

    Case 1: there is none for any node at this level of optimization.
    Case 2: the node is a conversion too; None unless the two stand for a change of scale.
    Case 3: the analysis of the file knows an obstacle.
    Case 4: no operator of its kind has a kernel, or not in this opset.
    Case 5: the file would allow one; None if another reader of what is dequantized is the reason.
    Case 6: its operands do not allow one.
    """
    file, fused, level = evidence.file, evidence.file.fused, evidence.level
    if level not in _FUSES_QUANTIZED:  # Case 1
        remedy = obstacles.Remedy(f"level {' or '.join(_FUSES_QUANTIZED)}")
        return obstacles.Obstacle(f"the level of graph optimization is {level}", remedy)
    if at.kind in QDQ:  # Case 2
        changes_scale = (at.kind in graph.QUANTIZES) != (op.kind in graph.QUANTIZES)
        return obstacles.OTHER_NUMBERS if changes_scale else None
    known, rule = fused.obstacles.get(at), graph.FUSIONS.get(at.kind)
    if known is not None:  # Case 3
        not_made = obstacles.NOT_QUANTIZED
        found = [_otherwise(file, at, it) if it is not_made else it for it in known]
        return obstacles.together(found)
    if rule is None:  # Case 4
        is_norm = at.kind == "BatchNormalization"
        return obstacles.UNFOLDED if is_norm else obstacles.NO_KERNEL
    if at.opset < rule.since:
        since = f"from opset {rule.since} on; this is {at.opset}"
        remedy = obstacles.Remedy(f"opset {rule.since}")
        return obstacles.Obstacle(f"there is a kernel on integers for it {since}", remedy)
    if at in fused.by_weights or at in fused.on_integers:  # Case 5
        if op.kind in graph.DEQUANTIZES and len(file.readers(op.outputs[0])) > 1:
            return None
        otherwise = (
            _by_weights(file, at) if at in fused.by_weights else _of_operands(file, at, rule)
        )
        return _otherwise(file, at, otherwise)
    return _of_operands(file, at, rule)  # Case 6


def _by_weights(file: FileGraph, at: TypedNode) -> obstacles.Obstacle:
    """Returns why a node runs on floats, by integers as weights, though what it takes is dequantized."""
    front = _dequantizer(file, at.input(0))
    name = "" if front is None else dtypes.name_of(front.input(0).dtype)
    if not name or has_few_bits(name):
        return obstacles.NOT_HERE
    why = f"no kernel on integers takes {name}, so it runs on floats by its weights"
    return obstacles.Obstacle(why, obstacles.EIGHT_BITS)


def _dequantizer(file: FileGraph, value: Value) -> TypedNode | None:
    """Returns the DequantizeLinear that makes a value, perhaps in another shape."""
    found = file.past(file.maker(value), graph.CARRIES)
    return found if found and found.kind in graph.DEQUANTIZES else None


def _otherwise(file: FileGraph, op: TypedNode, known: obstacles.Obstacle) -> obstacles.Obstacle:
    """Returns that not its QuantizeLinear alone reads a result, or another obstacle where that is not so."""
    readers = file.readers(op.outputs[0])
    others = [each for each in readers if each.kind not in graph.QUANTIZES]
    if len(others) == len(readers):  # it is not quantized
        return known
    if file.is_output(op.outputs[0]):
        why = "its result is also an output of the model"
    elif others:
        why = f"its result is also read by {title(others[0])}"
    elif len(readers) > 1:
        why = "its result is quantized twice"
    else:
        return known
    return obstacles.Obstacle(why, obstacles.NOT_QUANTIZED.remedy)


def _of_operands(file: FileGraph, at: TypedNode, rule: Fusion) -> obstacles.Obstacle:
    """Returns why there is no kernel for what operands are."""
    names = []
    biases = () if rule.bias is None else (rule.bias,)
    for i in filter(at.has, (*rule.operands(at), *biases)):
        value = at.input(i)
        maker, dequantizer = file.maker(value), _dequantizer(file, value)
        if maker is not None and dequantizer not in (None, maker):
            why = f"{title(maker)} stands between it and the DequantizeLinear of operand {i}"
            return obstacles.NOT_DIRECTLY._replace(reason=why)
        if dequantizer is None and i != rule.bias:  # one of floats is quantized on loading
            names.append(value.name)
    if not names:
        return obstacles.NOT_HERE
    why = f"{listed(names)} {'do' if names[1:] else 'does'} not come from a DequantizeLinear"
    return obstacles.Obstacle(why, obstacles.PAIRS_IN_FRONT)


@FINDINGS.row("axis", "onnxruntime/core/providers/cpu/quantization/qlinearconv.cc", accuracy=True)
def _other_axis(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields convolutions on integers whose weights have scales along another axis than 0."""
    kernels = evidence.of({"QLinearConv"})
    convolutions = ((each, op) for each in kernels for op in each.nodes if op.kind == "Conv")
    for kernel, op in convolutions:
        if axis := _channel_axis(_dequantizer(evidence.file, op.input(1))):
            text = (
                f"the weights of {title(op)} are quantized along axis {axis}, and its kernel takes "
                "their scales for axis 0: its results differ from the file's"
            )
            yield Found(op.name, [kernel], text, *obstacles.REWRITES["axis"])


def _channel_axis(dequantizer: TypedNode | None) -> int:
    """Returns the axis along which an operand has several scales; 0 if it has one."""
    if dequantizer is None or dequantizer.input(1).size == 1:
        return 0
    axis, shape = dequantizer.attributes.get("axis", 1), dequantizer.input(0).shape
    return axis % len(shape) if isinstance(axis, int) and shape else 0


@FINDINGS.row("saturates", f"{_OPTIMIZER}qdq_transformer/avx2_weight_s8_to_u8.cc", accuracy=True)
def _saturates(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields that sums saturate on this processor, where those of 32 bits are much closer to the float model."""
    if evidence.sums is not None:
        own, exact, is_of_copy, took = evidence.sums
        time = "in the same time, as far as rounds can tell"
        if took is not None and took.is_apart and took.ratio:
            time = f"{speed_text(took.ratio)}{' by CPU time' * took.is_by_cpu}"
        text = f"sums of uint8 by int8 saturate at 16 bits on this processor: SQNR {own:.1f} dB, and {exact:.1f} dB with sums of 32 bits, {time}"
        remedy, rewrite = obstacles.REWRITES["sums"]
        remedy = f"{'weights and zero points of its own for each node, and ' * is_of_copy}{remedy}, or weights of 7 bits (reduce_range=True when it is quantized)"
        on_cpu = (it for it in evidence.kernels if it.ran.provider == CPU)
        kernels = [it for it in on_cpu if it.ran.multiplies == SATURATING]
        rewrite *= bool(_integer_weights(evidence.file))  # of QDQ form alone
        yield Found("(model)", kernels, text, remedy, rewrite)


_MEMCPY: Final = frozenset({"MemcpyFromHost", "MemcpyToHost"})

_DOES: Final[Mapping[str, str]] = {
    "Cast": "converts between types because there is no kernel in the type of the file",
    "Transpose": "changes the order of the axes for the kernel next to it, which wants the channels last",
    "ReorderInput": "blocks the channels for the kernel behind it",
    "ReorderOutput": "puts the channels back because the kernel behind it does not take them in blocks",
}  # fmt: skip
"""Operators that the runtime puts in -> what they do."""


@FINDINGS.row(
    "inserted", f"{_OPTIMIZER}insert_cast_transformer.cc, nhwc_transformer.cc, nchwc_transformer.cc"
)
def _inserted(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields conversions that the runtime has inserted, except the first and last change of layout."""
    # Nodes of the file that are gone: the optimizer has moved them elsewhere.
    ran = set(chain.from_iterable(kernel.nodes for kernel in evidence.kernels))
    varying = (op for op in evidence.file.ops if not all(each.constant for each in op.given))
    moved = Counter(op.node.op_type for op in varying if op not in ran)
    inserted = [each for each in evidence.of(_DOES) if each.inserted]
    layout = [each for each in inserted if each.ran.op_type != "Cast"]
    between = set(_in_between(layout, evidence.file))
    for kernel in inserted:
        op_type = kernel.ran.op_type
        if op_type != "Cast" and kernel not in between:
            continue
        moved[op_type] -= 1
        if moved[op_type] < 0:
            text = f"onnxruntime inserted a {op_type} {_where(kernel)}: it {_DOES[op_type]}"
            yield Found(kernel.place, [kernel], text, alike=op_type)


def _where(kernel: Placed) -> str:
    """Returns where an inserted kernel is; empty if that is not known."""
    before, after = kernel.before, kernel.after
    if after is None:
        return "" if before is None else f"behind {title(before)}"
    if before is None:
        return f"in front of {title(after)}"
    if before is after:
        return f"next to {title(after)}"
    return f"between {title(before)} and {title(after)}"


def _in_between(kernels: Sequence[Placed], file: FileGraph) -> Iterator[Placed]:
    """Yields the changes of layout that another one precedes and follows: any model begins and ends with one.

    The first kernel may take what is not in blocks, and the last one may give it.
    """
    behind = {kernel: set(file.all_in_front(kernel.before)) for kernel in kernels}
    for kernel in kernels:
        is_first = not any(each.after in behind[kernel] for each in kernels)
        is_last = not any(kernel.after in nodes for nodes in behind.values())
        if kernel.before is None and kernel.after is None:  # their order is all that is known
            is_first, is_last = kernel is kernels[0], kernel is kernels[-1]
        ends = {"ReorderInput": is_first, "ReorderOutput": is_last}
        if not ends.get(kernel.ran.op_type, is_first or is_last):
            yield kernel


@FINDINGS.row("memcpy", f"{_OPTIMIZER}transformer_memcpy.cc")
def _copies(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields copies between the memories of two providers."""
    for kernel in evidence.of(_MEMCPY):
        text = f"a tensor is copied between providers {_where(kernel)}".rstrip()
        yield Found(kernel.place, [kernel], text)


@FINDINGS.row("fallback", "onnxruntime/core/framework/graph_partitioner.cc")
def _fallback(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields nodes that ran on the CPU although another provider was asked for before it."""
    wanted = next(iter(evidence.asked), CPU)
    if wanted == CPU:
        return
    nodes = chain.from_iterable(it.nodes for it in evidence.parts if it.provider == wanted)
    taken = Counter(op_type for _, op_type in nodes)
    others = (each for each in evidence.kernels if each.ran.provider != wanted)
    computing = (each for each in others if each.ran.op_type not in _MEMCPY)
    groups = grouped(computing, attrgetter("op_type", "ran.provider"))
    for (op_type, provider), kernels in groups.items():
        names = [kernel.place for kernel in kernels]
        text = f"{op_type} {listed(names)} ran on {provider} and not on {wanted}"
        if evidence.parts:
            count = f"{taken[op_type]:,} other" if taken[op_type] else "no"
            text += f", which took {count} {op_type} of the file and gives no reason"
        yield Found(names[0], kernels, text)


@FINDINGS.row("compiled", "onnxruntime/core/framework/graph_partitioner.cc")
def _compiled(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields what providers have compiled: findings of other kinds are not looked for in it."""
    compiled = (kernel for kernel in evidence.kernels if kernel.ran.is_compiled)
    groups = grouped(compiled, attrgetter("ran.provider"))
    every = sum(op.kind != "Constant" for op in evidence.file.ops)
    for provider, kernels in groups.items():
        count = sum(kernel.ran.nodes for kernel in kernels)
        nodes = f"{count:,} of {counted(every, 'node')}" if count else "an unknown number of nodes"
        text = f"{provider} has compiled {nodes} of the file into {counted(len(kernels), 'kernel')}"
        unknown = "which types they ran in and what was fused there is not known"
        remedy, ran = "", Counter[str]()
        for each in evidence.below:
            dtype = each.types.partition(" ")[0].removeprefix("src:")
            ran[f"{dtype} {each.primitive}"] += each.calls * (each.primitive != "reorder")
        most = ran.most_common(_LISTED)
        if counts := [f"{name} x {number:,}" for name, number in most if number]:
            unknown = f"it gives no times of their layers; {evidence.below[0].library} reports {joined(counts)} in a run"
        made = [op for op in evidence.file.ops if op.kind in graph.QUANTIZES]
        signed = (op for op in made if op.outputs[0].dtype == dtypes.INT8 and op.has(2))
        if ran["f32 convolution"] and any(any(op.input(2).data or ()) for op in signed):
            remedy = "uint8 for activations, or int8 with zero point 0 (ActivationSymmetric), which OpenVINO's convolutions take"
        yield Found(kernels[0].place, kernels, f"{text}: {unknown}", remedy)


@FINDINGS.row("slow_types", "onnxruntime/core/mlas/lib/qgemm.cpp")
def _slow_types(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields products of types for which this machine has slower kernels, by a trial; of uint8 by their weights' type."""
    for kind, (times, best) in evidence.slower.items():
        on_cpu = (it for it in evidence.kernels if it.ran.provider == CPU)
        known = [it for it in on_cpu if it.ran.multiplies == kind]
        remedy = obstacles.REWRITES["unsigned"].text
        if kind[1] == "uint8":
            known = [it for it in known if _holds(evidence.file.weights(it.nodes), kind[2])]
            remedy = f"{best} weights (weight_type=QuantType.Q{best.replace('int', 'Int').replace('uI', 'UI')})"
        if known and times >= _SLOWER:
            names = list(dict.fromkeys(each.place for each in known))
            verb = "multiply" if names[1:] else "multiplies"
            slow = f"takes {times:.1f} times as long on this machine as uint8 by {best}"
            text = f"{listed(names)} {verb} {kind[1]} by {kind[2]}, which {slow}"
            yield Found(names[0], known, text, remedy)


_SLOWER: Final = 2.0


def _holds(weights: Iterable[Tensor], type_name: str) -> bool:
    """Whether the matrix among some constants is of a type."""
    return any(len(it.dims) > 1 and dtypes.name_of(it.dtype) == type_name for it in weights)
