"""The GPUs that a process can see, as NVIDIA's driver and, for AMD, the kernel's files show them.

Which ones a ``*_VISIBLE_DEVICES`` variable leaves visible, and in which order: CUDA, HIP and the ROCm runtime
share the grammar, a comma-separated list of either positions or identifiers. An entry that names no device ends the
list; the entries before it count. A device that is named twice makes the list empty. As in those runtimes, only the
leading digits of a position count (``1gpu`` is 1), and the start of an identifier is enough if only one device's
identifier starts with it.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import logging
import re
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from otel_quant.base.kernel_files import open_files, read_proc
from otel_quant.base.log import LOG
from otel_quant.schema.readings import GpuActivity, GpuReading

_EVERY: Final = 1.0
"""Seconds between two readings of what a device does: it changes slowly, and some drivers take a
millisecond for it."""

_POSITION: Final = re.compile(r"\s*\+?(\d+)")


@dataclass(slots=True)
class Device:
    """A GPU as its driver shows it."""

    label: str  # Its name in the log
    handle: Any = None  # What the driver is asked with; None of a device that cannot be read
    id: str = ""  # UUID, or PCI address
    name: str | None = None  # Product name
    limit: int | None = None  # Size of its memory in bytes, where that is read once
    aliases: tuple[str, ...] = ()  # All identifiers that a variable may use for it
    activity: GpuActivity | None = None
    activity_at: float = float("-inf")  # Monotonic clock when that was read, in seconds
    logged: set[str] = field(default_factory=set)  # What could not be read


class Devices(ABC):
    """The visible devices of one vendor; one that fails is left out of the readings, and keeps its number."""

    errors: tuple[type[Exception], ...]
    """What the methods below raise where a figure cannot be read."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices = devices

    @property
    def count(self) -> int:
        """Number of visible devices, including those that cannot be read."""
        return len(self._devices)

    @property
    def readable(self) -> int:
        """Number of devices that can be read, including those that fail for the moment."""
        return sum(device.handle is not None for device in self._devices)

    def read(self, pids: Collection[int]) -> tuple[GpuReading, ...]:
        """Reads the devices, and how much of their memory processes use."""
        readings = []
        for index, device in enumerate(self._devices):
            memory = self._tried("memory", self.memory, device)
            if memory is not None:
                now = time.monotonic()
                if now - device.activity_at >= _EVERY:
                    device.activity, device.activity_at = self._activity_of(device), now
                process_used = self._tried("processes", self.process_used, device, pids)
                used, limit = memory
                reading = GpuReading(
                    index, device.id, device.name, used, limit, process_used,
                    activity=device.activity,
                )  # fmt: skip
                readings.append(reading)
        return tuple(readings)

    @abstractmethod
    def memory(self, device: Device) -> tuple[int, int | None]:
        """Reads the memory of a device that is in use, and its size."""

    @abstractmethod
    def process_used(self, device: Device, pids: Collection[int]) -> int | None:
        """Reads how much memory of a device processes use; None if it is not known."""

    @abstractmethod
    def activity(self, device: Device) -> Mapping[str, Callable[[], Any]]:
        """Returns what reads each field of what a device does."""

    def _tried(self, what: str, read: Callable[..., Any], device: Device, *more: Any) -> Any:
        if device.handle is None:
            return None
        try:
            return read(device, *more)
        except self.errors as error:
            is_unsupported = self.is_unsupported(error)
            if is_unsupported and what == "memory":
                device.handle = None
            if what not in device.logged:
                device.logged.add(what)
                LOG.log(
                    logging.DEBUG if is_unsupported else logging.WARNING,
                    "%s: cannot read %s (left out of the telemetry): %s",
                    device.label,
                    what,
                    error,
                )
            return None

    def is_unsupported(self, error: Any) -> bool:
        """Whether one of these errors means that the device never has the figure."""
        return False

    def _activity_of(self, device: Device) -> GpuActivity | None:
        found = {}
        for name, read in self.activity(device).items():
            try:
                found[name] = read()
            except self.errors:
                continue  # the device sleeps, or does not have it
        return GpuActivity(**found) if found else None


def select_visible(value: str | None, count: int, names: Mapping[str, int]) -> tuple[int, ...]:
    """Reads a variable such as ``CUDA_VISIBLE_DEVICES``."""
    if value is None:
        return tuple(range(count))
    entries = [entry.strip() for entry in value.split(",")]
    by_name = entries[0][:1].isalpha()
    selected: list[int] = []
    for entry in entries:
        number = _named(entry, names) if by_name else _positioned(entry, count)
        if number is None:
            break
        if number in selected:
            return ()
        selected.append(number)
    return tuple(selected)


