"""Which GPUs a process sees and uses: by variables, by its container, by torch.

The torch here is a replacement: a real one needs a GPU.
"""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from otel_quant.capture.probes.gpu import with_torch_memory
from otel_quant.capture.probes.gpu_devices import select_visible
from otel_quant.schema.records import GpuReading

READINGS = (GpuReading(0, "GPU-aa", "A", 10), GpuReading(1, "GPU-bb", "B", 20))


class Cuda(ModuleType):
    """``torch.cuda`` of a process with two devices; any other attribute is an error."""

    def __init__(self, uuids: list[str | None], initialized: bool = True) -> None:
        super().__init__("torch.cuda")
        self._uuids = uuids
        self._initialized = initialized

    def is_initialized(self) -> bool:
        return self._initialized

    def device_count(self) -> int:
        return len(self._uuids)

    def get_device_properties(self, position: int) -> Any:
        uuid = self._uuids[position]
        return SimpleNamespace() if uuid is None else SimpleNamespace(uuid=uuid)

    def memory_stats_as_nested_dict(self, position: int) -> dict[str, Any]:
        return {
            "allocated_bytes": {"all": {"current": 100 + position, "peak": 999}},
            "reserved_bytes": {"all": {"current": 200 + position, "peak": 999}},
        }


def loaded(cuda: ModuleType, hip: str | None = None) -> dict[str, ModuleType]:
    torch = ModuleType("torch")
    torch.version = SimpleNamespace(hip=hip)
    return {"torch": torch, "torch.cuda": cuda}


def with_figures(*positions: int | None) -> tuple[GpuReading, ...]:
    return tuple(
        r if p is None else replace(r, torch_allocated=100 + p, torch_reserved=200 + p)
        for r, p in zip(READINGS, positions, strict=True)
    )


@pytest.mark.parametrize(
    ("uuids", "positions"),
    [
        pytest.param(["aa", "bb"], (0, 1), id="same order"),
        pytest.param(["bb", "aa"], (1, 0), id="CUDA puts the fastest device first"),
        pytest.param(["bb"], (None, 0), id="torch sees one of them"),
        pytest.param([None, None], (0, 1), id="torch has no UUIDs"),
        pytest.param([None], (0, None), id="torch has no UUIDs and sees one"),
    ],
)
def test_values_are_assigned_to_their_device(
    uuids: list[str | None], positions: tuple[int | None, ...]
) -> None:
    assert with_torch_memory(READINGS, "cuda", loaded(Cuda(uuids))) == with_figures(*positions)


@pytest.mark.parametrize(
    "modules",
    [
        pytest.param({}, id="not imported"),
        pytest.param({"torch": ModuleType("torch")}, id="half imported"),
        pytest.param(loaded(ModuleType("torch.cuda")), id="torch.cuda half imported"),
        pytest.param(
            {"torch": ModuleType("torch"), "torch.cuda": Cuda(["aa", "bb"])},
            id="no torch.version yet",
        ),
        pytest.param(loaded(Cuda(["aa", "bb"], initialized=False)), id="CUDA not started"),
        pytest.param(loaded(Cuda(["aa", "bb"]), hip="6.2"), id="built for the other vendor"),
    ],
)
def test_a_torch_that_does_not_use_a_gpu_is_not_called(modules: dict[str, ModuleType]) -> None:
    assert with_torch_memory(READINGS, "cuda", modules) == READINGS


def test_an_allocator_without_counters_gives_no_figures() -> None:
    class Pluggable(Cuda):
        def memory_stats_as_nested_dict(self, position: int) -> dict[str, Any]:
            raise RuntimeError("the allocator of the program does not support memory stats")

    assert with_torch_memory(READINGS, "cuda", loaded(Pluggable(["aa", "bb"]))) == READINGS


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
def test_the_selected_devices_are_the_devices_of_cuda(
    value: str | None, selected: tuple[int, ...]
) -> None:
    assert select_visible(value, 3, NAMES) == selected
