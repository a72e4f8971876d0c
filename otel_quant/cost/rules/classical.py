"""Operators of ONNX's domain for classical machine learning, ``ai.onnx.ml``.

Their weights are attributes: a model of them has MACs and next to no parameters.
"""

from __future__ import annotations

from math import prod
from typing import Final

from otel_quant.cost.operation import Operation, known
from otel_quant.cost.rules.formula import (
    ADD,
    CMP,
    DIV,
    EXP,
    FREE,
    LOG,
    MUL,
    SOFTMAX,
    SQRT,
    TANH,
    CostRule,
    Formula,
    added,
    per_output,
)
from otel_quant.cost.rules.operator import Operator
from otel_quant.cost.shapes import classical as shapes
from otel_quant.cost.shapes.classical import length
from otel_quant.cost.shapes.rule import FLOAT, SAME, T0, ShapeRule, ShapesOf, TypeOf, same_shape

_PROBIT: Final = LOG + 2 * SQRT + 8
"""Winitzki's approximation of the inverse error function."""

_TRANSFORMS: Final = {
    "NONE": 0,
    "SOFTMAX": SOFTMAX,
    "LOGISTIC": EXP,
    "SOFTMAX_ZERO": SOFTMAX,
    "PROBIT": _PROBIT,
}
_KERNELS: Final = {"LINEAR": 0, "POLY": MUL + ADD + EXP, "RBF": MUL + EXP, "SIGMOID": 2 + TANH}
_NORMS: Final = {"MAX": CMP + DIV, "L1": CMP + ADD + DIV, "L2": MUL + DIV}


def _rows(op: Operation) -> int:
    return known((shapes.rows(op),), "operand 0", op.input(0).unknown)[0]


def _coefficients(op: Operation) -> int:
    return _rows(op) * length(op, "coefficients")


def _transformed(i: int, bias: str = "") -> Formula:
    """A bias and the transform behind it for each element of result ``i``."""

    def macs(op: Operation) -> int:
        per_score = op.attr_choice("post_transform", "NONE", _TRANSFORMS)
        return (per_score + (1 if bias and length(op, bias) else 0)) * op.out_size(i)

    return macs


def _tree_transformed(op: Operation) -> int:
    """TreeEnsemble numbers the transforms."""
    return tuple(_TRANSFORMS.values())[op.attr("post_transform", 0)] * op.out_size()


def _vectors(op: Operation) -> int:
    """Every support vector with the row, then every coefficient with what a kernel made of it."""
    return _rows(op) * (length(op, "support_vectors") + length(op, "coefficients"))


def _kernel(op: Operation) -> int:
    """The kernel's function of each vector; RBF takes the vector away from the row first."""
    name = op.attr_str("kernel_type", "LINEAR")
    count = op.attr("n_supports", 0) or sum(op.attr_ints("vectors_per_class") or ())
    per_row = count * op.attr_choice("kernel_type", "LINEAR", _KERNELS)
    if name == "RBF":
        per_row += length(op, "support_vectors")
    return _rows(op) * (per_row + length(op, "rho"))


def _normalized(op: Operation) -> int:
    per_element = op.attr_choice("norm", "MAX", _NORMS)
    root = SQRT * _rows(op) if op.attr_str("norm", "MAX") == "L2" else 0
    return per_element * prod(op.dims(0)) + root


def _free(shape: ShapesOf, of: TypeOf) -> Operator:
    return Operator(ShapeRule(shape, (of,)), FREE)


_CLASSES: Final = ShapeRule(shapes.classes, (shapes.label_type, FLOAT))
_FLOATS: Final = ShapeRule(same_shape, (FLOAT,))
_LINEAR: Final = "rows * |coefficients|; intercepts, transform"
_SVM: Final = "rows * (|support vectors| + |coefficients|); kernel, transform"
_TREES: Final = "comparisons on paths that the data choose are left out; transform"

TABLE: Final[dict[str, Operator]] = {
    "LinearClassifier": Operator(
        _CLASSES, CostRule(_LINEAR, _coefficients, _transformed(1, "intercepts"))
    ),
    "LinearRegressor": Operator(
        ShapeRule(shapes.by_target("targets"), (FLOAT,)),
        CostRule(_LINEAR, _coefficients, _transformed(0, "intercepts")),
    ),
    "SVMClassifier": Operator(
        ShapeRule(shapes.svm_classes, (shapes.label_type, FLOAT)),
        CostRule(_SVM, _vectors, added(_kernel, _transformed(1))),
    ),
    "SVMRegressor": Operator(
        ShapeRule(lambda op: [(shapes.rows(op), 1)], (FLOAT,)),
        CostRule(_SVM, _vectors, added(_kernel, _transformed(0))),
    ),
    "TreeEnsemble": Operator(
        ShapeRule(shapes.by_target("n_targets"), (T0,)), CostRule(_TREES, rest=_tree_transformed)
    ),
    "TreeEnsembleClassifier": Operator(_CLASSES, CostRule(_TREES, rest=_transformed(1))),
    "TreeEnsembleRegressor": Operator(
        ShapeRule(shapes.by_target("n_targets"), (FLOAT,)), CostRule(_TREES, rest=_transformed(0))
    ),
    "Scaler": Operator(_FLOATS, CostRule("2 per result", rest=per_output(ADD + MUL))),
    "Normalizer": Operator(
        _FLOATS,
        CostRule("maximum 5, L1 6, L2 5 per element and a square root per row", rest=_normalized),
    ),
    "Binarizer": Operator(SAME, CostRule("1 per result", rest=per_output(CMP))),
    "Imputer": Operator(SAME, CostRule("1 per result", rest=per_output(CMP))),
    "ArrayFeatureExtractor": _free(shapes.picked, T0),
    "FeatureVectorizer": _free(shapes.joined, FLOAT),
    "OneHotEncoder": _free(shapes.one_hot, FLOAT),
    "LabelEncoder": _free(same_shape, shapes.encoded_type),
    "CategoryMapper": _free(same_shape, shapes.category_type),
    "CastMap": _free(shapes.map_values, shapes.map_type),
    "DictVectorizer": _free(shapes.vocabulary, FLOAT),
    "ZipMap": Operator(ShapeRule(lambda op: (), (), shapes.maps), FREE),
}
