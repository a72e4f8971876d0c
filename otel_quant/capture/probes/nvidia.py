"""Memory of NVIDIA GPUs, from the driver through ``nvidia-ml-py`` (module ``pynvml``).

``CUDA_VISIBLE_DEVICES`` selects the devices and their order; it is read at the first reading.
Its positions are taken in PCI bus order, as NVML counts and as CUDA does under
``CUDA_DEVICE_ORDER=PCI_BUS_ID``. By default CUDA puts the fastest device first, so the two may
disagree on a machine with different models; ``GpuReading.id`` identifies the device that was
read. As in CUDA, a GPU in MIG mode means its first MIG device; other MIG devices are read if
they are named.

Memory of the process tree is 0 only if the driver would list our processes under our process
ids (``PidNamespace``). It is absent if the driver lists one of our processes without a figure,
or lists none of ours and may use other process ids.

A device that fails is left out of the readings; the log has one line for each device and error.
The other devices are still read.
"""

from __future__ import annotations

import ctypes
import importlib
import logging
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from otel_quant.base.kernel_files import open_files
from otel_quant.base.log import LOG
from otel_quant.capture.probes.visible_devices import select_visible
from otel_quant.schema.records import GpuActivity, GpuReading

INITIAL_PID_NAMESPACE: Final = 0xEFFFFFFC
"""Inode of the namespace that the kernel starts with (``PROC_PID_INIT_INO``)."""

_UVM: Final = "dev/nvidia-uvm"
"""CUDA opens this device before it allocates anything; NVML never opens it."""


class PidNamespace:
    """Decides whether a process that the driver does not list uses no GPU memory.

    In some containers the driver lists processes by the process ids of another PID namespace. Our
    processes are then never found in its list, however much memory they use, so "not listed" must
    not be reported as 0 bytes.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._same_ids = sys.platform != "linux" or self._is_initial()

    def _is_initial(self) -> bool:
        try:
            return (self._root / "proc/self/ns/pid").stat().st_ino == INITIAL_PID_NAMESPACE
        except OSError:
            return False

    def note_own_process_listed(self) -> None:
        """Notes that the driver has listed one of our processes under our process id."""
        self._same_ids = True

    def unlisted_means_unused(self, pids: Iterable[int]) -> bool:
        """Returns whether processes that the driver does not list use no GPU memory.

        This holds if the driver uses our process ids: in the initial namespace, or once it has
        listed one of our processes. Otherwise it holds if none of the processes has started
        CUDA.
        """
        if self._same_ids:
            return True
        if not (self._root / _UVM).exists():
            return False
        return not any(self._may_use_cuda(pid) for pid in pids)

    def _may_use_cuda(self, pid: int) -> bool:
        try:
            every = open_files(f"{self._root}/proc/{pid}/fd")
            return any(path.endswith("/nvidia-uvm") for _, path in every)
        except FileNotFoundError:
            return False  # it has exited
        except OSError:
            return True


_EVERY: Final = 1.0
"""Seconds between two readings of a device."""

_SLOWED_BY: Final = (
    (0x08, "hardware slowdown"),
    (0x20, "heat (by software)"),
    (0x40, "heat (by hardware)"),
    (0x80, "power brake"),
)
"""Bits of NVML's clock event reasons that tell of trouble. Being idle, a limit of clocks that
somebody has set and the power cap under load are not."""

_SM_CLOCK: Final = 1
_MEMORY_CLOCK: Final = 2
_UNCORRECTED: Final = 1
_SINCE_LOADED: Final = 0
_CORE: Final = 0

_Query = Callable[[Any, Any], Any]

_QUERIES: Final[dict[str, _Query]] = {
    "utilization": lambda nvml, handle: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
    "power": lambda nvml, handle: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
    "temperature": lambda nvml, handle: nvml.nvmlDeviceGetTemperature(handle, _CORE),
    "clock": lambda nvml, handle: nvml.nvmlDeviceGetClockInfo(handle, _SM_CLOCK) * 1_000_000,
    "memory_clock": lambda nvml, handle: (
        nvml.nvmlDeviceGetClockInfo(handle, _MEMORY_CLOCK) * 1_000_000
    ),
    "slowed_by": lambda nvml, handle: _slowed_by(nvml, handle),
    "memory_errors": lambda nvml, handle: nvml.nvmlDeviceGetTotalEccErrors(
        handle, _UNCORRECTED, _SINCE_LOADED
    ),
}
"""How each field of :class:`GpuActivity` is read."""


def _slowed_by(nvml: Any, handle: Any) -> tuple[str, ...]:
    # The older name is to go with CUDA 14; older drivers know no other.
    older = getattr(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None)
    bits = (older or nvml.nvmlDeviceGetCurrentClocksEventReasons)(handle)
    return tuple(name for bit, name in _SLOWED_BY if bits & bit)


class NvmlActivity:
    """Reads how busy a device is, how hot, and what slows it down.

    A query that a device does not support is not asked again. These figures change slowly and some
    drivers take a millisecond for them, so a device is asked once a second at most.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._queries = dict(_QUERIES)
        self._read_at = float("-inf")
        self._latest: GpuActivity | None = None

    def read(self, handle: Any) -> GpuActivity | None:
        """Returns the newest figures; None if the device tells none."""
        now = time.monotonic()
        if now - self._read_at < _EVERY or not self._queries:
            return self._latest
        self._read_at = now
        found: dict[str, Any] = {}
        for name, query in list(self._queries.items()):
            try:
                found[name] = query(self._nvml, handle)
            except self._nvml.NVMLError:
                # Of a device that fails, the reading of its memory tells.
                del self._queries[name]
        self._latest = GpuActivity(**found) if found else None
        return self._latest


