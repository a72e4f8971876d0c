"""With any content in the files of a recording, every command that reads it ends and names what it left out."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from otel_quant.format.fields import CURVE, ENDING, EVENTS, MANIFEST, MODEL, STACKS, STATE, LeftOut
from otel_quant.recordings.model import Ending
from otel_quant.schema import semconv
from tests.fixtures.commands import Commands
from tests.fixtures.recorded import CUT_PROFILE, RecordedFolder

GB = 10**9


def a_recording(path: Path) -> Path:
    """Makes a recording with everything that one may have: a killed run beside one that has ended."""
    origin = {"process.command_line": "python q.py", semconv.LIBRARIES: ["onnx 1.22.0"]}
    folder = RecordedFolder(path, origin, by_launcher=True)
    ended = folder.process(20).begin(0.5, rank=0, world_size=2, trace_id="ab" * 16)
    step = ended.step("Calibration", 1, attributes={semconv.CALIBRATION_METHOD: "MinMax"})
    ended.consume(step, 4, 2)
    ended.close(
        step, 3, samples=8, error="ValueError", error_message="no",
        attributes={semconv.MEMORY_PEAK: GB, semconv.DISK_WRITE: 5}, devices=[{"hw.id": "gpu"}],
    )  # fmt: skip
    ended.checkpoint("here", 4, checkpoint={semconv.CHECKPOINT_MEMORY: GB}, custom={"loss": 0.5})
    figures = {"macs": 7, "size": 5, "precision.int8": 0.5}
    ended.models(
        5, {"role": "float", "path": "m.onnx", "figures": figures, "heaviest": [{"macs": 1}]}
    )
    known = {semconv.INPUT_PATH: "m/resnet.onnx", "quant.model.float.size": 5}
    ended.end(6, attributes={**known, semconv.CALIBRATION_METHOD: "MinMax"})
    killed = folder.process(21).begin(1, run="fedcba9876543210")
    outer = killed.step("Model Quantization", 1, checkpoint={semconv.CHECKPOINT_MEMORY: GB})
    inner = killed.step("Calibration", 2, outer)
    killed.expect(inner, 512, 2)
    killed.heartbeat(32, {inner: 18}, **{semconv.READING_MEMORY: 2 * GB})
    steps = [{"index": outer}, {"index": inner, "samples": 37, "expected": 512}]
    killed.state(39.5, steps, **{semconv.READING_MEMORY: 3 * GB})
    killed.gone()
    totals = {"disk.write": 5, "cpu": 1.5}
    folder.curve([(at, {"memory": at * GB, "process.python": GB}, totals) for at in range(1, 40)])
    folder.ended(
        Ending(
            time=40.0, signal="SIGKILL", out_of_memory="known", where="Calibration, sample 37 of 512",
            open_steps=("Calibration",), memory=4 * GB, memory_limit=8 * GB, memory_per_sample=GB,
            processes=(("python", GB),),
        ),
        summary={"memory": 39 * GB, **totals},
    )  # fmt: skip
    (path / "quark_profile.yaml").write_text(CUT_PROFILE)
    (path / "p.last_reading.json").write_text(
        json.dumps({"time": 1700000062500000000, "clock": 0, "run": "a", "began": 1700000000500000000,
                    "attributes": {semconv.READING_MEMORY: 4, semconv.READING_OPEN_STEPS: ["Calibration"]},
                    "steps": [{"index": 0, "samples": 3}]})
    )  # fmt: skip
    return path


def read_by_all(path: Path, command: Commands) -> None:
    """Has each command that reads recordings read one, and its profile."""
    profile = path / "quark_profile.yaml"
    for name in (path, profile):
        for form in ("table", "json", "csv"):
            assert command("show", "--format", form, name).code in (0, 1)
        assert command("compare", name, name, "--fail-over", "memory.peak=10%").code in (0, 1, 3)
        assert command("report", name, "-o", path.parent / "report.html").code in (0, 1)
    assert command("watch", "--once", path).code in (0, 1)
    for more in ((), ("--where", "weight.type!=a"), ("--format", "html")):
        command.output("runs", path.parent, *more)
    assert command("runs", profile).code in (0, 1)


ODD = (
    None, True, -1, 0, 1e30, -1e30, 1e308, 10**400, 2**63, math.nan, math.inf, "", "x", "\x1b[2J", "\ud800", [], {},
    [[]], {"a": {}}, [1, "a", None], {"a": 10**400, "b": [1], "c": None},
)  # fmt: skip
odd = st.sampled_from(ODD) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
MADE_OF_JSON = (
    "manifest.json", "events.20.jsonl", "events.21.jsonl", "state.21.json", "curve.launcher.jsonl",
    "p.last_reading.json",
)  # fmt: skip


MORE = os.environ.get("FUZZ_EXAMPLES")
"""How many examples of each file are tried; without it a few, the same each time."""

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Returns every place in a value: what it is within, and its name or number there."""
    if not isinstance(value, dict | list):
        return []
    names = list(value) if isinstance(value, dict) else range(len(value))
    return [(value, name) for name in names] + [at for name in names for at in places(value[name])]


