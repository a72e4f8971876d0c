"""What a step has added to what only rises: of the declared type, and never less than nothing."""

from __future__ import annotations

from typing import Final

import pytest

from otel_quant.capture.recorder.attributes import FigureAttributes
from otel_quant.schema.catalog import ATTRIBUTES
from otel_quant.schema.figures import RESOURCES
from otel_quant.schema.readings import CpuReading, DiskReading, GpuReading, Peaks, Reading
from tests.fixtures.figures import named

TYPES: Final = {each.name: each.type for each in ATTRIBUTES}
WORDS: Final = {int: "int", float: "double"}


def reading(seconds: float, counted: int) -> Reading:
    """Returns one of a program that has used so many seconds and joules, and so many bytes and faults."""
    gpu = GpuReading(0, "GPU-a", None, 50, 100, 30)
    gpu.energy = seconds
    cpu = CpuReading(seconds, seconds, counted, seconds, seconds)
    disk = DiskReading(counted, counted, counted, counted)
    return Reading(0, 0, {"cpu": cpu, "disk": disk, "gpu": (gpu,)})


@pytest.mark.parametrize(
    ("before", "after", "added"),
    [
        pytest.param((2.5, 3), (2.75, 5), (0.25, 2), id="more"),
        pytest.param((2.5, 3), (2.5, 3), (0.0, 0), id="nothing"),
        pytest.param((0.0, 0), (0.0, 0), (0.0, 0), id="nothing so far"),
        pytest.param((2.5, 3), (2.25, 2), (0.0, 0), id="an estimate was too high"),
    ],
)
def test_what_is_added_has_the_declared_type(
    before: tuple[float, int], after: tuple[float, int], added: tuple[float, int]
) -> None:
    first, last = reading(*before), reading(*after)
    figures = FigureAttributes(RESOURCES)
    found = {
        **figures.between(first, last, Peaks({}, {}), None),
        **figures.at_checkpoint(last, first),
        **figures.at_reading(last, first),
    }
    assert {key: TYPES[key] for key in found} == {key: WORDS[type(found[key])] for key in found}
    seconds = ("quant.cpu.user", "quant.cpu.system", "quant.cpu.wait", "quant.gpu.energy")
    assert [found[named(name)] for name in seconds] == [added[0]] * 4
    assert found[named("quant.disk.write_chars")] == added[1]
