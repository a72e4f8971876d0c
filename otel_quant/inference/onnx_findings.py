"""What goes wrong in ONNX models: conversions that were not fused, and kernels that were put in or are slow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from otel_quant.cost.graph import (
    CARRIES,
    DEQUANTIZES,
    NO_KERNEL,
    NOT_QUANTIZED,
    QDQ,
    QUANTIZES,
    Obstacle,
    Operation,
    Value,
    converts,
    dtypes,
    fusion_of,
    printable,
)
from otel_quant.inference.findings import Findings, Found
from otel_quant.inference.onnx_kernels import FileGraph, Placed

_OPTIMIZER: Final = "onnxruntime/core/optimizer/"
"""A folder of onnxruntime's repository, as are the other sources."""

_FUSES_QUANTIZED: Final = ("extended", "all")
"""Levels at which onnxruntime puts kernels on integers in place of QDQ groups."""

_LONGEST: Final = 80
_LISTED: Final = 3


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is looked at."""

    file: FileGraph  # The model's file
    kernels: Sequence[Placed]  # The kernels that ran, in order
    asked: Sequence[str]  # Providers that the user asked for, in order
    level: str  # Level of graph optimization


FINDINGS: Final = Findings[Evidence]()


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
_QUARK: Final = "com.amd.quark:"
_WEIGHT_ONLY: Final = "MatMul"
_FLOATS: Final = frozenset({dtypes.FLOAT, dtypes.FLOAT16, dtypes.DOUBLE, dtypes.BFLOAT16})


_NOT_HERE: Final = Obstacle("onnxruntime has no kernel on integers for it as it is", "")


_SIGNED: Final = Obstacle(
    "its operand is int8, which onnxruntime fuses on x86 only where it can make it uint8",
    "uint8 for what is not a weight",
)


class _Reason(NamedTuple):
    node: Operation
    why: Obstacle


@FINDINGS.row("unfused", f"{_OPTIMIZER}qdq_transformer/selectors_actions/qdq_selectors.cc")
def _unfused(evidence: Evidence) -> Iterator[Found]:
    """Yields the conversions that ran as kernels of their own, by the node that is the reason."""
    groups: dict[tuple[Operation, Obstacle], list[Placed]] = {}
    for kernel in evidence.kernels:
        op = kernel.node
        if op is None or kernel.ran.op_type not in _KINDS or op.node.op_type not in _KINDS:
            continue
        reason = _reason(evidence, op)
        if reason is not None:
            groups.setdefault((reason.node, reason.why), []).append(kernel)
    for (node, why), kernels in groups.items():
        names = list(dict.fromkeys(each.nodes[0].name for each in kernels))
        what = " and ".join(dict.fromkeys(each.ran.op_type for each in kernels))
        text = (
            f"{what} {listed(names)} {'was' if len(names) == 1 else 'were'} not fused with "
            f"{title(node)}: {why.reason}"
        )
        yield Found(node.name, kernels, text, why.remedy, f"{node.node.op_type}: {why.reason}")


@FINDINGS.row("unfused", "AMD Quark's custom operators, quark.onnx")
def _foreign(evidence: Evidence) -> Iterator[Found]:
    """Yields the conversions of AMD Quark's own operators: onnxruntime does not fuse them."""
    kernels = [
        kernel
        for kernel in evidence.kernels
        if kernel.node is not None
        and kernel.node.kind.startswith(_QUARK)
        and converts(kernel.node.kind)
    ]
    if kernels:
        names = [kernel.nodes[0].name for kernel in kernels]
        what = " and ".join(dict.fromkeys(kernel.ran.op_type for kernel in kernels))
        text = f"{what} {listed(names)} ran as they are: onnxruntime does not fuse operators of AMD Quark"
        yield Found(names[0], kernels, text)


def _reason(evidence: Evidence, op: Operation) -> _Reason | None:
    """Returns why a conversion was not fused; None if it has to run whatever is behind it."""
    file = evidence.file
    if op.kind in QUANTIZES:
        source = op.input(0)
        if file.is_input(source):
            return None
        partner = file.maker(source)
        return None if partner is None else _reason_at(evidence, partner, op)
    result = op.outputs[0]
    if file.is_output(result):
        return None
    found: list[_Reason] = []
    for reader in file.readers(result):
        reason = _reason_at(evidence, reader, op)
        if reason is not None:
            found.append(reason)
    known = [each for each in found if each.node not in file.fused.on_integers]
    return next(iter(known or found), None)