_COMPUTE: Final = (
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetComputeRunningProcesses_v2",
)
"""With a version: the name without one fails if driver and binding are of different versions."""

_GRAPHICS: Final = (
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v2",
)

_REOPENINGS: Final = 3
"""How often the driver is opened again after another part of the program has shut it down."""


@dataclass(slots=True)
class _Device:
    """A GPU or MIG device as NVML describes it."""

    label: str  # Its name in the log
    handle: Any = None  # NVML's handle; None if the device is not read, or no longer read
    id: str = ""  # UUID
    name: str | None = None  # Product name
    aliases: tuple[str, ...] = ()  # All identifiers that ``CUDA_VISIBLE_DEVICES`` may use for it
    # Reads its compute processes; None if the driver cannot
    compute: Callable[[Any], list[Any]] | None = None
    # Reads its graphics processes; None if the driver cannot
    graphics: Callable[[Any], list[Any]] | None = None
    activity: NvmlActivity | None = None  # Reads what else it tells
    # Errors that have been logged: what was read and NVML's error number
    logged: set[tuple[str, int]] = field(default_factory=set)


class NvmlDevices:
    """The visible NVIDIA devices. Made by :func:`open_nvml`."""

    def __init__(self, nvml: Any, environ: Mapping[str, str], root: Path) -> None:
        self._nvml = nvml
        self._environ = environ
        self._root = root
        self._pid = os.getpid()
        self._reopenings = _REOPENINGS
        self._shut = False
        self._find()

    def _find(self) -> None:
        self._pids = PidNamespace(self._root)
        self._devices = _visible(self._nvml, self._environ.get("CUDA_VISIBLE_DEVICES"))

    @property
    def count(self) -> int:
        """Number of visible devices, including those that cannot be read."""
        return len(self._devices)

    def read(self, pids: Collection[int]) -> tuple[GpuReading, ...]:
        """Reads the visible devices."""
        if self._shut and not self._reopen():
            return ()
        readings = (
            self._reading(index, device, pids)
            for index, device in enumerate(self._devices)
            if device.handle is not None
        )
        return tuple(reading for reading in readings if reading is not None)

    def _reading(self, index: int, device: _Device, pids: Collection[int]) -> GpuReading | None:
        memory = self._query(device, "memory", self._nvml.nvmlDeviceGetMemoryInfo)
        if memory is None:
            return None
        return GpuReading(
            index=index,
            id=device.id,
            name=device.name,
            used=memory.used,
            limit=memory.total,
            process_used=self._process_used(device, pids),
            activity=device.activity.read(device.handle) if device.activity is not None else None,
        )

    def _process_used(self, device: _Device, pids: Collection[int]) -> int | None:
        if device.compute is None:
            return None
        processes = self._query(device, "compute processes", device.compute)
        if processes is None:
            return None
        if device.graphics is not None:
            # A process that computes and draws is in both lists with the same figure. A
            # quantization never only draws, so this list may fail.
            processes += self._query(device, "graphics processes", device.graphics) or []
        ours: dict[int, int | None] = {}
        for process in processes:
            if process.pid in pids:
                known, new = ours.get(process.pid), process.usedGpuMemory
                ours[process.pid] = max((x for x in (known, new) if x is not None), default=None)
        if ours:
            self._pids.note_own_process_listed()
            figures = [figure for figure in ours.values() if figure is not None]
            return sum(figures) if len(figures) == len(ours) else None
        return 0 if self._pids.unlisted_means_unused(pids) else None

    def _query(self, device: _Device, what: str, query: Callable[[Any], Any]) -> Any:
        """Queries the driver about a device; returns None if the query fails."""
        if device.handle is None or self._shut:
            return None
        try:
            return query(device.handle)
        except self._nvml.NVMLError as error:
            self._handle_error(device, what, error)
            return None

    def _handle_error(self, device: _Device, what: str, error: Any) -> None:
        nvml = self._nvml
        unsupported = error.value in (nvml.NVML_ERROR_NOT_SUPPORTED, _function_not_found(nvml))
        if error.value == nvml.NVML_ERROR_UNINITIALIZED:
            self._shut = True  # for all devices: the next reading opens the driver again
        elif what == "memory" and (unsupported or error.value == nvml.NVML_ERROR_GPU_IS_LOST):
            device.handle = None  # both errors last as long as the process
        elif what == "compute processes" and unsupported:
            device.compute = None
        elif what == "graphics processes" and unsupported:
            device.graphics = None
        if (what, error.value) not in device.logged:
            device.logged.add((what, error.value))
            LOG.log(
                logging.DEBUG if unsupported else logging.WARNING,
                "%s: cannot read %s (left out of the telemetry): %s",
                device.label,
                what,
                error,
            )

    def _reopen(self) -> bool:
        if self._reopenings == 0 or not _initialised(self._nvml):
            return False
        self._reopenings -= 1
        self._shut = False
        self._find()
        return True

    def close(self) -> None:
        """Closes the driver; in a forked child it only drops it, since the parent uses it."""
        self._devices = []
        if self._pid != os.getpid():
            return
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError as error:
            LOG.debug("cannot shut the NVIDIA driver down: %s", error)


