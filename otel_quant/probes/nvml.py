"""Memory of NVIDIA GPUs, from the driver through ``nvidia-ml-py`` (module ``pynvml``).

Which devices: those that ``CUDA_VISIBLE_DEVICES`` leaves visible when the first reading is
taken, in its order. Positions in it are taken as NVML counts, in PCI bus order, which is
what CUDA does under ``CUDA_DEVICE_ORDER=PCI_BUS_ID``. CUDA's default puts the fastest
device first; where models differ, the two can disagree, and ``GpuReading.id`` tells which
device was read. A GPU in MIG mode stands, as in CUDA, for its first MIG device; further
ones are read if they are named.

Memory of the process tree: 0 is reported only if the driver's list of processes can be
trusted to name ours (``PidNamespace``); it is absent when the driver names one of ours
without a figure, or lists nobody of ours under numbers that may not be ours.

A device that fails is left out of the readings, which the log says once for each device
and error, while the others go on.
"""

from __future__ import annotations

import ctypes
import importlib
import logging
import os
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from otel_quant.probes.pid_namespace import PidNamespace
from otel_quant.probes.visible_devices import select_visible
from otel_quant.records import GpuReading

_log = logging.getLogger("otel_quant")

_COMPUTE: Final = (
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetComputeRunningProcesses_v2",
)
"""Named by version: the bare name refuses to work when driver and binding differ in age."""

_GRAPHICS: Final = (
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v2",
)

_REOPENINGS: Final = 3
"""How often a driver that another part of the program shut down is opened again."""


@dataclass(slots=True)
class _Device:
    """A GPU or MIG device as NVML knows it.

    Attributes:
        label: What it is called in the log.
        handle: NVML's; None if the device is not to be read (any more).
        id: UUID.
        name: Product name.
        aliases: Everything that ``CUDA_VISIBLE_DEVICES`` may call it.
        compute: Reads its compute processes; None if the driver cannot.
        graphics: Reads its graphics processes; None if the driver cannot.
        complaints: Errors that the log has been told.
    """

    label: str
    handle: Any = None
    id: str = ""
    name: str | None = None
    aliases: tuple[str, ...] = ()
    compute: Callable[[Any], list[Any]] | None = None
    graphics: Callable[[Any], list[Any]] | None = None
    complaints: set[tuple[str, int]] = field(default_factory=set)


