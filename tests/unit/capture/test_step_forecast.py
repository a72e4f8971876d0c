"""Forecasts from literal readings: growth is reported early, and constant memory is not reported."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Final

import pytest

from otel_quant.capture.recorder.step_forecast import StepForecast
from otel_quant.schema.readings import (
    Forecast,
    GpuReading,
    GrowthForecast,
    Limits,
    MemoryReading,
    Reading,
)

LIMIT: Final = 16_000_000_000
SAMPLES: Final = 512
SECONDS: Final = 60
PER_SECOND: Final = 20  # readings

Curve = Callable[[float], float]
"""Memory in bytes by the part of the samples that is consumed."""


def reading(second: float, memory: int, gpus: tuple[GpuReading, ...] = ()) -> Reading:
    resources = {"memory": MemoryReading(memory, memory), "gpu": gpus}
    return Reading(0, round(second * 1e9), resources)


def memory_warnings(curve: Curve) -> tuple[float | None, float | None]:
    """Returns the parts of the samples at which it warned and at which the limit was reached."""
    step = StepForecast(SAMPLES, Limits(LIMIT, "cgroup"))
    warned: float | None = None
    count = SECONDS * PER_SECOND
    for number in range(1, count + 1):
        part = number / count
        memory = curve(part)
        if memory > LIMIT:
            return warned, part
        now = reading(number / PER_SECOND, round(memory))
        step.add(round(part * SAMPLES), now)
        if number % PER_SECOND == 0 and warned is None:
            growths = step.result(now.clock_ns).growths
            if any(growth.is_warning for growth in growths):
                warned = part
    return warned, None


def leak(seed: int) -> Curve:
    """Memory that reaches the limit on a line, with noise, teeth, and a jump at the start."""
    numbers = random.Random(seed)
    base = numbers.uniform(0.05, 0.4) + numbers.choice((0, numbers.uniform(0, 0.2)))
    at_end = base + (1 - base) * numbers.uniform(1.3, 3)
    noise, teeth, tooth = (numbers.uniform(0, most) for most in (0.01, 0.03, 0.03))
    tooth += 0.005

    def memory(part: float) -> float:
        if part < 0.02:
            return LIMIT * 0.05
        ramp = base + (at_end - base) * part
        return LIMIT * (ramp + numbers.gauss(0, noise / 2) + teeth * (part / tooth % 1))

    return memory


def level(base: float, numbers: random.Random) -> Curve:
    return lambda part: base + 0.02 * numbers.random()


def step_at_the_start(base: float, numbers: random.Random) -> Curve:
    height, at, rise = numbers.uniform(0.1, 0.5), numbers.uniform(0, 0.3), 0.02
    return lambda part: base + height * min(1.0, max(0.0, (part - at) / rise))


def saw_teeth(base: float, numbers: random.Random) -> Curve:
    height, length = numbers.uniform(0.05, 0.2), numbers.uniform(0.01, 0.2)
    return lambda part: base + height * (part / length % 1)


def levelling_off(base: float, numbers: random.Random) -> Curve:
    height, length = numbers.uniform(0.1, 0.4), numbers.uniform(0.05, 0.25)
    return lambda part: base + height * (1 - math.exp(-part / length))


def slow_growth_that_fits(base: float, numbers: random.Random) -> Curve:
    return lambda part: base + (0.8 - base) * part + 0.01 * numbers.random()


@pytest.mark.parametrize("seed", range(20))
def test_a_linear_leak_is_reported_before_half_of_the_time_to_the_limit(seed: int) -> None:
    warned, reached = memory_warnings(leak(seed))
    assert warned is not None
    assert reached is not None
    assert warned < reached / 2


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "shape", [level, step_at_the_start, saw_teeth, levelling_off, slow_growth_that_fits]
)
def test_memory_that_stays_below_the_limit_is_not_called_a_leak(
    shape: Callable[[float, random.Random], Curve], seed: int
) -> None:
    numbers = random.Random(seed)
    curve = shape(numbers.uniform(0.1, 0.35), numbers)
    assert memory_warnings(lambda part: LIMIT * curve(part)) == (None, None)


def test_a_forecast_for_constant_memory_has_only_the_time_left() -> None:
    step = StepForecast(100, Limits(LIMIT, "physical"))
    for sample in range(1, 41):
        step.add(sample, reading(2 * sample, 5_000_000_000))
    assert step.result(80_000_000_000) == Forecast(time_left=120.0)
    # Nothing has come for a second: the next sample is nearer.
    assert step.result(81_000_000_000) == Forecast(time_left=119.0)


def test_memory_and_each_gpu_have_their_own_forecast() -> None:
    step = StepForecast(100, Limits(10_000, "cgroup"))
    for sample in range(1, 52):
        gpus = (
            GpuReading(0, "GPU-level", None, 700, 1000),
            GpuReading(1, "GPU-grows", None, 100 + 20 * sample, 2000),
            GpuReading(2, "GPU-unlimited", None, 100 + 20 * sample),
        )
        step.add(sample, reading(sample, 1000 + 10 * sample, gpus))
    assert step.result(51_000_000_000).growths == (
        GrowthForecast("memory", at_end=2000, per_unit=10, limit=10_000),
        GrowthForecast("gpu", 2100, 20, 2000, "GPU-grows", is_warning=True),
    )


def test_memory_that_a_sample_takes_and_gives_back_hides_no_growth() -> None:
    """What is kept is copied for each sample, so most readings are between it and twice as much."""
    numbers, step = random.Random(0), StepForecast(100, Limits(LIMIT, "cgroup"))
    for sample in range(1, 52):
        kept = 1_000_000 * sample
        step.add(sample, reading(sample, round(kept * (1 + numbers.random()))), kept)
    grows = GrowthForecast("memory", at_end=100_000_000, per_unit=1_000_000, limit=LIMIT)
    assert step.result(51_000_000_000).growths == (grows,)


def test_an_unknown_value_has_no_forecast() -> None:
    step = StepForecast(100, Limits())
    assert step.result(0) == Forecast()
    step.add(1, Reading(0, 1_000_000_000))
    assert step.result(1_000_000_000) == Forecast()
    for sample in range(2, 150):  # more than were expected
        step.add(sample, reading(sample, 1000 * sample))
    assert step.result(150_000_000_000) == Forecast()


def test_the_time_left_of_layers_is_that_until_the_last_is_done() -> None:
    step = StepForecast(32, Limits(10_000, "cgroup"), "layer")
    for layer in range(1, 18):
        step.add(layer, reading(2 * layer, 1000 + 100 * layer))
    assert step.result(34_000_000_000) == Forecast(
        time_left=32.0, growths=(GrowthForecast("memory", 4200, 100, 10_000, unit="layer"),)
    )