def _reason_at(evidence: Evidence, at: Operation, op: Operation) -> _Reason | None:
    """Returns why there is no kernel on integers for the node next to a conversion."""
    file, fused = evidence.file, evidence.file.fused
    if evidence.level not in _FUSES_QUANTIZED:
        level = f"the level of graph optimization is {evidence.level}"
        return _Reason(at, Obstacle(level, f"level {' or '.join(_FUSES_QUANTIZED)}"))
    if at.kind in QDQ:
        return _of_two_conversions(at, op)
    if at in fused.obstacles:
        why, other = fused.obstacles[at], _also_read(file, at)
        return _Reason(at, Obstacle(other, why.remedy) if other and why is NOT_QUANTIZED else why)
    rule = fusion_of(at.kind)
    if rule is None:
        return _Reason(at, NO_KERNEL)
    if at.opset < rule.since:
        opset = (
            f"there is a kernel on integers for it from opset {rule.since} on; this is {at.opset}"
        )
        return _Reason(at, Obstacle(opset, f"opset {rule.since}"))
    if at in fused.on_integers:
        shared = op.kind in DEQUANTIZES and len(file.readers(op.outputs[0])) > 1
        if shared:
            return None  # another reader is the reason
        bias = _made_bias(file, at, rule.bias)
        if bias is not None:
            return _Reason(at, bias)
        signed = any(value is not None and _is_signed(file, value) for value in at.inputs)
        return _Reason(at, _SIGNED if signed else _NOT_HERE)
    if at.kind == _WEIGHT_ONLY and op.kind in DEQUANTIZES and op.input(0).constant:
        return _Reason(at, _of_weights(file, at, op))
    return _Reason(at, _of_operands(file, at))


def _made_bias(file: FileGraph, at: Operation, place: int | None) -> Obstacle | None:
    """Says that a bias takes a way round, which not every kernel on integers allows."""
    if place is None or not at.has(place):
        return None
    maker = file.maker(at.input(place))
    if maker is None or maker.kind in DEQUANTIZES:
        return None
    return Obstacle(
        f"its bias does not come straight from a DequantizeLinear but through {title(maker)}",
        "a DequantizeLinear of its own",
    )


def _is_signed(file: FileGraph, value: Value) -> bool:
    """Whether an activation is int8."""
    maker = file.maker(value)
    if maker is None or maker.kind not in DEQUANTIZES or value.constant:
        return False
    return maker.dtype(0) == dtypes.INT8


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


def _of_two_conversions(at: Operation, op: Operation) -> _Reason | None:
    """A DequantizeLinear right in front of a QuantizeLinear: integers become other integers."""
    first, then = (op, at) if op.kind in DEQUANTIZES else (at, op)
    if first.kind not in DEQUANTIZES or then.kind not in QUANTIZES:
        return None
    return _Reason(
        at,
        Obstacle(
            f"integers of `{first.name}` become those of another scale",
            "the same scale and zero point",
        ),
    )


def _of_weights(file: FileGraph, at: Operation, op: Operation) -> Obstacle:
    """Why a MatMul of floats by dequantized weights is no MatMulNBits."""
    shared = [each for each in file.readers(op.outputs[0]) if each is not at]
    if shared:
        return Obstacle(
            f"the weights `{op.input(0).name}` are also read by {title(shared[0])}",
            "a DequantizeLinear of its own for each",
        )
    if _channel_axis(op) == 0 and "block_size" not in op.attributes:
        return Obstacle(
            "the weights have scales along axis 0, over which the products are summed",
            "scales along axis 1",
        )
    return Obstacle("the other operand is not quantized", "")


def _of_operands(file: FileGraph, at: Operation) -> Obstacle:
    for i, value in enumerate(at.inputs):
        if value is None or value.dtype not in _FLOATS:
            continue
        maker = file.maker(value)
        if maker is None or maker.kind not in DEQUANTIZES:
            return Obstacle(
                f"operand {i}, `{value.name}`, does not come from a DequantizeLinear",
                "QuantizeLinear and DequantizeLinear in front of it",
            )
        if maker.has(1) and not maker.input(1).constant:
            return Obstacle(f"the scale of operand {i} is no constant", "a constant")
    return _NOT_HERE


def _channel_axis(op: Operation) -> int | None:
    """Returns the axis along which an operand has several scales; None if it has one."""
    if not op.has(1) or _single(op.input(1)):
        return None
    axis = op.attributes.get("axis", 1)
    shape = op.input(0).shape
    if not isinstance(axis, int) or shape is None:
        return None
    return axis % len(shape) if shape else None


def _single(value: Value) -> bool:
    return value.size == 1


