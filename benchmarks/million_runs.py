"""A year of runs in tables: 1,000,000 runs in 365 nightly exports, and what reading them takes with DuckDB.

python benchmarks/million_runs.py [FOLDER]     needs 5 GB of memory at most, and 10 minutes on one core
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable

from otel_quant.recordings import runs
from otel_quant.schema import semconv
from otel_quant.sending import tables

NIGHTS, RUNS, STEPS = 365, 2740, 12
BEGAN = 1_767_225_600.0  # 2026-01-01
DAY = 86_400.0
METHODS = ("MinMax", "Percentile", "MinMSE", "Entropy", "LayerWisePercentile")


def recorded(number: int, at: float, chance: random.Random, *, with_steps: bool) -> dict[str, Any]:
    """Returns the rows of a run, as :func:`otel_quant.sending.tables.rows_of` has them."""
    size, month = chance.randrange(200), time.strftime("%Y-%m", time.gmtime(at))
    of_all = {"run_id": f"{chance.getrandbits(64):016x}", "began": at, "month": month}
    seconds, peak = chance.uniform(60, 7200), chance.randrange(10**9, 64 * 10**9)
    row = {
        runs.MODEL: f"model{size}", runs.METHOD: METHODS[number % 5], runs.CONFIG: "XINT8",
        runs.STATUS: "ended" if chance.random() < 0.97 else "killed", runs.MODEL_SIZE: 10**8 + size,
        runs.PATH: f"/runs/otel-quant-quantize-{number}", "duration": seconds, "memory.peak": peak,
        "disk.write": peak // 9, "cpu.time": seconds * 3, "cpu.user": seconds * 2.9, "cpu.system": seconds / 10,
        "host.name": f"node{chance.randrange(64)}", semconv.short(semconv.PROCESS_COMMAND_LINE): f"python q.py {number}",
        semconv.short(semconv.MEMORY_LIMIT): 64 * 2**30, "run.answer": f"Memory peaked at {peak / 1e9:.1f} GB in Calibration.",
    }  # fmt: skip
    steps = [
        {"process": "4711", "step": step, "name": f"Step {step}", "kind": "Calibration", "state": "ended",
         "start": step * 10.0, "duration": chance.random() * 100, "memory.peak": peak - step, "disk.write": step}
        for step in range(STEPS * with_steps)
    ]  # fmt: skip
    return {
        "runs": [row | of_all],
        "steps": [each | of_all for each in steps],
        "kernels": [],
        "layers": [],
    }


def timed(what: str, work: Callable[[], object]) -> None:
    """Prints how long some work takes, and what came of it."""
    began = time.perf_counter()
    done = work()
    print(
        f"{what}: {time.perf_counter() - began:.2f} s{'' if done is None else f', {done}'}",
        flush=True,
    )


def size_of(folder: Path) -> str:
    """Returns the size of the newest files of a table, and of its log."""
    actions = DeltaTable(str(folder)).file_uris()
    log = sum(path.stat().st_size for path in (folder / "_delta_log").iterdir())
    data = sum(Path(each).stat().st_size for each in actions)
    return f"{data / 1e6:.0f} MB in {len(actions)} files, log {log / 1e6:.1f} MB"


def main(folder: Path) -> None:
    """Writes the tables, and reads them."""
    chance, url = random.Random(1), str(folder / "tables")
    last: list[Any] = []

    def write() -> None:
        for night in range(NIGHTS):
            at = BEGAN + night * DAY
            every = [
                recorded(night * RUNS + number, at + number * 30, chance, with_steps=night < 31)
                for number in range(RUNS)
            ]
            tables.add(url, every)
            last[:] = every

    timed(f"{NIGHTS} exports of {RUNS} runs, {STEPS} steps each in the first month", write)
    timed("the last one again", lambda: f"{tables.add(url, last)} added")
    for table in ("runs", "steps"):
        print(f"{table}: {size_of(folder / 'tables' / table)}", flush=True)
    files = DeltaTable(f"{url}/runs").file_uris()
    connection = duckdb.connect(config={"threads": 2})
    connection.execute(f"CREATE VIEW runs AS FROM read_parquet({files})")
    pivot = "PIVOT (FROM runs WHERE status = 'ended') ON calibration_method USING median(memory_peak) GROUP BY model"
    for _ in range(2):
        timed("the pivot", lambda: f"{len(connection.sql(pivot).fetchall())} rows")
    one = "SELECT count(*) FROM runs WHERE month = '2026-06' AND host_name = 'node7'"
    timed("a month of one host", lambda: connection.sql(one).fetchall())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made))
