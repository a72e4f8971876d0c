"""Remedies: functions that rewrite a graph so that contractions get their kernels on integers.

Each changes what it can and yields the nodes that it has changed; none if there are none, so that all are
applied again until nothing changes. ``Judged`` has what onnxruntime is expected to run in integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, Final, NamedTuple

import numpy as np
from onnx import helper

from otel_quant.cost import InputSpec
from otel_quant.cost import graph as cost_graph
from otel_quant.cost.graph import obstacles
from otel_quant.inference.fix.edited_graph import EditedGraph, Scales, attributes, is_operator

_EQUAL: Final = frozenset(op for op, it in cost_graph.FUSIONS.items() if it.result == "equal")
_WEIGHTED: Final = frozenset(op for op, it in cost_graph.FUSIONS.items() if it.weight)
_OTHERS: Final = cost_graph.FUSIONS.keys() - _WEIGHTED
_MOVES: Final = ("Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
_BYTES: Final = (np.dtype(np.int8), np.dtype(np.uint8))
_LEAST_BLOCK: Final = 16
_ALIKE: Final = 0.998  # A range that ends half a code beyond a Clip makes that superfluous, too


class Judged:
    """What onnxruntime's CPU provider is expected to do with a graph as it is."""

    def __init__(
        self, model: Any, inputs: Mapping[str, InputSpec], dims: Mapping[str, int]
    ) -> None:
        self._file = cost_graph.ModelGraph(model, inputs, dims)
        fused = self._fused = self._file.fused
        self._on_integers = {name for op in fused.on_integers for name in op.node.outputs}
        self.needs_unsigned = any(obstacles.SIGNED in each for each in fused.obstacles.values())

    def is_on_integers(self, node: Any) -> bool:
        """Whether a node has a kernel on integers."""
        return not self._on_integers.isdisjoint(node.output)

    def runs(self, conversion: Any) -> bool:
        """Whether a node that quantizes or dequantizes runs, and is no part of a kernel."""
        op = self._file.maker_of(conversion.output[0])
        access = None if op is None else self._fused.kernels.get(op)
        return access is None or bool(access.makes)

    def shape(self, name: str) -> Sequence[int] | None:
        """Returns the shape of what a node makes; None where not all of it is known."""
        op = self._file.maker_of(name)
        found = next((it.shape for it in op.outputs if it.name == name), None) if op else None
        return None if found is None or None in found else [it for it in found if it is not None]


class RewriteRule(NamedTuple):
    """A kind of rewrite."""

    kind: str
    title: str  # What it writes, in the words of findings
    rewrite: Callable[[EditedGraph, Judged], Iterator[Any]]  # Yields the nodes that it has changed
    # How what the model computes differs then; empty if it is the same but for rounding
    differs: str = ""
    removes_error: bool = False  # Whether results were wrong before
    # The kind that it may take the place of, where it comes closer to the float model
    instead_of: str = ""
    is_last: bool = False  # Whether it waits until no other kind changes anything


REMEDIES: list[RewriteRule] = []
"""In the order in which they are applied."""


def _remedy(kind: str, how: str = "", instead_of: str = "", **more: Any) -> Callable[[Any], Any]:
    def add(rewrite: Any) -> Any:
        title = f"{obstacles.REWRITES[instead_of or kind].text}{how}"
        REMEDIES.append(RewriteRule(kind, title, rewrite, instead_of=instead_of, **more))
        return rewrite

    return add


@_remedy("constants")
def _constants(graph: EditedGraph, judged: Judged) -> Iterator[Any]:
    """Computes what moves or quantizes a constant, and moves the DequantizeLinear behind it."""
    for node in graph.of(*_MOVES, "QuantizeLinear"):
        if node.op_type == "QuantizeLinear":
            floats, by = graph.constant(node.input[0]), graph.scales(node)
            is_known = floats is not None and by is not None and not by.block
            new = by and is_known and graph.add_constant(node.output[0], by.codes(floats))
        elif node.op_type == "Identity" and graph.is_constant(node.input[0]):
            new = node.input[0]
        else:
            new = _moved(graph, node, judged.shape(node.output[0]))
        if new and node.output[0] not in graph.kept:
            graph.replace_reads(node.output[0], new)
            yield node


