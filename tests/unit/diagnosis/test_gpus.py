"""Which GPU of several counts for a step, and what readings of it come to."""

from __future__ import annotations

import math

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
        seen.add([gpu(0, busy), *others, gpu(7, 0.0, 0)] if idle else [gpu(0, busy), *others], None)
    seen.add_call(WAIT, 600)
    found = seen.evidence(1000)
    assert (found.work.busy, found.waits, found.idle) == (0.9, 0.6, idle + bool(idle))


def test_a_gpu_of_others_does_not_count() -> None:
    seen = GpusOfStep()
    seen.add([gpu(0, 0.9, 0, 40 * GB)], None)
    assert seen.evidence(1000) == GpuEvidence()
    seen.add([gpu(0, 0.9, GB, 41 * GB)], None)
    found = seen.evidence(1000)
    assert (found.work.busy, found.is_shared) == (0.9, True)


def test_memory_of_a_gpu_that_grows_with_the_samples_is_told_of_the_one_that_grows_most() -> None:
    seen = GpusOfStep()
    for sample in range(1, 60):
        seen.add([gpu(0, 0.5, GB), gpu(1, 0.1, GB + sample * 10**7, 2 * GB)], sample)
    found = seen.evidence(1000)
    assert found.per_sample == pytest.approx(10**7)
    assert (found.limit, found.work.busy) == (80 * GB, 0.5)
    assert math.isnan(GpuEvidence().per_sample)
