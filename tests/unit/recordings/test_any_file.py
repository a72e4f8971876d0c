"""Whatever stands in the files of a recording, every command that reads it ends, and says what it left out."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_quant.cli import main
from otel_quant.recordings.model import Ending
from tests.fixtures.recorded import CUT_PROFILE, RecordedFolder

GB = 10**9


def a_recording(path: Path) -> Path:
    """Makes a recording with everything that one may have: a killed run beside one that has ended."""
    origin = {"process.command_line": "python q.py", "quant.libraries": ["onnx 1.22.0"]}
    folder = RecordedFolder(path, origin, by_launcher=True)
    ended = folder.process(20).begin(0.5, rank=0, world_size=2, trace_id="ab" * 16)
    step = ended.step("Calibration", 1, attributes={"quant.calibration.method": "MinMax"})
    ended.consume(step, 4, 2)
    ended.close(
        step, 3, samples=8, error="ValueError", error_message="no",
        attributes={"quant.memory.peak": GB, "quant.disk.write": 5}, devices=[{"hw.id": "gpu"}],
    )  # fmt: skip
    ended.checkpoint("here", 4, checkpoint={"quant.checkpoint.memory": GB}, custom={"loss": 0.5})
    figures = {"macs": 7, "size": 5, "precision.int8": 0.5}
    ended.models(5, {"role": "float", "path": "m.onnx", "figures": figures, "heaviest": [{"macs": 1}]})
    ended.end(6, attributes={"quant.input.path": "m/resnet.onnx", "quant.model.float.size": 5})
    ended.gone()
    killed = folder.process(21).begin(1, run="fedcba9876543210")
    outer = killed.step("Model Quantization", 1, checkpoint={"quant.checkpoint.memory": GB})
    inner = killed.step("Calibration", 2, outer)
    killed.expect(inner, 512, 2)
    killed.heartbeat(32, {inner: 18}, **{"quant.reading.memory": 2 * GB})
    steps = [{"index": outer}, {"index": inner, "samples": 37, "expected": 512}]
    killed.state(39.5, steps, **{"quant.reading.memory": 3 * GB})
    killed.gone()
    totals = {"disk.write": 5, "cpu": 1.5}
    folder.curve([(at, {"memory": at * GB, "process.python": GB}, totals) for at in range(1, 40)])
    folder.ended(
        Ending(
            time=40.0, signal="SIGKILL", out_of_memory="known", where="Calibration, sample 37 of 512",
            open_steps=("Calibration",), memory=4 * GB, memory_limit=8 * GB, memory_per_sample=GB,
            processes=(("python", GB),), disk=(("cache", GB),),
        ),
        summary={"memory": 39 * GB, **totals},
    )  # fmt: skip
    (path / "quark_profile.yaml").write_text(CUT_PROFILE)
    (path / "p.last_reading.json").write_text(
        json.dumps({"run_started": 1700000000.5, "timestamp": 1700000062.5, "cpu_memory_mb": 4.5,
                    "open_steps": [{"step": "Calibration", "samples": 3}]})
    )  # fmt: skip
    return path


def read_by_all(path: Path) -> None:
    """Has each command that reads recordings read one, and its profile."""
    profile = str(path / "quark_profile.yaml")
    for name in (str(path), profile):
        for form in ("table", "markdown", "json", "csv", "html"):
            assert main(["show", "--format", form, name]) in (0, 1)
        assert main(["compare", name, name, "--fail-over", "memory.peak=10%"]) in (0, 1, 3)
        assert main(["report", name, "-o", str(path.parent / "report.html")]) in (0, 1)
    assert main(["watch", "--once", str(path)]) in (0, 1)
    for more in ((), ("--where", "weight.type!=a"), ("--format", "html")):
        assert main(["runs", str(path.parent), profile, *more]) == 0


ODD = (
    None, True, -1, 0, 1e30, -1e30, 1e308, 10**400, 2**63, math.nan, math.inf, "", "x", "\x1b[2J", [], {},
    [[]], {"a": {}}, [1, "a", None], {"a": 10**400, "b": [1], "c": None},
)  # fmt: skip
odd = st.sampled_from(ODD) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Returns every place in a value: what it is within, and its key or number there."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [(value, key) for key in keys] + [place for key in keys for place in places(value[key])]


def test_one_value_of_another_type_or_size_ends_no_command(tmp_path_factory: pytest.TempPathFactory, capsys) -> None:
    whole = a_recording(tmp_path_factory.mktemp("whole") / "r")
    files = sorted(path.name for path in whole.iterdir() if path.suffix in (".json", ".jsonl"))
    texts = {name: (whole / name).read_text() for name in files}

    @settings(max_examples=int(os.environ.get("N", 60)), deadline=None, database=None)
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(files))
        lines = [json.loads(line) for line in texts[name].splitlines()]
        within, key = data.draw(st.sampled_from(places(lines)))
        within[key] = data.draw(odd)
        (whole / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
        try:
            read_by_all(whole)
        finally:
            (whole / name).write_text(texts[name])
            capsys.readouterr()

    check()
