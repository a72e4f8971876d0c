"""What makes a quantized ONNX model inaccurate: by its file, and by each layer beside the float model's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median_low
from typing import Final, NamedTuple

from otel_quant.cost import graph
from otel_quant.cost.graph import QDQ, TypedNode, Value, dtypes
from otel_quant.inference.findings import Found
from otel_quant.inference.onnx_findings import FINDINGS, OnnxEvidence, title
from otel_quant.inference.onnx_kernels import FileGraph
from otel_quant.inference.results import TensorError
from otel_quant.schema.units import share_text

_SOURCE: Final = "docs/inference.md"
_LARGEST_FLOAT16: Final = 65504

_STANDS_OUT: Final = 10.0
"""dB that a layer loses beyond what it has to, and beyond the others' loss: inputs unlike those of the
calibration cost every layer some."""

_POOR: Final = 30.0
"""dB of weights from which nothing is found about them: other errors are larger."""


@FINDINGS.row("not_finite", _SOURCE, accuracy=True)
def _not_finite(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields the first node whose results are not finite though the float model's are."""
    if not (found := evidence.not_finite):
        return
    text = f"{found['op_type']} `{found['node']}` makes the first values that are not finite ({found['count']:,} of {found['size']:,})"
    remedy = ""
    if found["zeros"]:
        text += f": it divides by `{found['of']}`, of which quantization has rounded {found['zeros']:,} to 0"
        remedy = "leave it, and what makes its divisor, in float"
    elif found["type"] == "float16" and (found["largest"] or 0) > _LARGEST_FLOAT16:
        text += f": they reach {found['largest']:.4g} in the float model, and float16 ends at {_LARGEST_FLOAT16:,}"
        remedy = "float32 for it"
    yield Found(found["node"], (), text, remedy)


class _Conversion(NamedTuple):
    """What a node takes integers for, or makes of numbers."""

    node: TypedNode
    scale: Value
    zero: Value | None

    def differs(self, other: _Conversion) -> str:
        """Returns how another one differs in numbers that are known; empty if it does not."""
        pairs = (("scale", self.scale, other.scale), ("zero point", self.zero, other.zero))
        for name, one, two in pairs:
            values = [(0,) if each is None else each.data for each in (one, two)]
            if (
                None not in values
                and values[0] != values[1]
                and len(values[0] or ()) == len(values[1] or ())
            ):
                first, second = (
                    f"{each[0]:.4g}" for each in values if each and each[0] is not None
                )
                return f"{name} {first} and {second}"
        return ""


_OPERANDS: Final[Mapping[str, tuple[int, ...]]] = {
    **dict.fromkeys(graph.DEQUANTIZES, (0,)), "QLinearConv": (0,), "QLinearMatMul": (0, 3),
    **{f"com.microsoft:{name}": (0,) for name in ("QGemm", "QLinearConv", "QLinearSigmoid", "QLinearLeakyRelu")},
    **{f"com.microsoft:{name}": (0, 3) for name in ("QLinearAdd", "QLinearMul")},
}  # fmt: skip
"""Operator -> its operands of integers, each followed by scale and zero point."""

_RESULTS: Final[Mapping[str, int]] = {
    **dict.fromkeys(graph.QUANTIZES, 1), "QLinearConv": 6, "QLinearMatMul": 6, "com.microsoft:QLinearConv": 6,
    "com.microsoft:QGemm": 7, "com.microsoft:QLinearAdd": 6, "com.microsoft:QLinearMul": 6,
}  # fmt: skip
"""Operator -> its operand that is the scale of its result."""


def _made(file: FileGraph, value: Value) -> _Conversion | None:
    """Returns what made integers, perhaps in another shape; None if that is not known."""
    op = file.past(file.maker(value), graph.CARRIES)
    at = None if op is None else _RESULTS.get(op.kind)
    return (
        None
        if op is None or at is None or not op.has(at)
        else _Conversion(op, op.input(at), op.operand(at + 1))
    )


