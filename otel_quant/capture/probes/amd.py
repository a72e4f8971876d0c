"""Memory of AMD GPUs, from the program's ``amdsmi`` if it is loaded, else from the kernel's files.

Devices are filtered by ``ROCR_VISIBLE_DEVICES`` and then by ``HIP_VISIBLE_DEVICES``
(``CUDA_VISIBLE_DEVICES`` if that is not set), as the runtimes under torch and ONNX Runtime do.
They are numbered as the ROCm runtime numbers them: in the order of the kernel's compute
topology, or by PCI address where there is none. A device whose memory the kernel does not
show, such as a partition of an MI300, keeps its number and has no reading.

The process tree's memory comes from the kernel's files in both cases: ``amdsmi`` would read
the same files, but of every process on the machine.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from otel_quant.base.log import LOG
from otel_quant.capture.probes.amd_activity import read_activity
from otel_quant.capture.probes.amd_processes import vram_by_device
from otel_quant.capture.probes.amd_smi import AmdSmi, AmdSmiUnavailableError
from otel_quant.capture.probes.kernel_files import read_proc
from otel_quant.capture.probes.visible_devices import select_visible
from otel_quant.schema.records import GpuActivity, GpuReading

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
