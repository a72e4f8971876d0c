"""The items of a batch are counted where the first dimension of its arrays tells, and only there."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest

from otel_quant.capture.instruments.samples import items_in

IMAGES, LABELS = np.zeros((8, 3, 4, 4)), np.zeros(8)


class OrtValue:
    """Says its shape by a method, as onnxruntime's does."""

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
def test_first_dimension_that_all_arrays_share_is_the_number_of_items(
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
def test_batch_that_does_not_tell_has_no_number(batch: Any) -> None:
    assert items_in(batch) is None
