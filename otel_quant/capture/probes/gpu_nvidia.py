"""The visible NVIDIA devices, from the driver through ``nvidia-ml-py`` (module ``pynvml``).

Positions in ``CUDA_VISIBLE_DEVICES`` are taken in PCI bus order, as NVML counts and as CUDA does under
``CUDA_DEVICE_ORDER=PCI_BUS_ID``. By default CUDA puts the fastest device first, so the two may disagree on a machine
with different models; ``GpuReading.id`` identifies the device that was read. As in CUDA, a GPU in MIG mode means its
first MIG device; other MIG devices are read if they are named.

Memory is read by version 2 of NVML's structure, as nvidia-smi, `cudaMemGetInfo` and Quark have it: without what the
driver keeps for itself, 480 MiB on an H100, which programs cannot have either. Older drivers know version 1 alone,
which counts that as used.

In some containers the driver lists processes by the ids of another PID namespace, so that ours are never found,
however much memory they use; others list processes without their memory, as on Windows. So a process that is not listed
uses 0 only in the kernel's initial namespace, or once one of ours was listed with its memory, and never where the memory
of others is not told; else memory of the process tree is absent.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import logging
import os
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

from otel_quant.base.log import LOG
from otel_quant.capture.probes.gpu_devices import Device, Devices, Ours, select_visible
from otel_quant.capture.probes.gpu_work import NvmlWork
from otel_quant.schema.readings import GpuMemorySource, GpuWork

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

_ACTIVITY: Final = {
    "utilization": lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100,
    "power": lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    "temperature": lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, _CORE),
    "clock": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, _SM_CLOCK) * 1_000_000,
    "memory_clock": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, _MEMORY_CLOCK) * 1_000_000,
    "slowed_by": lambda nvml, gpu: _slowed_by(nvml, gpu),
    "memory_errors": lambda nvml, gpu: nvml.nvmlDeviceGetTotalEccErrors(gpu, _UNCORRECTED, _SINCE_LOADED),
}  # fmt: skip


def _slowed_by(nvml: Any, gpu: Any) -> tuple[str, ...]:
    # The older name is to go with CUDA 14; older drivers know no other.
    older = getattr(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None)
    bits = (older or nvml.nvmlDeviceGetCurrentClocksEventReasons)(gpu)
    return tuple(name for bit, name in _SLOWED_BY if bits & bit)


class _MemoryV2(ctypes.Structure):
    """``nvmlMemory_v2_t``."""

    _fields_ = (
        ("version", ctypes.c_uint),
        *((name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")),
    )


class NvmlDevices(Devices):
    """The visible NVIDIA devices. Made by :func:`open_nvml`."""

    platform = "cuda"
    source: GpuMemorySource = "nvmlMemory_v2"
    activities = _ACTIVITY
    energy = staticmethod(lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000)

    def __init__(self, nvml: Any, environ: Mapping[str, str], root: Path) -> None:
        super().__init__(_visible_nvidia(nvml, environ.get("CUDA_VISIBLE_DEVICES")))
        self.errors = (nvml.NVMLError,)
        self._nvml = nvml
        self._is_checked = False  # Whether version 2 was tried
        self._ask = getattr(nvml.nvmlLib, "nvmlDeviceGetMemoryInfo_v2", None)
        self._memory = _MemoryV2(version=nvml.nvmlMemory_v2)  # One thread at a time reads
        self._tells_ours = _is_in_initial_namespace(root)
        # With a version: the name without one fails if driver and binding are of different versions.
        self._processes = nvml.nvmlDeviceGetComputeRunningProcesses_v3

    def memory(self, device: Device) -> tuple[int, int]:
        """Reads the memory of a device that is in use, and what programs can have of it."""
        memory = None if self.source == "nvmlMemory_v1" else self._version_2(device)
        if memory is not None:
            return memory.used, memory.total - memory.reserved
        memory = self._nvml.nvmlDeviceGetMemoryInfo(device.handle)
        return memory.used, memory.total

    def _version_2(self, device: Device) -> Any:
        """Reads version 2; None, now and from then on, where the driver does not know it, or its parts do not add up."""
        nvml, memory = self._nvml, self._memory
        code = nvml.NVML_ERROR_FUNCTION_NOT_FOUND
        if self._ask is not None:  # the binding takes twice as long
            code = self._ask(device.handle, ctypes.byref(memory))
        if self._is_checked and not code:
            return memory
        unknown = nvml.NVML_ERROR_FUNCTION_NOT_FOUND, nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
        if self._is_checked or (code and code not in unknown):
            raise nvml.NVMLError(code)  # the device fails for the moment
        self._is_checked = True
        if code or memory.used + memory.reserved + memory.free != memory.total:
            self.source = "nvmlMemory_v1"
            return None
        return memory

    def ours(self, device: Device, pids: Collection[int]) -> Ours:
        """Reads how much memory of a device processes use."""
        processes = self._processes(device.handle)
        ours = [process.usedGpuMemory for process in processes if process.pid in pids]
        if ours or None in (process.usedGpuMemory for process in processes):
            self._tells_ours = bool(ours) and None not in ours
        is_alone = [process.pid for process in processes] == [os.getpid()]
        return Ours(sum(ours) if self._tells_ours else None, len(ours), is_alone)

    def activity(self, device: Device, how: Callable[[Any, Any], Any]) -> Any:
        """Reads a field of what a device does or counts, in the way of :attr:`activities`."""
        return how(self._nvml, device.handle)

    def work(self, device: Device, now: float) -> GpuWork | None:
        """Reads what a device has done since its last checkpoint; None as long as too little of that was seen."""
        if device.work is None:
            device.work = NvmlWork(self._nvml, device.handle)
        found: GpuWork | None = device.work.read(now, device.border_at)
        return found

    def is_unsupported(self, error: Any) -> bool:
        """Whether an error means that the device never has the figure."""
        nvml = self._nvml
        missing = nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND
        return error.value in missing


def open_nvml(environ: Mapping[str, str], root: Path = Path("/")) -> NvmlDevices | None:
    """Opens the NVIDIA driver; ``pynvml`` is imported only if the driver's library exists."""
    try:
        if sys.platform != "win32":  # where the binding searches for it itself
            ctypes.CDLL("libnvidia-ml.so.1")
        nvml: Any = importlib.import_module("pynvml")
    except ImportError as error:
        LOG.warning(
            "cannot import nvidia-ml-py: GPU memory is left out of the telemetry though this "
            "machine has an NVIDIA driver; to read it, pip install 'otel-quant[nvidia]': %s",
            error,
        )
        return None
    except OSError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        no_driver = nvml.NVML_ERROR_DRIVER_NOT_LOADED, nvml.NVML_ERROR_LIBRARY_NOT_FOUND
        LOG.log(
            logging.DEBUG if error.value in no_driver else logging.WARNING,
            "cannot use the NVIDIA driver; GPU memory is left out of the telemetry: %s",
            error,
        )
        return None
    return NvmlDevices(nvml, environ, root)


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
        opened = functools.partial(nvml.nvmlDeviceGetHandleByIndex, position)
        gpu = _describe(nvml, f"GPU {position}", opened)
        first, *others = _mig_devices(nvml, gpu) or [gpu]
        if first is not gpu:
            first.aliases += gpu.aliases
        gpus.append(first)
        mig_devices += others
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
            opened = functools.partial(nvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu.handle, slot)
            handle = opened()
            instance = nvml.nvmlDeviceGetGpuInstanceId(handle)
            compute_instance = nvml.nvmlDeviceGetComputeInstanceId(handle)
        except nvml.NVMLError:
            continue  # an empty slot
        device = _describe(nvml, f"{gpu.label}, MIG device {slot}", opened)
        device.aliases += (f"MIG-{gpu.id}/{instance}/{compute_instance}",)
        devices.append(device)
    return devices


def _describe(nvml: Any, label: str, open_device: Callable[[], Any]) -> Device:
    """Reads what does not change about a device; a device that fails gets no handle."""
    device = Device(label)
    try:
        handle = open_device()
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
