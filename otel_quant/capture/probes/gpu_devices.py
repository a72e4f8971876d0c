"""The GPUs that a process can see: which ones a ``*_VISIBLE_DEVICES`` variable leaves, and how they are read.

CUDA, HIP and the ROCm runtime share the grammar of these variables, a comma-separated list of either positions or
identifiers. An entry that names no device ends the list; the entries before it count. A device that is named twice
makes the list empty. As in those runtimes, the start of an identifier is enough if it is that of one device alone.
"""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from otel_quant.base.log import LOG
from otel_quant.schema.dataclass import dataclass, field
from otel_quant.schema.readings import GpuActivity, GpuMemorySource, GpuReading, GpuWork

_EVERY: Final = 1.0
"""Seconds between two readings of what a device does: it changes slowly, and some drivers take a
millisecond for it; at most also between two of whose memory is in use."""

Platform = Literal["cuda", "hip"]


class Ours(NamedTuple):
    """What processes of a tree have of a device."""

    used: int | None  # Bytes; None if the driver does not report it
    processes: int  # How many of them have some
    is_alone: bool = False  # Whether this process is the only one of all that has some


_ASKED_EVERY: Final = 5.0
"""Seconds between two looks of the sampler at the counter of energy: some drivers take 4 ms for it."""

_LONG: Final = 1.0
"""Seconds without a checkpoint from which on the next one looks at the counter itself."""


class EnergyMeter:
    """The energy of a device since this process first looked: what it counts, and since then power times time."""

    def __init__(self) -> None:
        self.joules: float | None = None  # None until it was counted
        self.power: float | None = None  # The last that was known
        self._before = 0.0  # Joules that the device had counted before
        self._asked_at = self._now = -math.inf

    def pass_time(self, now: float, power: float | None) -> None:
        """Adds the energy since the last reading, at a power in watts; None for the last that was known."""
        self.power = self.power if power is None else power
        if self.joules is not None and self.power is not None:
            self.joules += self.power * (now - self._now)
        self._now = now

    def is_due(self, now: float, border_at: float, is_brief: bool) -> bool:
        """Whether the device is to be asked, at a checkpoint or between two; when the last one was."""
        if not is_brief:
            return now - border_at >= _LONG
        return now - self._asked_at >= _ASKED_EVERY

    def count(self, now: float, counted: float) -> None:
        """Takes the joules that the device has counted, which may be less than what was estimated: power lags by a second."""
        if self.joules is None:
            self._before = counted
        self.joules, self._asked_at = counted - self._before, now


@dataclass(slots=True)
class Device:
    """A GPU as its driver shows it."""

    label: str  # Its name in the log
    handle: Any = None  # What the driver is asked with; None of a device that cannot be read
    id: str = ""  # UUID, or PCI address
    name: str | None = None  # Product name
    limit: int | None = None  # Size of its memory in bytes, where that is read once
    aliases: tuple[str, ...] = ()  # All identifiers that a variable may use for it
    used: int = -1  # Memory in use at the last reading, in bytes
    ours: Ours | None = None  # What was ours of it
    ours_at: float = float("-inf")  # Monotonic clock when that was read, in seconds
    activity: GpuActivity | None = None
    activity_at: float = float("-inf")  # Monotonic clock when that was read, in seconds
    border_at: float = -math.inf  # When the last checkpoint was, by the same clock
    energy: EnergyMeter | None = field(default_factory=EnergyMeter)  # None if it counts none
    work: Any = None  # What reads what it has done
    logged: set[str] = field(default_factory=set)  # What could not be read


