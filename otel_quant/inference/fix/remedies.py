"""Remedies: functions that rewrite a graph so that contractions get their kernels on integers.

Each changes what it can and returns the nodes that it has changed; none if there are none, so that all are
applied again until nothing changes. ``Judged`` has what onnxruntime is expected to run in integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, Final, NamedTuple

import numpy as np
from onnx import helper

from otel_quant.cost import InputSpec
from otel_quant.cost import graph as cost_graph
from otel_quant.inference.fix.edited_graph import EditedGraph, Scales, attributes, is_operator

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
        self.needs_unsigned = cost_graph.SIGNED in self._file.fused.obstacles.values()

    def is_on_integers(self, node: Any) -> bool:
        """Whether a node has a kernel on integers."""
        return any(name in self._on_integers for name in node.output if name)

    def runs(self, conversion: Any) -> bool:
        """Whether a node that quantizes or dequantizes runs, and is no part of a kernel."""
        op = self._file.maker_of(conversion.output[0])
        access = None if op is None else self._file.fused.kernels.get(op)
        return access is None or bool(access.makes)

    def shape(self, name: str) -> Sequence[int] | None:
        """Returns the shape of what a node makes; None where not all of it is known."""
        op = self._file.maker_of(name)
        found = next((it.shape for it in op.outputs if it.name == name), None) if op else None
        return None if found is None or None in found else [it for it in found if it is not None]


class Remedy(NamedTuple):
    """A kind of rewrite."""

    kind: str
    title: str  # What it writes
    rewrite: Callable[[EditedGraph, Judged], Iterator[Any]]  # Yields the nodes that it has changed
    # How what the model computes differs then; empty if it is the same but for rounding
    differs: str = ""
    removes_error: bool = False  # Whether results were wrong before
    # The kind that it may take the place of, where it comes closer to the float model
    instead_of: str = ""
    is_last: bool = False  # Whether it waits until no other kind changes anything


REMEDIES: list[Remedy] = []
"""In the order in which they are applied."""


def _remedy(kind: str, title: str, **more: Any) -> Callable[[Any], Any]:
    def add(rewrite: Any) -> Any:
        REMEDIES.append(Remedy(kind, title, rewrite, **more))
        return rewrite

    return add


_MOVES: Final = ("Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")


@_remedy("constants", "constants in place of nodes that compute them from constants")
def _constants(graph: EditedGraph, judged: Judged) -> Iterator[Any]:
    """Computes what moves or quantizes a constant, and moves the DequantizeLinear behind it."""
    for node in [each for each in graph.nodes if each.output[0] not in graph.kept]:
        new = None
        if is_operator(node, *_MOVES):
            new = _moved(graph, node, judged)
        elif is_operator(node, "QuantizeLinear"):
            floats, by = graph.constant(node.input[0]), graph.scales(node)
            if floats is not None and by is not None:
                new = graph.add_constant(node.output[0], by.codes(floats))
        if new is not None:
            graph.replace_reads(node.output[0], new)
            yield node


def _moved(graph: EditedGraph, node: Any, judged: Judged) -> str | None:
    """Returns the name of a constant in place of one that is moved; None where it is none."""
    maker, shape = graph.dequantizer(node.input[0]), judged.shape(node.output[0])
    codes = graph.constant(node.input[0] if maker is None else maker.input[0])
    by = None if maker is None else graph.scales(maker)
    if codes is None or shape is None or (maker is not None and by is None):
        return None
    axes = attributes(node).get("perm", list(range(codes.ndim))[::-1])
    if node.op_type != "Transpose":
        axes = list(range(codes.ndim))
    moved = codes.transpose(axes).reshape(shape)
    if by is None:
        return graph.add_constant(node.output[0], moved)
    if not by.is_single and (
        by.block or moved.ndim != codes.ndim or node.op_type not in ("Identity", "Transpose")
    ):
        return None
    return graph.add_dequantizer(
        node.output[0], moved, by._replace(axis=axes.index(by.axis % codes.ndim))
    )


@_remedy("batch_norm", "batch norms as a part of the weights in front of them")
def _batch_norms(graph: EditedGraph, _: Judged) -> Iterator[Any]:
    """Takes a BatchNormalization behind a Conv of quantized weights into their scales, and a bias."""
    for node in [each for each in graph.nodes if is_operator(each, "BatchNormalization")]:
        conv, dequantizer = graph.maker(node.input[0]), None
        if (
            conv is not None
            and is_operator(conv, "Conv")
            and graph.only_reader(conv.output[0]) is node
        ):
            dequantizer = graph.dequantizer(conv.input[1])
        by = None if dequantizer is None else graph.scales(dequantizer)
        codes = None if dequantizer is None else graph.constant(dequantizer.input[0])
        bias = _floats(graph, conv.input[2]) if conv is not None and len(conv.input) > 2 else 0.0
        gamma, beta, mean, var = (graph.constant(name) for name in node.input[1:5])
        if (
            codes is None
            or by is None
            or bias is None
            or any(it is None for it in (gamma, beta, mean, var))
        ):
            continue
        factor = gamma / np.sqrt(var + attributes(node).get("epsilon", 1e-5))
        if (
            codes.dtype != np.int8
            or by.zero.any()
            or not factor.all()
            or not (by.is_single or by.axis == 0)
        ):
            continue
        signs = np.where(factor < 0, -1, 1).reshape(-1, *[1] * (codes.ndim - 1))
        scale = (by.scale * np.abs(factor)).astype(by.scale.dtype)
        codes = np.clip(codes.astype(np.int16) * signs, -128, 127).astype(np.int8)
        new = Scales(scale, np.zeros(scale.shape, np.int8), 0)
        added = ((bias - mean) * factor + beta).astype(np.float32)
        names = conv.input[0], graph.add_dequantizer(conv.input[1], codes, new)
        del conv.input[:]
        conv.input.extend([*names, graph.add_constant(node.input[2], added)])
        graph.bypass(node)
        yield node


@_remedy(
    "axis",
    "weights with scales along the output channels",
    differs="weights are rounded anew, along the axis that kernels take",
    removes_error=True,
)
def _axes(graph: EditedGraph, _: Judged) -> Iterator[Any]:
    """Quantizes weights anew whose scales lie along an axis that is not the output channels'."""
    for node in [each for each in graph.nodes if is_operator(each, *_WEIGHTED)]:
        dequantizer = graph.dequantizer(node.input[1])
        by = None if dequantizer is None else graph.scales(dequantizer)
        codes = None if dequantizer is None else graph.constant(dequantizer.input[0])
        if by is None or codes is None or by.is_single or by.block or by.zero.dtype not in _BYTES:
            continue
        is_first = node.op_type == "Conv" or attributes(node).get("transB", 0)
        right = 0 if is_first else codes.ndim - 1
        if by.axis % codes.ndim == right:
            continue
        floats = by.floats(codes)
        highest = np.abs(floats).max(tuple(i for i in range(codes.ndim) if i != right))
        scale = (np.where(highest == 0, 1, highest) / 127).astype(by.scale.dtype)
        new = Scales(scale, np.zeros(scale.shape, np.int8), right)
        node.input[1] = graph.add_dequantizer(node.input[1], new.codes(floats), new)
        yield node


