"""Operators of ONNX's domain for classical machine learning, ``ai.onnx.ml``.

Where its specification leaves a shape open, it is the one that onnxruntime makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from otel_quant.cost import dtypes
from otel_quant.cost.operation import Operation
from otel_quant.cost.shapes.rule import ShapesOf
from otel_quant.cost.structure import Elided
from otel_quant.cost.values import Shape, Value


def length(op: Operation, *names: str) -> int:
    """Returns the elements of the first of these attributes that is a list; 0 if none is."""
    for name in names:
        value = op.attributes.get(name)
        if isinstance(value, Elided):
            return value.length
        if isinstance(value, tuple):
            return len(value)
    return 0


def rows(op: Operation) -> int | None:
    """Returns the number of rows; a vector is one."""
    shape = op.shape(0)
    return shape[0] if len(shape) > 1 else 1


LABELS: Final = ("classlabels_ints", "classlabels_int64s", "classlabels_strings")


def by_target(attribute: str) -> ShapesOf:
    """A column for each target, of which an attribute gives the number; one without it."""
    return lambda op: [(rows(op), op.attr(attribute, 1))]


def classes(op: Operation) -> Sequence[Shape]:
    """A label for each row, and a score for each class."""
    return [(rows(op),), (rows(op), length(op, *LABELS))]


def svm_classes(op: Operation) -> Sequence[Shape]:
    """As :func:`classes`, but a raw score for each pair of more than two classes."""
    count = length(op, *LABELS)
    if count > 2 and length(op, "vectors_per_class") and not length(op, "prob_a"):
        count = count * (count - 1) // 2
    return [(rows(op),), (rows(op), count)]


def label_type(op: Operation) -> int:
    """Labels are texts where the classes are."""
    return dtypes.STRING if length(op, "classlabels_strings") else dtypes.INT64


def picked(op: Operation) -> Sequence[Shape]:
    """ArrayFeatureExtractor: columns by index; a vector is one row."""
    shape, index = op.shape(0, 1), op.shape(1, 1)
    return [(*(shape[:-1] or (1,)), index[-1])]


def joined(op: Operation) -> Sequence[Shape]:
    """FeatureVectorizer: columns side by side."""
    widths = [op.shape(i, 1)[-1] for i in range(len(op.inputs))]
    known = [width for width in widths if width is not None]
    return [(rows(op), sum(known) if len(known) == len(widths) else None)]


def one_hot(op: Operation) -> Sequence[Shape]:
    """OneHotEncoder: a column for each category behind each element."""
    return [(*op.shape(0), length(op, "cats_int64s", "cats_strings"))]


def vocabulary(op: Operation) -> Sequence[Shape]:
    """DictVectorizer: a column for each word."""
    return [(1, length(op, "int64_vocabulary", "string_vocabulary"))]


def map_values(op: Operation) -> Sequence[Shape]:
    """CastMap: a column for each value of a map, or for each key that it may have."""
    return [(1, op.attr("max_map", 1) if op.attr_str("map_form", "DENSE") == "SPARSE" else None)]


def map_type(op: Operation) -> int:
    """CastMap: the type that ``cast_to`` names."""
    names = {"TO_FLOAT": dtypes.FLOAT, "TO_INT64": dtypes.INT64, "TO_STRING": dtypes.STRING}
    return op.attr_choice("cast_to", "TO_FLOAT", names)


def category_type(op: Operation) -> int:
    """CategoryMapper: texts of integers, and integers of texts."""
    return dtypes.INT64 if op.dtype(0) == dtypes.STRING else dtypes.STRING


_VALUES: Final = {
    "values_strings": dtypes.STRING,
    "values_int64s": dtypes.INT64,
    "values_floats": dtypes.FLOAT,
}


def encoded_type(op: Operation) -> int:
    """LabelEncoder: the type of its values; in version 1 integers of texts, or the reverse."""
    for name, dtype in _VALUES.items():
        if name in op.attributes:
            return dtype
    tensor = op.attr_tensor("values_tensor")
    return category_type(op) if tensor is None else tensor.dtype


def maps(op: Operation) -> list[Value]:
    """ZipMap: a map for each row."""
    return [Value(kind="sequence")]
