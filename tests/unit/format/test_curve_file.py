"""A curve stays small, keeps every peak and its time, and is whole up to a second before a kill."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from otel_quant.format.curve import LARGEST, Bucket, Curve, CurveFile, Level, read_curve

BEGAN_NS, CLOCK_NS = 1_700_000_000_000_000_000, 5_000_000_000
MIB = 1 << 20


def clock_ns(milliseconds: int) -> int:
    return CLOCK_NS + milliseconds * 1_000_000


def levels_at(number: int, gpus: int) -> dict[str, int]:
    """Memory that moves like a real run's: it drifts, in steps of a page, with noise."""
    memory = 4096 * int(500_000 + 400_000 * math.sin(number / 90_000) + number * 7919 % 997)
    levels = {"memory": memory}
    for gpu in range(gpus):
        levels[f"gpu.{gpu}.used"] = memory * (gpu + 1) // 3
        levels[f"gpu.{gpu}.process_used"] = memory * (gpu + 1) // 4
    return levels


@pytest.mark.parametrize("gpus", [0, pytest.param(8, marks=pytest.mark.slow)])
def test_ten_hours_at_50_ms_take_300_kb_and_keep_the_peak_and_its_time(
    tmp_path: Path, gpus: int
) -> None:
    path = tmp_path / "curve.1.jsonl"
    file = CurveFile(path, BEGAN_NS, CLOCK_NS, 0.05)
    readings, peak, largest = 720_000, (480_001, 90_000_000_000), 0
    lowest = peak[1]
    for number in range(readings):
        levels = levels_at(number, gpus)
        if number == peak[0]:
            levels = dict.fromkeys(levels, peak[1])
        lowest = min(lowest, levels["memory"])
        totals = {"disk.read": number * 4096, "cpu": number / 20}
        file.add(clock_ns(50 * number), levels, totals if number % 20 == 0 else {})
        if number % 1000 == 0:
            largest = max(largest, path.stat().st_size)
    file.close()
    assert max(largest, path.stat().st_size) <= 300_000
    assert sorted(each.name for each in tmp_path.iterdir()) == [path.name]
    found = read_curve(path)
    assert (found.began_ns, found.clock_ns) == (BEGAN_NS, CLOCK_NS)
    buckets = found.curve.buckets.values()
    for name in levels_at(0, gpus):
        highest = max((bucket.levels[name] for bucket in buckets), key=lambda each: each.highest)
        assert (highest.highest, highest.at) == (peak[1], 50 * peak[0])
    assert min(bucket.levels["memory"].lowest for bucket in buckets) == lowest
    last = found.curve.buckets[max(found.curve.buckets)]
    assert last.levels["memory"].last == levels_at(readings - 1, 0)["memory"]
    assert len(buckets) > (60 if gpus else 500)


def test_halving_keeps_lowest_highest_last_and_when() -> None:
    curve = Curve(50)
    for at, value in ((0, 5), (40, 9), (60, 2), (160, 7)):
        curve.add(at, {"memory": value}, {"cpu": at})
    curve.halve()
    assert (curve.length, curve.buckets) == (
        100,
        {
            0: Bucket(0, {"memory": Level(2, 9, 2, 40)}, {"cpu": 60}),
            1: Bucket(1, {"memory": Level(7, 7, 7, 160)}, {"cpu": 160}),
        },
    )


def test_a_kill_loses_a_second_at_most(tmp_path: Path) -> None:
    path = tmp_path / "curve.1.jsonl"
    file = CurveFile(path, BEGAN_NS, CLOCK_NS, 0.05)
    for number in range(400):
        file.add(clock_ns(50 * number), {"memory": number}, {})
        if number >= 20:
            curve = read_curve(path).curve
            assert curve.buckets[max(curve.buckets)].levels["memory"].last > number - 21


def test_a_curve_cut_anywhere_by_a_kill_is_readable(tmp_path: Path) -> None:
    path = tmp_path / "curve.1.jsonl"
    file = CurveFile(path, BEGAN_NS, CLOCK_NS, 0.05)
    for number in range(40):
        extra = {"gpu.0.used": number} if number > 20 else {}
        file.add(clock_ns(50 * number), {"memory": number, **extra}, {"cpu": number})
    file.close()
    whole = path.read_bytes()
    counts = []
    for end in range(whole.index(b"\n") + 1, len(whole) + 1):
        path.write_bytes(whole[:end])
        counts.append(len(read_curve(path).curve.buckets))
    assert counts == sorted(counts)
    assert counts[-1] == 40


def test_a_series_has_no_values_before_its_start(tmp_path: Path) -> None:
    path = tmp_path / "curve.1.jsonl"
    file = CurveFile(path, BEGAN_NS, CLOCK_NS, 0.05)
    file.add(clock_ns(0), {"memory": 1}, {})
    file.flush()
    file.add(clock_ns(50), {"memory": 2, "cache": 3}, {"cpu": 0.5})
    file.close()
    assert read_curve(path).curve.buckets == {
        0: Bucket(0, {"memory": Level(1, 1, 1, 0)}, {}),
        1: Bucket(1, {"memory": Level(2, 2, 2, 50), "cache": Level(3, 3, 3, 50)}, {"cpu": 0.5}),
    }


def test_a_full_disk_during_halving_leaves_a_readable_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "curve.1.jsonl"
    file = CurveFile(path, BEGAN_NS, CLOCK_NS, 0.05)
    monkeypatch.setattr("otel_quant.format.curve.FLUSH_EVERY", math.inf)
    number = 0
    while path.stat().st_size < LARGEST - 2000:
        for _ in range(20):
            file.add(clock_ns(50 * number), {"memory": number * 4096}, {})
            number += 1
        file.flush()
    beside = tmp_path / f".{path.name}.new"
    beside.mkdir()  # nothing can be written there
    while True:
        for _ in range(20):
            file.add(clock_ns(50 * number), {"memory": number * 4096}, {})
            number += 1
        try:
            file.flush()
        except OSError:
            break
    before = read_curve(path).curve
    assert before.length == 50
    beside.rmdir()
    file.add(clock_ns(50 * number), {"memory": number * 4096}, {})
    file.close()
    after = read_curve(path).curve
    assert after.length > 50
    assert max(bucket.levels["memory"].highest for bucket in after.buckets.values()) == (
        number * 4096
    )
    assert min(bucket.levels["memory"].lowest for bucket in after.buckets.values()) == 0
    assert sum(json.loads(line)[0] for line in path.read_text().splitlines()[1:]) == sum(
        after.buckets
    )