def open_nvml(environ: Mapping[str, str], root: Path = Path("/")) -> NvmlDevices | None:
    """Opens the NVIDIA driver, if there is one.

    ``pynvml`` is imported only if the driver's library exists, to save time on other machines.
    """
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


def _visible(nvml: Any, selection: str | None) -> list[_Device]:
    """Lists the devices that a value of ``CUDA_VISIBLE_DEVICES`` selects."""
    try:
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        LOG.warning("the NVIDIA driver cannot list its devices: %s", error)
        return []
    gpus: list[_Device] = []
    mig_devices: list[_Device] = []
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


def _mig_devices(nvml: Any, gpu: _Device) -> list[_Device]:
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
) -> _Device:
    """Reads what does not change about a device; a device that fails gets no handle."""
    device = _Device(label)
    try:
        handle = get_handle(key) if get_handle else key
        device.id = nvml.nvmlDeviceGetUUID(handle)
    except nvml.NVMLError as error:
        LOG.warning("%s: cannot be read (left out of the telemetry): %s", label, error)
        return device
    device.handle = handle
    device.aliases = (device.id,)
    try:
        device.name = nvml.nvmlDeviceGetName(handle)
    except nvml.NVMLError as error:
        LOG.debug("%s: cannot read its name: %s", label, error)
    device.activity = NvmlActivity(nvml)
    device.compute = _newest_query(nvml, _COMPUTE)
    device.graphics = _newest_query(nvml, _GRAPHICS)
    return device


def _newest_query(nvml: Any, names: tuple[str, ...]) -> Callable[[Any], list[Any]] | None:
    """Returns a query of the newest version that binding and driver support; None for none."""
    known = [getattr(nvml, name) for name in names if hasattr(nvml, name)]
    if not known:
        return None

    def query(handle: Any) -> list[Any]:
        while len(known) > 1:
            try:
                return list(known[0](handle))
            except nvml.NVMLError as error:
                if error.value != _function_not_found(nvml):
                    raise
                del known[0]
        return list(known[0](handle))

    return query


def _function_not_found(nvml: Any) -> int:
    return int(nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
