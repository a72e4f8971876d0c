"""What makes a quantized ONNX model inaccurate: by its file, and by its layers beside the float model's."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median_low
from typing import Final

from otel_quant.cost import graph
from otel_quant.cost.graph import CLAMPS, TypedNode, dtypes
from otel_quant.inference.findings import Found
from otel_quant.inference.onnx_findings import FINDINGS, OnnxEvidence, title
from otel_quant.inference.onnx_kernels import FileGraph, numbers
from otel_quant.inference.results import LOST, POOR, TensorError
from otel_quant.schema.units import share_text

__all__ = ["FINDINGS"]

_SOURCE: Final = "docs/inference.md"
_LARGEST_FLOAT16: Final = 65504

_STANDS_OUT: Final = 10.0
"""dB that a layer loses needlessly beyond the others' loss: inputs unlike the calibration's cost every layer some."""

_GOOD: Final = 40.0
"""dB of values that are left, above which no scale is to blame."""

_MUCH_IS_LEFT: Final = 22.0
"""dB above which clipping is that of a calibration with few samples, which leaves out rare values."""

_POOR: Final = 30.0
"""dB of weights from which nothing is found about them."""

_PASSED: Final = 0.01
_WASTED: Final = 0.25
"""Share of codes for values below 0 from which it is a finding."""


@FINDINGS.row("not_finite", _SOURCE, accuracy=True)
def _not_finite(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields the first node whose results are not finite though the float model's are."""
    if not (found := evidence.not_finite):
        return
    text = "{op_type} `{node}` makes the first values that are not finite ({count:,} of {size:,})"
    remedy = ""
    if found["zeros"]:
        text += ": it divides by `{of}`, of which quantization has rounded {zeros:,} to 0"
        remedy = "leave it, and what makes its divisor, in float"
    elif found["type"] == "float16" and found["largest"] > _LARGEST_FLOAT16:
        text += ": they reach {largest:.4g} in the float model, and float16 ends at 65,504"
        remedy = "float32 for it"
    yield Found(found["node"], (), text.format(**found), remedy)