@FINDINGS.row("axis", "onnxruntime/core/providers/cpu/quantization/qlinearconv.cc")
def _other_axis(evidence: Evidence) -> Iterator[Found]:
    """Yields convolutions on integers whose weights have scales along another axis than 0."""
    for kernel in evidence.kernels:
        if kernel.ran.op_type != "QLinearConv":
            continue
        for op in kernel.nodes:
            if op.node.op_type != "Conv" or not op.has(1):
                continue
            maker = evidence.file.maker(op.input(1))
            axis = None if maker is None or maker.kind not in DEQUANTIZES else _channel_axis(maker)
            if axis:
                text = (
                    f"the weights of {title(op)} are quantized along axis {axis}, and its kernel takes "
                    "their scales as those of axis 0: its results are not those of the file"
                )
                yield Found(op.name, [kernel], text, "axis 0, of the output channels")


@FINDINGS.row("in_float", f"{_OPTIMIZER}qdq_transformer/selectors_actions/qdq_selectors.cc")
def _in_float(evidence: Evidence) -> Iterator[Found]:
    """Yields contractions that ran in float although their weights are integers."""
    for kernel in evidence.kernels:
        if kernel.ran.op_type not in _FLOAT_CONTRACTIONS or not _takes_floats(kernel):
            continue
        for op in kernel.nodes:
            weights = _integer_weights(evidence.file, op)
            if weights is None:
                continue
            reason = _reason_at(evidence, op, weights)
            if reason is None:
                continue
            held = dtypes.name_of(weights.input(0).dtype)
            text = f"{title(op)} ran in float although its weights are {held}: {reason.why.reason}"
            alike = f"{op.node.op_type}: {reason.why.reason}"
            yield Found(op.name, [kernel], text, reason.why.remedy, alike)
            break


_FLOAT_CONTRACTIONS: Final = frozenset(
    {
        "Conv", "ConvTranspose", "FusedConv", "FusedGemm", "FusedMatMul", "Gemm", "MatMul",
        "NhwcFusedConv",
    }
)  # fmt: skip


def _takes_floats(kernel: Placed) -> bool:
    operands = kernel.ran.inputs[:2]
    return len(operands) == 2 and all(each.startswith("float") for each in operands)


def _integer_weights(file: FileGraph, op: Operation) -> Operation | None:
    """Returns the DequantizeLinear of a contraction's constant weights."""
    if op.node.op_type not in _FLOAT_CONTRACTIONS or not op.has(1):
        return None
    maker = file.maker(op.input(1))
    while maker is not None and maker.kind in CARRIES and maker.has(0):
        maker = file.maker(maker.input(0))
    if maker is None or maker.kind not in DEQUANTIZES or not maker.input(0).constant:
        return None
    return maker


_CPU: Final = "CPUExecutionProvider"
_MEMCPY: Final = frozenset({"MemcpyFromHost", "MemcpyToHost"})

_WHY: Final[Mapping[str, tuple[str, str]]] = {
    "Cast": ("converts between types because there is no kernel in the type of the file", ""),
    "Transpose": (
        "changes the order of the axes for the kernel next to it, which wants the channels last",
        "",
    ),
    "ReorderInput": ("blocks the channels for the kernel behind it", ""),
    "ReorderOutput": (
        "puts the channels back because the kernel behind it does not take them in blocks",
        "",
    ),
}
"""Operator -> what it does, and what would change it."""


@FINDINGS.row(
    "inserted", f"{_OPTIMIZER}insert_cast_transformer.cc, nhwc_transformer.cc, nchwc_transformer.cc"
)
def _inserted(evidence: Evidence) -> Iterator[Found]:
    """Yields conversions that the runtime has put in, those at the model's ends left out."""
    moved = _moved(evidence)
    for kernel in evidence.kernels:
        op_type = kernel.ran.op_type
        if not kernel.inserted or op_type not in _WHY:
            continue
        if op_type != "Cast" and _at_an_end(evidence.file, kernel):
            continue
        if moved[op_type] > 0:
            moved[op_type] -= 1
            continue
        does, remedy = _WHY[op_type]
        near = kernel.after or kernel.before
        node = kernel.ran.name if near is None else near.name
        text = f"onnxruntime put in a {op_type} {_place(kernel)}: it {does}"
        yield Found(node, [kernel], text, remedy, op_type)


def _moved(evidence: Evidence) -> Counter[str]:
    """Counts the nodes of the file that are gone: the optimizer has moved them elsewhere."""
    ran = {op for kernel in evidence.kernels for op in kernel.nodes}
    return Counter(
        op.node.op_type
        for op in evidence.file.ops
        if op not in ran
        and op.node.op_type in _WHY
        and not all(value is None or value.constant for value in op.inputs)
    )


def _place(kernel: Placed) -> str:
    before, after = kernel.before, kernel.after
    if before is not None and after is not None and before is not after:
        return f"between {title(before)} and {title(after)}"
    if after is not None:
        return f"{'next to' if before is after else 'in front of'} {title(after)}"
    return "" if before is None else f"behind {title(before)}"


