"""``otel-quant show`` of profiles: complete ones in each format, and ones that are cut, hostile or of killed runs."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from otel_quant.format.event_file import EXPECTED
from otel_quant.recordings.profile_reader import Record, parse
from otel_quant.schema import semconv
from tests.fixtures.commands import Commands
from tests.fixtures.figures import named
from tests.fixtures.profiles import records
from tests.unit.cli.shown_profiles import (
    COMPLETE,
    COST,
    COST_SHOWN,
    DESCRIBED,
    DESCRIBED_TABLE,
    RUN,
    TABLE,
    Show,
)


@pytest.fixture
def complete(tmp_path: Path) -> Path:
    path = tmp_path / "p.yaml"
    path.write_text(COMPLETE)
    return path


def test_the_steps_are_shown_as_a_table(complete: Path, show: Show) -> None:
    assert show(complete) == TABLE


def test_models_are_shown_side_by_side_with_units(complete: Path, show: Show) -> None:
    complete.write_text(COMPLETE.partition("\nonnx_model_cost:")[0] + COST)
    assert show(complete).partition("\nModel ")[2] == COST_SHOWN.removeprefix("Model ")


def test_each_of_several_files_has_its_path_as_heading(complete: Path, show: Show) -> None:
    other = complete.with_name("q.yaml")
    other.write_text(COMPLETE)
    assert (
        show(complete, other)
        == f"{complete}\n{TABLE}\n{other}\n{TABLE.replace('p.yaml', 'q.yaml')}"
    )


def test_a_file_shows_its_distance_to_the_limit_its_source_and_its_end(
    complete: Path, show: Show
) -> None:
    complete.write_text(DESCRIBED)

    assert show(complete) == DESCRIBED_TABLE


@pytest.mark.parametrize("form", ["table", "markdown", "csv", "json"])
def test_run_attributes_of_any_type_are_printed(complete: Path, show: Show, form: str) -> None:
    values = ["[1, {a: b}]", "{a: [1]}", "9" * 400, ".nan", "-.inf", '"\\e[2J"', "true", "null"]
    for value in values:
        run = "".join(f"  {key}: {value}\n" for key in RUN)
        records = f'- step: "a Start"\n  relative_time_secs: {value}\n  cpu_memory_mb: {value}\n'
        end = f'- step: "a End"\n  error_message: {value}\n  error: {value}\n'
        complete.write_text(f"run:\n{run}\nmemory_usage:\n{records}{end}")

        out = show(complete, "--format", form)
        assert not [letter for letter in out if letter not in "\n\xa0" and not letter.isprintable()]


def test_json_and_csv_have_the_run_attributes_of_the_file(complete: Path, show: Show) -> None:
    complete.write_text(DESCRIBED)
    [document] = json.loads(show(complete, "--format", "json"))

    sizes = {"memory_limit_bytes": 4000 * MIB, "memory_peak_bytes": 3000 * MIB}
    assert document["run"] == RUN | sizes
    assert document["onnx_model_cost"] == [
        {"role": "float", "size": 104857600},
        {"role": "quantized", "size": 27262976, "size_ratio": 0.26},
    ]
    _, row, _ = csv.DictReader(io.StringIO(show(complete, "--format", "csv")))
    assert row == {
        "file": str(complete),
        **{
            key: f"{value:.12g}" if isinstance(value, float) else str(value)
            for key, value in document["steps"][1].items()
        },
        "memory_peak_is_least": "false",
        **{f"run_{key}": str(value) for key, value in (RUN | sizes).items()},
        "run_gpus": "NVIDIA H200, NVIDIA H200",
        "run_libraries": "amd-quark 0.13, onnxruntime 1.22.0",
    }


def test_json_has_the_same_figures_and_the_rest_of_the_file(complete: Path, show: Show) -> None:
    [document] = json.loads(show(complete, "--format", "json"))

    assert document["steps"][0] == {
        "step": "(before the first step)", "depth": 0, "start_secs": 0.0, "duration_secs": 1.0,
        "duration_share": None, "cpu_memory_start_mb": 100.0, "cpu_memory_end_mb": 101.5,
        "cpu_memory_delta_mb": 1.5, "cpu_memory_seen_mb": None, "gpu_memory_start_mb": None,
        "gpu_memory_end_mb": None, "gpu_memory_seen_mb": None, "disk_read_mb": None,
        "accuracy": None, "status": "outside",
        "start_seconds": 0.0, "duration_seconds": 1.0, "share_of_run": 0.0625,
        "memory_start_bytes": 100 * MIB, "memory_end_bytes": 101.5 * MIB, "memory_delta_bytes": 1.5 * MIB,
        "memory_seen_bytes": None, "gpu_memory_start_bytes": None, "gpu_memory_end_bytes": None,
        "gpu_memory_seen_bytes": None, "disk_read_bytes": None,
    }  # fmt: skip
    assert document["steps"][2] == {
        "step": "Calibration", "depth": 1, "start_secs": 2.0, "duration_secs": 11.5,
        "duration_share": 0.7188, "cpu_memory_start_mb": 200.0, "cpu_memory_end_mb": 1800.25,
        "cpu_memory_delta_mb": 1600.25, "cpu_memory_seen_mb": 1800.25, "gpu_memory_start_mb": 900.0,
        "gpu_memory_end_mb": 800.0, "gpu_memory_seen_mb": 900.0, "disk_read_mb": 64.5,
        "accuracy": None, "status": "ValueError",
        "start_seconds": 2.0, "duration_seconds": 11.5, "share_of_run": 0.7188,
        "memory_start_bytes": 200 * MIB, "memory_end_bytes": 1800.25 * MIB,
        "memory_delta_bytes": 1600.25 * MIB, "memory_seen_bytes": 1800.25 * MIB,
        "gpu_memory_start_bytes": 900 * MIB, "gpu_memory_end_bytes": 800 * MIB,
        "gpu_memory_seen_bytes": 900 * MIB, "disk_read_bytes": 64.5 * MIB,
    }  # fmt: skip
    del document["steps"]
    assert document == {
        "file": str(complete),
        "truncated": False,
        "run": {"tree_peak_memory_mb": 1900.12, "tree_peak_memory_source": "kernel", "ended": "without an exception", "memory_peak_bytes": 1992420229},
        "state": "ended",
        "recording": {
            "path": str(complete), "state": "ended", "duration_secs": 16.0, "duration_seconds": 16.0,
            "memory_peak": 1992420229, "memory_peak_bytes": 1992420229, "problems": [],
        },
        "summary": {"total_quantization_time_seconds": 16.0, "peak_memory_mb": 1900.12},
        "onnx_model_cost": [{"role": "float", "macs": 4089, "precision": {"float32": 1.0}}],
    }  # fmt: skip


def test_a_killed_run_shows_its_open_steps_and_last_figures(complete: Path, show: Show) -> None:
    complete.write_text(COMPLETE[: COMPLETE.index('- step: "Calibration End"') + 40])

    assert show(complete) == (
        "p.yaml has no end record (killed, or still running); last seen after 2.00 s in Calibration.\n"
        "Memory reached at least 210 MB in Model Quantization > Calibration, 2.00 s after the start.\n"
        "GPU memory of all programs reached at least 944 MB in Model Quantization > Calibration.\n"
        "2 steps took 1.00 s of 2.00 s, most of it Model Quantization: 1.00 s, 50.0 % of the run.\n"
        "1.00 of 2.00 s passed before the first step.\n"
        "\n"
        "STEP                     START  TIME     %  MEM START  MEM END  MEM PEAK  GPU (ALL) PEAK  STATE\n"
        "                             s     s               MB       MB        MB              MB\n"
        "-----------------------  -----  ----  ----  ---------  -------  --------  --------------  -----\n"
        "(before the first step)   0.00  1.00  50.0      104.9    106.4         -               -\n"
        "Model Quantization        1.00  1.00  50.0      106.4        -   ≥ 209.7         ≥ 943.7  open\n"
        "  Calibration             2.00  0.00   0.0      209.7        -   ≥ 209.7         ≥ 943.7  open\n"
        "GPU (ALL) is memory of all programs on the GPUs.\n"
    )


# --- cut, hostile, or none


def records_of(text: str) -> list[Record]:
    return parse(text).records


def test_a_file_truncated_at_any_byte_shows_its_complete_records(
    show: Show, tmp_path: Path
) -> None:
    every = records_of(COMPLETE)
    assert len(every) == 7
    # The keys of the first record are unknown until it ends. The definitions come after all figures but costs.
    after_the_first = COMPLETE.index('- step: "Model Quantization Start"')
    undetectable = COMPLETE.index("\n", COMPLETE.index("\n# - ") + 1) + 1
    for cut in range(len(COMPLETE)):
        profile = parse(COMPLETE[:cut])
        if cut < undetectable:
            assert not profile.complete, cut
        if cut >= after_the_first:
            expected = [dict(record) for record in every[: len(profile.records)]]
            for key in {"error", "accuracy"} - set(profile.records[-1]):
                expected[-1].pop(key, None)  # it cannot be detected that they are missing
            assert profile.records == expected, cut
        begun = COMPLETE[:cut].count("- step:") - COMPLETE[:cut].count("# - step:")
        assert begun - 1 <= len(profile.records) <= begun
    path = tmp_path / "p.yaml"
    for cut in range(97, len(COMPLETE), 97):
        path.write_text(COMPLETE[:cut])
        assert "no end record" in (text := show(path)) or "truncated" in text or cut >= undetectable


def test_names_not_escaped_by_quark_are_read_correctly() -> None:
    names = ['say "hi"', "back\\slash d", "a: b"]
    text = "# Quark Profiling Results\n\nmemory_usage:\n"
    for name in names:
        text += f'- step: "{name} Start"\n  cpu_memory_mb: 1.0\n'

    assert [record["step"] for record in records_of(text)] == [f"{name} Start" for name in names]


def test_an_alias_in_a_value_is_not_followed() -> None:
    bomb = "{a: &a [1, 1], b: &b [*a, *a], c: [*b, *b]}"

    [record] = records_of(f'memory_usage:\n- step: "Start"\n  metric: {bomb}\n')

    assert record["metric"] == bomb


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"steps: []\n", f"no line 'memory_usage:'; {EXPECTED}"),
        (b"\x00\xff\x80" * 50, f"no line 'memory_usage:'; {EXPECTED}"),
        (b"", "the file is empty; expected the records of a run, which writes the first as it begins"),
        (b"# Quark Profiling Results\n\nmemory_usage:\n",
         "the file ends before its first checkpoint; expected the records of a run, which "
         "writes the first as it begins"),
    ],
)  # fmt: skip
def test_a_file_without_a_profile_or_checkpoint_is_rejected_with_its_path(
    content: bytes, message: str, tmp_path: Path, command: Commands
) -> None:
    path = tmp_path / "p.yaml"
    path.write_bytes(content)

    assert command("show", path) == (1, "", f"otel-quant: {path}: {message}\n")


@pytest.mark.parametrize("name", ["show", "report", "send", "watch"])
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("missing", "cannot be opened: No such file or directory"),
        (".", "has no manifest.json and no events.<pid>.jsonl"),
    ],
)
def test_every_command_rejects_a_path_without_a_recording(
    name: str, path: str, message: str, command: Commands
) -> None:
    assert command(name, path) == (1, "", f"otel-quant: {path}: {message}; {EXPECTED}\n")


def test_a_closed_output_pipe_is_not_an_error(complete: Path) -> None:
    complete.write_text(COMPLETE * 200)
    code = "import sys; from otel_quant.cli import main; sys.exit(main(sys.argv[1:]))"
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run(
        [sys.executable, "-c", code, "show", str(complete)],
        stdout=writer, stderr=subprocess.PIPE, text=True, check=False, timeout=60,
    )  # fmt: skip
    os.close(writer)

    assert (run.returncode, run.stderr) == (0, "")


# --- with the reading beside it

KILLED = records(
    ("Start", 0, 100), ("Model Quantization Start", 1, 101.5), ("Calibration Start", 2, 153)
)
MIB = 1 << 20
READING: dict[str, Any] = {
    "schema": 1,
    "time": 1700000062500000000,
    "clock": 62000000000,
    "run": "0123456789abcdef",
    "began": 1700000000500000000,
    "attributes": {
        "process.pid": 4711, semconv.READING_ELAPSED: 62.0, semconv.READING_MEMORY_LIMIT: 8000 * MIB,
        semconv.READING_MEMORY: round(403.25 * MIB), semconv.READING_MEMORY_PEAK: round(410.5 * MIB),
        named("quant.reading.gpu_memory"): 35 * MIB, named("quant.reading.gpu_memory_peak"): 40 * MIB,
        semconv.READING_OPEN_STEPS: ["Model Quantization", "Calibration"],
    },
    "steps": [{"index": 0, "samples": 0, "expected": None}, {"index": 2, "samples": 37, "expected": 512}],
}  # fmt: skip


@pytest.fixture
def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(time, "time", lambda: 1700000062.5 + 300)
    path = tmp_path / "profile.1.yaml"
    path.write_text(KILLED)
    (tmp_path / "profile.0123456789abcdef.last_reading.json").write_text(json.dumps(READING))
    return path


@pytest.mark.parametrize(("seconds", "age"), [(300, "5 min 00 s"), (400 * 86_400, "400 days")])
def test_the_last_reading_is_printed_with_its_age_and_the_samples(
    killed: Path, show: Show, monkeypatch: pytest.MonkeyPatch, seconds: float, age: str
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1700000062.5 + seconds)
    out = show(killed)
    assert out.startswith(
        "profile.1.yaml has no end record (killed, or still running); last seen after "
        "1 min 02 s in Calibration, sample 37 of 512.\n"
    )
    assert out.splitlines()[-2] == f"last reading  {age} ago: memory 423 MB"


def test_an_open_step_has_the_memory_of_the_last_reading(killed: Path, show: Show) -> None:
    limit = 'run:\n  id: "0123456789abcdef"\n  memory_limit_mb: 8000.0\n\nmemory_usage:'
    killed.write_text(KILLED.replace("memory_usage:", limit))

    table = show(killed).split("\n\n")[1]
    assert table.splitlines() == [
        "STEP                     START   TIME     %  MEM START  MEM END  MEM PEAK  OF LIMIT  GPU (ALL) PEAK  SAMPLES  STATE",
        "                             s      s               MB       MB        MB         %              MB",
        "-----------------------  -----  -----  ----  ---------  -------  --------  --------  --------------  -------  -----",
        "(before the first step)   0.00   1.00   1.6      104.9    106.4         -         -               -        -",
        "Model Quantization        1.00  61.00  98.4      106.4        -   ≥ 422.8       5.0          ≥ 36.7        -  open",
        "  Calibration             2.00  60.00  96.8      160.4        -   ≥ 422.8       5.0          ≥ 36.7       37  open",
        "GPU (ALL) is memory of all programs on the GPUs.",
    ]
