"""What the rules that look back 14 days cost Prometheus. For docs/scaling.md.

    python benchmarks/baseline_rule.py [--series 400000]

Blocks with that many series of run_step:quant_step_duration_seconds:mean (one for each kind of step of each
run, spread over 14 days, two samples a series) are made with promtool. The real Prometheus then
evaluates the committed rules; its CPU time and its memory are the kernel's figures.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the two below

from scripts.servers import build
from tests.stack.processes import Backends, fetch, prometheus

DAYS = 14
STEPS = [f"Step {number}" for number in range(7)]
SAMPLES = 2
JOBS = 20


def samples(series: int, now: int) -> Iterator[str]:
    """Yields the lines of a file in the OpenMetrics format, a metric at a time as it asks."""
    runs, name = series // len(STEPS), "run_step:quant_step_duration_seconds:mean"
    yield f"# TYPE {name} gauge\n"
    for run in range(runs):
        ended = now - DAYS * 86400 * (runs - run) // (runs + 1)
        job, began = f"job{run % JOBS}", time.strftime("%Y%m%d-%H%M%S", time.gmtime(ended))
        for step in STEPS:
            labels = f'job="{job}",quant_run_name="{job} resnet50 {began}-{run}",quant_step_kind="{step}"'
            for minute in reversed(range(SAMPLES)):
                yield f"{name}{{{labels}}} {60 + run % 30} {ended - 300 * minute}\n"
    yield "# EOF\n"


def main() -> None:
    """Prints the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=400_000)
    series = parser.parse_args().series
    binaries = {name: path for name, path in build.listing().items() if path}
    if "prometheus" not in binaries:
        sys.exit("the servers are not built here: python scripts/servers/build.py")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = folder / "samples.txt"
        with text.open("w") as file:
            file.writelines(samples(series, int(time.time())))
        subprocess.run(
            # As long as those that Prometheus makes of blocks of 2 hours in time.
            [binaries["promtool"], "tsdb", "create-blocks-from", "--max-block-duration=54h",
             "openmetrics", str(text), str(folder / "prometheus")],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        text.unlink()
        print(json.dumps(measured(binaries["prometheus"], folder, series), indent=2))


def measured(binary: str, folder: Path, series: int) -> dict[str, float]:
    """Returns what an evaluation of each rule takes, and Prometheus' memory before and at most."""
    server = prometheus(binary, folder, ports := Backends())
    rules = folder / "rules.yaml"
    recorded = {
        rule["record"]: rule["expr"]
        for group in yaml.safe_load(rules.read_text())["groups"]
        for rule in group["rules"]
        if "record" in rule
    }
    rules.write_text("groups: []\n")  # evaluated here instead, where it can be measured
    server.start()
    assert server.process is not None
    process = psutil.Process(server.process.pid)
    figures: dict[str, float] = {
        "series": series,
        "rss_before_mib": process.memory_info().rss >> 20,
    }
    try:
        for name, expression in recorded.items():
            began, before = time.monotonic(), process.cpu_times()
            found = fetch(
                f"http://127.0.0.1:{ports.prometheus}/api/v1/query", query=expression, timeout="60s"
            )["data"]["result"]
            after = process.cpu_times()
            figures |= {
                f"{name} results": len(found),
                f"{name} seconds": round(time.monotonic() - began, 2),
                f"{name} cpu_seconds": after.user + after.system - before.user - before.system,
            }
        high = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
        assert high
        return figures | {"rss_highest_mib": int(high[1]) >> 10}
    finally:
        server.kill()


if __name__ == "__main__":
    main()
