"""Pages and examples as a reader uses them: the site, the workflow for CI, the queries of docs/fleet.md in a real DuckDB."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import duckdb
import pytest
import yaml

from otel_quant.recordings.runs import read_all
from tests.fixtures.programs import Launched
from tests.unit.recordings.runs.fleet import GB, write_killed, write_recording

ROOT = Path(__file__).resolve().parents[2]


def test_the_site_has_every_page_and_no_broken_link(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    zensical = Path(sys.executable).with_name("zensical")
    built = subprocess.run(
        [zensical, "build", "--strict"], cwd=tmp_path, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stdout + built.stderr
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"}
    assert {page.parent.name for page in (tmp_path / "site").glob("*/index.html")} == pages
    start = (tmp_path / "site" / "index.html").read_text()
    assert [page for page in sorted(pages) if f'href="./{page}/"' not in start] == []


EXAMPLE: Final = ROOT / "examples" / "ci"

PROGRAM: Final = """\
import time, otel_quant

with otel_quant.step("Calibration"):
    samples = bytearray({megabytes} * 10**6)
    samples[::4096] = b"x" * len(samples[::4096])
"""


def test_the_example_workflow_rejects_a_change_that_needs_more_memory(tmp_path: Path) -> None:
    for side, size in (("base", 100), ("new", 160)):
        (tmp_path / side).mkdir()
        (tmp_path / side / "quantize.py").write_text(PROGRAM.format(megabytes=size))
    limits = tmp_path / "new" / "otel-quant.toml"
    # Time is not what is tried here, and the machine may be busy.
    text = (EXAMPLE / "otel-quant.toml").read_text().replace('  "duration = 20%",\n', "")
    limits.write_text(text)
    steps = yaml.safe_load((EXAMPLE / "quantization.yml").read_text())["jobs"]["compare"]["steps"]
    commands = {step["name"]: step["run"] for step in steps if "name" in step}
    assert list(commands) == ["Install", "Record", "Compare", "Comment", "Page"]
    # What is installed is checked out before.
    assert "otel-quant" in {step.get("with", {}).get("path") for step in steps}
    summary = tmp_path / "summary.md"
    environment = Launched(tmp_path).environment({"GITHUB_STEP_SUMMARY": str(summary)})

    def exit_code(name: str) -> int:
        command = ["bash", "-e", "-c", commands[name]]
        return subprocess.run(command, cwd=tmp_path, env=environment, check=False).returncode

    assert (exit_code("Record"), exit_code("Compare")) == (0, 1)
    assert "\n\nworse: Calibration: memory.peak " in summary.read_text()
    comment = (tmp_path / "compare.md").read_text()
    assert re.match(r"worse: [0-9]+ of [0-9]+ checks\n\nworse: Calibration: memory.peak ", comment)
    assert exit_code("Page") == 0
    assert {"compare.html", "compare.md", "compare.xml", "runs"} <= {
        path.name for path in tmp_path.iterdir()
    }
    limits.write_text(text.replace("memory.peak = 10%", "memory.peak = 90%"))
    assert exit_code("Compare") == 0


VIEW, TABLE, UNWELL, STEPS = re.findall(
    r"```sql\n(.+?)```", (ROOT / "docs" / "fleet.md").read_text(), re.DOTALL
)


def write_runs(top: Path) -> None:
    write_recording(top / "a" / "1")
    write_recording(top / "a" / "2", peak=4 * GB)
    write_recording(top / "b" / "1", method="Percentile")
    write_recording(top / "b" / "2", "yolo8.onnx", "Percentile", 1 * GB)
    write_killed(top / "killed")
    path = top / "a" / "1" / "events.4711.jsonl"
    path.write_bytes(path.read_bytes() + b'{"kind":"cut')


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    write_runs(tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    with duckdb.connect() as connection:
        connection.execute(VIEW)
        yield connection


def test_the_view_has_the_rows_of_the_list(database: Any) -> None:
    names = ("path", "model", "method", "config", "status", "size", "activations", "duration", "memory_peak", "began")  # fmt: skip
    rows, _ = read_all(["runs"], ())
    expected = [
        (
            row["path"], row.get("model"), row["calibration.method"], row.get("config.name"),
            row["status"], row.get("model.size"), row.get("model.activation_size"),
            row["duration"], row["memory.peak"],
            datetime.fromtimestamp(row["when"], UTC).replace(tzinfo=None),
        )
        for row in rows
    ]  # fmt: skip
    assert database.sql(f"SELECT {', '.join(names)} FROM runs ORDER BY path").fetchall() == expected


def test_the_table_has_the_memory_of_each_method(database: Any) -> None:
    asked = database.sql(TABLE)
    assert asked.columns == ["model", "size", "activations", "MinMax", "Percentile"]
    assert asked.fetchall() == [
        ("resnet50", 102_400_000, 107_000_000, 3 * GB, 2 * GB),
        ("yolo8", 12_000_000, 107_000_000, None, 1 * GB),
    ]


def test_failed_runs_and_steps_by_day_are_found(database: Any) -> None:
    assert database.sql(UNWELL).fetchall() == [("runs/killed", "killed", "MinMSE", 7.5 * GB)]
    day = datetime(2023, 11, 14).date()
    assert database.sql(STEPS).fetchall() == [
        (day, "resnet50", "Calibration", 34.0, 1 * GB, 3),
        (day, "yolo8", "Calibration", 34.0, GB / 2, 1),
    ]
