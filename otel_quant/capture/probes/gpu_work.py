"""What an NVIDIA device does between two checkpoints, read by the sampler's thread: some of it takes a millisecond.

From Hopper on the device averages counters of its own between any two looks (NVML's GPM), without the rights that a
profiler needs. Others have only their utilization: the share of the last 0.2 to 1 s in which a kernel or a copy ran.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from otel_quant.schema.readings import GpuWork

_SHORTEST, _LONGEST = 0.3, 2.0
"""Seconds of an average; in between half of what has passed before it since the checkpoint: it takes 0.9 ms."""

_PERIOD: Final = 0.3
"""Seconds after a checkpoint from which on what a device tells is hardly of what came before."""

_METRICS: Final = ((1, 0.01), (2, 0.01), (10, 0.01), (20, 1 << 20), (21, 1 << 20))
"""NVML's numbers of what it averages, in the order of :class:`GpuWork`, sent and received, and what one of each is."""

_LANE: Final[dict[float, float]] = {
    1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9,
}  # fmt: skip
"""Bytes a second of one lane, by the generation of PCI Express."""


class NvmlWork:
    """The averages of one device."""

    def __init__(self, nvml: Any, device: Any) -> None:
        self._nvml, self._device = nvml, device
        self._work: GpuWork | None = None
        self._began = math.nan  # When the time that is averaged began, by the monotonic clock
        counts = self._told(lambda: nvml.nvmlGpmQueryDeviceSupport(device).isSupportedDevice)
        self._samples = [nvml.nvmlGpmSampleAlloc() for _ in range(2)] if counts == 1 else []
        self._limit = self._told(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(device))
        lanes = self._told(lambda: nvml.nvmlDeviceGetMaxPcieLinkWidth(device))
        generation = self._told(lambda: nvml.nvmlDeviceGetMaxPcieLinkGeneration(device))
        self._link = lanes * _LANE.get(generation, math.nan)

    def read(self, now: float, border_at: float) -> GpuWork | None:
        """Returns what the device has done since a checkpoint, lately; None as long as too little of that was seen."""
        nvml, device = self._nvml, self._device
        if now - border_at < _PERIOD:
            return None
        if not self._samples:
            busy = nvml.nvmlDeviceGetUtilizationRates(device).gpu / 100
            return GpuWork(busy, power=self._power())
        if not self._began >= border_at:
            self._work, self._began = None, now
            nvml.nvmlGpmSampleGet(device, self._samples[0])
        elif now - self._began >= max(_SHORTEST, min(_LONGEST, (self._began - border_at) / 2)):
            self._began, self._work = now, self._averages()
        return self._work

    def _averages(self) -> GpuWork:
        nvml = self._nvml
        nvml.nvmlGpmSampleGet(self._device, self._samples[1])
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, len(_METRICS)
        asked.sample1, asked.sample2 = self._samples
        for at, (number, _) in enumerate(_METRICS):
            asked.metrics[at].metricId = number
        told = zip(nvml.nvmlGpmMetricsGet(asked).metrics, _METRICS, strict=False)
        self._samples.reverse()
        busy, sm, dram, sent, received = (
            math.nan if each.nvmlReturn else each.value * one for each, (_, one) in told
        )
        return GpuWork(busy, sm, dram, max(sent, received), self._link, self._power())

    def _power(self) -> float:
        return self._told(lambda: self._nvml.nvmlDeviceGetPowerUsage(self._device)) / self._limit

    def _told(self, read: Callable[[], float]) -> float:
        """Returns a figure; NaN if the device, or its driver, does not have it."""
        try:
            return read()
        except self._nvml.NVMLError:
            return math.nan
