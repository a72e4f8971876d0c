"""With as many runs and steps in view as docs/scaling.md promises, dashboards answer and no store dies.

And a run of eleven minutes as a user has it: the SDK sends metrics once a minute.
"""

from __future__ import annotations

import functools
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_quant.schema import semconv
from tests.stack.grafana_panels import Shown
from tests.stack.many_runs import send
from tests.stack.processes import Backends, eventually, instrumented, prometheus
from tests.stack.world import World, stores
from tests.unit.stack.dashboards import FILES, QUERIES, Query

pytestmark = [pytest.mark.servers, pytest.mark.slow]

RUNS = 2400
STEPS_OF_EACH = 11
STEPS = 5500
DAYS, RUNS_A_DAY = 30, 4100
NAME = ',quant_run_name="run {}"'
CHARTS = ("Memory", "Share of the memory limit", "Error rate")
QUERIES_OF_RUNS = [query for query in QUERIES if query.place[0] == "Quantization runs"]


def records_of(world: World, runs: str) -> int:
    """Returns how many log records Loki has of some runs."""
    selected = f'sum(count_over_time({{service_name=~".+"}} | quant_run_name=~"{runs}" [1h]))'
    found = world.ask(Query(("test", "records"), "A", "loki", selected, instant=True))
    return int(found[0]["value"][1]) if found else 0


@pytest.fixture
def world(binaries: dict[str, str], tmp_path: Path) -> Iterator[tuple[World, Any]]:
    with stores(binaries, tmp_path, limited=True) as (world, made):
        yield replace(world, began=time.time() - RUNS - 600), made


def test_runs_opens_with_2400_runs_in_the_memory_that_loki_has(world: tuple[World, Any]) -> None:
    asked, made = world
    send(made.grpc, RUNS, steps=STEPS_OF_EACH)
    records = RUNS * 2 * (STEPS_OF_EACH + 1)
    eventually(lambda: records_of(asked, ".+") == records, "the runs in Loki")
    (closed_at_first,) = (q for q in QUERIES_OF_RUNS if q.store == "loki")
    assert asked.ask(closed_at_first) == []  # all have ended; a refusal would raise
    shown = asked.show("runs")
    assert shown["Runs in view"].columns[-1].values == [str(RUNS)]
    assert len(shown["Runs"].rows("Run")) == 1000
    # The runs are younger at first than the last point of a chart.
    eventually(lambda: len(asked.show("runs")["Memory"].frames) == 50, "the runs in the chart")


def test_a_run_of_5500_steps_shows_its_open_steps_at_each_time(world: tuple[World, Any]) -> None:
    asked, made = world
    send(made.grpc, 1, steps=STEPS)
    eventually(lambda: records_of(asked, ".+") == 2 * (STEPS + 1), "the run in Loki")
    began = time.monotonic()
    shown = asked.show("run")
    assert time.monotonic() - began < 60  # the time that a proxy gives Grafana
    assert [frame[-1].name for frame in shown["Steps over time"].frames] == ["Calibration"]
    assert set(shown["Steps over time"].frames[0][-1].values) <= {"open", "closed"}
    assert shown["Open now"].is_empty


STEP_KINDS = (
    "Model Caching", "Float Model Validation", "Dataset Loading", "Pre-process", "Calibration",
    "Quantization (Static)", "Post-process",
)  # fmt: skip


