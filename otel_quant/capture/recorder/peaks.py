"""Highest figures of a step, from the readings that were taken while it was open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from otel_quant.capture.recorder.memory_peaks import MemoryPeaks
from otel_quant.schema.figures import Figure, Number, Resource
from otel_quant.schema.records import Peaks, Reading

_MEMORY = "memory"


def with_peaks(resources: Sequence[Resource]) -> tuple[Resource, ...]:
    """Returns the resources that have peaks beside memory, which is tracked in its own way."""
    return tuple(
        resource
        for resource in resources
        if resource.name != _MEMORY
        and any("peak" in f.parts for f in (*resource.figures, *resource.device_figures))
    )


class PeakTracker:
    """Tracks the peaks of a step or of the run.

    Several threads take readings, so an older reading may be folded after a newer one. Its
    memory in use counts; its marks do not, because they would seem to rise at the next reading.
    """

    def __init__(self, first: Reading, resources: Sequence[Resource]) -> None:
        self._resources = resources
        self._first, self._latest = first.order, first.order
        self._memory = MemoryPeaks()
        self._highest: dict[str, Number] = {}
        self._devices: dict[str, dict[int, dict[str, Number]]] = {}
        self.fold(first)

    def fold(self, reading: Reading) -> None:
        """Takes one more reading into account; ignores one that is older than the first."""
        if reading.order < self._first:
            return
        is_late = reading.order < self._latest
        if not is_late:
            self._latest = reading.order
        memory = reading.memory
        if memory is not None:
            if is_late or memory.is_brief:
                self._memory.sample(memory)
            else:
                self._memory.fold(memory)
        for resource in self._resources:
            record = reading.resources.get(resource.name)
            if record is None:
                continue
            _raise(self._highest, resource.figures, record)
            if resource.device_figures:
                devices = self._devices.setdefault(resource.name, {})
                for device in record:
                    highest = devices.setdefault(device.index, {})
                    _raise(highest, resource.device_figures, device)

    def marks_lowered(self, reading: Reading) -> None:
        """Notes that the kernel's memory marks have been lowered to the memory in use now."""
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