@_remedy("blocks", "blocks of 16, 32, 64 ... weights")
def _blocks(graph: EditedGraph, _: Judged) -> Iterator[Any]:
    """Divides blocks of 48, 80 ... weights, whose length no kernel takes; each part keeps its scale."""
    for node in [each for each in graph.nodes if is_operator(each, "DequantizeLinear")]:
        by, codes = graph.scales(node), graph.constant(node.input[0])
        length = (
            0 if by is None else by.block & -by.block
        )  # The largest power of two that divides it
        if by is None or codes is None or length < 16 or length == by.block:
            continue
        count = -(-codes.shape[by.axis] // length)
        parts = (
            np.repeat(each, by.block // length, by.axis).take(range(count), by.axis)
            for each in (by.scale, by.zero)
        )
        _set_inputs(node, [graph.add_constant(node.output[0], each) for each in parts])
        next(each for each in node.attribute if each.name == "block_size").i = length
        yield node


@_remedy("matmul_add", "additions behind MatMul that onnxruntime does not make a Gemm in float of")
def _matmul_add(graph: EditedGraph, judged: Judged) -> Iterator[Any]:
    """Gives what is added to a MatMul of integers a second dimension, or makes the two a Gemm.

    onnxruntime makes them a Gemm before it looks for integers, and that has a kernel on them only if its
    result is quantized or its bias is of int32.
    """
    for add in [each for each in graph.nodes if is_operator(each, "Add")]:
        for i, name in enumerate(add.input):
            matmul, bias, shape = (
                graph.maker(name),
                graph.constant(add.input[1 - i]),
                judged.shape(add.output[0]),
            )
            if (
                bias is None
                or bias.ndim != 1
                or shape is None
                or matmul is None
                or not is_operator(matmul, "MatMul")
            ):
                continue
            makers, reader = (
                list(map(graph.dequantizer, matmul.input)),
                graph.only_reader(add.output[0]),
            )
            if None in makers or (reader is not None and is_operator(reader, "QuantizeLinear")):
                continue
            codes = graph.constant(makers[1].input[0])
            if graph.only_reader(name) is not add or codes is None or codes.ndim != 2:
                continue
            if len(shape) > 2:
                add.input[1 - i] = graph.add_constant(add.input[1 - i], bias[None])
            else:
                inputs = [*matmul.input, add.input[1 - i]]
                gemm = helper.make_node(
                    "Gemm", inputs, [add.output[0]], name=add.name or add.output[0]
                )
                graph.nodes.append(gemm)
                graph.remove(matmul, add)
            yield add
            break


@_remedy("bias", "own biases of int32 with the scale of the products")
def _biases(graph: EditedGraph, judged: Judged) -> Iterator[Any]:
    """Gives each contraction a bias of int32 whose scale is that of its products."""
    for node in list(graph.nodes):
        if is_operator(node, "Conv", "Gemm") and len(node.input) > 2 and node.input[2]:
            found = _bias(graph, node, judged)
            if found is not None:
                node.input[2] = graph.add_dequantizer(node.input[2], *found)
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
    if graph.dequantizer(node.input[2]) is None and judged.is_on_integers(node):
        return None
    return _floats(graph, node.input[2])


def _floats(graph: EditedGraph, name: str) -> Any:
    """Returns a bias, perhaps a dequantized one, in float64; None if it is no constant."""
    maker, found = graph.dequantizer(name), graph.constant(name)
    if maker is None:
        return None if found is None else found.astype(np.float64)
    codes, scales = graph.constant(maker.input[0]), graph.scales(maker)
    if codes is None or scales is None:
        return None
    return scales._replace(axis=0, zero=scales.zero.astype(codes.dtype)).floats(codes)


@_remedy(
    "zero_point",
    "zero point at the lowest code behind a Relu or Clip from 0, which is left out: all codes for the same range",
    differs="values behind it are rounded in finer steps",
)
def _finer(graph: EditedGraph, _: Judged) -> Iterator[Any]:
    """Gives what is behind a clamp all codes for the range that it has."""
    yield from _zero_points(graph, is_wide=False)


@_remedy(
    "zero_point_wide",
    "zero point at the lowest code behind a Relu or Clip from 0, which is left out: the same steps, a wider range",
    differs="what was saturated at the highest code no longer is",
    instead_of="zero_point",
)
def _wider(graph: EditedGraph, _: Judged) -> Iterator[Any]:
    """Gives what is behind a clamp all codes, each for what it stands for."""
    yield from _zero_points(graph, is_wide=True)


def _zero_points(graph: EditedGraph, *, is_wide: bool) -> Iterator[Any]:
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
        lowest = limits.min if is_wide else int(now.zero)
        span = np.minimum(now.scale * (limits.max - lowest), high)
        scale = (span / (limits.max - limits.min)).astype(now.scale.dtype)
        wanted = Scales(scale.reshape(now.scale.shape), np.full_like(now.zero, limits.min))
        _quantize_otherwise(graph, quantizer, now, wanted)
        graph.bypass(clamp)
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


@_remedy(
    "double",
    "one quantization in place of two in a row",
    differs="values are rounded once, not twice",
)
def _double(graph: EditedGraph, _: Judged) -> Iterator[Any]:
    """Takes the first of two quantizations in a row away, where nothing else reads its integers."""
    for node in [each for each in graph.nodes if is_operator(each, "QuantizeLinear")]:
        middle = graph.dequantizer(node.input[0])
        first = None if middle is None else graph.maker(middle.input[0])
        if middle is None or first is None or not is_operator(first, "QuantizeLinear"):
            continue
        if (
            graph.only_reader(middle.output[0]) is node
            and graph.only_reader(first.output[0]) is middle
        ):
            graph.bypass(first, middle)
            yield node


@_remedy(
    "pairs",
    "floats in place of integers that no kernel takes",
    differs="values there are not rounded",
    is_last=True,
)
def _pairs(graph: EditedGraph, judged: Judged) -> Iterator[Any]:
    """Takes away what quantizes where every DequantizeLinear behind it runs: no kernel reads the integers."""
    for node in [each for each in graph.nodes if is_operator(each, "QuantizeLinear")]:
        readers = _dequantizers(graph, node) or ()
        if not readers or not all(map(judged.runs, (node, *readers))):
            continue
        behind = [name for each in readers for name in each.output]
        source = graph.maker(node.input[0])
        if not graph.kept.isdisjoint(behind) or (
            source and is_operator(source, "DequantizeLinear")
        ):
            continue
        graph.remove(node, *readers)
        for name in behind:
            graph.replace_reads(name, node.input[0])
        yield node
