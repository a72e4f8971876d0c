"""AMD Quark's profiler API, for scripts that were written for it.

Only the import line has to be changed::

    from otel_quant.quark import GlobalProfiler, ProfileStep

Quark need not be installed.
"""

from __future__ import annotations

from otel_quant.profile.metrics import (
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
from otel_quant.quark.profiler import GlobalProfiler, profile_scope
from otel_quant.steps import ProfileStep

__all__ = [
    "BaseMetric",
    "CPUMemoryMbMetric",
    "CPUPeakMemoryMetric",
    "CheckpointMetric",
    "DiskReadMbMetric",
    "DiskWriteMbMetric",
    "GPUMemoryMbMetric",
    "GPUPeakMemoryMetric",
    "GlobalProfiler",
    "MetricContext",
    "PeakCacheDirDiskUsageMbMetric",
    "ProfileStep",
    "RelativeTimeMetric",
    "StepNameMetric",
    "SummaryMetric",
    "TimestampMetric",
    "TotalDiskReadMbMetric",
    "TotalDiskWriteMbMetric",
    "TotalTimeMetric",
    "profile_scope",
]
