"""Remedies: functions that rewrite a graph so that contractions get their kernels on integers.

Each changes what it can and returns the nodes that it has changed; none if there are none, so that all are
applied again until nothing changes. ``Judged`` has what onnxruntime is expected to run in integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, Final, NamedTuple

import numpy as np

from otel_quant.cost import InputSpec
from otel_quant.cost import graph as cost_graph
from otel_quant.inference.fix.edited_graph import EditedGraph, Scales, is_operator

_EQUAL: Final = frozenset(op for op, it in cost_graph.FUSIONS.items() if it.result == "equal")
_WEIGHTED: Final = frozenset(op for op, it in cost_graph.FUSIONS.items() if it.weight)
_BYTES: Final = (np.dtype(np.int8), np.dtype(np.uint8))
_MOST: Final = 1 << 31


class Judged:
    """What onnxruntime's CPU provider is expected to do with a graph as it is."""

    def __init__(
        self, model: Any, inputs: Mapping[str, InputSpec], dims: Mapping[str, int]
    ) -> None:
        self._file = cost_graph.ModelGraph(model, inputs, dims)
        self._on_integers = {
            name for op in self._file.fused.on_integers for name in op.node.outputs
        }
        self.needs_unsigned = any(
            why == cost_graph.SIGNED for why in self._file.fused.obstacles.values()
        )

    def is_on_integers(self, node: Any) -> bool:
        """Whether a node has a kernel on integers."""
        return any(name in self._on_integers for name in node.output if name)


class Remedy(NamedTuple):
    """A kind of rewrite."""

    kind: str
    title: str  # What it writes
    rewrite: Callable[[EditedGraph, Judged], Iterator[Any]]  # Yields the nodes that it has changed
    # How what the model computes differs then; empty if it is the same but for rounding
    differs: str = ""
    removes_error: bool = False  # Whether results were wrong before


REMEDIES: list[Remedy] = []
"""In the order in which they are applied."""


def _remedy(kind: str, title: str, **more: Any) -> Callable[[Any], Any]:
    def add(rewrite: Any) -> Any:
        REMEDIES.append(Remedy(kind, title, rewrite, **more))
        return rewrite

    return add


@_remedy("bias", "own biases of int32 with the scale of the products")
def _biases(graph: EditedGraph, judged: Judged) -> Iterator[Any]:
    """Gives each contraction a bias of int32 whose scale is that of its products."""
    for node in list(graph.nodes):
        if is_operator(node, "Conv", "Gemm") and len(node.input) > 2 and node.input[2]:
            found = _bias(graph, node, judged)
            if found is not None:
                node.input[2] = graph.add_dequantizer(node.input[2], *found)
                graph.index()
                yield node


def _bias(graph: EditedGraph, node: Any, judged: Judged) -> tuple[Any, Scales] | None:
    """Returns the bias that a contraction should have; None if it has it, or cannot."""
    by, floats = _scale_of_products(graph, node), _bias_in_float(graph, node, judged)
    if by is None or floats is None or by.scale.size not in (1, floats.size) or floats.ndim != 1:
        return None
    maker = graph.dequantizer(node.input[2])
    now = None if maker is None else graph.scales(maker)
    is_wide = now is not None and now.zero.dtype == np.int32
    if now is not None and is_wide and np.allclose(now.scale, by.scale, rtol=0.01, atol=0):
        return None
    codes = np.rint(floats / by.scale.astype(np.float64))
    if not np.isfinite(codes).all() or np.abs(codes).max(initial=0) >= _MOST:
        return None
    return codes.astype(np.int32), by


def _scale_of_products(graph: EditedGraph, node: Any) -> Scales | None:
    """Returns the scale that a bias should have; None where the operands are not 8 bits wide."""
    makers = [graph.dequantizer(name) for name in node.input[:2]]
    x, weight = (None if maker is None else graph.scales(maker) for maker in makers)
    if x is None or weight is None or not x.is_single or weight.block:
        return None
    if not {x.zero.dtype, weight.zero.dtype} <= set(_BYTES) or x.scale.dtype != np.float32:
        return None
    scale = (x.scale.reshape(()) * weight.scale).astype(np.float32)
    if scale.size == 1:
        scale = scale.reshape(())
    if not (scale >= np.finfo(np.float32).tiny).all():
        return None
    return Scales(scale, np.zeros(scale.shape, np.int32), 0)


def _bias_in_float(graph: EditedGraph, node: Any, judged: Judged) -> Any:
    """Returns a bias in float64; None if it is no constant, or one in float that onnxruntime quantizes."""
    name = node.input[2]
    maker = graph.dequantizer(name)
    if maker is None:
        found = graph.constant(name)
        return None if found is None or judged.is_on_integers(node) else found.astype(np.float64)
    codes, scales = graph.constant(maker.input[0]), graph.scales(maker)
    if codes is None or scales is None:
        return None
    by = scales._replace(axis=0, zero=scales.zero.astype(codes.dtype))
    return by.floats(codes)