@pytest.mark.parametrize("name", MADE_OF_JSON)
def test_a_value_of_a_wrong_type_or_size_stops_no_command(
    name: str, tmp_path: Path, command: Commands
) -> None:
    path = a_recording(tmp_path / "r") / name
    lines = path.read_text().splitlines()

    @settings(
        max_examples=int(MORE or 12), derandomize=not MORE, deadline=None, database=None,
        suppress_health_check=SLOW,
    )  # fmt: skip
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        values = list(map(json.loads, lines))
        within, at = data.draw(st.sampled_from(places(values)))
        within[at] = data.draw(odd)
        path.write_text("".join(f"{json.dumps(value)}\n" for value in values))
        read_by_all(path.parent, command)

    check()


VALUES = ("", "null", "-1", ".inf", "1e308", "9" * 400, "[]", '{"a": [1]}', '"\x1b[2J"', '"')
COSTED = (
    CUT_PROFILE
    + """\
  accuracy: 0.75
onnx_model_cost:
- role: "float"
  path: "m.onnx"
  size: 5
  sha256: "ab"
- role: "quantized"
  size: 2
"""
)


@pytest.mark.parametrize("value", VALUES)
def test_a_profile_value_of_a_wrong_type_or_size_stops_no_command(
    value: str, tmp_path: Path, command: Commands
) -> None:
    a_recording(tmp_path / "good")
    path = tmp_path / "quark_profile.yaml"
    lines = COSTED.splitlines()
    for at in range(lines.index("  timestamp: 1700000003.5"), len(lines)):
        changed = f"{lines[at].partition(': ')[0]}: {value}"
        path.write_text("\n".join((*lines[:at], changed, *lines[at + 1 :], "")))
        for name in ("show", "compare", "report"):
            more = {"compare": [path], "report": ["-o", tmp_path / "report.html"]}
            assert command(name, path, *more.get(name, ())).code in (0, 1, 3), changed
        assert "resnet" in command.output("runs", tmp_path), changed


JUNK = (
    b"", b"\0" * 1000, b"[" * 100_000 + b"\n", b"{}\n", b"[]\n", b"null\n", b"1\n", b'"text"\n',
    CUT_PROFILE.encode()[:150], CUT_PROFILE.replace("3.0", "1e999").encode(),
    CUT_PROFILE.replace("100.0", "9" * 400).encode(),
)  # fmt: skip


def put(path: Path, junk: bytes | str) -> None:
    """Puts something in place of a file: bytes, a FIFO, a folder, or a link."""
    path.unlink()
    if isinstance(junk, bytes):
        path.write_bytes(junk)
    elif junk == "FIFO":
        os.mkfifo(path)
    elif junk == "folder":
        path.mkdir()
    else:
        path.symlink_to(junk)


@pytest.mark.parametrize("junk", [*JUNK, "FIFO", "folder", "/dev/zero", "/nowhere"], ids=str)
def test_a_folder_or_device_instead_of_a_file_stops_no_command_and_hides_no_recording(
    junk: bytes | str, tmp_path: Path, command: Commands
) -> None:
    for name in (*MADE_OF_JSON, "quark_profile.yaml", "output.log", "inference.json"):
        good, damaged = (a_recording(tmp_path / name / each) for each in ("good", "damaged"))
        for each in ("output.log", "inference.json"):
            (damaged / each).write_text("")
        put(damaged / name, junk)
        read_by_all(damaged, command)
        shown = json.loads(command.output("runs", tmp_path / name, "--format", "json"))
        rows = {each["path"]: each for each in shown["runs"]}
        assert rows[str(good)]["model"] == "resnet"
        assert str(damaged) in {*rows, *(each["path"] for each in shown["unreadable"])}


