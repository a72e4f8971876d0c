"""What a ``*_VISIBLE_DEVICES`` variable selects. Device 3 has no position, only a name."""

from __future__ import annotations

import pytest

from otel_quant.capture.probes.gpu_devices import select_visible

NAMES = {"GPU-aa11": 0, "GPU-aa22": 1, "GPU-bb33": 2, "MIG-cc44": 3, "MIG-GPU-bb33/1/0": 3}


@pytest.mark.parametrize(
    ("value", "selected"),
    [
        (None, (0, 1, 2)),
        ("0", (0,)),
        ("2,0", (2, 0)),
        (" 1 , 2 ", (1, 2)),
        ("+1", (1,)),
        ("1gpu,2nd", (1, 2)),
        ("", ()),
        ("-1", ()),
        ("0,2,-1,1", (0, 2)),
        ("0,3,1", (0,)),
        ("0,,1", (0,)),
        ("99999999999999999999", ()),
        ("0,0", ()),
        ("1,GPU-aa11", (1,)),
        ("NoDevFiles", ()),
        ("GPU-bb33,GPU-aa11", (2, 0)),
        ("GPU-b", (2,)),
        ("GPU-aa", ()),
        ("GPU-bb,GPU-aa", (2,)),
        ("GPU-bb33,GPU-b", ()),
        ("GPU-zz,GPU-aa11", ()),
        ("GPU-aa11,0", (0,)),
        ("GPU-aa11,", (0,)),
        ("MIG-cc44", (3,)),
        ("MIG-GPU-bb33/1/0", (3,)),
        ("MIG-GPU-bb33/2/0", ()),
    ],
)
def test_the_selection_is_that_of_cuda(value: str | None, selected: tuple[int, ...]) -> None:
    assert select_visible(value, 3, NAMES) == selected