class Devices(ABC):
    """The visible devices of one vendor; one that fails is left out of the readings, and keeps its number."""

    platform: Platform
    source: GpuMemorySource
    errors: tuple[type[Exception], ...]
    """What the methods below raise where a figure cannot be read."""
    activities: Mapping[str, Any]
    """By field of :class:`GpuActivity`, how it is read."""
    energy: Any
    """How its counter of energy is read, in the same way."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices, self.count = devices, len(devices)  # Also those that cannot be read
        self.is_whole = True  # Whether no device failed for the moment at the last reading
        self._pids: Collection[int] = ()  # The process tree at the last reading

    def read(self, pids: Collection[int], is_brief: bool = False) -> tuple[GpuReading, ...]:
        """Reads the devices, and how much of their memory processes use; briefly, between two checkpoints."""
        readings, self.is_whole = [], True
        for index, device in enumerate(self._devices):
            memory = self._tried("memory", device, self.memory)
            if memory is None:
                self.is_whole = self.is_whole and device.handle is None
                continue
            now = time.monotonic()
            if now - device.activity_at >= _EVERY:
                found = self._found(device, self.activities)
                device.activity = GpuActivity(**found) if found else None
                device.activity_at = now
            if device.energy is not None:
                self._count_energy(device, device.energy, now, is_brief)
            used, limit = memory
            # To list processes takes five times as long. While no memory is taken or given back, theirs is the same.
            if used != device.used or pids != self._pids or now - device.ours_at >= _EVERY:
                device.ours, device.ours_at = self._tried("processes", device, self.ours, pids), now
                device.used = used
            reading = GpuReading(index, device.id, device.name, used, limit)
            if device.ours is not None:
                reading.process_used, reading.processes, reading.is_alone = device.ours
            reading.activity, reading.source = device.activity, self.source
            reading.energy = getattr(device.energy, "joules", None)
            if not is_brief:
                device.border_at = now
            elif device.border_at >= 0:  # the launcher has no checkpoints
                how = self.utilization if reading.process_used == 0 else self.work
                reading.work = self._tried("work", device, how, now)
            readings.append(reading)
        self._pids = pids
        return tuple(readings)

    def ask_for_energy(self) -> None:
        """Has the next reading ask the devices for their counters of energy."""
        for device in self._devices:
            device.border_at = -math.inf

    @abstractmethod
    def memory(self, device: Device) -> tuple[int, int | None]:
        """Reads the memory of a device that is in use, and what programs can have of it."""

    def work(self, device: Device, now: float) -> GpuWork | None:
        """Reads what a device with the program's memory has done since the last checkpoint; None as long as that is not known."""
        return self.utilization(device, now)

    def utilization(self, device: Device, now: float) -> GpuWork | None:
        """Returns a device's utilization, if it was read a second after the last checkpoint or later."""
        busy = getattr(device.activity, "utilization", None)
        return None if busy is None or now - device.border_at < _EVERY else GpuWork(busy)

    @abstractmethod
    def ours(self, device: Device, pids: Collection[int]) -> Ours:
        """Reads how much memory of a device processes use."""

    @abstractmethod
    def activity(self, device: Device, how: Any) -> Any:
        """Reads a field of what a device does or counts, in the way of :attr:`activities`."""

    def _tried(self, what: str, device: Device, read: Callable[..., Any], *more: Any) -> Any:
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
                    "%s: cannot read %s (left out of the telemetry): %s", device.label, what, error,
                )  # fmt: skip
            return None

    def is_unsupported(self, error: Any) -> bool:
        """Whether one of these errors means that the device never has the figure."""
        return False

    def _found(self, device: Device, ways: Mapping[str, Any]) -> dict[str, Any]:
        found = {}
        for name, how in ways.items():
            try:
                found[name] = self.activity(device, how)
            except self.errors:
                continue  # the device sleeps, or does not have it
        return found

    def _count_energy(self, device: Device, meter: EnergyMeter, now: float, is_brief: bool) -> None:
        meter.pass_time(now, getattr(device.activity, "power", None))
        if meter.power is not None and meter.is_due(now, device.border_at, is_brief):
            found = self._found(device, {"energy": self.energy})
            if found:
                meter.count(now, found["energy"])
            elif meter.joules is None:
                device.energy = None


def select_visible(value: str | None, count: int, names: Mapping[str, int]) -> tuple[int, ...]:
    """Reads a variable such as ``CUDA_VISIBLE_DEVICES``."""
    if value is None:
        return tuple(range(count))
    entries = [entry.strip() for entry in value.split(",")]
    by_name = entries[0][:1].isalpha()
    selected: list[int] = []
    for entry in entries:
        is_position = entry.isdecimal() and int(entry) < count
        number = _named(entry, names) if by_name else int(entry) if is_position else None
        if number is None:
            break
        if number in selected:
            return ()
        selected.append(number)
    return tuple(selected)


def _named(entry: str, names: Mapping[str, int]) -> int | None:
    if entry in names:
        return names[entry]
    found = {number for name, number in names.items() if entry and name.startswith(entry)}
    return found.pop() if len(found) == 1 else None
