"""Energy: of the processors from the kernel's counters, of a GPU what it counts and what its power makes of the time between."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from otel_quant.capture.probes.energy import PackageEnergy
from otel_quant.capture.probes.gpu_devices import EnergyMeter

MICRO = 1_000_000


def zone(root: Path, number: str, name: str, joules: int, most: int = 262_143) -> Path:
    folder = root / "sys/class/powercap" / f"intel-rapl:{number}"
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in (
        ("name", name),
        ("energy_uj", joules * MICRO),
        ("max_energy_range_uj", most * MICRO),
    ):
        (folder / file).write_text(f"{text}\n")
    return folder / "energy_uj"


def test_the_energy_of_all_packages_is_added_up_and_nothing_counts_twice(tmp_path: Path) -> None:
    first, second = (zone(tmp_path, str(n), f"package-{n}", 1000 + n) for n in range(2))
    zone(tmp_path, "0:0", "core", 400)
    zone(tmp_path, "2", "psys", 9000)
    energy = PackageEnergy(tmp_path)
    assert energy.read() == 0
    first.write_text(f"{1010 * MICRO}\n")
    second.write_text(f"{1004 * MICRO}\n")
    assert energy.read() == 13


def test_a_counter_that_begins_anew_goes_on(tmp_path: Path) -> None:
    file = zone(tmp_path, "0", "package-0", 262_140)
    energy = PackageEnergy(tmp_path)
    energy.read()
    file.write_text(f"{7 * MICRO}\n")
    assert energy.read() == pytest.approx(10, abs=1e-3)


def test_energy_that_only_root_may_read_is_absent(tmp_path: Path) -> None:
    assert PackageEnergy(tmp_path).read() is None
    file = zone(tmp_path, "0", "package-0", 5)
    file.unlink()
    file.mkdir()  # cannot be read, by root either
    assert PackageEnergy(tmp_path).read() is None
    assert os.path.isdir(file)


def meter(*readings: tuple[float, bool, float, float]) -> tuple[list[float | None], list[float]]:
    """Returns the joules at readings (time, whether between checkpoints, watts, counter), and when the device was asked."""
    made, joules, asked, border_at = EnergyMeter(), [], [], -math.inf
    for now, is_brief, power, counted in readings:
        made.pass_time(now, power)
        if made.is_due(now, border_at, is_brief):
            made.count(now, counted)
            asked.append(now)
        if not is_brief:
            border_at = now
        joules.append(made.joules)
    return joules, asked


def test_a_step_of_a_second_has_what_the_device_counts_and_a_short_one_power_times_time() -> None:
    joules, asked = meter(
        (10.0, False, 100, 5000), (10.2, False, 100, 5020), (10.25, True, 100, 5025),
        (12.0, False, 300, 5600), (12.5, False, 300, 5800),
    )  # fmt: skip
    assert joules == pytest.approx([0, 20, 25, 600, 750])
    assert asked == [10.0, 12.0]


def test_the_sampler_asks_each_five_seconds() -> None:
    samples = [(at / 10, True, 100.0, at * 10.0) for at in range(1, 300)]
    _, asked = meter((0.0, False, 100, 0), *samples)
    assert asked == pytest.approx([0, 5, 10, 15, 20, 25], abs=0.1)
    _, asked = meter((0.0, False, 100, 0), (0.5, False, 100, 50), *samples[5:60])
    assert asked == pytest.approx([0, 5], abs=0.1)


def test_an_estimate_that_was_too_high_is_corrected() -> None:
    # The power that a driver tells lags: the device has just become idle.
    joules, _ = meter((0.0, False, 700, 0), (0.9, False, 700, 630), (2.0, False, 125, 770))
    assert joules == pytest.approx([0, 630, 770])
