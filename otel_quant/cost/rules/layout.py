"""Operators that move, cut, join, repeat or pick elements: free, but for those that search."""

from __future__ import annotations

from typing import Final

from otel_quant.cost.rules.formula import FREE, not_costed, zero
from otel_quant.cost.rules.operator import MOVES, NO_PRECISION, Operator
from otel_quant.cost.shapes import folding, layout
from otel_quant.cost.shapes.folding import Fold
from otel_quant.cost.shapes.rule import FLOAT, INT64, T0, ShapeRule, ShapesOf, TypeOf, like


def _free(
    shapes: ShapesOf,
    *types: TypeOf,
    fold: Fold | None = None,
    moves: bool = True,
    view: bool = False,
) -> Operator:
    """A free operator; its results have its first operand's type unless others are given."""
    precision = MOVES if moves else NO_PRECISION
    return Operator(ShapeRule(shapes, types or (T0,)), FREE, fold, precision=precision, view=view)


TABLE: Final[dict[str, Operator]] = {
    "Reshape": _free(layout.reshaped, fold=folding.fold_copy, view=True),
    "Flatten": _free(layout.flatten, fold=folding.fold_copy, view=True),
    "Squeeze": _free(layout.squeeze, fold=folding.fold_copy, view=True),
    "Unsqueeze": _free(layout.unsqueeze, fold=folding.fold_copy, view=True),
    "Transpose": _free(layout.transpose, fold=folding.fold_transpose),
    "Concat": _free(layout.concat, fold=folding.fold_concat),
    "Split": _free(layout.split, fold=folding.fold_split),
    "Slice": _free(layout.sliced, fold=folding.fold_slice),
    "Gather": _free(layout.gather, fold=folding.fold_gather),
    "Expand": _free(layout.expand, fold=folding.fold_expand),
    "Tile": _free(layout.tile, fold=folding.fold_tile, moves=False),
    "GatherElements": _free(lambda op: [op.shape(1)], moves=False),
    "GatherND": _free(layout.gather_nd, moves=False),
    "Pad": _free(layout.pad, moves=False),
    "DepthToSpace": _free(layout.depth_to_space, moves=False),
    "SpaceToDepth": _free(layout.space_to_depth, moves=False),
    "Compress": _free(layout.compress, moves=False),
    "OneHot": _free(layout.one_hot, like(2), moves=False),
    "Range": _free(layout.range_length, fold=folding.fold_range, moves=False),
    "ConstantOfShape": _free(
        layout.constant_of_shape, layout.filled_type, fold=folding.fold_filled, moves=False
    ),
    "Shape": _free(layout.shape_of, INT64, fold=folding.fold_shape, moves=False),
    "Size": _free(lambda op: [()], INT64, fold=folding.fold_size, moves=False),
    "NonZero": _free(layout.non_zero, INT64, moves=False),
    "AffineGrid": _free(layout.affine_grid, moves=False),
    "Col2Im": _free(layout.col2im, moves=False),
    "CenterCropPad": _free(layout.center_crop_pad, moves=False),
    "Unique": Operator(
        ShapeRule(layout.unique, (T0, INT64)), not_costed("how it searches is left to the runtime")
    ),
    "NonMaxSuppression": Operator(
        ShapeRule(lambda op: [(None, 3)], (INT64,)),
        not_costed("the number of boxes compared is data (onnx_tool: 0)", as_onnx_tool=zero),
    ),
    "TfIdfVectorizer": Operator(
        ShapeRule(layout.tf_idf, (FLOAT,)), not_costed("depends on the length of texts")
    ),
}
