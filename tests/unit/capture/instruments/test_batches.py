"""The items of a batch are counted only if the first dimension of its arrays shows their number."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest

from otel_quant.capture.instruments.samples import items_in

IMAGES, LABELS = np.zeros((8, 3, 4, 4)), np.zeros(8)


class OrtValue:
    """Returns its shape from a method, as onnxruntime's does."""

    def shape(self) -> list[int]:
        return [8, 3]


@pytest.mark.parametrize(
    ("batch", "items"),
    [
        (IMAGES, 8),
        (np.zeros((0, 3)), 0),
        ({"x": IMAGES}, 8),
        ({"x": IMAGES, "y": LABELS, "scale": np.float32(1), "name": "first"}, 8),
        (collections.UserDict(tokens=np.zeros((2, 512)), mask=np.zeros((2, 512))), 2),
        ([IMAGES], 8),
        ([IMAGES, LABELS], 8),
        ((IMAGES, LABELS), 8),
        (({"x": IMAGES}, LABELS), 8),
        ([IMAGES, ["a label"] * 8], 8),
    ],
)
def test_the_number_of_items_is_the_shared_first_dimension_of_the_arrays(
    batch: Any, items: int
) -> None:
    assert items_in(batch) == items


@pytest.mark.parametrize(
    "batch",
    [
        None,
        "text",
        7,
        np.float32(1),
        OrtValue(),
        [],
        {},
        ["a text", "another"],
        {"x": IMAGES, "y": np.zeros(7)},
        [np.zeros((3, 4, 4))] * 8,  # eight images with three channels, or eight inputs
        [np.zeros((3, 4, 4)), np.zeros((3, 5, 5))],
        [{"x": np.zeros((3, 4, 4))}] * 8,
        [LABELS] * 100,
        [1.5] * 100_000,
    ],
)
def test_a_batch_without_a_clear_size_has_no_number_of_items(batch: Any) -> None:
    assert items_in(batch) is None