@FINDINGS.row("disagree", _SOURCE, accuracy=True)
def _disagree(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields integers that are read with another scale or zero point than they were made with."""
    for name, (text, what) in _disagreeing(evidence.file).items():
        yield Found(name, (), text, "the same in both", alike=f"{what} differs")


def _disagreeing(file: FileGraph) -> dict[str, tuple[str, str]]:
    """Returns by node how the result is quantized and read, where the two differ, and what differs."""
    found: dict[str, tuple[str, str]] = {}
    for op in (each for each in file.ops if each.kind in graph.DEQUANTIZES and each.has(1)):
        made = file.past(file.maker(op.input(0)), graph.CARRIES)
        if made is None or made.kind not in graph.QUANTIZES or not made.has(1):
            continue
        for i, what in ((2, "zero point"), (1, "scale")):
            first, second = numbers(made.operand(i)), numbers(op.operand(i))
            if first and second and first != second:
                own = file.past(made, {*graph.QDQ, *graph.CARRIES, *CLAMPS})
                name = made.node.inputs[0] if own is None else own.name
                text = f"the result of {title(own or made)} is quantized with {what} {first[0]:.4g} and read with {second[0]:.4g}"
                found[name] = text, what
    return found


@FINDINGS.row("zero_point", _SOURCE, accuracy=True)
def _zero_point(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields quantization to eight bits of what is never below 0, with many codes for that, or of what is meant to be so."""
    disagreeing = _disagreeing(evidence.file)
    for layer in evidence.layers:
        share = layer.passed or 0.0
        if share > _PASSED and disagreeing.keys().isdisjoint((layer.node, layer.name)):
            text = f"the Relu or Clip behind `{layer.node}` is left to its quantization, which lets {share_text(share)} of the values pass as they are"
            yield Found(layer.node, (), f"{text}{_lost(layer)}", _to_fit(layer))
    for op in evidence.file.ops:
        clamp = evidence.file.maker(op.input(0)) if op.kind in graph.QUANTIZES else None
        lowest, highest = dtypes.LIMITS.get(op.outputs[0].dtype, (0, 0))
        if clamp is None or not _is_positive(clamp) or highest - lowest != 255:
            continue
        if (below := (sum(numbers(op.operand(2))[:1]) - lowest) / 255) >= _WASTED:
            text = f"{share_text(below)} of the codes behind {title(clamp)} are for values below 0, which it does not make"
            remedy = graph.obstacles.REWRITES["zero_point"]
            yield Found(clamp.name, (), text, *remedy, alike="codes for values below 0")


def _is_positive(op: TypedNode) -> bool:
    """Whether a node's results are never below 0."""
    return op.kind == "Relu" or (op.kind == "Clip" and op.has(1) and numbers(op.input(1)) >= (0,))


def _to_fit(layer: TensorError) -> str:
    return f"scale {layer.best_scale:.4g} and zero point {layer.best_zero}"


@FINDINGS.row("scale", _SOURCE, accuracy=True)
def _scale(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields layers whose scale or zero point does not fit the float model's own values.

    Where it does not fit the model's inputs, the other layers' do not for that alone.
    """
    known = ((it, it.best, it.direct) for it in evidence.layers)
    lost = {it: best - own for it, best, own in known if best is not None and own is not None}
    disagreeing = _disagreeing(evidence.file)
    found = [
        it
        for it, loss in lost.items()
        if loss >= _STANDS_OUT + _usual(lost, it)
        and (it.direct or 0.0) <= (_MUCH_IS_LEFT if it.clipped else _GOOD)
        and (it.passed or 0.0) <= _PASSED
        and disagreeing.keys().isdisjoint((it.node, it.name))
        and not _keeps_range(evidence, it)
    ]
    of_inputs = [it for it in found if not it.node]
    for layer in sorted(of_inputs or found, key=lambda it: (-(it.lost or 0.0), -lost[it])):
        name, remedy = f"`{layer.node or layer.name}`", _to_fit(layer)
        how = f"the values of {name} need {share_text(layer.span or 0)} of its codes"
        if layer.extreme is not None:
            how = f"beside {layer.extreme:.3g}, the other values of {name} are hardly told apart"
            remedy = "leave it, and what reads it, in float"
        elif layer.clipped:
            how = f"{share_text(layer.clipped)} of the values of {name} lie beyond its codes"
        other_data = "" if layer.node else ", or --data with inputs like the calibration's"
        text = f"{how}: {layer.direct:.1f} dB are left of them, where {layer.best:.1f} are possible{_lost(layer)}"
        yield Found(layer.node or layer.name, (), text, f"{remedy}{other_data}")


_RANGES: Final = frozenset({"HardSigmoid", "Sigmoid", "Softmax"})
"""Operators whose scale is that of all they can make, from 0 to 1, whatever values they have."""


def _keeps_range(evidence: OnnxEvidence, layer: TensorError) -> bool:
    """Whether the scale of a layer is that of all that its operator can make, by 255 steps."""
    kind = getattr(evidence.file.named(layer.node), "kind", "")
    wide = 255 * (layer.best_scale or 0.0) / (layer.span or 1.0)
    return not layer.clipped and kind in _RANGES and wide < _WIDEST


_WIDEST: Final = 4.0  # that of a symmetric quantization is 2


def _lost(layer: TensorError) -> str:
    """Returns what the outputs lose by a layer, where that was tried."""
    much = layer.lost is not None and layer.lost >= LOST and f"{layer.lost:.1f} dB"
    return "" if layer.lost is None else f"; the outputs lose {much or 'nothing'} by it"


def _usual(lost: dict[TensorError, float], layer: TensorError) -> float:
    """Returns what the layers but one lose."""
    others = [loss for it, loss in lost.items() if it is not layer]
    return max(0.0, median_low(others)) if others else 0.0


@FINDINGS.row("weights", _SOURCE, accuracy=True)
def _weights(evidence: OnnxEvidence) -> Iterator[Found]:
    """Yields weights that their scales do not fit, where scales by channel would, the worst first."""
    for layer in evidence.layers:
        own, best = layer.weights, layer.weights_best
        if own is None or best is None or own > _POOR or best - own < _STANDS_OUT:
            continue
        if evidence.outputs >= POOR and layer.lost is not None and layer.lost < LOST:
            continue  # they are others than the float model's, as equalized ones are
        text = f"{own:.1f} dB are left of the weights of `{layer.node}`, where scales by channel would leave {best:.1f}"
        remedy = "quantize them again, by channel of its result"
        if layer.weights_scales == 1:
            used = share_text(layer.weights_used or 0)
            text += f": with one scale they use {used} of their codes"
            remedy = "scales by channel (`per_channel=True`)"
        if getattr(evidence.file.named(layer.node), "kind", "") == "Gather":
            remedy = "leave it in float"  # quantizers have one scale for it
        text += _lost(layer)
        yield Found(layer.node, (), text, remedy, alike="weights that their scales do not fit")
