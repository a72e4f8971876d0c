"""What a model is fed: given arrays that fit, given values, or random numbers, the same each time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from otel_quant.inference.onnx_session import MisfitError, feeds

NOTHING_GIVEN: Mapping[str, Any] = {"values": {}, "data": None}


def _inputs(**types: str) -> list[Any]:
    """Returns inputs as a session of onnxruntime has them, each of 4x500 numbers."""
    return [
        SimpleNamespace(name=name, type=f"tensor({kind})", shape=[4, 500])
        for name, kind in types.items()
    ]


def _fed(inputs: list[Any], **more: Any) -> Mapping[str, Any]:
    shapes = {each.name: tuple(each.shape) for each in inputs}
    return feeds(inputs, {"shapes": shapes, **NOTHING_GIVEN, **more})


@pytest.mark.parametrize(
    ("kind", "dtype", "lowest", "highest"),
    [
        ("uint8", "uint8", 0, 255),
        ("int8", "int8", -128, 127),
        ("int32", "int32", 0, 1),
        ("int64", "int64", 0, 1),
        ("uint16", "uint16", 0, 1),
        ("bool", "bool", False, True),
    ],
)
def test_integers_are_in_the_range_of_their_meaning(
    kind: str, dtype: str, lowest: int, highest: int
) -> None:
    [array] = _fed(_inputs(x=kind)).values()
    assert (str(array.dtype), array.shape) == (dtype, (4, 500))
    assert (array.min(), array.max()) == (lowest, highest)


@pytest.mark.parametrize(
    ("kind", "dtype"), [("float", "float32"), ("double", "float64"), ("float16", "float16")]
)
def test_floats_are_normal_and_the_same_for_an_input_of_the_same_name(
    kind: str, dtype: str
) -> None:
    found, again = (_fed(_inputs(x=kind, y=kind)) for _ in range(2))
    assert {name: str(each.dtype) for name, each in found.items()} == {"x": dtype, "y": dtype}
    assert all((found[name] == again[name]).all() for name in "xy")
    assert (found["x"] != found["y"]).any()
    assert abs(float(found["x"].mean())) < 0.1
    assert 0.9 < float(found["x"].std()) < 1.1


def test_given_values_are_used() -> None:
    inputs = [SimpleNamespace(name="n", type="tensor(int64)", shape=[2, 1])]
    assert _fed(inputs, values={"n": (7, 9)})["n"].tolist() == [[7], [9]]


@pytest.mark.parametrize(
    ("inputs", "arrays", "problem"),
    [
        ({"x": "string"}, None, "input 'x' is tensor(string); expected tensors of numbers"),
        (
            {"x": "float", "y": "float"},
            {"x": np.ones((4, 500), np.float32)},
            "{path} has no 'y', which the model takes",
        ),
    ],
)
def test_values_that_do_not_fit_raise_an_error(
    inputs: dict[str, str], arrays: dict[str, Any] | None, problem: str, tmp_path: Path
) -> None:
    path = None
    if arrays is not None:
        path = str(tmp_path / "inputs.npz")
        np.savez(path, **arrays)
    with pytest.raises(MisfitError, match=f"^{re.escape(problem.format(path=path))}$"):
        _fed(_inputs(**inputs), data=path)
