"""With as many runs and steps in view as docs/scaling.md promises, dashboards answer and no store dies."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.stack.many_runs import send
from tests.stack.processes import ROOT, Backends, eventually, prometheus
from tests.stack.world import World, stores
from tests.unit.stack.dashboards import QUERIES, Query

pytestmark = [pytest.mark.servers, pytest.mark.slow]

RUNS = 2400
STEPS_OF_EACH = 11
STEPS = 5500
DAYS, RUNS_A_DAY = 30, 1000
QUERIES_OF_RUNS = [query for query in QUERIES if query.place[0] == "Quantization runs"]


def records_of(world: World, runs: str) -> int:
    """Returns how many log records Loki has of some runs."""
    selected = f'sum(count_over_time({{service_name=~".+"}} | quant_run_name=~"{runs}" [1h]))'
    found = world.ask(Query(("test", "records"), "A", "loki", selected, instant=True))
    return int(found[0]["value"][1]) if found else 0


def peak_of(listens: str) -> int:
    """Returns the highest memory so far, in bytes, of the server with that in its command or configuration."""
    (process,) = (folder for folder in Path("/proc").glob("[0-9]*") if listens in config_of(folder))
    (kib,) = re.findall(r"VmHWM:\s+(\d+) kB", (process / "status").read_text())
    return int(kib) * 1024


def config_of(process: Path) -> str:
    """Returns the command of one of the servers, and the configuration that it names."""
    try:
        words = (process / "cmdline").read_text().split("\0")
        named = [text.partition("=")[2] for text in words if text.startswith("-config.file=")]
        is_server = Path(words[0]).name in ("loki", "prometheus")
        return (
            " ".join(words) + "".join(Path(each).read_text() for each in named) if is_server else ""
        )
    except OSError:
        return ""


def limit_of(server: str) -> str:
    composed = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return composed["services"][server]["mem_limit"]


@pytest.fixture
def world(binaries: dict[str, str], tmp_path: Path) -> Iterator[tuple[World, Any]]:
    with stores(binaries, tmp_path) as (world, made):
        yield replace(world, began=time.time() - RUNS - 600), made


def test_runs_opens_with_2400_runs_in_the_memory_that_loki_has(world: tuple[World, Any]) -> None:
    asked, made = world
    send(made.grpc, RUNS, steps=STEPS_OF_EACH)
    records = RUNS * 2 * (STEPS_OF_EACH + 1)
    eventually(lambda: records_of(asked, ".+") == records, "the runs in Loki")
    (closed_at_first,) = (q for q in QUERIES_OF_RUNS if q.store == "loki")
    assert asked.ask(closed_at_first) == []  # all have ended; a refusal would raise
    assert limit_of("loki") == "1g"
    assert peak_of(f"http_listen_port: {asked.ports.loki}") < 1 << 30
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


def month(path: Path) -> None:
    """Writes what Prometheus is sent of that many runs, each of four minutes, as OpenMetrics."""
    first = int(time.time()) - DAYS * 86400 + 600
    began = [first + n * 86000 // RUNS_A_DAY for n in range(DAYS * RUNS_A_DAY)]
    series = {
        "quant_run_start_seconds": lambda start, at: start,
        "quant_run_last_seen_seconds": lambda start, at: at,
        "quant_run_end_seconds": lambda start, at: at if at == start + 240 else None,
        "quant_run_memory_peak_bytes": lambda start, at: 10**9,
        "quant_run_memory_usage_bytes": lambda start, at: 10**9,
        "quant_run_memory_limit_bytes": lambda start, at: 2 * 10**9,
    }
    with path.open("w") as file:
        for metric, value in series.items():
            file.write(f"# TYPE {metric} gauge\n")
            for n, start in enumerate(began):
                name = (
                    ""
                    if metric.endswith(("usage_bytes", "limit_bytes"))
                    else f',quant_run_name="run {n}"'
                )
                labels = f'job="program-{n % 20}",instance="process-{n}"{name}'
                points = ((at, value(start, at)) for at in (start, start + 120, start + 240))
                file.writelines(
                    f"{metric}{{{labels}}} {v} {at}\n" for at, v in points if v is not None
                )
        file.write("# EOF\n")


def test_runs_opens_with_30_days_of_1000_runs_in_the_memory_that_prometheus_has(
    binaries: dict[str, str], tmp_path: Path
) -> None:
    month(tmp_path / "month")
    subprocess.run(
        [binaries["promtool"], "tsdb", "create-blocks-from", "openmetrics", "--quiet",
         "--max-block-duration=24h", tmp_path / "month", tmp_path / "prometheus"],
        check=True,
    )  # fmt: skip
    ports = Backends()
    server = prometheus(binaries["prometheus"], tmp_path, ports)
    server.command.append("--storage.tsdb.retention.time=90d")
    server.start()
    asked = World(ports, "", time.time() - DAYS * 86400, [])
    try:
        at_once = [
            replace(query, text=query.text.replace("$__range", f"{DAYS}d"))
            for query in QUERIES_OF_RUNS
            if query.store == "prometheus" and (query.instant or query.ref == "variable")
            and "label_values" not in query.text
        ]  # fmt: skip
        with ThreadPoolExecutor(len(at_once)) as pool:
            found = dict(zip(map(str, at_once), pool.map(asked.ask, at_once), strict=True))
        assert limit_of("prometheus") == "2g"
        assert peak_of(f"127.0.0.1:{ports.prometheus}") < 2 << 30
    finally:
        server.kill()
    in_view = found["Quantization runs / Runs in view / A"]
    assert in_view[0]["value"][1] == str(DAYS * RUNS_A_DAY)
    for column in ("began", "state", "duration", "peak", "share"):
        assert len(found[f"Quantization runs / Runs / {column}"]) == 1000
    assert {row["value"][1] for row in found["Quantization runs / Runs / duration"]} == {
        "240000000000"
    }
