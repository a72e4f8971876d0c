"""Memory of AMD GPUs, from the program's ``amdsmi`` if it is loaded, else from the kernel's files.

Devices are filtered by ``ROCR_VISIBLE_DEVICES`` and then by ``HIP_VISIBLE_DEVICES``
(``CUDA_VISIBLE_DEVICES`` if that is not set), as the runtimes under torch and ONNX Runtime do.
They are numbered as the ROCm runtime numbers them: in the order of the kernel's compute
topology, or by PCI address where there is none. A device whose memory the kernel does not
show, such as a partition of an MI300, keeps its number and has no reading.

The process tree's memory comes from the kernel's files in both cases: ``amdsmi`` would read
the same files, but of every process on the machine.

`amdsmi` is asked only where the program has loaded it: a second copy beside the one of a ROCm build of
torch can make torch find no GPU.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from otel_quant.base.kernel_files import open_files, read_proc
from otel_quant.base.log import LOG
from otel_quant.capture.probes.visible_devices import select_visible
from otel_quant.schema.records import GpuActivity, GpuReading

_FILES: Final = (
    ("utilization", "gpu_busy_percent", 1e-2),
    ("power", "hwmon/hwmon*/power1_average", 1e-6),
    ("power", "hwmon/hwmon*/power1_input", 1e-6),
    ("temperature", "hwmon/hwmon*/temp1_input", 1e-3),
    ("clock", "hwmon/hwmon*/freq1_input", 1),
    ("memory_clock", "hwmon/hwmon*/freq2_input", 1),
)
"""Field, file below the device's folder, and factor from the file's unit to ours. Of two files of one
field a device has one."""


def read_activity(folder: Path) -> GpuActivity | None:
    """Returns how busy a device is and how hot; None if the kernel shows neither.

    ``amdsmi`` reads the same files. What slows a device down is only in a binary table whose layout changes
    with the device, so it is not read.
    """
    found: dict[str, float] = {}
    for field, pattern, factor in _FILES:
        for path in folder.glob(pattern):
            try:
                value = int(read_proc(str(path)))
            except (OSError, ValueError):
                continue  # the device sleeps, or does not have it
            found.setdefault(field, value * factor)
    if not found:
        return None
    return GpuActivity(
        utilization=found.get("utilization"),
        power=found.get("power"),
        temperature=found.get("temperature"),
        clock=_whole(found.get("clock")),
        memory_clock=_whole(found.get("memory_clock")),
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


_UNITS: Final = {"": 1, "KiB": 1024, "MiB": 1024**2}

_VRAM: Final = ("drm-memory-vram", "drm-resident-vram")
"""The key; newer kernels use the second name."""


def vram_by_device(root: Path, pids: Collection[int]) -> Mapping[str, int] | None:
    """Sums the device memory that processes use on AMD GPUs, as the kernel shows it in ``/proc/PID/fdinfo``.

    Each open file of a GPU belongs to a client of the driver; ``drm-memory-vram`` is the memory that the client
    uses on the device ``drm-pdev``. Duplicated and inherited files show the same client: it is counted once for
    each device.
    """
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
        return [number for number, path in open_files(folder) if path.startswith("/dev/dri/")]
    except FileNotFoundError:
        return []  # it has exited


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


class AmdSmiUnavailableError(Exception):
    """``amdsmi`` could not read a device."""


class AmdSmi:
    """The program's ``amdsmi`` (6.2 and later), if it is loaded. Devices are named by their PCI address.

    We never import it. ROCm builds of torch contain their own copy of its library, and two copies
    in one process can corrupt the heap and make torch find no GPU (ROCm/TheRock issue 2269,
    pytorch issue 186516). We use the program's copy and never shut it down: the program may still
    need it.
    """

    def __init__(self, smi: Any) -> None:
        self._smi = smi
        self._handles = {
            str(smi.amdsmi_get_gpu_device_bdf(handle)).lower(): handle
            for handle in smi.amdsmi_get_processor_handles()
        }

    @classmethod
    def from_loaded_module(cls, modules: Mapping[str, ModuleType] = sys.modules) -> AmdSmi | None:
        """Uses the ``amdsmi`` that the program has loaded."""
        smi: Any = modules.get("amdsmi")
        # The last names that the package's __init__ imports are its exceptions.
        if not hasattr(smi, "AmdSmiException") or not hasattr(smi, "amdsmi_init"):
            return None
        try:
            smi.amdsmi_init(smi.AmdSmiInitFlags.INIT_AMD_GPUS)
            return cls(smi)
        except smi.AmdSmiException as error:
            LOG.debug("amdsmi does not work here; the kernel's files are read instead: %r", error)
            return None

    def has_device(self, address: str) -> bool:
        """Returns whether it has found the device at a PCI address."""
        return address in self._handles

    def used(self, address: str) -> int:
        """Reads how much memory of a device is in use, in bytes."""
        smi = self._smi
        try:
            return int(
                smi.amdsmi_get_gpu_memory_usage(self._handles[address], smi.AmdSmiMemoryType.VRAM)
            )
        except smi.AmdSmiException as error:
            raise AmdSmiUnavailableError(repr(error)) from error

    def name(self, address: str) -> str | None:
        """Reads the product name of a device; None if it has none."""
        if address not in self._handles:
            return None
        try:
            info = self._smi.amdsmi_get_gpu_asic_info(self._handles[address])
        except self._smi.AmdSmiException:
            return None
        name = str(info.get("market_name", ""))
        return None if name in ("", "N/A") else name


_EVERY: Final = 1.0
"""Seconds between two readings of what a device does: it changes slowly."""

_CARD: Final = re.compile(r"card\d+")


@dataclass(frozen=True, slots=True)
class _Device:
    """A GPU as the kernel shows it."""

    address: str  # PCI address, ``0000:03:00.0``
    folder: Path | None = None  # Its folder in sysfs; None if sysfs does not show its memory
    name: str | None = None  # Product name, on server cards
    unique_id: str | None = None  # Identifier, 16 hexadecimal digits
    limit: int | None = None  # Size of its memory, in bytes


class AmdDevices:
    """The visible AMD devices. Made by :func:`open_amd`."""

    def __init__(self, devices: tuple[_Device, ...], smi: AmdSmi | None, root: Path) -> None:
        self._devices = devices
        self._smi = smi
        self._root = root
        self._logged: set[str] = set()
        self._activities: dict[int, tuple[float, GpuActivity | None]] = {}

    @property
    def count(self) -> int:
        """Number of visible devices, including those that cannot be read."""
        return len(self._devices)

    def read(self, pids: Collection[int]) -> tuple[GpuReading, ...]:
        """Reads the visible devices."""
        if not self._devices:
            return ()
        process_used = vram_by_device(self._root, pids)
        readings = []
        for index, device in enumerate(self._devices):
            used = self._used(device)
            if used is not None:
                readings.append(
                    GpuReading(
                        index=index,
                        id=device.address,
                        name=device.name,
                        used=used,
                        limit=device.limit,
                        process_used=None
                        if process_used is None
                        else process_used.get(device.address, 0),
                        activity=self._activity(index),
                    )
                )
        return tuple(readings)

    def _activity(self, index: int) -> GpuActivity | None:
        now = time.monotonic()
        read_at, activity = self._activities.get(index, (float("-inf"), None))
        if now - read_at >= _EVERY:
            folder = self._devices[index].folder
            activity = read_activity(folder) if folder is not None else None
            self._activities[index] = now, activity
        return activity

    def _used(self, device: _Device) -> int | None:
        if device.folder is None:
            return None
        try:
            if self._smi is not None and self._smi.has_device(device.address):
                return self._smi.used(device.address)
            return int(read_proc(f"{device.folder}/mem_info_vram_used"))
        except (AmdSmiUnavailableError, OSError, ValueError) as error:
            if device.address not in self._logged:
                self._logged.add(device.address)
                LOG.warning(
                    "AMD GPU %s: cannot read memory (left out of the telemetry): %s",
                    device.address,
                    error,
                )
            return None

    def close(self) -> None:
        """Stops reading. Nothing was opened, so there is nothing to close."""
        self._devices = ()


def open_amd(environ: Mapping[str, str], root: Path = Path("/")) -> AmdDevices | None:
    """Finds the AMD devices, if there are any."""
    cards = _cards(root)
    if not cards:
        return None
    order = _compute_order(root) or sorted(cards)
    devices = _visible(tuple(cards.get(address, _Device(address)) for address in order), environ)
    smi = AmdSmi.from_loaded_module() if devices else None
    if smi is not None:
        devices = tuple(
            replace(device, name=device.name or smi.name(device.address)) for device in devices
        )
    return AmdDevices(devices, smi, root)


def _cards(root: Path) -> dict[str, _Device]:
    """Lists the GPUs whose memory the kernel shows, by PCI address."""
    devices = {}
    for card in (root / "sys/class/drm").glob("card*"):
        total = _text(card / "device/mem_info_vram_total")
        if _CARD.fullmatch(card.name) and total is not None and total.isdigit():
            folder = (card / "device").resolve()
            devices[folder.name] = _Device(
                address=folder.name,
                folder=folder,
                name=_text(folder / "product_name") or None,
                unique_id=_text(folder / "unique_id") or None,
                limit=int(total),
            )
    return devices


def _compute_order(root: Path) -> list[str]:
    """Lists the PCI addresses of the compute devices, in the ROCm runtime's order.

    A node's ``location_id`` is its PCI bus, device and function in 8, 5 and 3 bits.
    """
    nodes = [
        node
        for node in (root / "sys/class/kfd/kfd/topology/nodes").glob("*")
        if node.name.isdigit()
    ]
    addresses = []
    for node in sorted(nodes, key=lambda node: int(node.name)):
        # Unreadable if this container may not use the device: the runtime skips it as well.
        lines = (_text(node / "properties") or "").splitlines()
        pairs = (line.split() for line in lines)
        values = {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
        if values.get("simd_count") and "location_id" in values:
            location = values["location_id"]
            bus, device, function = location >> 8 & 0xFF, location >> 3 & 0x1F, location & 0x7
            addresses.append(f"{values.get('domain', 0):04x}:{bus:02x}:{device:02x}.{function:x}")
    return addresses


def _visible(devices: tuple[_Device, ...], environ: Mapping[str, str]) -> tuple[_Device, ...]:
    hip = environ.get("HIP_VISIBLE_DEVICES", environ.get("CUDA_VISIBLE_DEVICES"))
    for selection in (environ.get("ROCR_VISIBLE_DEVICES"), hip):
        names = {
            f"GPU-{device.unique_id}": number
            for number, device in enumerate(devices)
            if device.unique_id
        }
        devices = tuple(devices[n] for n in select_visible(selection, len(devices), names))
    return devices


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