class NvmlDevices:
    """The visible NVIDIA devices. Made by :func:`open_nvml`.

    Args:
        nvml: The module ``pynvml``, initialised.
        environ: Environment variables.
        root: Root of the file system that holds ``proc`` and ``dev``.
    """

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
        """Number of visible devices, those that do not answer included."""
        return len(self._devices)

    def read(self, pids: Collection[int]) -> tuple[GpuReading, ...]:
        """Reads every visible device that answers.

        Args:
            pids: Processes whose memory ``process_used`` sums.

        Returns:
            One reading for each device that answers. ``index`` counts the visible devices,
            those that do not answer included.
        """
        if self._shut and not self._reopen():
            return ()
        readings = (
            self._reading(index, device, pids)
            for index, device in enumerate(self._devices)
            if device.handle is not None
        )
        return tuple(reading for reading in readings if reading is not None)

    def _reading(self, index: int, device: _Device, pids: Collection[int]) -> GpuReading | None:
        memory = self._ask(device, "memory", self._nvml.nvmlDeviceGetMemoryInfo)
        if memory is None:
            return None
        return GpuReading(
            index=index,
            id=device.id,
            name=device.name,
            used=memory.used,
            limit=memory.total,
            process_used=self._process_used(device, pids),
        )

    def _process_used(self, device: _Device, pids: Collection[int]) -> int | None:
        if device.compute is None:
            return None
        processes = self._ask(device, "compute processes", device.compute)
        if processes is None:
            return None
        if device.graphics is not None:
            # A process that computes and draws is in both lists with the same figure. One
            # that only draws is none of a quantization, so this list may fail.
            processes += self._ask(device, "graphics processes", device.graphics) or []
        ours: dict[int, int | None] = {}
        for process in processes:
            if process.pid in pids:
                known, new = ours.get(process.pid), process.usedGpuMemory
                ours[process.pid] = max((x for x in (known, new) if x is not None), default=None)
        if ours:
            self._pids.saw_ours()
            figures = [figure for figure in ours.values() if figure is not None]
            return sum(figures) if len(figures) == len(ours) else None
        return 0 if self._pids.unlisted_means_none(pids) else None

    def _ask(self, device: _Device, what: str, question: Callable[[Any], Any]) -> Any:
        """Asks the driver about a device; None if it does not answer."""
        if device.handle is None or self._shut:
            return None
        try:
            return question(device.handle)
        except self._nvml.NVMLError as error:
            self._judge(device, what, error)
            return None

    def _judge(self, device: _Device, what: str, error: Any) -> None:
        nvml = self._nvml
        unsupported = error.value in (nvml.NVML_ERROR_NOT_SUPPORTED, _function_not_found(nvml))
        if error.value == nvml.NVML_ERROR_UNINITIALIZED:
            self._shut = True  # for all devices: the next reading opens the driver again
        elif what == "memory" and (unsupported or error.value == nvml.NVML_ERROR_GPU_IS_LOST):
            device.handle = None  # neither answer changes while the process lives
        elif what == "compute processes" and unsupported:
            device.compute = None
        elif what == "graphics processes" and unsupported:
            device.graphics = None
        if (what, error.value) not in device.complaints:
            device.complaints.add((what, error.value))
            _log.log(
                logging.DEBUG if unsupported else logging.WARNING,
                "%s does not tell its %s, which stays absent: %s",
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
        """Gives the driver back, unless this is a forked child, whose driver it is not."""
        self._devices = []
        if self._pid != os.getpid():
            return
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError as error:
            _log.debug("The NVIDIA driver did not shut down: %s", error)


def open_nvml(environ: Mapping[str, str], root: Path = Path("/")) -> NvmlDevices | None:
    """Opens the NVIDIA driver, if there is one.

    The driver's library is looked for before ``pynvml`` is imported, so that machines
    without it pay for neither.

    Args:
        environ: Environment variables.
        root: Root of the file system that holds ``proc`` and ``dev``.

    Returns:
        The visible devices, or None if there is no driver or it cannot be used.
    """
    if not _driver_library_is_here():
        return None
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError as error:
        _log.warning(
            "This machine has an NVIDIA driver, but GPU memory stays absent because "
            "nvidia-ml-py cannot be imported (pip install 'otel-quant[nvidia]'): %s",
            error,
        )
        return None
    return NvmlDevices(nvml, environ, root) if _initialised(nvml) else None


def _driver_library_is_here() -> bool:
    if sys.platform == "win32":
        return True  # where it is there is the binding's business
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def _initialised(nvml: Any) -> bool:
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        nothing_there = error.value in (
            nvml.NVML_ERROR_DRIVER_NOT_LOADED,
            nvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        )
        _log.log(
            logging.DEBUG if nothing_there else logging.WARNING,
            "The NVIDIA driver cannot be used, GPU memory stays absent: %s",
            error,
        )
        return False
    return True


def _visible(nvml: Any, selection: str | None) -> list[_Device]:
    """Lists the devices that a value of ``CUDA_VISIBLE_DEVICES`` selects."""
    try:
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        _log.warning("The NVIDIA driver does not list its devices: %s", error)
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
        places = nvml.nvmlDeviceGetMaxMigDeviceCount(gpu.handle)
    except nvml.NVMLError:
        return []  # what is no MIG device is a GPU
    devices = []
    for place in range(places):
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu.handle, place)
            instance = nvml.nvmlDeviceGetGpuInstanceId(handle)
            compute_instance = nvml.nvmlDeviceGetComputeInstanceId(handle)
        except nvml.NVMLError:
            continue  # an empty place
        device = _describe(nvml, f"{gpu.label}, MIG device {place}", handle)
        device.aliases += (f"MIG-{gpu.id}/{instance}/{compute_instance}",)
        devices.append(device)
    return devices


def _describe(
    nvml: Any, label: str, key: Any, get_handle: Callable[[Any], Any] | None = None
) -> _Device:
    """Finds out what does not change about a device; one that fails has no handle."""
    device = _Device(label)
    try:
        handle = get_handle(key) if get_handle else key
        device.id = nvml.nvmlDeviceGetUUID(handle)
    except nvml.NVMLError as error:
        _log.warning("%s cannot be read and stays absent: %s", label, error)
        return device
    device.handle = handle
    device.aliases = (device.id,)
    try:
        device.name = nvml.nvmlDeviceGetName(handle)
    except nvml.NVMLError as error:
        _log.debug("%s has no name: %s", label, error)
    device.compute = _versioned(nvml, _COMPUTE)
    device.graphics = _versioned(nvml, _GRAPHICS)
    return device


def _versioned(nvml: Any, names: tuple[str, ...]) -> Callable[[Any], list[Any]] | None:
    """Makes a question of the newest version that binding and driver know."""
    known = [getattr(nvml, name) for name in names if hasattr(nvml, name)]
    if not known:
        return None

    def question(handle: Any) -> list[Any]:
        while len(known) > 1:
            try:
                return list(known[0](handle))
            except nvml.NVMLError as error:
                if error.value != _function_not_found(nvml):
                    raise
                del known[0]
        return list(known[0](handle))

    return question


def _function_not_found(nvml: Any) -> int:
    return int(nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
