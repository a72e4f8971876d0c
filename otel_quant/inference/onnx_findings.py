"""What goes wrong in ONNX models: conversions that were not fused, and kernels that were inserted or are slow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from otel_quant.cost.graph import (
    CARRIES,
    DEQUANTIZES,
    FUSIONS,
    NO_KERNEL,
    NOT_QUANTIZED,
    QDQ,
    QUANTIZES,
    Fusion,
    Obstacle,
    Operation,
    Value,
    converts,
    dtypes,
    printable,
)
from otel_quant.inference.findings import Findings, Found
from otel_quant.inference.onnx_kernels import FileGraph, Part, Placed
from otel_quant.schema.units import counted

_OPTIMIZER: Final = "onnxruntime/core/optimizer/"
"""A folder of onnxruntime's repository, as are the other sources."""

_FUSES_QUANTIZED: Final = ("extended", "all")
"""Levels at which onnxruntime puts kernels on integers in place of QDQ groups."""

_LONGEST: Final = 80
_LISTED: Final = 3


@dataclass(frozen=True, slots=True)
class OnnxEvidence:
    """What is looked at."""

    file: FileGraph  # The model's file
    kernels: Sequence[Placed]  # The kernels that ran, in order
    asked: Sequence[str]  # Providers that the user asked for, in order
    level: str  # Level of graph optimization
    parts: Sequence[Part] = ()  # The graph before fusion, by provider; empty if that is not known


FINDINGS: Final = Findings[OnnxEvidence]()


def title(op: Operation) -> str:
    """Returns a node's operator and name as sentences have them."""
    return f"{op.node.op_type} `{printable(op.name, _LONGEST)}`"


def listed(names: Sequence[str]) -> str:
    """Returns the first names of several, and how many more there are."""
    shown = [f"`{printable(name, _LONGEST)}`" for name in names[:_LISTED]]
    more = len(names) - len(shown)
    if more:
        return f"{', '.join(shown)} and {more:,} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


_KINDS: Final = frozenset({"QuantizeLinear", "DequantizeLinear"})
_CLAMPS: Final = frozenset({"Clip", "Relu"})
_QUARK: Final = "com.amd.quark:"

_NOT_HERE: Final = Obstacle("onnxruntime has no kernel on integers for it as it is", "")

_SELECTORS: Final = f"{_OPTIMIZER}qdq_transformer/selectors_actions/qdq_selectors.cc"


