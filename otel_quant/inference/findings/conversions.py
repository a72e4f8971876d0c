"""QuantizeLinear and DequantizeLinear that ran although a kernel on integers could replace them."""

from __future__ import annotations

from collections.abc import Iterator
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
)
from otel_quant.inference.file_graph import FileGraph
from otel_quant.inference.findings.record import Evidence, FoundDefect, listed, title
from otel_quant.inference.join import Kernel
from otel_quant.inference.options import FUSES_QUANTIZED

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


def unfused(evidence: Evidence) -> Iterator[FoundDefect]:
    """Yields the conversions that ran as kernels of their own, by the node that is the reason."""
    groups: dict[tuple[Operation, Obstacle], list[Kernel]] = {}
    for kernel in evidence.kernels:
        op = kernel.node
        if op is None or kernel.profiled.op_type not in _KINDS or op.node.op_type not in _KINDS:
            continue
        reason = _reason(evidence, op)
        if reason is not None:
            groups.setdefault((reason.node, reason.why), []).append(kernel)
    for (node, why), kernels in groups.items():
        names = list(dict.fromkeys(each.nodes[0].name for each in kernels))
        what = " and ".join(dict.fromkeys(each.profiled.op_type for each in kernels))
        text = (
            f"{what} {listed(names)} {'was' if len(names) == 1 else 'were'} not fused with "
            f"{title(node)}: {why.reason}"
        )
        yield FoundDefect(
            node.name, kernels, text, why.remedy, f"{node.node.op_type}: {why.reason}"
        )


def foreign(evidence: Evidence) -> Iterator[FoundDefect]:
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
        what = " and ".join(dict.fromkeys(kernel.profiled.op_type for kernel in kernels))
        text = f"{what} {listed(names)} ran as they are: onnxruntime does not fuse operators of AMD Quark"
        yield FoundDefect(names[0], kernels, text)


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
    if evidence.level not in FUSES_QUANTIZED:
        level = f"the level of graph optimization is {evidence.level}"
        return _Reason(at, Obstacle(level, f"level {' or '.join(FUSES_QUANTIZED)}"))
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


def other_axis(evidence: Evidence) -> Iterator[FoundDefect]:
    """Yields convolutions on integers whose weights have scales along another axis than 0."""
    for kernel in evidence.kernels:
        if kernel.profiled.op_type != "QLinearConv":
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
                yield FoundDefect(op.name, [kernel], text, "axis 0, of the output channels")


def in_float(evidence: Evidence) -> Iterator[FoundDefect]:
    """Yields contractions that ran in float although their weights are integers."""
    for kernel in evidence.kernels:
        if kernel.profiled.op_type not in _FLOAT_CONTRACTIONS or not _takes_floats(kernel):
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
            yield FoundDefect(op.name, [kernel], text, reason.why.remedy, alike)
            break


_FLOAT_CONTRACTIONS: Final = frozenset(
    {
        "Conv", "ConvTranspose", "FusedConv", "FusedGemm", "FusedMatMul", "Gemm", "MatMul",
        "NhwcFusedConv",
    }
)  # fmt: skip


def _takes_floats(kernel: Kernel) -> bool:
    operands = kernel.profiled.inputs[:2]
    return len(operands) == 2 and all(each.dtype.startswith("float") for each in operands)


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
