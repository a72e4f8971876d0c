"""With as many runs and steps in view as docs/scaling.md promises, dashboards answer and no store dies."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.stack.many_runs import send
from tests.stack.processes import ROOT, eventually
from tests.stack.world import World, stores
from tests.unit.stack.dashboards import QUERIES, Query

pytestmark = [pytest.mark.servers, pytest.mark.slow]

RUNS = 2400
STEPS_OF_EACH = 11
STEPS = 5500
LIMIT = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["loki"]["mem_limit"]


def records_of(world: World, runs: str) -> int:
    """Returns how many log records Loki has of some runs."""
    selected = f'sum(count_over_time({{service_name=~".+"}} | quant_run_name=~"{runs}" [1h]))'
    found = world.ask(Query(("test", "records"), "A", "loki", selected, instant=True))
    return int(found[0]["value"][1]) if found else 0


def peak_of(world: World) -> int:
    """Returns the highest memory of Loki so far, in bytes."""
    (process,) = (
        folder
        for folder in Path("/proc").glob("[0-9]*")
        if f"http_listen_port: {world.ports.loki}".encode() in config_of(folder)
    )
    (kib,) = re.findall(r"VmHWM:\s+(\d+) kB", (process / "status").read_text())
    return int(kib) * 1024


def config_of(process: Path) -> bytes:
    try:
        command = (process / "cmdline").read_bytes().decode().split("\0")
        named = [text.partition("=")[2] for text in command if text.startswith("-config.file=")]
        return Path(named[0]).read_bytes() if named and "loki" in command[0] else b""
    except OSError:
        return b""


@pytest.fixture
def world(binaries: dict[str, str], tmp_path: Path) -> Iterator[tuple[World, Any]]:
    with stores(binaries, tmp_path) as (world, made):
        yield replace(world, began=time.time() - RUNS - 600), made


def test_runs_opens_with_2400_runs_in_the_memory_that_loki_has(world: tuple[World, Any]) -> None:
    asked, made = world
    send(made.grpc, RUNS, steps=STEPS_OF_EACH)
    records = RUNS * 2 * (STEPS_OF_EACH + 1)
    eventually(lambda: records_of(asked, ".+") == records, "the runs in Loki")
    at_once = [q for q in QUERIES if q.place[0] == "Quantization runs" and q.store == "loki"]
    assert len(at_once) == 2
    with ThreadPoolExecutor(len(at_once)) as pool:
        states, peaks = pool.map(asked.ask, at_once)  # a refusal would raise
    assert (states, peaks) == ([], [])  # all have ended, and metrics know them
    assert LIMIT == "1g"
    assert peak_of(asked) < 1 << 30
    shown = asked.show("runs")
    assert shown["Runs in view"].columns[-1].values == [str(RUNS)]
    assert len(shown["Runs"].rows("Run")) == 1000
    assert len(shown["Memory"].frames) == 50


def test_a_run_of_5500_steps_shows_what_was_open_when(world: tuple[World, Any]) -> None:
    asked, made = world
    send(made.grpc, 1, steps=STEPS)
    eventually(lambda: records_of(asked, ".+") == 2 * (STEPS + 1), "the run in Loki")
    began = time.monotonic()
    shown = asked.show("run")
    assert time.monotonic() - began < 60  # the time that a proxy gives Grafana
    assert [frame[-1].name for frame in shown["Steps over time"].frames] == ["Calibration"]
    assert set(shown["Steps over time"].frames[0][-1].values) <= {"open", "closed"}
    assert shown["Open now"].is_empty