@FINDINGS.row("in_float", _SELECTORS)
def _in_float(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields contractions that ran in float although their weights are integers."""
    for node, why, conversions, own in _islands(evidence):
        weights = _integer_weights(evidence.file, node) if own else None
        if weights is not None:
            held = dtypes.name_of(weights.input(0).dtype)
            text = f"{title(node)} ran in float although its weights are {held}: {why.reason}"
            alike = f"{node.node.op_type}: {why.reason}"
            yield Found(node.name, [*conversions, *own], text, why.remedy, alike)


@FINDINGS.row("unfused", _SELECTORS)
def _unfused(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields other conversions that ran as kernels of their own, with what ran in float between them."""
    for node, why, conversions, own in _islands(evidence):
        if own and _integer_weights(evidence.file, node) is not None:
            continue
        were = "was" if len({each.place for each in conversions}) == 1 else "were"
        beside = "each other" if node.node.op_type in _KINDS else title(node)
        text = f"{_named(conversions)} {were} not fused with {beside}: {why.reason}"
        alike = f"{node.node.op_type}: {why.reason}"
        yield Found(node.name, [*conversions, *own], text, why.remedy, alike)


def _islands(
    evidence: OnnxEvidence,
) -> Iterator[tuple[Operation, Obstacle, Sequence[Placed], Sequence[Placed]]]:
    """Yields nodes without a kernel on integers, why, the conversions beside them, and kernels in float."""
    groups: dict[tuple[Operation, Obstacle], list[Placed]] = {}
    own: dict[Operation, list[Placed]] = {}
    for kernel in evidence.kernels:
        op = kernel.node
        if op and kernel.ran.op_type in _KINDS and op.node.op_type in _KINDS:
            if (reason := _reason(evidence, op)) is not None:
                groups.setdefault(reason, []).append(kernel)
            continue
        weighted = [op for op in kernel.nodes if _integer_weights(evidence.file, op) is not None]
        for op in weighted or kernel.nodes:
            if _ran_in_float(kernel, op):
                own.setdefault(op, []).append(kernel)
                weights = _integer_weights(evidence.file, op)
                if weights is not None and (why := _why(evidence, op, weights)) is not None:
                    groups.setdefault((op, why), [])
    for (node, why), conversions in groups.items():
        yield node, why, conversions, own.pop(node, ())


def _ran_in_float(kernel: Placed, op: Operation) -> bool:
    if op.node.op_type in _IN_FLOAT:
        return kernel.ran.op_type in _IN_FLOAT
    return any(each.startswith("float") for each in kernel.ran.outputs)


@FINDINGS.row("unfused", "AMD Quark's custom operators, quark.onnx")
def _foreign(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields the conversions of AMD Quark's own operators: onnxruntime does not fuse them."""
    kernels = [
        kernel
        for kernel in evidence.kernels
        if (op := kernel.node) is not None and op.kind.startswith(_QUARK) and converts(op.kind)
    ]
    if kernels:
        text = (
            f"{_named(kernels)} ran as they are: onnxruntime does not fuse operators of AMD Quark"
        )
        yield Found(kernels[0].place, kernels, text)


def _named(kernels: Sequence[Placed]) -> str:
    """Returns the operators of conversions with the nodes that they are next to."""
    operators = " and ".join(dict.fromkeys(each.ran.op_type for each in kernels))
    return f"{operators} {listed(list(dict.fromkeys(each.place for each in kernels)))}"


def _reason(evidence: OnnxEvidence, op: Operation) -> tuple[Operation, Obstacle] | None:
    """Returns why a conversion was not fused; None if it has to run whatever is behind it."""
    file = evidence.file
    beside: Sequence[Operation | None] = ()
    if op.kind in QUANTIZES and not file.is_input(op.input(0)):
        maker = file.maker(op.input(0))
        if maker is not None and maker.kind in _CLAMPS:
            # It is a part of the kernel in front, if there is one.
            maker = file.maker(maker.input(0)) or maker
        beside = [maker]
    elif op.kind not in QUANTIZES and not file.is_given_out(op.outputs[0]):
        # A constant is taken for an operand of what reads it in another shape.
        read = file.users if op.input(0).constant else file.readers
        beside = list(read(op.outputs[0]))
    found = [(node, why) for node in beside if node and (why := _why(evidence, node, op))]
    if op.kind in DEQUANTIZES:  # of two that change the scale, the first stands for both
        found = [(op if node.kind in QUANTIZES else node, why) for node, why in found]
    known = [each for each in found if each[0] not in file.fused.on_integers]
    return next(iter(known or found), None)


def _why(evidence: OnnxEvidence, at: Operation, op: Operation) -> Obstacle | None:
    """Returns why there is no kernel on integers for the node next to a conversion."""
    file, fused = evidence.file, evidence.file.fused
    if evidence.level not in _FUSES_QUANTIZED:
        level = f"the level of graph optimization is {evidence.level}"
        return Obstacle(level, f"level {' or '.join(_FUSES_QUANTIZED)}")
    if at.kind in QDQ:
        first, then = (op, at) if op.kind in DEQUANTIZES else (at, op)
        if first.kind not in DEQUANTIZES or then.kind not in QUANTIZES:
            return None
        return Obstacle(
            "integers are converted to another type, scale or zero point", "the same ones in both"
        )
    if at in fused.obstacles:
        known, other = fused.obstacles[at], _also_read(file, at)
        return Obstacle(other, known.remedy) if other and known is NOT_QUANTIZED else known
    rule = FUSIONS.get(at.kind)
    if rule is None:
        return NO_KERNEL
    if at.opset < rule.since:
        since = f"from opset {rule.since} on; this is {at.opset}"
        return Obstacle(f"there is a kernel on integers for it {since}", f"opset {rule.since}")
    if at in fused.on_integers or at in fused.by_weights:
        if op.kind in DEQUANTIZES and len(file.readers(op.outputs[0])) > 1:
            return None  # another reader is the reason
        if other := _also_read(file, at):
            return Obstacle(other, NOT_QUANTIZED.remedy)
        if at in fused.by_weights:
            return _NOT_HERE
    return _of_operands(file, at, rule)


def _dequantizer(file: FileGraph, value: Value) -> Operation | None:
    """Returns the DequantizeLinear that makes a value, perhaps in another shape."""
    while (maker := file.maker(value)) is not None and maker.kind in CARRIES and maker.has(0):
        value = maker.input(0)
    return maker if maker is not None and maker.kind in DEQUANTIZES else None


def _also_read(file: FileGraph, op: Operation) -> str:
    """What is wrong with a result that not its QuantizeLinear alone reads; empty if nothing is."""
    readers = file.readers(op.outputs[0]) if op.outputs else ()
    if not any(each.kind in QUANTIZES for each in readers):
        return ""
    if file.is_output(op.outputs[0]):
        return "its result is also an output of the model"
    others = [each for each in readers if each.kind not in QUANTIZES]
    if others:
        return f"its result is also read by {title(others[0])}"
    return "its result is quantized twice" if len(readers) > 1 else ""


def _of_operands(file: FileGraph, at: Operation, rule: Fusion) -> Obstacle:
    """Why there is no kernel for what operands are."""
    missing = []
    for i in (*rule.operands(at), *(() if rule.bias is None else (rule.bias,))):
        if not at.has(i):
            continue
        value = at.input(i)
        maker, dequantizer = file.maker(value), _dequantizer(file, value)
        if maker is not dequantizer and maker is not None and dequantizer is not None:
            why = f"{title(maker)} stands between it and the DequantizeLinear of operand {i}"
            return Obstacle(why, "a DequantizeLinear right in front of it")
        # A bias of floats is quantized when the model is loaded.
        if dequantizer is None and i != rule.bias:
            missing.append(value.name)
    if not missing:
        return _NOT_HERE
    why = f"{listed(missing)} {'do' if missing[1:] else 'does'} not come from a DequantizeLinear"
    return Obstacle(why, "QuantizeLinear and DequantizeLinear in front of each")


def _channel_axis(op: Operation) -> int | None:
    """Returns the axis along which an operand has several scales; None if it has one."""
    axis, shape = op.attributes.get("axis", 1), op.input(0).shape
    if not op.has(1) or op.input(1).size == 1 or not isinstance(axis, int) or not shape:
        return None
    return axis % len(shape)


@FINDINGS.row("axis", "onnxruntime/core/providers/cpu/quantization/qlinearconv.cc")
def _other_axis(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields convolutions on integers whose weights have scales along another axis than 0."""
    for kernel in evidence.kernels:
        for op in kernel.nodes if kernel.ran.op_type == "QLinearConv" else ():
            if op.node.op_type != "Conv" or not op.has(1):
                continue
            maker = _dequantizer(evidence.file, op.input(1))
            if maker is not None and (axis := _channel_axis(maker)):
                text = (
                    f"the weights of {title(op)} are quantized along axis {axis}, and its kernel takes "
                    "their scales for axis 0: its results differ from the file's"
                )
                yield Found(op.name, [kernel], text, "axis 0, of the output channels")


_IN_FLOAT: Final = frozenset(
    {
        "Conv", "ConvTranspose", "FusedConv", "FusedGemm", "FusedMatMul", "Gemm", "MatMul",
        "NhwcFusedConv",
    }
)  # fmt: skip
"""Contractions of floats, as operators of files and as kernels."""


def _integer_weights(file: FileGraph, op: Operation) -> Operation | None:
    """Returns the DequantizeLinear of a contraction's constant weights."""
    if op.node.op_type not in _IN_FLOAT or not op.has(1):
        return None
    found = _dequantizer(file, op.input(1))
    return found if found is not None and found.input(0).constant else None


_CPU: Final = "CPUExecutionProvider"
_MEMCPY: Final = frozenset({"MemcpyFromHost", "MemcpyToHost"})

_DOES: Final[Mapping[str, str]] = {
    "Cast": "converts between types because there is no kernel in the type of the file",
    "Transpose": "changes the order of the axes for the kernel next to it, which wants the channels "
    "last",
    "ReorderInput": "blocks the channels for the kernel behind it",
    "ReorderOutput": "puts the channels back because the kernel behind it does not take them in "
    "blocks",
}
"""Operators that the runtime puts in -> what they do."""


@FINDINGS.row(
    "inserted", f"{_OPTIMIZER}insert_cast_transformer.cc, nhwc_transformer.cc, nchwc_transformer.cc"
)
def _inserted(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields conversions that the runtime has inserted, except at the model's ends."""
    moved = _moved(evidence)
    for kernel in evidence.kernels:
        op_type = kernel.ran.op_type
        if not kernel.inserted or op_type not in _DOES:
            continue
        if op_type != "Cast" and _at_an_end(evidence.file, kernel):
            continue
        if moved[op_type] > 0:
            moved[op_type] -= 1
            continue
        text = f"onnxruntime inserted a {op_type} {_where(kernel)}: it {_DOES[op_type]}"
        yield Found(kernel.place, [kernel], text, "", op_type)


def _moved(evidence: OnnxEvidence) -> Counter[str]:
    """Counts the nodes of the file that are gone: the optimizer has moved them elsewhere."""
    ran = {op for kernel in evidence.kernels for op in kernel.nodes}
    return Counter(
        op.node.op_type
        for op in evidence.file.ops
        if op not in ran
        and op.node.op_type in _DOES
        and not all(value is None or value.constant for value in op.inputs)
    )


def _where(kernel: Placed) -> str:
    before, after = kernel.before, kernel.after
    if before is not None and after is not None and before is not after:
        return f"between {title(before)} and {title(after)}"
    if after is not None:
        return f"{'next to' if before is after else 'in front of'} {title(after)}"
    return "" if before is None else f"behind {title(before)}"


def _at_an_end(file: FileGraph, kernel: Placed) -> bool:
    """Whether nothing but a conversion stands between a kernel and an input or output."""
    before, after = kernel.before, kernel.after
    at_input = before is None or (
        before.kind in QUANTIZES and before.has(0) and file.is_input(before.input(0))
    )
    at_output = after is None or (
        after.kind in DEQUANTIZES and any(map(file.is_given_out, after.outputs))
    )
    return (at_input and after is not None) or (at_output and before is not None)


@FINDINGS.row("memcpy", f"{_OPTIMIZER}transformer_memcpy.cc")
def _copies(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields copies between the memories of two providers."""
    for kernel in evidence.kernels:
        if kernel.ran.op_type in _MEMCPY:
            text = f"a tensor is copied between providers {_where(kernel)}".rstrip()
            yield Found(kernel.place, [kernel], text)


@FINDINGS.row("fallback", "onnxruntime/core/framework/graph_partitioner.cc")
def _fallback(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields nodes that ran on the CPU although another provider was asked for before it."""
    wanted = next(iter(evidence.asked), _CPU)
    taken = Counter(
        op_type for part in evidence.parts if part.provider == wanted for _, op_type in part.nodes
    )
    groups: dict[tuple[str, str], list[Placed]] = {}
    for kernel in evidence.kernels if wanted != _CPU else ():
        ran = kernel.ran
        if ran.provider != wanted and ran.op_type not in _MEMCPY:
            op_type = kernel.node.node.op_type if kernel.node else ran.op_type
            groups.setdefault((op_type, ran.provider), []).append(kernel)
    for (op_type, provider), kernels in groups.items():
        names = [kernel.place for kernel in kernels]
        text = f"{op_type} {listed(names)} ran on {provider} and not on {wanted}"
        if evidence.parts:
            others = f"{taken[op_type]:,} other" if taken[op_type] else "no"
            text += f", which took {others} {op_type} of the file"
        yield Found(names[0], kernels, text)


@FINDINGS.row("compiled", "onnxruntime/core/framework/graph_partitioner.cc")
def _compiled(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields what providers have compiled: findings of other kinds are not looked for in it."""
    groups: dict[str, list[Placed]] = {}
    for kernel in evidence.kernels:
        if kernel.ran.is_compiled:
            groups.setdefault(kernel.ran.provider, []).append(kernel)
    every = sum(op.kind != "Constant" for op in evidence.file.ops)
    for provider, kernels in groups.items():
        count = sum(kernel.ran.nodes for kernel in kernels)
        nodes = f"{count:,} of {counted(every, 'node')}" if count else "an unknown number of nodes"
        text = (
            f"{provider} has compiled {nodes} of the file into {counted(len(kernels), 'kernel')}: "
            "which types they ran in and what was fused there is not known"
        )
        yield Found(kernels[0].place, kernels, text)


_ONE_BY_ONE: Final = frozenset(
    {"QLinearAveragePool", "QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax", "MatMulBnb4"}
)
"""Kernels of the CPU provider that take one element after the other, or dequantize all weights."""


@FINDINGS.row(
    "scalar", "onnxruntime/contrib_ops/cpu/quantization/qlinear_lookup_table.cc, qlinear_pool.cc"
)
def _scalar(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields kernels without a vectorized path."""
    for kernel in evidence.kernels:
        if kernel.ran.op_type in _ONE_BY_ONE and kernel.ran.provider == _CPU:
            own = next((op for op in kernel.nodes if op.kind not in QDQ), kernel.node)
            of = "" if own is None else f" of {title(own)}"
            text = f"the kernel {kernel.ran.op_type}{of} has no vectorized path"
            yield Found(kernel.place, [kernel], text)


_LENGTHS: Final = frozenset({dtypes.INT64, dtypes.INT32, dtypes.BOOL})

_RANKS: Final = 64
"""Elements of the largest tensor that is taken for a shape."""


@FINDINGS.row("shapes", "onnxruntime.ai/docs/tutorials/mobile/helpers")
def _computed_shapes(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields what computes shapes in every run because an input has a length that is not fixed."""
    if not evidence.file.has_open_lengths:
        return
    of_shapes = _from_shapes(evidence.file)
    kernels = [each for each in evidence.kernels if each.nodes and of_shapes.issuperset(each.nodes)]
    ran = {op for kernel in kernels for op in kernel.nodes}
    if names := [op.name for op in evidence.file.ops if op in ran]:
        why = "compute shapes in every run because lengths of the inputs are not fixed"
        remedy = "fixed lengths (python -m onnxruntime.tools.make_dynamic_shape_fixed)"
        yield Found(names[0], kernels, f"{listed(names)} {why}", remedy)


def _from_shapes(file: FileGraph) -> set[Operation]:
    """Returns the nodes that make numbers of a shape, from Shape and constants alone."""
    found: set[Operation] = set()
    for op in file.ops:
        makers = [file.maker(value) for value in op.inputs if value and not value.constant]
        small = all(value.dtype in _LENGTHS and (value.size or 0) <= _RANKS for value in op.outputs)
        if op.kind == "Shape" or (makers and small and all(each in found for each in makers)):
            found.add(op)
    return found
