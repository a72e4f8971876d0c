"""Which devices a step has a record of."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from otel_quant.capture.recorder.attributes import FigureAttributes
from otel_quant.capture.recorder.peaks import PeakTracker, with_peaks
from otel_quant.schema import semconv
from otel_quant.schema.figures import RESOURCES
from otel_quant.schema.readings import AllocatorMark, GpuReading, Reading, TorchMemory

_MARK: Final = AllocatorMark(1, 20)
_TORCH: Final = TorchMemory(10, 20, _MARK, _MARK)
GPU: Final = GpuReading(0, "GPU-a", None, 50, 100, 30, _TORCH, processes=1)
IDLE: Final = GpuReading(1, "GPU-b", None, 5, 100, 0, processes=0)


@pytest.mark.parametrize(
    ("between", "end", "is_short", "ids"),
    [
        pytest.param(GPU, GPU, True, [], id="nothing has changed"),
        pytest.param(GPU, GPU, False, ["GPU-a", "GPU-b"], id="a long step, which has readings of what they do"),
        pytest.param(GPU, replace(GPU, used=60), True, ["GPU-a"], id="memory has changed"),
        pytest.param(replace(GPU, used=60), GPU, True, ["GPU-a"], id="a sample had more"),
        pytest.param(GPU, replace(GPU, torch=_TORCH._replace(allocated_mark=AllocatorMark(2, 25))), True, ["GPU-a"], id="a spike within the allocator"),
    ],
)  # fmt: skip
def test_a_short_step_has_a_record_of_the_devices_whose_memory_has_changed(
    between: GpuReading, end: GpuReading, is_short: bool, ids: list[str]
) -> None:
    first, middle, last = (Reading(0, 0, {"gpu": (gpu, IDLE)}) for gpu in (GPU, between, end))
    tracker = PeakTracker(first, with_peaks(RESOURCES))
    tracker.fold(middle)
    tracker.fold(last)
    attributes = FigureAttributes(RESOURCES)
    found = attributes.of_devices(first, last, tracker.result(), is_short=is_short)
    assert [each[semconv.HW_ID] for each in found] == ids