@_remedy(
    "zero_point",
    "zero point at the lowest code behind a Relu or Clip from 0, which then is left out",
    differs="what was saturated at the highest code no longer is",
)
def _zero_points(graph: EditedGraph, _: Judged) -> Iterator[Any]:
    """Moves the zero points behind Relu and Clip to the lowest code, where they make these superfluous."""
    for clamp in list(graph.nodes):
        high = _highest(graph, clamp)
        quantizer = None if high is None else graph.only_reader(clamp.output[0])
        if high is None or quantizer is None or not is_operator(quantizer, "QuantizeLinear"):
            continue
        now = graph.scales(quantizer)
        if now is None or not now.is_single or now.zero.dtype not in _BYTES:
            continue
        limits = np.iinfo(now.zero.dtype)
        if now.zero == limits.min or not _may_change(graph, quantizer):
            continue
        scale = np.minimum(now.scale, now.scale.dtype.type(high / (limits.max - limits.min)))
        wanted = Scales(scale.reshape(now.scale.shape), np.full_like(now.zero, limits.min))
        _quantize_otherwise(graph, quantizer, now, wanted)
        graph.replace_reads(clamp.output[0], clamp.input[0])
        graph.remove(clamp)
        graph.index()
        yield clamp


def _highest(graph: EditedGraph, node: Any) -> float | None:
    """Returns where a Relu or a Clip from 0 ends; None for what is neither."""
    if is_operator(node, "Relu"):
        return inf
    if not is_operator(node, "Clip") or node.attribute:  # before version 11 of the operator set
        return None
    low, high = [*node.input, "", ""][1:3]
    lowest = graph.constant(low) if low else None
    highest = graph.constant(high) if high else np.array(inf)
    return float(highest) if highest is not None and lowest is not None and lowest == 0 else None


def _dequantizers(graph: EditedGraph, quantizer: Any) -> Sequence[Any] | None:
    """Returns the nodes that dequantize what a node makes; None if others read it too."""
    made = quantizer.output[0]
    readers = graph.readers(made)
    are_all = all(is_operator(each, "DequantizeLinear") for each in readers)
    return readers if are_all and made not in graph.kept else None


def _may_change(graph: EditedGraph, quantizer: Any) -> bool:
    return _dequantizers(graph, quantizer) is not None


def _quantize_otherwise(graph: EditedGraph, quantizer: Any, old: Scales, new: Scales) -> None:
    """Gives a tensor other scales, and those that operators move it to without computing."""
    names = [
        graph.add_constant(f"{quantizer.output[0]}_{what}", array)
        for what, array in (("scale", new.scale), ("zero_point", new.zero))
    ]
    readers = _dequantizers(graph, quantizer) or ()
    for node in (quantizer, *readers):
        _set_inputs(node, names)
    behind = [op for each in readers for op in graph.readers(each.output[0])]
    for op in behind:
        for name in op.output if op.op_type in _EQUAL else ():
            follower = graph.only_reader(name)
            if follower is None or not is_operator(follower, "QuantizeLinear"):
                continue
            found = graph.scales(follower)
            if found is not None and found.equals(old) and _may_change(graph, follower):
                _quantize_otherwise(graph, follower, old, new)


def _set_inputs(node: Any, names: Sequence[str]) -> None:
    """Has a conversion read another scale and zero point."""
    first = node.input[0]
    del node.input[:]
    node.input.extend([first, *names])


@_remedy("unsigned", "uint8 instead of int8 for activations")
def _unsigned(graph: EditedGraph, judged: Judged) -> Iterator[Any]:
    """Makes int8 activations uint8, 128 added to codes and zero points, where onnxruntime cannot."""
    if not judged.needs_unsigned:
        return
    for quantizer in [each for each in graph.nodes if is_operator(each, "QuantizeLinear")]:
        now = graph.scales(quantizer)
        if now is None or now.zero.dtype != np.int8 or not _may_change(graph, quantizer):
            continue
        _quantize_otherwise(graph, quantizer, now, _moved_up(now))
        yield quantizer
    for node in [each for each in graph.nodes if is_operator(each, "DequantizeLinear")]:
        now, codes = graph.scales(node), graph.constant(node.input[0])
        if now is None or codes is None or codes.dtype != np.int8 or not _is_operand(graph, node):
            continue
        moved = _moved_up(now)
        zero = graph.add_constant(f"{node.output[0]}_zero_point", moved.zero)
        scale = node.input[1]
        node.input[0] = graph.add_constant(node.input[0], _up(codes))
        _set_inputs(node, (scale, zero))
        yield node


def _up(codes: Any) -> Any:
    return (codes.astype(np.int16) + 128).astype(np.uint8)


def _moved_up(scales: Scales) -> Scales:
    return scales._replace(zero=_up(scales.zero))


def _is_operand(graph: EditedGraph, node: Any) -> bool:
    """Whether a dequantized constant is an operand beside activations, and no weight or bias."""
    readers = graph.readers(node.output[0])
    return bool(readers) and all(
        each.op_type in cost_graph.FUSIONS and each.op_type not in _WEIGHTED for each in readers
    )
