"""The queries of docs/fleet.md, asked of a real DuckDB, answer what `otel-quant runs` does."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from otel_quant.recordings.runs.reading import read_all
from tests.unit.recordings.runs.fleet import GB, write_killed, write_recording

DOCS = Path(__file__).parents[2] / "docs" / "fleet.md"
VIEW, TABLE, UNWELL, STEPS = re.findall(r"```sql\n(.+?)```", DOCS.read_text(), re.DOTALL)


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