def _moved(graph: EditedGraph, node: Any, shape: Sequence[int] | None) -> str | None:
    """Returns the name of a constant in place of one that is moved; None where it is none."""
    codes, by = graph.dequantized(node.input[0])
    array = graph.constant(node.input[0]) if by is None else codes
    if array is None or shape is None:
        return None
    axes = list(range(array.ndim))
    if node.op_type == "Transpose":
        axes = list(attributes(node).get("perm", axes[::-1]))
    moved = array.transpose(axes).reshape(shape)
    if by is None:
        return graph.add_constant(node.output[0], moved)
    if by.block or not (by.is_single or node.op_type == "Transpose"):
        return None
    axis = axes.index(by.axis % array.ndim) if array.ndim > 1 else by.axis
    return graph.add_dequantizer(node.output[0], moved, by._replace(axis=axis))


@_remedy("batch_norm", differs="a rounding between a Conv and its batch norm, if any, is gone")
def _batch_norms(graph: EditedGraph, _: Judged) -> Iterator[Any]:
    """Takes a BatchNormalization behind a Conv of quantized weights into their scales, and a bias."""
    for node in graph.of("BatchNormalization"):
        second = graph.maker(node.input[0], "DequantizeLinear")
        first = None if second is None else graph.maker(second.input[0], "QuantizeLinear")
        pair = [] if first is None else [first, second]
        conv = graph.maker((first or node).input[0], "Conv")
        chain = [each and each.output[0] for each in (conv, *pair)]
        if conv is None or [*map(graph.only_reader, chain)] != [*pair, node]:
            continue
        codes, by = graph.dequantized(conv.input[1])
        bias = _floats(graph, conv.input[2]) if len(conv.input) > 2 else 0.0
        gamma, beta, mean, var = (_floats(graph, name) for name in node.input[1:5])
        if by is None or any(each is None for each in (bias, gamma, beta, mean, var)):
            continue
        factor = gamma / np.sqrt(var + attributes(node).get("epsilon", 1e-5))
        is_by_channels = by.is_single or by.axis == 0
        if codes.dtype != np.int8 or by.zero.any() or not factor.all() or not is_by_channels:
            continue
        signs = np.sign(factor).reshape(-1, *[1] * (codes.ndim - 1))
        codes = np.clip(codes * signs, -128, 127).astype(np.int8)
        scale = (by.scale * np.abs(factor)).astype(by.scale.dtype)
        by = Scales(scale, np.zeros(scale.shape, np.int8), 0)
        added = ((bias - mean) * factor + beta).astype(np.float32)
        weight = graph.add_dequantizer(conv.input[1], codes, by)
        conv.input[:] = [conv.input[0], weight, graph.add_constant(node.input[2], added)]
        graph.bypass(*pair, node)
        yield node


@_remedy(
    "axis", removes_error=True,
    differs="weights are rounded anew, along the axis that kernels take",
)  # fmt: skip
def _axes(graph: EditedGraph, _: Judged) -> Iterator[Any]:
    """Quantizes weights anew whose scales lie along an axis that is not the output channels'."""
    for node in graph.of(*_WEIGHTED):
        by = graph.scales_of(node.input[1])
        if by is None or by.is_single or by.block or by.zero.dtype not in _BYTES:
            continue
        if (codes := graph.dequantized(node.input[1])[0]) is None:
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


