"""Layers of an ONNX model: contractions and other nodes, each with the conversions that quantizing it takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from otel_quant.cost import graph
from otel_quant.cost.graph import TypedNode, Value

_INTEGERS: Final = frozenset({"ConvInteger", "MatMulInteger"})
"""Contractions whose result is int32, which other nodes scale."""

_CHOOSES_SCALES: Final = "DynamicQuantizeLinear"


def layer_of(file: graph.ModelGraph, op: TypedNode) -> TypedNode:
    """Returns the node that a node works for: of conversions the contraction on their integers.

    Case 1: it scales the integers that a contraction has made.
    Case 2: it dequantizes: constants for what reads them, else what has been made in front.
    Case 3: it quantizes, for what reads that behind it.
    Case 4: it converts nothing.
    """
    if (scaled := scaled_by(file, op)) is not None:  # Case 1
        return scaled
    if not graph.converts(op.kind) or not op.outputs:  # Case 4
        return op
    behind = list(_behind(file, op.outputs[0]))
    front = [] if op.input(0).constant else list(_in_front(file, op.input(0)))
    on_integers, in_float = (front, behind) if op.kind in graph.DEQUANTIZES else (behind, front)
    contraction = next(filter(file.is_contraction, on_integers), None)
    return contraction or next(iter([*in_float, *on_integers]), op)


def scaled_by(file: graph.ModelGraph, op: TypedNode) -> TypedNode | None:
    """Returns the contraction whose integers a node makes floats, or adds the bias to; None of others."""
    makers = [file.maker(each) for each in op.given if not each.constant]
    if op.kind == "Cast" and makers and makers[0]:
        return makers[0] if makers[0].kind in _INTEGERS else None
    wanted = {"Mul": "Cast", "Add": "Mul"}.get(op.kind, "")
    if wanted == "Cast" and all(each and each.kind == _CHOOSES_SCALES for each in makers):
        makers, wanted = list(file.readers(op.outputs[0])), "Mul"
    if op.kind == "Add" and len(makers) > 1:
        return None
    found = (scaled_by(file, each) for each in makers if each and each.kind == wanted)
    return next(filter(None, found), None)


def _behind(file: graph.ModelGraph, value: Value) -> Iterator[TypedNode]:
    for op in file.readers(value):
        if op.kind in graph.CARRIES or graph.converts(op.kind):
            yield from _behind(file, op.outputs[0])
        else:
            yield op


def _in_front(file: graph.ModelGraph, value: Value) -> Iterator[TypedNode]:
    op = file.maker(value)
    while op is not None and (op.kind in graph.CARRIES or graph.converts(op.kind)):
        op = file.maker(op.input(0))
    yield from filter(None, [op])
