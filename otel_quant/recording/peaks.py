"""Highest figures of a step, from the readings that were taken while it was open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from otel_quant.recording.memory_peaks import MemoryPeaks
from otel_quant.records import Peaks, Reading
from otel_quant.resources import Figure, Number, Resource

_MEMORY = "memory"


class PeakTracker:
    """Follows the peaks of a step or of the run.

    Threads take readings at once, and one may be folded after another that is newer. Of such
    a reading what was in use counts; its marks do not, since they would look as if they had
    risen again at the next one.

    Args:
        first: The reading at the start; what was in use then counts.
        resources: What has peaks.
    """

    def __init__(self, first: Reading, resources: Sequence[Resource]) -> None:
        self._resources = resources
        self._first, self._latest = first.order, first.order
        self._memory = MemoryPeaks()
        self._highest: dict[str, Number] = {}
        self._devices: dict[str, dict[int, dict[str, Number]]] = {}
        self.fold(first)

    def fold(self, reading: Reading) -> None:
        """Takes one more reading into account; does nothing with one older than the first."""
        if reading.order < self._first:
            return
        memory = reading.memory
        if memory is not None:
            if reading.order < self._latest:
                self._memory.sample(memory)
            else:
                self._memory.fold(memory)
        self._latest = max(self._latest, reading.order)
        for resource in self._resources:
            record = reading.resources.get(resource.name)
            if record is None or resource.name == _MEMORY:
                continue
            _raise(self._highest, resource.figures, record)
            if resource.device_figures:
                devices = self._devices.setdefault(resource.name, {})
                for device in record:
                    highest = devices.setdefault(device.index, {})
                    _raise(highest, resource.device_figures, device)

    def marks_lowered(self, reading: Reading) -> None:
        """The kernel's memory marks have been lowered to what is in use now.

        Args:
            reading: What was read, and folded, just before, with the marks as they are now.
        """
        assert reading.memory is not None
        self._latest = reading.order
        self._memory.marks_lowered(reading.memory)

    def result(self) -> Peaks:
        """Returns the peaks so far."""
        memory = self._memory.result()
        return Peaks(
            figures=self._highest | ({_MEMORY: memory[0]} if memory else {}),
            sources={_MEMORY: memory[1]} if memory else {},
            devices={
                name: {index: dict(figures) for index, figures in devices.items()}
                for name, devices in self._devices.items()
            },
            process_memory=self._memory.process,
        )


def _raise(highest: dict[str, Number], figures: Sequence[Figure], record: Any) -> None:
    for figure in figures:
        if "peak" in figure.parts:
            value = figure.of(record)
            if value is not None and value >= highest.get(figure.name, value):
                highest[figure.name] = value
