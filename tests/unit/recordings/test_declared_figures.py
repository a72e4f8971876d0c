"""A figure that the schema declares is in every command that reads; one that it renames, in old recordings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.fixtures.recorded import RecordedFolder

DECLARED: Final = """
import sys
from otel_quant.schema import figures
from otel_quant.schema.figures import Figure, Resource, YamlColumn
example = Resource("example", (
    Figure("example.received", "By", "Bytes received", lambda each: each, ("delta",), "1",
           checkpoint="example_received", column=YamlColumn("example_received_mb", "Received."),
           kind="disk", heading="RECEIVED", curve="example.received", matters=10_000_000,
           former=("example.got",)),
    Figure("example.open", "{connection}", "Connections", lambda each: each,
           ("start", "end", "delta", "peak"), "1", kind="activity", heading="OPEN"),
))
figures.RESOURCES += (example,)
if sys.argv[1] == "used":
    from pathlib import Path
    from otel_quant.recordings.reader import read
    from otel_quant.views.watch import Looked
    print([(each.name, each.now, each.unit) for each in Looked(read(Path(sys.argv[2]))).usage()])
    sys.exit()
from otel_quant.cli import main
sys.exit(main(sys.argv[1:]))
"""


def record(path: Path, received: int, name: str = "quant.example.received") -> Path:
    folder = RecordedFolder(path, by_launcher=True)
    process = folder.process().begin(0)
    figures = {name: received, "quant.example.open.peak": 7}
    process.close(process.step("Calibration", 1), 2, attributes=figures)
    process.end(3, attributes=figures)
    process.gone()
    return path


def run(folder: Path, *arguments: str, code: int = 0) -> str:
    """Runs a command of an otel-quant whose schema has two figures more."""
    finished = subprocess.run(
        [sys.executable, "-c", DECLARED, *arguments],
        cwd=folder, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert finished.returncode == code, finished.stderr
    return finished.stdout


@pytest.mark.parametrize("name", ["quant.example.received", "quant.example.got"])
def test_a_declared_figure_is_in_every_command_also_under_its_former_name(
    name: str, tmp_path: Path
) -> None:
    for folder, received in (("base", 100_000_000), ("near", 105_000_000), ("new", 150_000_000)):
        record(tmp_path / folder, received, name)
    (shown,) = json.loads(run(tmp_path, "show", "base", "--format", "json"))
    (step,) = shown["steps"]
    assert (step["example_received_mb"], step["example_open_peak"]) == (95.37, 7)
    table = run(tmp_path, "show", "base")
    assert "RECEIVED" in table
    assert "OPEN PEAK" in table
    page = run(tmp_path, "report", "base", "-o", "-")
    assert 'title="Bytes received">Received <small>MB</small>' in page
    rows = json.loads(
        run(tmp_path, "runs", ".", "--where", "example.received > 120 MB", "--format", "json")
    )["runs"]
    assert [(row["path"], row["example.received"]) for row in rows] == [("new", 150_000_000)]
    same = "not significant, or explained by CPU contention, in total: example.received\n"  # less than `matters`
    for folder, code, said in (("near", 0, same), ("new", 1, "  example.received  ")):
        arguments = ("compare", "base", folder, "--fail-over", "example.received=1%")
        compared = run(tmp_path, *arguments, code=code)
        assert said in compared


def test_a_declared_series_is_in_the_totals_and_the_live_view(tmp_path: Path) -> None:
    folder = RecordedFolder(record(tmp_path / "r", 1), by_launcher=True)
    folder.curve([(1, {"memory": 5}, {"example.received": 3_000_000})])
    arguments = ("runs", "r", "--sort", "example.received", "--format", "json")
    (row,) = json.loads(run(tmp_path, *arguments))["runs"]
    assert row["example.received"] == 3_000_000
    used = run(tmp_path, "used", "r")
    assert used == "[('memory', 5, 'By'), ('example received', 3000000, 'By')]\n"