@_remedy("blocks")
def _blocks(graph: EditedGraph, _: Judged) -> Iterator[Any]:
    """Divides blocks of 48, 80 ... weights, whose length no kernel takes; each part keeps its scale."""
    for node in graph.of("DequantizeLinear"):
        by = graph.scales(node)
        length = 0 if by is None else by.block & -by.block  # A power of two that divides it
        if by is None or length < _LEAST_BLOCK or length == by.block:
            continue
        if (codes := graph.constant(node.input[0])) is None:
            continue
        places = np.arange(-(-codes.shape[by.axis] // length)) * length // by.block
        scale, zero = (each.take(places, by.axis) for each in (by.scale, by.zero))
        graph.requantize(node, Scales(scale, zero))
        next(each for each in node.attribute if each.name == "block_size").i = length
        yield node


@_remedy("matmul_add")
def _matmul_add(graph: EditedGraph, judged: Judged) -> Iterator[Any]:
    """Gives what is added to a MatMul of integers a second dimension, or makes the two a Gemm.

    onnxruntime makes them a Gemm before it looks for integers, and that has a kernel on them only if its
    result is quantized or its bias is of int32.
    """
    pairs = ((add, *names) for add in graph.of("Add") for names in (add.input, add.input[::-1]))
    for add, name, other in list(pairs):
        matmul, bias = graph.maker(name, "MatMul"), graph.constant(other)
        shape, quantizer = judged.shape(add.output[0]), graph.quantizer(add.output[0])
        if matmul is None or bias is None or shape is None:
            continue
        is_row = len(shape) == 2 and bias.shape == (1, shape[1])
        if not is_row and (bias.ndim != 1 or quantizer):
            continue
        codes, _by = graph.dequantized(matmul.input[1])
        is_input = graph.maker(matmul.input[0], "DequantizeLinear") is not None
        if not is_input or codes is None or codes.ndim != 2 or graph.only_reader(name) is not add:
            continue
        if len(shape) > 2:
            add.input[:] = [name, graph.add_constant(other, bias[None])]
        else:
            inputs, made = [*matmul.input, graph.add_constant(other, bias.ravel())], add.output[0]
            gemm = helper.make_node("Gemm", inputs, [made], name=add.name or made)
            graph.remove(matmul, add)
            graph.nodes.append(gemm)
            _has_new_bias(graph, gemm)
        yield add


@_remedy("islands")
def _islands(graph: EditedGraph, _: Judged) -> Iterator[Any]:
    """Quantizes what a Relu in float hands to a contraction by integers, as its operand is: nothing is rounded by that."""
    for node in graph.of("Relu"):
        made, by = node.output[0], graph.scales_of(node.input[0])
        are_by_codes = any(_is_by_codes(graph, each) for each in graph.readers(made))
        if by is not None and by.is_single and are_by_codes and made not in graph.kept:
            graph.add_pair(made, by)
            yield node


def _is_by_codes(graph: EditedGraph, node: Any) -> bool:
    is_weighted = node is not None and node.op_type in _WEIGHTED
    return is_weighted and graph.dequantized(node.input[1])[1] is not None


@_remedy(
    "leaky_relu", differs="what a LeakyRelu reads is rounded, and saturated below the lowest code"
)
def _leaky_relus(graph: EditedGraph, _: Judged) -> Iterator[Any]:
    """Quantizes what a contraction by integers hands to a LeakyRelu as the result of that is, between which Quark puts nothing."""
    for node in graph.of("LeakyRelu"):
        source, by = node.input[0], graph.scales(graph.quantizer(node.output[0]))
        is_between = graph.only_reader(source) and _is_by_codes(graph, graph.maker(source))
        if is_between and by is not None and by.is_single and by.zero.dtype in _BYTES:
            graph.add_pair(source, by)
            yield node


@_remedy("bias")
def _biases(graph: EditedGraph, judged: Judged) -> Iterator[Any]:
    """Gives each contraction a bias of int32 whose scale is that of its products."""
    for node in graph.of("Conv", "Gemm"):
        is_float = len(node.input) > 2 and graph.dequantized(node.input[2])[1] is None
        if is_float and judged.is_on_integers(node):
            continue  # onnxruntime quantizes it
        if _has_new_bias(graph, node):
            yield node


def _has_new_bias(graph: EditedGraph, node: Any) -> bool:
    """Gives a contraction a bias of int32; returns whether it has had another one."""
    name, by = next(iter(node.input[2:]), ""), _scale_of_products(graph, node)
    floats, (_codes, now) = _floats(graph, name), graph.dequantized(name)
    if by is None or floats is None or floats.ndim != 1 or by.scale.size not in (1, floats.size):
        return False
    if now and now.zero.dtype == np.int32 and np.allclose(now.scale, by.scale, rtol=0.01, atol=0):
        return False
    codes = np.rint(floats / by.scale.astype(np.float64))
    if not np.abs(codes).max(initial=0) <= np.iinfo(np.int32).max:  # or NaN
        return False
    node.input[2] = graph.add_dequantizer(name, codes.astype(np.int32), by)
    return True


def _scale_of_products(graph: EditedGraph, node: Any) -> Scales | None:
    """Returns the scale that a bias should have; None where the operands are not 8 bits wide."""
    x, weight = map(graph.scales_of, node.input[:2])
    if x is None or weight is None or not x.is_single or weight.block:
        return None
    if not {x.zero.dtype, weight.zero.dtype} <= set(_BYTES) or x.scale.dtype != np.float32:
        return None
    scale = x.scale.reshape(()) * weight.scale
    scale = scale.reshape(()) if scale.size == 1 else scale
    is_normal = bool((scale >= np.finfo(np.float32).tiny).all())
    return Scales(scale, np.zeros(scale.shape, np.int32), 0) if is_normal else None


def _floats(graph: EditedGraph, name: str) -> Any:
    """Returns a bias, perhaps a dequantized one, in float64; None if it is no constant."""
    codes, by = graph.dequantized(name)
    found = graph.constant(name) if by is None else by._replace(axis=0).floats(codes)
    return None if found is None else found.astype(np.float64)


def _zero_points(graph: EditedGraph, _: Judged, *, is_wide: bool) -> Iterator[Any]:
    """Moves the zero points of what is never below 0 to the lowest code, where that makes Relu and Clip superfluous."""
    nodes = graph.of("Relu", "Clip", *_OTHERS)
    for node, name in [(each, name) for each in nodes for name in each.output]:
        high, quantizer = _highest(graph, node), graph.quantizer(name)
        if high is None or quantizer is None:
            continue
        now, readers = graph.scales(quantizer), _dequantizers(graph, quantizer)
        if now is None or not now.is_single or now.zero.dtype not in _BYTES or not readers:
            continue
        limits = np.iinfo(now.zero.dtype)
        span = now.scale * (limits.max - (limits.min if is_wide else now.zero.astype(np.int32)))
        scale = (np.minimum(span, high) / (limits.max - limits.min)).astype(now.scale.dtype)
        if now.zero == limits.min and scale > _ALIKE * now.scale:
            continue
        new = Scales(scale.reshape(now.scale.shape), np.full_like(now.zero, limits.min))
        _quantize_otherwise(graph, quantizer, now, new)
        if node.op_type in ("Relu", "Clip"):
            graph.bypass(node)
        yield node


_FINER: Final = "values behind it are rounded in finer steps"
_WIDER: Final = "what was saturated at the highest code no longer is"
_finer, _wider = (partial(_zero_points, is_wide=each) for each in (False, True))
_remedy("zero_point", ": all codes for the same range", differs=_FINER)(_finer)
_remedy("zero_point_wide", ": the same steps, a wider range", "zero_point", differs=_WIDER)(_wider)


def _highest(graph: EditedGraph, node: Any) -> float | None:
    """Returns where the results of a node end that are never below 0; None if they may be."""
    if node.op_type != "Clip":
        operands = node.input[:1] if node.op_type in _EQUAL else node.input
        are_positive = all(map(_is_positive, map(graph.scales_of, operands)))
        return inf if node.op_type == "Relu" or are_positive else None
    low, high = [*node.input, "", ""][1:3]
    lowest, highest = graph.constant(low), graph.constant(high) if high else np.array(inf)
    is_from_zero = lowest is not None and lowest == 0 and highest is not None
    return float(highest) if is_from_zero and not node.attribute else None


def _is_positive(by: Scales | None) -> bool:
    """Whether what is quantized like this is never below 0."""
    if by is None or by.zero.dtype.kind not in "iu":
        return False
    return bool((by.zero == np.iinfo(by.zero.dtype).min).all())


def _dequantizers(graph: EditedGraph, quantizer: Any) -> Sequence[Any]:
    """Returns the nodes that dequantize what a node makes; nothing if others read it too."""
    readers = graph.readers(quantizer.output[0])
    are_all = all(is_operator(each, "DequantizeLinear") for each in readers)
    return readers if are_all and quantizer.output[0] not in graph.kept else ()


def _quantize_otherwise(graph: EditedGraph, quantizer: Any, old: Scales, new: Scales) -> None:
    """Gives a tensor other scales, those that operators move it to without computing, and biases of int32 what follows."""
    readers = _dequantizers(graph, quantizer)
    for node in (quantizer, *readers):
        graph.requantize(node, new)
    behind = [op for each in readers for op in graph.readers(each.output[0])]
    for op in behind:
        bias = graph.scales_of(next(iter(op.input[2:]), ""))
        if bias is not None and bias.zero.dtype == np.int32:
            _has_new_bias(graph, op)
    moved = (name for op in behind if op.op_type in _EQUAL for name in op.output)
    for follower in map(graph.quantizer, moved):
        found = graph.scales(follower)
        if found is not None and found.equals(old) and _dequantizers(graph, follower):
            _quantize_otherwise(graph, follower, old, new)


@_remedy("unsigned")
def _unsigned(graph: EditedGraph, judged: Judged) -> Iterator[Any]:
    """Makes int8 activations uint8, 128 added to codes and zero points, where onnxruntime cannot."""
    for node in graph.of("QuantizeLinear", "DequantizeLinear") if judged.needs_unsigned else ():
        now, readers = graph.scales(node), _dequantizers(graph, node)
        if now is None or now.zero.dtype != np.int8:
            continue
        new, others = now._replace(zero=_up(now.zero)), graph.readers(node.output[0])
        is_operand = bool(others) and all(each.op_type in _OTHERS for each in others)
        if node.op_type == "QuantizeLinear" and readers:
            _quantize_otherwise(graph, node, now, new)
        elif is_operand and (codes := graph.constant(node.input[0])) is not None:
            node.input[0] = graph.add_constant(node.input[0], _up(codes))
            graph.requantize(node, new)
        else:
            continue
        yield node


def _up(codes: Any) -> Any:
    return (codes.astype(np.int16) + 128).astype(np.uint8)


@_remedy("double", differs="values are rounded once, not twice")
def _double(graph: EditedGraph, _: Judged) -> Iterator[Any]:
    """Takes the first of two quantizations in a row, or around a clamp, away where nothing else reads its integers."""
    for node in graph.of("QuantizeLinear"):
        clamp = graph.maker(node.input[0], "Relu", "Clip")
        middle = graph.maker((clamp or node).input[0], "DequantizeLinear")
        first = None if middle is None else graph.maker(middle.input[0], "QuantizeLinear")
        if first is None or graph.only_reader(first.output[0]) is not middle:
            continue
        # One that is a Relu too is left only before another
        is_clamp, is_next = (_is_positive(graph.scales(each)) for each in (first, node))
        links = [(middle, node)] if clamp is None else [(middle, clamp), (clamp, node)]
        is_alone = all(graph.only_reader(it.output[0]) is reader for it, reader in links)
        if is_alone and is_clamp <= is_next:
            graph.bypass(first, middle)
            yield node


@_remedy("pairs", is_last=True, differs="values there are not rounded")
def _pairs(graph: EditedGraph, judged: Judged) -> Iterator[Any]:
    """Takes away what quantizes where every DequantizeLinear behind it runs: no kernel reads the integers.

    Not beside a contraction by integers, for which others may do something.
    """
    for node in graph.of("QuantizeLinear"):
        source, readers, by = node.input[0], _dequantizers(graph, node), graph.scales(node)
        behind = [name for each in readers for name in each.output]
        is_second = graph.maker(source, "DequantizeLinear") is not None
        if by is None or not readers or is_second or not graph.kept.isdisjoint(behind):
            continue
        clamp = graph.maker(source, "Relu", "Clip")
        beside = [graph.maker(source if clamp is None else clamp.input[0])]
        beside += [op for name in behind for op in graph.readers(name)]
        are_codes = any(_is_by_codes(graph, op) for op in beside) or by.zero.dtype.kind not in "iu"
        if are_codes or not all(map(judged.runs, (node, *readers))):
            continue
        graph.remove(node, *readers)
        if _is_positive(by) and graph.maker(source, "Relu") is None:
            made = f"{node.output[0]}_clamped"
            graph.nodes.append(helper.make_node("Relu", [source], [made], name=made))
            source = made
        for name in behind:
            graph.replace_reads(name, source)
        yield node


@_remedy("session", removes_error=True, differs="what was left in float stays so")
def _session(graph: EditedGraph, judged: Judged) -> Iterator[Any]:
    """Yields what onnxruntime quantizes on loading though it was left in float; no file can say that it should not."""
    for node in graph.of(*_WEIGHTED):
        if judged.is_on_integers(node) and graph.constant(node.input[1]) is not None:
            yield node


@_remedy("sums", removes_error=True, is_last=True, differs="what saturates here no longer does")
def _sums(graph: EditedGraph, judged: Judged) -> Iterator[Any]:
    """Yields contractions on integers by weights of 8 bits and sign, whose sums some processors saturate."""
    found = []
    for node in graph.of(*_WEIGHTED):
        codes, _ = graph.dequantized(node.input[1])
        if codes is not None and codes.dtype == np.int8 and judged.is_on_integers(node):
            found += [node] * bool(np.abs(codes.astype(np.int16)).max(initial=0) > _EXACT)
    for node in graph.of("DequantizeLinear") if found else ():
        _give_own_codes(graph, node)
    yield from found


_EXACT: Final = 64
"""Two products of codes up to this by 255 fit into 16 bits."""


def _give_own_codes(graph: EditedGraph, node: Any) -> None:
    """Has each reader of signed constants read codes and a zero point of its own: onnxruntime's option replaces them by name."""
    (codes, by), readers = graph.dequantized(node.output[0]), graph.readers(node.output[0])
    is_alone = len(readers) == 1 and all(len(graph.readers(it)) == 1 for it in node.input[::2])
    if codes is not None and by is not None and codes.dtype == np.int8 and not is_alone:
        for reader in readers:
            own = graph.add_dequantizer(node.output[0], codes, by)
            reader.input[:] = [own if it == node.output[0] else it for it in reader.input]