def _positioned(entry: str, count: int) -> int | None:
    match = _POSITION.match(entry)
    position = count if match is None else int(match.group(1))
    return position if position < count else None


def _named(entry: str, names: Mapping[str, int]) -> int | None:
    if entry in names:
        return names[entry]
    found = {number for name, number in names.items() if entry and name.startswith(entry)}
    return found.pop() if len(found) == 1 else None


# --- NVIDIA -------------------------------------------------------------------------------
#
# From the driver through ``nvidia-ml-py`` (module ``pynvml``). Positions in ``CUDA_VISIBLE_DEVICES`` are taken in PCI
# bus order, as NVML counts and as CUDA does under ``CUDA_DEVICE_ORDER=PCI_BUS_ID``. By default CUDA puts the fastest
# device first, so the two may disagree on a machine with different models; ``GpuReading.id`` identifies the device
# that was read. As in CUDA, a GPU in MIG mode means its first MIG device; other MIG devices are read if they are named.
#
# In some containers the driver lists processes by the ids of another PID namespace, so that ours are never found,
# however much memory they use. So a process that is not listed uses 0 only in the kernel's initial namespace, or once
# one of ours was listed; else memory of the process tree is absent.

INITIAL_PID_NAMESPACE: Final = 0xEFFFFFFC
"""Inode of the namespace that the kernel starts with (``PROC_PID_INIT_INO``)."""


def _is_in_initial_namespace(root: Path) -> bool:
    if sys.platform != "linux":
        return True
    try:
        return (root / "proc/self/ns/pid").stat().st_ino == INITIAL_PID_NAMESPACE
    except OSError:
        return False


_SLOWED_BY: Final = (
    (0x08, "hardware slowdown"),
    (0x20, "heat (by software)"),
    (0x40, "heat (by hardware)"),
    (0x80, "power brake"),
)
"""Bits of NVML's clock event reasons that mean trouble. Being idle, a limit of clocks that
somebody has set and the power cap under load are not."""

_CORE, _SM_CLOCK, _MEMORY_CLOCK, _UNCORRECTED, _SINCE_LOADED = 0, 1, 2, 1, 0

_NVIDIA_ACTIVITY: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "utilization": lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100,
    "power": lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    "temperature": lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, _CORE),
    "clock": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, _SM_CLOCK) * 1_000_000,
    "memory_clock": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, _MEMORY_CLOCK) * 1_000_000,
    "slowed_by": lambda nvml, gpu: _slowed_by(nvml, gpu),
    "memory_errors": lambda nvml, gpu: nvml.nvmlDeviceGetTotalEccErrors(
        gpu, _UNCORRECTED, _SINCE_LOADED
    ),
}
"""How each field of :class:`GpuActivity` is read."""


def _slowed_by(nvml: Any, gpu: Any) -> tuple[str, ...]:
    # The older name is to go with CUDA 14; older drivers know no other.
    older = getattr(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None)
    bits = (older or nvml.nvmlDeviceGetCurrentClocksEventReasons)(gpu)
    return tuple(name for bit, name in _SLOWED_BY if bits & bit)


class NvmlDevices(Devices):
    """The visible NVIDIA devices. Made by :func:`open_nvml`."""

    def __init__(self, nvml: Any, environ: Mapping[str, str], root: Path) -> None:
        super().__init__(_visible_nvidia(nvml, environ.get("CUDA_VISIBLE_DEVICES")))
        self.errors = (nvml.NVMLError,)
        self._nvml = nvml
        self._lists_our_ids = _is_in_initial_namespace(root)
        # With a version: the name without one fails if driver and binding are of different versions.
        self._processes = nvml.nvmlDeviceGetComputeRunningProcesses_v3

    def memory(self, device: Device) -> tuple[int, int]:
        """Reads the memory of a device that is in use, and its size."""
        memory = self._nvml.nvmlDeviceGetMemoryInfo(device.handle)
        return memory.used, memory.total

    def process_used(self, device: Device, pids: Collection[int]) -> int | None:
        """Reads how much memory of a device processes use; None if it is not known."""
        processes = self._processes(device.handle)
        ours = [process.usedGpuMemory for process in processes if process.pid in pids]
        if ours:
            self._lists_our_ids = True
            return None if None in ours else sum(ours)
        return 0 if self._lists_our_ids else None

    def activity(self, device: Device) -> Mapping[str, Callable[[], Any]]:
        """Returns what reads each field of what a device does."""
        return {
            name: functools.partial(query, self._nvml, device.handle)
            for name, query in _NVIDIA_ACTIVITY.items()
        }

    def is_unsupported(self, error: Any) -> bool:
        """Whether an error means that the device never has the figure."""
        return error.value in (
            self._nvml.NVML_ERROR_NOT_SUPPORTED,
            self._nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        )


