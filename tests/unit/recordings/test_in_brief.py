"""A recording that is read in brief says of the whole what it says when it is read whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from otel_quant.export.recording.curve import read_curve
from otel_quant.recordings.reader import read
from tests.fixtures.recording_schema import check_recording

PROGRAM = """
import time, otel_quant
from otel_quant.schema.records import CostedModel
from otel_quant.capture.runtime import RUNTIME
for method in ("MinMax", "Entropy"):
    with otel_quant.step("Calibration", attributes={"quant.calibration.method": method}):
        kept = bytearray(40_000_000)
        time.sleep(0.2)
RUNTIME.recorder.models_costed([
    CostedModel("float", "m/resnet50.onnx", 1, 2, {"size": 5, "memory": 7}, ({"node": "n", "macs": 1},)),
    CostedModel("quantized", None, 1, 2, {}, error="not readable"),
])
"""  # fmt: skip
OF_RUN = {
    "quant.library.name", "quant.calibration.method", "quant.input.path",
    "quant.model.float.size", "quant.model.float.memory",
}  # fmt: skip


def recorded(folder: Path) -> Path:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    launcher = [sys.executable, "-m", "otel_quant", "run", "--quiet", "--no-report"]
    subprocess.run(
        [*launcher, "--out", str(folder / "r"), "--", sys.executable, str(program)],
        env={name: value for name, value in os.environ.items() if not name.startswith("OTEL_")},
        check=True,
        timeout=60,
    )
    check_recording(folder / "r")
    return folder / "r"


def test_the_end_of_a_run_and_the_manifest_have_what_a_list_of_runs_shows(tmp_path: Path) -> None:
    folder = recorded(tmp_path)
    (events,) = folder.glob("events.*.jsonl")
    last = json.loads(events.read_bytes().splitlines()[-1])
    assert last["kind"] == "run.ended"
    assert {name: last["attributes"][name] for name in OF_RUN - {"quant.library.name"}} == {
        "quant.calibration.method": "MinMax",
        "quant.input.path": "m/resnet50.onnx",
        "quant.model.float.size": 5,
        "quant.model.float.memory": 7,
    }
    curve = read_curve(folder / "curve.launcher.jsonl").curve
    assert json.loads((folder / "manifest.json").read_bytes())["summary"] == {
        name: value for name, value in curve.summary().items() if not name.startswith("process.")
    }
    whole, brief = read(folder), read(folder, in_brief=True)
    (run,) = whole.runs
    assert brief == replace(
        whole,
        curves=brief.curves,
        runs=(replace(run, steps=(), checkpoints=brief.runs[0].checkpoints, models=()),),
    )
    summary = brief.curves["launcher"].curve.summary()
    assert summary == {name: curve.summary()[name] for name in summary}
    assert summary["memory"] > 40_000_000


def test_a_recording_of_a_killed_launcher_is_read_with_its_curve(tmp_path: Path) -> None:
    folder = recorded(tmp_path)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    for name in ("summary", "ending", "ended"):
        del manifest[name]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    whole, brief = read(folder), read(folder, in_brief=True)
    assert brief.curves.keys() == {"launcher"}
    assert brief.curves["launcher"].curve.summary() == whole.curves["launcher"].curve.summary()
    assert (brief.state, brief.duration) == (whole.state, whole.duration)


def test_a_run_that_has_not_ended_is_read_with_its_steps(tmp_path: Path) -> None:
    folder = recorded(tmp_path)
    (events,) = folder.glob("events.*.jsonl")
    lines = events.read_bytes().splitlines(keepends=True)
    events.write_bytes(b"".join(lines[:-1]) + lines[-1][:200])
    whole, brief = read(folder), read(folder, in_brief=True)
    assert brief.runs == whole.runs
    assert [step.name for step in brief.runs[0].steps] == ["Calibration", "Calibration"]