def _at_an_end(file: FileGraph, kernel: Placed) -> bool:
    """Whether nothing but a conversion stands between a kernel and an input or output."""
    before, after = kernel.before, kernel.after
    at_input = before is None or (before.kind in QUANTIZES and _reads_input(file, before))
    at_output = after is None or (
        after.kind in DEQUANTIZES and any(map(file.is_output, after.outputs))
    )
    return (at_input and after is not None) or (at_output and before is not None)


def _reads_input(file: FileGraph, op: Operation) -> bool:
    return op.has(0) and file.is_input(op.input(0))


@FINDINGS.row("memcpy", f"{_OPTIMIZER}transformer_memcpy.cc")
def _copies(evidence: Evidence) -> Iterator[Found]:
    """Yields copies between the memories of two providers."""
    for kernel in evidence.kernels:
        if kernel.ran.op_type in _MEMCPY:
            near = kernel.after or kernel.before
            node = kernel.ran.name if near is None else near.name
            text = f"a tensor is copied between providers {_place(kernel)}".rstrip()
            yield Found(node, [kernel], text, "nodes of one provider on either side")


@FINDINGS.row("fallback", "onnxruntime/core/framework/graph_partitioner.cc")
def _fallback(evidence: Evidence) -> Iterator[Found]:
    """Yields nodes that ran on the CPU although another provider was asked for before it."""
    wanted = next(iter(evidence.asked), _CPU)
    if wanted == _CPU:
        return
    groups: dict[tuple[str, str], list[Placed]] = {}
    for kernel in evidence.kernels:
        provider = kernel.ran.provider
        if provider != wanted and kernel.ran.op_type not in _MEMCPY:
            groups.setdefault((kernel.ran.op_type, provider), []).append(kernel)
    for (op_type, provider), kernels in groups.items():
        names = [kernel.node.name if kernel.node else kernel.ran.name for kernel in kernels]
        yield Found(
            names[0], kernels, f"{op_type} {listed(names)} ran on {provider} and not on {wanted}"
        )


_ONE_BY_ONE: Final = frozenset(
    {"QLinearAveragePool", "QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax", "MatMulBnb4"}
)
"""Kernels of the CPU provider that take one element after the other, or dequantize all weights."""


@FINDINGS.row(
    "scalar", "onnxruntime/contrib_ops/cpu/quantization/qlinear_lookup_table.cc, qlinear_pool.cc"
)
def _scalar(evidence: Evidence) -> Iterator[Found]:
    """Yields kernels without a vectorized path."""
    for kernel in evidence.kernels:
        profiled = kernel.ran
        if profiled.op_type in _ONE_BY_ONE and profiled.provider == _CPU:
            node = profiled.name if kernel.node is None else kernel.node.name
            of = "" if kernel.node is None else f" of {title(_named(kernel.nodes))}"
            text = f"the kernel {profiled.op_type}{of} has no vectorized path"
            yield Found(node, [kernel], text)


def _named(nodes: Sequence[Operation]) -> Operation:
    return next((op for op in nodes if op.kind not in QDQ), nodes[0])


@FINDINGS.row("shapes", "onnxruntime.ai/docs/tutorials/mobile/helpers")
def _computed_shapes(evidence: Evidence) -> Iterator[Found]:
    """Yields what computes shapes in every run because an input has a length that is not fixed."""
    if not evidence.file.has_open_lengths:
        return
    of_shapes = _from_shapes(evidence.file)
    kernels = [
        kernel
        for kernel in evidence.kernels
        if kernel.nodes and all(op in of_shapes for op in kernel.nodes)
    ]
    if not kernels:
        return
    first = next(op for op in evidence.file.ops if any(op in kernel.nodes for kernel in kernels))
    names = [op.name for op in evidence.file.ops if any(op in kernel.nodes for kernel in kernels)]
    text = (
        f"{listed(names)} compute shapes in every run because lengths of the inputs are not fixed"
    )
    remedy = "fixed lengths (python -m onnxruntime.tools.make_dynamic_shape_fixed)"
    yield Found(first.name, kernels, text, remedy)


def _from_shapes(file: FileGraph) -> set[Operation]:
    """Returns the nodes that make numbers of a shape, from Shape and constants alone."""
    found: set[Operation] = set()
    for op in file.ops:
        makers = [
            file.maker(value) for value in op.inputs if value is not None and not value.constant
        ]
        known = [maker for maker in makers if maker is not None]
        small = all(value.dtype in _LENGTHS and (value.size or 0) <= _RANKS for value in op.outputs)
        if op.kind == "Shape" or (
            known and len(known) == len(makers) and small and all(each in found for each in known)
        ):
            found.add(op)
    return found


_LENGTHS: Final = frozenset({dtypes.INT64, dtypes.INT32, dtypes.BOOL})

_RANKS: Final = 64
"""Elements of the largest tensor that is taken for a shape."""
