"""Which GPU of several counts for a step, and what readings of it come to."""

from __future__ import annotations

import pytest

from otel_quant.diagnosis.gpus import WAIT, GpuEvidence, GpusOfStep
from otel_quant.schema.readings import GpuReading, GpuWork

GB = 10**9


def gpu(index: int, busy: float, own: int | None = GB, used: int = GB) -> GpuReading:
    return GpuReading(index, f"GPU-{index}", None, used, 80 * GB, own, work=GpuWork(busy))


@pytest.mark.parametrize(
    ("others", "idle"),
    [
        ([gpu(1, 0.0), gpu(2, 0.01, 0)], 2),
        ([gpu(1, 0.0), gpu(2, 0.3, 0)], 0),  # another program's computes
        ([], 0),
    ],
)
def test_the_busiest_gpu_of_the_program_counts_and_others_are_idle_if_all_are(
    others: list[GpuReading], idle: int
) -> None:
    seen = GpusOfStep()
    for busy in (0.8, 1.0):
        seen.add([gpu(0, busy), *others, gpu(7, 0.0, 0)] if idle else [gpu(0, busy), *others])
    seen.add_call(WAIT, 600)
    found = seen.evidence(1000)
    assert (found.work.busy, found.waits, found.idle) == (0.9, 0.6, idle + bool(idle))


def test_a_gpu_of_others_does_not_count() -> None:
    seen = GpusOfStep()
    seen.add([gpu(0, 0.9, 0, 40 * GB)])
    assert seen.evidence(1000) == GpuEvidence()
    seen.add([gpu(0, 0.9, GB, 41 * GB)])
    found = seen.evidence(1000)
    assert (found.work.busy, found.is_alone) == (0.9, False)