def open_nvml(environ: Mapping[str, str], root: Path = Path("/")) -> NvmlDevices | None:
    """Opens the NVIDIA driver; ``pynvml`` is imported only if the driver's library exists."""
    if not _has_driver_library():
        return None
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError as error:
        LOG.warning(
            "cannot import nvidia-ml-py: GPU memory is left out of the telemetry though this "
            "machine has an NVIDIA driver; to read it, pip install 'otel-quant[nvidia]': %s",
            error,
        )
        return None
    return NvmlDevices(nvml, environ, root) if _initialised(nvml) else None


def _has_driver_library() -> bool:
    if sys.platform == "win32":
        return True  # the binding searches for it itself
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def _initialised(nvml: Any) -> bool:
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        no_driver = error.value in (
            nvml.NVML_ERROR_DRIVER_NOT_LOADED,
            nvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        )
        LOG.log(
            logging.DEBUG if no_driver else logging.WARNING,
            "cannot use the NVIDIA driver; GPU memory is left out of the telemetry: %s",
            error,
        )
        return False
    return True


def _visible_nvidia(nvml: Any, selection: str | None) -> list[Device]:
    """Lists the devices that a value of ``CUDA_VISIBLE_DEVICES`` selects."""
    try:
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        LOG.warning("the NVIDIA driver cannot list its devices: %s", error)
        return []
    gpus: list[Device] = []
    mig_devices: list[Device] = []
    for position in range(count):
        gpu = _describe(nvml, f"GPU {position}", position, nvml.nvmlDeviceGetHandleByIndex)
        parts = _mig_devices(nvml, gpu)
        if parts:
            parts[0].aliases += gpu.aliases
        gpus.append(parts[0] if parts else gpu)
        mig_devices += parts[1:]
    devices = gpus + mig_devices
    names = {alias: number for number, device in enumerate(devices) for alias in device.aliases}
    return [devices[number] for number in select_visible(selection, count, names)]


def _mig_devices(nvml: Any, gpu: Device) -> list[Device]:
    """Lists the MIG devices of a GPU; none unless it is in MIG mode."""
    if gpu.handle is None:
        return []
    try:
        if nvml.nvmlDeviceGetMigMode(gpu.handle)[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return []
        slots = nvml.nvmlDeviceGetMaxMigDeviceCount(gpu.handle)
    except nvml.NVMLError:
        return []  # the GPU does not support MIG
    devices = []
    for slot in range(slots):
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu.handle, slot)
            instance = nvml.nvmlDeviceGetGpuInstanceId(handle)
            compute_instance = nvml.nvmlDeviceGetComputeInstanceId(handle)
        except nvml.NVMLError:
            continue  # an empty slot
        device = _describe(nvml, f"{gpu.label}, MIG device {slot}", handle)
        device.aliases += (f"MIG-{gpu.id}/{instance}/{compute_instance}",)
        devices.append(device)
    return devices


def _describe(
    nvml: Any, label: str, key: Any, get_handle: Callable[[Any], Any] | None = None
) -> Device:
    """Reads what does not change about a device; a device that fails gets no handle."""
    device = Device(label)
    try:
        handle = get_handle(key) if get_handle else key
        device.id = nvml.nvmlDeviceGetUUID(handle)
    except nvml.NVMLError as error:
        LOG.warning("%s: cannot be read (left out of the telemetry): %s", label, error)
        return device
    device.handle, device.aliases = handle, (device.id,)
    try:
        device.name = nvml.nvmlDeviceGetName(handle)
    except nvml.NVMLError as error:
        LOG.debug("%s: cannot read its name: %s", label, error)
    return device


