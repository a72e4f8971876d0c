"""The metrics of the local file, under the name that they have in Quark's profiler."""

from __future__ import annotations

from otel_quant.export.quark_yaml.metrics import (
    BaseMetric,
    CheckpointMetric,
    CPUMemoryMbMetric,
    CPUPeakMemoryMetric,
    DiskReadMbMetric,
    DiskWriteMbMetric,
    GPUMemoryMbMetric,
    GPUPeakMemoryMetric,
    MetricContext,
    PeakCacheDirDiskUsageMbMetric,
    RelativeTimeMetric,
    StepNameMetric,
    SummaryMetric,
    TimestampMetric,
    TotalDiskReadMbMetric,
    TotalDiskWriteMbMetric,
    TotalTimeMetric,
)

__all__ = [
    "BaseMetric",
    "CPUMemoryMbMetric",
    "CPUPeakMemoryMetric",
    "CheckpointMetric",
    "DiskReadMbMetric",
    "DiskWriteMbMetric",
    "GPUMemoryMbMetric",
    "GPUPeakMemoryMetric",
    "MetricContext",
    "PeakCacheDirDiskUsageMbMetric",
    "RelativeTimeMetric",
    "StepNameMetric",
    "SummaryMetric",
    "TimestampMetric",
    "TotalDiskReadMbMetric",
    "TotalDiskWriteMbMetric",
    "TotalTimeMetric",
]
