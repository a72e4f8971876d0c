"""The visible AMD devices, from the kernel's files.

Devices are filtered by ``ROCR_VISIBLE_DEVICES`` and then by ``HIP_VISIBLE_DEVICES`` (``CUDA_VISIBLE_DEVICES`` if
that is not set), as the runtimes under torch and ONNX Runtime do. They are numbered as the ROCm runtime numbers them:
in the order of the kernel's compute topology, or by PCI address where there is none. A device whose memory the kernel
does not show, such as a partition of an MI300, keeps its number and has no reading.

``amdsmi`` is not asked: it reads the same files, and a second copy of its library beside the one in a ROCm build of
torch can make torch find no GPU (ROCm/TheRock issue 2269, pytorch issue 186516).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Final

from otel_quant.base.kernel_files import open_files, read_proc, text_of
from otel_quant.capture.probes.gpu_devices import Device, Devices, Ours, select_visible
from otel_quant.schema.readings import GpuReading

_ACTIVITY: Final[Mapping[str, tuple[float, tuple[str, ...]]]] = {
    "utilization": (1e-2, ("gpu_busy_percent",)),
    "power": (1e-6, ("hwmon/hwmon*/power1_average", "hwmon/hwmon*/power1_input")),
    "temperature": (1e-3, ("hwmon/hwmon*/temp1_input",)),
    "clock": (1, ("hwmon/hwmon*/freq1_input",)),
    "memory_clock": (1, ("hwmon/hwmon*/freq2_input",)),
}
"""By field of :class:`GpuActivity`, the factor from the file's unit to ours, and the file below the
device's folder; of two a device has one. What slows a device down is only in a binary table whose layout changes with the device."""


_FIELD: Final = re.compile(r"^[ \t]*(\S+?)[ \t]*:[ \t]*(.*?)[ \t]*$", re.MULTILINE)
"""A line of ``/proc/PID/fdinfo``."""

_UNITS: Final = {"": 1, "KiB": 1024, "MiB": 1024**2}

_VRAM: Final = re.compile(r"drm-(resident|memory)-vram[0-9]*")
"""The keys; older kernels have the second name alone, newer ones both for the same. A device of several parts has a number for each."""


def vram_by_device(root: Path, pids: Collection[int]) -> Mapping[str, Counter[int]] | None:
    """Sums the memory of each process by device, of ``/proc/PID/fdinfo``; a client that shows in several files counts once."""
    sums: dict[str, Counter[int]] = defaultdict(Counter)
    try:
        clients = dict(_clients(root, pids))
    except (OSError, ValueError, KeyError):  # no permission, or the kernel does not show the figure
        return None
    for (address, _), (pid, size) in clients.items():
        sums[address][pid] += size
    return sums


def _clients(
    root: Path, pids: Collection[int]
) -> Iterator[tuple[tuple[str, str], tuple[int, int]]]:
    """Yields PCI address and id of each client of a driver, with its process and the bytes of its memory."""
    for pid in pids:
        for number in _gpu_files(f"{root}/proc/{pid}/fd"):
            try:
                text = Path(f"{root}/proc/{pid}/fdinfo/{number}").read_text("utf-8")
            except (FileNotFoundError, ProcessLookupError):
                continue  # closed meanwhile
            info = dict(_FIELD.findall(text))
            if info["drm-driver"] == "amdgpu":
                client = info.get("drm-client-id", f"{pid}/{number}")
                yield (info["drm-pdev"], client), (pid, _vram_of(info))


def _vram_of(info: Mapping[str, str]) -> int:
    """Returns the memory of a client, in bytes."""
    sums = Counter[str]()
    for key, value in info.items():
        if (found := _VRAM.fullmatch(key)) is not None:
            size, _, unit = value.partition(" ")
            sums[found[1]] += int(size) * _UNITS[unit]
    return sums["resident"] if "resident" in sums else sums.pop("memory")


def _gpu_files(folder: str) -> list[str]:
    try:
        return [number for number, path in open_files(folder) if path.startswith("/dev/dri/")]
    except FileNotFoundError:
        return []  # it has exited


_CARD: Final = re.compile(r"card\d+")
_PROPERTY: Final = re.compile(r"^\s*(\S+)\s+(\d+)\s*$", re.MULTILINE)


