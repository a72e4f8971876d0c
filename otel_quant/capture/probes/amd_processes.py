"""GPU memory of processes, as the kernel's DRM drivers show it in ``/proc/PID/fdinfo``.

Each open file of a GPU belongs to a client of the driver; ``drm-memory-vram`` is the memory
that the client uses on the device ``drm-pdev``. Duplicated and inherited files show the same
client: it is counted once for each device.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

_UNITS: Final = {"": 1, "KiB": 1024, "MiB": 1024**2}

_VRAM: Final = ("drm-memory-vram", "drm-resident-vram")
"""The key; newer kernels use the second name."""


def vram_by_device(root: Path, pids: Collection[int]) -> Mapping[str, int] | None:
    """Sums the device memory that processes use on AMD GPUs."""
    clients: dict[tuple[str, str], int] = {}
    try:
        for pid in pids:
            for number in _gpu_files(f"{root}/proc/{pid}/fd"):
                _add_client(clients, Path(f"{root}/proc/{pid}/fdinfo/{number}"), pid, number)
    except (OSError, ValueError):  # no permission, or the kernel does not show the figure
        return None
    sums: dict[str, int] = {}
    for (address, _), size in clients.items():
        sums[address] = sums.get(address, 0) + size
    return sums


def _gpu_files(folder: str) -> list[str]:
    try:
        numbers = os.listdir(folder)  # noqa: PTH208  # pathlib takes ten times as long
    except FileNotFoundError:
        return []  # it has exited
    files = []
    for number in numbers:
        try:
            target = os.readlink(f"{folder}/{number}")  # noqa: PTH115  # same reason
        except FileNotFoundError:
            continue  # closed meanwhile
        if target.startswith("/dev/dri/"):
            files.append(number)
    return files


def _add_client(clients: dict[tuple[str, str], int], fdinfo: Path, pid: int, number: str) -> None:
    try:
        lines = fdinfo.read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return  # closed meanwhile
    pairs = (line.partition(":") for line in lines)
    info = {key.strip(): value.strip() for key, _, value in pairs}
    driver = info.get("drm-driver")
    if driver not in (None, "amdgpu"):
        return
    figure = next((info[key] for key in _VRAM if key in info), None)
    if driver is None or figure is None or "drm-pdev" not in info:
        raise ValueError(f"{fdinfo} has no {_VRAM[0]}")
    client = info.get("drm-client-id", f"{pid}/{number}")
    clients[info["drm-pdev"], client] = _bytes(figure)


def _bytes(figure: str) -> int:
    number, _, unit = figure.partition(" ")
    if unit not in _UNITS:
        raise ValueError(f"unknown size {figure!r}; expected a number, alone or with KiB or MiB")
    return int(number) * _UNITS[unit]