def one_day(path: Path, day: int) -> None:
    """Writes what Prometheus is sent of a day's runs, each of four minutes, as OpenMetrics: what *Runs* asks for."""
    runs = range(day * RUNS_A_DAY, (day + 1) * RUNS_A_DAY)
    first = int(time.time()) - DAYS * 86400 + 600
    began = [first + n * 86000 // RUNS_A_DAY for n in runs]
    series: tuple[tuple[str, tuple[str, ...], Callable[[int, int], int | None]], ...] = (
        ("quant_run_start_seconds", (NAME,), lambda start, at: start),
        ("quant_run_last_seen_seconds", (NAME,), lambda start, at: at),
        ("quant_run_end_seconds", (NAME,), lambda start, at: at if at == start + 240 else None),
        ("quant_run_memory_peak_bytes", (NAME,), lambda start, at: 10**9),
        ("quant_run_memory_usage_bytes", ("",), lambda start, at: 10**9),
        ("quant_run_memory_limit_bytes", ("",), lambda start, at: 2 * 10**9),
        ("hw_gpu_memory_usage_bytes", (',hw_id="GPU-1"',), lambda start, at: 10**9),
        (
            "quant_run_disk_io_bytes_total",
            tuple(f',disk_io_direction="{way}"' for way in ("read", "write")),
            lambda start, at: at - start,
        ),
        (
            "quant_step_duration_seconds_count",
            tuple(f',quant_step_kind="{kind}"' for kind in STEP_KINDS),
            lambda start, at: int(at > start + 60),
        ),
    )
    with path.open("w") as file:
        for metric, of_each, value in series:
            file.write(
                f"# TYPE {metric.removesuffix('_total')} {'counter' if metric.endswith('_total') else 'gauge'}\n"
            )
            for n, start in zip(runs, began, strict=True):
                for more in of_each:
                    labels = f'job="program-{n % 20}",instance="process-{n}",host_name="host"{more.format(n)}'
                    points = ((at, value(start, at)) for at in range(start, start + 241, 60))
                    file.writelines(
                        f"{metric}{{{labels}}} {v} {at}\n" for at, v in points if v is not None
                    )
        file.write("# EOF\n")


def test_runs_opens_with_30_days_of_4100_runs_in_half_of_the_memory_that_prometheus_has(
    binaries: dict[str, str], tmp_path: Path
) -> None:
    for day in range(DAYS):
        one_day(tmp_path / "day", day)
        subprocess.run(
            [binaries["promtool"], "tsdb", "create-blocks-from", "openmetrics", "--quiet",
             "--max-block-duration=24h", tmp_path / "day", tmp_path / "prometheus"],
            check=True,
        )  # fmt: skip
    ports = Backends()
    server = prometheus(binaries["prometheus"], tmp_path, ports)
    server.command.append("--storage.tsdb.retention.time=90d")
    asked = World(ports, "", time.time() - DAYS * 86400, [])
    (runs,) = (file for file in FILES if file.stem == "runs")
    (menu,) = (query for query in QUERIES_OF_RUNS if query.place[1] == "run")
    of_panels = [q for q in QUERIES_OF_RUNS if q.store == "prometheus" and q.ref != "variable"]
    with server.within_limit() as group, ThreadPoolExecutor(6) as pool:  # as many as a browser
        try:
            server.start()
            names = pool.submit(asked.ask, menu)
            ask = functools.partial(asked.ask, process=asked.processes(runs))
            found = dict(zip(map(str, of_panels), pool.map(ask, of_panels), strict=True))
            assert server.peak < group.allowed / 2
        finally:
            server.kill()
    of_runs = {name.removeprefix("Quantization runs / "): rows for name, rows in found.items()}
    assert of_runs["Runs in view / A"][0]["value"][1] == str(DAYS * RUNS_A_DAY)
    newest = {f"run {n}" for n in range(DAYS * RUNS_A_DAY - 1000, DAYS * RUNS_A_DAY)}
    assert set(names.result()) == newest
    for column in ("began", "state", "duration", "peak", "share", "gpu", "disk"):
        assert {row["metric"]["quant_run_name"] for row in of_runs[f"Runs / {column}"]} == newest
    assert {row["value"][1] for row in of_runs["Runs / duration"]} == {"240000000000"}
    # Runs are shorter than what passes between two points: each is there all the same.
    assert [len(of_runs[f"{chart} / A"]) for chart in CHARTS] == [50, 50, 20]


MINUTES = 8  # pytest ends a test after ten
BEFORE_A_RATE = 2
"""Minutes in which there is no second export yet that a rate could be made of, and a little more."""
MINUTE = 60
BETWEEN_POINTS = 5
"""Seconds between two points of a chart that the tests ask for."""


LONG_RUN = f"""
import os, tempfile, time
import otel_quant

# Steps of half a minute, which work a little and write to the disk.
ends = time.monotonic() + {MINUTES * MINUTE}
model = {{{semconv.INPUT_PATH!r}: "models/resnet50.onnx", {semconv.CALIBRATION_METHOD!r}: "Percentile"}}
with tempfile.NamedTemporaryFile() as file:
    while time.monotonic() < ends:
        with otel_quant.step("Calibration", attributes=model):
            ended = time.monotonic() + 30
            while time.monotonic() < ended:
                file.write(os.urandom(1 << 16))
                file.flush()
                os.fsync(file.fileno())
                time.sleep(0.5)
"""


def test_charts_of_a_run_at_default_intervals_have_no_gaps(
    binaries: dict[str, str], tmp_path: Path
) -> None:
    with stores(binaries, tmp_path) as (world, made):
        program = instrumented(made, "-c", LONG_RUN, OTEL_SERVICE_NAME="nightly")
        assert program.wait() == 0
        eventually(lambda: world.metric("quant_run_end_seconds"), "the run's end")
        shown = {name: world.show(name, job=".+") for name in ("run", "runs", "compare")}
    expected = (MINUTES - BEFORE_A_RATE) * MINUTE / BETWEEN_POINTS
    charts = (
        ("run", "Memory"), ("run", "Disk"), ("run", "CPU"), ("run", "Steps over time"),
        ("runs", "Memory"), ("runs", "Share of the memory limit"), ("runs", "Error rate"),
        ("compare", "Duration of ended steps"), ("compare", "Spread of durations"),
    )  # fmt: skip
    assert {chart: min(points(shown[chart[0]][chart[1]])) >= expected for chart in charts} == (
        dict.fromkeys(charts, True)
    )
    ((state, steps),) = shown["runs"]["Runs"].rows("State", "Duration")
    assert state == "ended"
    assert steps.endswith("mins")


def points(shown: Shown) -> list[int]:
    """Returns how many points each line of a chart has, those of log records left out."""
    return [
        len(frame[-1].values) for frame in shown.frames if not frame[-1].name.startswith("readings")
    ]