class AmdDevices(Devices):
    """The visible AMD devices. Made by :func:`open_amd`."""

    platform = "hip"
    source = "amdgpu"
    errors = (OSError, ValueError, StopIteration)  # there is no such file
    activities = _ACTIVITY
    energy = (1e-6, ("hwmon/hwmon*/energy1_input",))

    def __init__(self, devices: tuple[Device, ...], root: Path) -> None:
        super().__init__(devices)
        self._root = root
        self._by_device: Callable[[], Mapping[str, Counter[int]] | None]

    def read(self, pids: Collection[int], is_brief: bool = False) -> tuple[GpuReading, ...]:
        """Reads the devices, and how much of their memory processes use; briefly, between two checkpoints."""
        self._by_device = cache(partial(vram_by_device, self._root, pids))
        return super().read(pids, is_brief)

    def memory(self, device: Device) -> tuple[int, int | None]:
        """Reads the memory of a device that is in use, and what programs can have of it."""
        return int(read_proc(f"{device.handle}/mem_info_vram_used")), device.limit

    def ours(self, device: Device, pids: Collection[int]) -> Ours:
        """Returns how much memory of a device processes use."""
        by_device = self._by_device()
        if by_device is None:
            return Ours(None, 0)
        sizes = by_device.get(device.id, Counter[int]())
        return Ours(sizes.total(), len(sizes))

    def activity(self, device: Device, how: tuple[float, tuple[str, ...]]) -> float:
        """Reads a field of what a device does or counts, in the way of :attr:`activities`."""
        factor, patterns = how
        path = next(path for pattern in patterns for path in device.handle.glob(pattern))
        return int(read_proc(str(path))) * factor


def open_amd(environ: Mapping[str, str], root: Path = Path("/")) -> AmdDevices | None:
    """Finds the AMD devices, if there are any."""
    cards = _cards(root)
    if not cards:
        return None
    devices = tuple(
        cards.get(address) or Device(f"AMD GPU {address}", id=address)
        for address in _compute_order(root) or sorted(cards)
    )
    return AmdDevices(_visible_amd(devices, environ), root)


def _cards(root: Path) -> dict[str, Device]:
    """Lists the GPUs whose memory the kernel shows, by PCI address."""
    devices = {}
    for card in (root / "sys/class/drm").glob("card*"):
        total = text_of(card / "device/mem_info_vram_total")
        if _CARD.fullmatch(card.name) and total.isdigit():
            folder = (card / "device").resolve()
            unique_id = text_of(folder / "unique_id")  # 16 hexadecimal digits
            devices[folder.name] = Device(
                f"AMD GPU {folder.name}",
                handle=folder,
                id=folder.name,
                name=text_of(folder / "product_name") or None,  # of server cards
                limit=int(total),
                aliases=(f"GPU-{unique_id}",) if unique_id else (),
            )
    return devices


def _compute_order(root: Path) -> list[str]:
    """Lists the PCI addresses of the compute devices (bus, device, function: 8, 5, 3 bits) in the ROCm runtime's order."""
    folder, addresses = root / "sys/class/kfd/kfd/topology/nodes", []
    for node in sorted(int(each.name) for each in folder.glob("*") if each.name.isdigit()):
        # Unreadable if this container may not use the device: the runtime skips it as well.
        found = _PROPERTY.findall(text_of(folder / str(node) / "properties"))
        values = {name: int(value) for name, value in found}
        if values.get("simd_count") and "location_id" in values:
            location = values["location_id"]
            bus, device, function = location >> 8 & 0xFF, location >> 3 & 0x1F, location & 0x7
            addresses.append(f"{values.get('domain', 0):04x}:{bus:02x}:{device:02x}.{function:x}")
    return addresses


def _visible_amd(devices: tuple[Device, ...], environ: Mapping[str, str]) -> tuple[Device, ...]:
    hip = environ.get("HIP_VISIBLE_DEVICES", environ.get("CUDA_VISIBLE_DEVICES"))
    for selection in (environ.get("ROCR_VISIBLE_DEVICES"), hip):
        names = {alias: number for number, each in enumerate(devices) for alias in each.aliases}
        devices = tuple(devices[n] for n in select_visible(selection, len(devices), names))
    return devices