def test_every_command_names_omitted_values_once(tmp_path: Path, command: Commands) -> None:
    path = a_recording(tmp_path / "r")
    manifest = json.loads((path / "manifest.json").read_text())
    manifest |= {
        "began": 1e30,
        "ending": {**manifest["ending"], "exit_code": "no", "processes": [1]},
    }
    (path / "manifest.json").write_text(json.dumps(manifest))
    events = path / "events.20.jsonl"
    events.write_text(events.read_text().replace('"error":"ValueError"', '"error":{}'))
    curve = path / "curve.launcher.jsonl"
    curve.write_text(curve.read_text() + '[1,NaN]\n["x"]\n')
    said = (
        "manifest.json: not readable and left out: manifest.began, ending.exit_code, processes",
        "events.20.jsonl: not readable and left out: step.ended.error",
        "curve.launcher.jsonl: not readable and left out: line (2 times)",
    )
    page = tmp_path / "report.html"
    command.output("report", path, "-o", page)
    for text in (command.output("show", path), page.read_text()):
        assert [text.count(each) for each in said] == [1, 1, 1]
    _, out, err = command("runs", path)
    assert "resnet  MinMax" in out
    assert [err.count(each) for each in said] == [1, 0, 0]  # neither steps nor curve are read
    code, _, err = command("send", path)
    assert code == 1  # no endpoint
    assert [err.count(each) for each in said] == [1, 1, 1]
    assert command("compare", path, path, "--fail-over", "memory.peak=10%").code == 1


def test_runs_shows_a_recording_rewritten_by_another_program(
    tmp_path: Path, command: Commands
) -> None:
    path = a_recording(tmp_path / "r")
    before = command("runs", path, "--format", "json")
    for each in path.glob("events.*.jsonl"):
        lines = map(json.loads, each.read_text().splitlines())
        each.write_text("".join(f"{json.dumps(line, sort_keys=True)}\n" for line in lines))
    assert command("runs", path, "--format", "json") == before
    assert json.loads(before.out)["runs"][0]["model.size"] == 5


PROBES = (
    True, -1, 0, 1, 2**63, 1.5, "x", "launcher", "known", "0123456789abcdef", "ab" * 16,
    [], ["position"], [1], [{}], [["a", 1]], [["a", "b"]], [{"a": 1}], [{"a": []}], {}, {"a": 1}, {"1": 2},
    {"1": -1}, {"a": [1, "b"]}, {"a": {}}, {"a": [[]]}, {"a": "b"}, {"time": 1.5}, {"time": "x"},
    *([{"index": 1, "line": ["a.py", "f", line, ""]}] for line in (1, -1, 1 << 63, None)),
    *([["a.py", "f", line, ""]] for line in (0, 1 << 63, 1.5)), {"0": [[-1] * 7]}, {"0": [[-1, -1, *[0] * 5]]}, {"0": [[-2] * 7]},
    {"0": [[0] * 6]}, {"0": [[1 << 63] * 7]}, [{"index": -1}], [{"role": "a", "figures": {}}], [{"text": "a", "source": "b"}],
)  # fmt: skip
KINDS = {
    f"{table.name}.{name}": kind
    for table in (MANIFEST, STATE, STACKS, CURVE, ENDING, MODEL, *EVENTS.values())
    for name, kind in table.kinds.items()
}


@pytest.mark.parametrize("name", KINDS)
def test_the_reader_reads_the_fields_of_the_published_schema(name: str) -> None:
    valid = Draft202012Validator(KINDS[name].schema)
    for probe in PROBES:
        left_out = LeftOut()
        taken = KINDS[name].take(json.loads(json.dumps(probe)), left_out)
        assert (taken is not None and not left_out) == valid.is_valid(probe), probe
