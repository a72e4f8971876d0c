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
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import logging
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from otel_quant.base.kernel_files import open_files
from otel_quant.base.log import LOG
from otel_quant.capture.probes.gpu_devices import Device, Devices, select_visible

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


_SLOWED_BY: Final = (
    (0x08, "hardware slowdown"),
    (0x20, "heat (by software)"),
    (0x40, "heat (by hardware)"),
    (0x80, "power brake"),
)
"""Bits of NVML's clock event reasons that tell of trouble. Being idle, a limit of clocks that
somebody has set and the power cap under load are not."""

_CORE, _SM_CLOCK, _MEMORY_CLOCK, _UNCORRECTED, _SINCE_LOADED = 0, 1, 2, 1, 0

_ACTIVITY: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
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


class DriverShutError(Exception):
    """Another part of the program has shut the driver down: it has to be opened again."""


class NvmlDevices(Devices):
    """The visible NVIDIA devices. Made by :func:`open_nvml`."""

    def __init__(self, nvml: Any, environ: Mapping[str, str], root: Path) -> None:
        super().__init__(_visible(nvml, environ.get("CUDA_VISIBLE_DEVICES")))
        self.errors = (nvml.NVMLError,)
        self._nvml = nvml
        self._pids = PidNamespace(root)
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
            self._pids.note_own_process_listed()
            return None if None in ours else sum(ours)
        return 0 if self._pids.unlisted_means_unused(pids) else None

    def activity(self, device: Device) -> Mapping[str, Callable[[], Any]]:
        """Returns what reads each field of what a device does."""
        return {
            name: functools.partial(query, self._nvml, device.handle)
            for name, query in _ACTIVITY.items()
        }

    def is_unsupported(self, error: Any) -> bool:
        """Whether an error means that the device never has the figure.

        Raises:
            DriverShutError: It means that the driver is shut, for all devices.
        """
        if error.value == self._nvml.NVML_ERROR_UNINITIALIZED:
            raise DriverShutError from error
        return error.value in (
            self._nvml.NVML_ERROR_NOT_SUPPORTED,
            self._nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        )


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


def _visible(nvml: Any, selection: str | None) -> list[Device]:
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