# --- AMD ----------------------------------------------------------------------------------
#
# Devices are filtered by ``ROCR_VISIBLE_DEVICES`` and then by ``HIP_VISIBLE_DEVICES`` (``CUDA_VISIBLE_DEVICES`` if
# that is not set), as the runtimes under torch and ONNX Runtime do. They are numbered as the ROCm runtime numbers them:
# in the order of the kernel's compute topology, or by PCI address where there is none. A device whose memory the kernel
# does not show, such as a partition of an MI300, keeps its number and has no reading.
#
# ``amdsmi`` is not asked: it reads the same files, and a second copy of its library beside the one in a ROCm build of
# torch can make torch find no GPU (ROCm/TheRock issue 2269, pytorch issue 186516).

_AMD_ACTIVITY: Final[Mapping[str, tuple[float, tuple[str, ...]]]] = {
    "utilization": (1e-2, ("gpu_busy_percent",)),
    "power": (1e-6, ("hwmon/hwmon*/power1_average", "hwmon/hwmon*/power1_input")),
    "temperature": (1e-3, ("hwmon/hwmon*/temp1_input",)),
    "clock": (1, ("hwmon/hwmon*/freq1_input",)),
    "memory_clock": (1, ("hwmon/hwmon*/freq2_input",)),
}
"""By field of :class:`GpuActivity`, the factor from the file's unit to ours, and the file below the
device's folder; of two a device has one. What slows a device down is only in a binary table whose layout changes with the device."""


_UNITS: Final = {"": 1, "KiB": 1024, "MiB": 1024**2}

_VRAM: Final = ("drm-memory-vram", "drm-resident-vram")
"""The key; newer kernels use the second name."""


def vram_by_device(root: Path, pids: Collection[int]) -> Mapping[str, int] | None:
    """Sums the memory of processes by device, of ``/proc/PID/fdinfo``; a client that shows in several files counts once."""
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
        lines = fdinfo.read_text("utf-8").splitlines()
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


_CARD: Final = re.compile(r"card\d+")


class AmdDevices(Devices):
    """The visible AMD devices. Made by :func:`open_amd`."""

    def __init__(self, devices: tuple[Device, ...], root: Path) -> None:
        super().__init__(devices)
        self.errors = (OSError, ValueError, StopIteration)  # there is no such file
        self._root = root
        self._process_used: Mapping[str, int] | None = None

    def read(self, pids: Collection[int]) -> tuple[GpuReading, ...]:
        """Reads the devices, and how much of their memory processes use."""
        self._process_used = vram_by_device(self._root, pids)
        return super().read(pids)

    def memory(self, device: Device) -> tuple[int, int | None]:
        """Reads the memory of a device that is in use, and its size."""
        return int(read_proc(f"{device.handle}/mem_info_vram_used")), device.limit

    def process_used(self, device: Device, pids: Collection[int]) -> int | None:
        """Returns how much memory of a device processes use; None if it is not known."""
        return None if self._process_used is None else self._process_used.get(device.id, 0)

    def activity(self, device: Device) -> Mapping[str, Callable[[], Any]]:
        """Returns what reads each field of what a device does."""
        return {
            name: functools.partial(_scaled, device.handle, *where)
            for name, where in _AMD_ACTIVITY.items()
        }


def _scaled(folder: Path, factor: float, patterns: tuple[str, ...]) -> float:
    path = next(path for pattern in patterns for path in folder.glob(pattern))
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
        total = _text(card / "device/mem_info_vram_total")
        if _CARD.fullmatch(card.name) and total is not None and total.isdigit():
            folder = (card / "device").resolve()
            unique_id = _text(folder / "unique_id")  # 16 hexadecimal digits
            devices[folder.name] = Device(
                f"AMD GPU {folder.name}",
                handle=folder,
                id=folder.name,
                name=_text(folder / "product_name") or None,  # of server cards
                limit=int(total),
                aliases=(f"GPU-{unique_id}",) if unique_id else (),
            )
    return devices


def _compute_order(root: Path) -> list[str]:
    """Lists the PCI addresses of the compute devices (bus, device, function: 8, 5, 3 bits) in the ROCm runtime's order."""
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


def _visible_amd(devices: tuple[Device, ...], environ: Mapping[str, str]) -> tuple[Device, ...]:
    hip = environ.get("HIP_VISIBLE_DEVICES", environ.get("CUDA_VISIBLE_DEVICES"))
    for selection in (environ.get("ROCR_VISIBLE_DEVICES"), hip):
        names = {alias: number for number, each in enumerate(devices) for alias in each.aliases}
        devices = tuple(devices[n] for n in select_visible(selection, len(devices), names))
    return devices


def _text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8").strip()
    except OSError:
        return None