@FINDINGS.row("disagree", _SOURCE, accuracy=True)
def _disagree(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields integers that are read with another scale or zero point than they were made with."""
    for op in evidence.file.ops:
        for at in filter(op.has, _OPERANDS.get(op.kind, ())):
            made = _made(evidence.file, op.input(at))
            if made is None or not op.has(at + 1):
                continue
            if differs := made.differs(_Conversion(op, op.input(at + 1), op.operand(at + 2))):
                own = _place(evidence.file, made.node)
                text = f"the result of {title(own)} is quantized and read with other numbers: {differs} ({title(op)})"
                yield Found(
                    own.name,
                    (),
                    text,
                    "the same scale and zero point in both",
                    "integers are read otherwise than they were made",
                )


def _place(file: FileGraph, op: TypedNode) -> TypedNode:
    """Returns the node whose result a node quantizes, or that node."""
    return (file.past(op, {*QDQ, *graph.CARRIES, "Relu", "Clip"}) or op) if op.kind in QDQ else op


@FINDINGS.row("zero_point", _SOURCE, accuracy=True)
def _zero_point(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields quantization to eight bits of values that are never below 0, half of whose codes are for those."""
    for layer in evidence.layers:
        if (layer.passed or 0) > _PASSED:
            text = f"the Relu or Clip behind `{layer.node}` is left to its quantization, which lets {share_text(layer.passed or 0)} of the values pass as they are"
            yield Found(layer.node, (), text, _to_fit(layer))
    for op in evidence.file.ops:
        clamp = evidence.file.maker(op.input(0)) if op.kind in graph.QUANTIZES else None
        if clamp is None or not (
            clamp.kind == "Relu"
            or (clamp.kind == "Clip" and (clamp.known_data(1) or (-1,))[0] == 0)
        ):
            continue
        [zero, *_] = op.known_data(2) or (0,)
        below = {dtypes.UINT8: zero or 0, dtypes.INT8: (zero or 0) + 128}.get(
            op.outputs[0].dtype, 0
        ) / 255
        if below >= _WASTED:
            text = f"zero point {zero:g} behind {title(clamp)}: {share_text(below)} of the codes are for values below 0"
            least = "0" if op.outputs[0].dtype == dtypes.UINT8 else "-128"
            yield Found(
                clamp.name,
                (),
                text,
                f"zero point {least}, with the scale of the values",
                "codes for values below 0",
            )


_PASSED: Final = 0.01

_WASTED: Final = 0.25
"""Share of codes for values below 0 from which it is a finding."""


@FINDINGS.row("clipped", _SOURCE, accuracy=True)
def _clipped(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields layers whose scale or zero point does not fit the float model's own values."""
    lost = {
        it: it.best - it.direct
        for it in evidence.layers
        if it.best is not None and it.direct is not None
    }
    for layer in sorted(lost, key=lambda it: -lost[it]):
        others = [each for it, each in lost.items() if it is not layer]
        usual = max(0.0, median_low(others)) if others else 0.0
        if lost[layer] < _STANDS_OUT + usual:
            continue
        of = f"`{layer.node or layer.name}`"
        how = f"{share_text(layer.clipped or 0)} of the values of {of} lie beyond its codes"
        if not layer.clipped:
            how = f"the values of {of} need {share_text(layer.span or 0)} of its codes"
        text = f"{how}: {layer.direct:.1f} dB are left of them, where {layer.best:.1f} are possible"
        yield Found(layer.node or layer.name, (), text, _to_fit(layer))


def _to_fit(layer: TensorError) -> str:
    return f"scale {layer.best_scale:.4g} and zero point {layer.best_zero}"


@FINDINGS.row("weights", _SOURCE, accuracy=True)
def _weights(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields weights to which one scale does not fit, where scales by channel would."""
    for layer in sorted(evidence.layers, key=_of_weights):
        own, best = layer.weights, layer.weights_best
        if own is None or best is None or own > _POOR or best - own < _STANDS_OUT:
            continue
        text = f"{own:.1f} dB are left of the weights of `{layer.node}`, where scales by channel would leave {best:.1f}"
        if layer.weights_scales == 1:
            text += (
                f": with one scale they use {share_text(layer.weights_used or 0)} of their codes"
            )
            remedy = "scales by channel (`per_channel=True`)"
        else:
            text += ": its scales are not those of the channels of its result"
            remedy = "quantize them again along the axis of these channels"
        yield Found(layer.node, (), text, remedy, "weights that their scales do not fit")


def _of_weights(layer: TensorError) -> float:
    return layer.worst if layer.weights is None else layer.weights
