"""What an NVIDIA device does between two checkpoints, read by the sampler's thread: some of it takes a millisecond.

From Hopper on the device averages counters of its own between any two looks (NVML's GPM), without the rights that a
profiler needs. Others have only their utilization: the share of the last 0.2 to 1 s in which a kernel or a copy ran.
"""

from __future__ import annotations

import math
from typing import Any, Final

from otel_quant.schema.readings import GpuWork

_FIRST, _NEXT = 0.5, 2.0
"""Seconds of the first average after a checkpoint, and of those after it: one takes 0.9 ms."""

_PERIOD: Final = 0.3
"""Seconds after a checkpoint whose utilization is hardly of what came before."""

_LANE: Final = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""Bytes a second of one lane, by the generation of PCI Express."""


class NvmlWork:
    """The averages of one device."""

    def __init__(self, nvml: Any, device: Any) -> None:
        self._nvml, self._device = nvml, device
        self._work: GpuWork | None = None
        self._began = math.nan  # When the time that is averaged began, by the monotonic clock
        self._metrics = {
            "busy": (nvml.NVML_GPM_METRIC_GRAPHICS_UTIL, 0.01),
            "sm": (nvml.NVML_GPM_METRIC_SM_UTIL, 0.01),
            "dram": (nvml.NVML_GPM_METRIC_DRAM_BW_UTIL, 0.01),
            "sent": (nvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC, 1 << 20),
            "received": (nvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC, 1 << 20),
        }
        is_counting = self._or_nan(lambda: nvml.nvmlGpmQueryDeviceSupport(device).isSupportedDevice)
        self._samples = [nvml.nvmlGpmSampleAlloc() for _ in range(2)] if is_counting == 1 else []
        self._limit = self._or_nan(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(device))
        self._link = self._or_nan(
            lambda: (
                _LANE[nvml.nvmlDeviceGetMaxPcieLinkGeneration(device)]
                * nvml.nvmlDeviceGetMaxPcieLinkWidth(device)
            )
        )

    def read(self, now: float, border_at: float) -> GpuWork | None:
        """Returns what the device has done since a checkpoint, lately; None as long as too little of that was seen."""
        if not self._began >= border_at:
            self._work, self._began = None, now
            if self._samples:
                self._nvml.nvmlGpmSampleGet(self._device, self._samples[0])
        elif not self._samples:
            if now - self._began >= _PERIOD:
                rates = self._nvml.nvmlDeviceGetUtilizationRates(self._device)
                self._work = GpuWork(rates.gpu / 100, power=self._power())
        elif now - self._began >= (_FIRST if self._work is None else _NEXT):
            self._began, self._work = now, self._averages()
        return self._work

    def _averages(self) -> GpuWork:
        nvml = self._nvml
        nvml.nvmlGpmSampleGet(self._device, self._samples[1])
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, len(self._metrics)
        asked.sample1, asked.sample2 = self._samples
        for at, (number, _) in enumerate(self._metrics.values()):
            asked.metrics[at].metricId = number
        told = nvml.nvmlGpmMetricsGet(asked).metrics
        self._samples.reverse()
        busy, sm, dram, *ways = (
            math.nan if each.nvmlReturn else each.value * unit
            for each, (_, unit) in zip(told, self._metrics.values(), strict=False)
        )
        return GpuWork(busy, sm, dram, max(ways), self._link, self._power())

    def _power(self) -> float:
        return self._or_nan(lambda: self._nvml.nvmlDeviceGetPowerUsage(self._device)) / self._limit

    def _or_nan(self, read: Any) -> float:
        """Returns a figure; NaN if the device, or its driver, does not have it."""
        try:
            value: float = read()
        except (self._nvml.NVMLError, LookupError):
            return math.nan
        return value
