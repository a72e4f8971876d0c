"""`otel-quant runs`: a row for each run below folders, filtered, sorted, and as a table."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_quant.recordings.model import Ending
from otel_quant.recordings.summary import DISK_WRITE
from otel_quant.schema import semconv
from otel_quant.views.text import NO_BREAK
from tests.fixtures.commands import Commands
from tests.fixtures.recorded import RecordedFolder
from tests.unit.recordings.runs.fleet import GB, write_fleet, write_recording

METHOD, CONFIG = map(semconv.short, (semconv.CALIBRATION_METHOD, semconv.CONFIG_NAME))

UNREADABLE = """\
otel-quant: 3 paths could not be read, or not in all parts:
otel-quant:   runs/empty/quark_profile.yaml: the file is empty; expected the records of a run, which writes the first as it begins
otel-quant:   runs/newer: runs/newer/manifest.json: schema 9; this otel-quant reads 1 and less: read it with a newer one
otel-quant:   runs/nightly/broken: has no manifest.json and no events.<pid>.jsonl; expected a recording (the folder that `otel-quant run -- PROGRAM` makes) or a quark_profile.yaml
"""


@pytest.fixture(autouse=True)
def _fleet(tmp_path: Path) -> None:
    write_fleet(tmp_path / "runs")


Runs = Callable[..., str]


@pytest.fixture
def printed(command: Commands) -> Runs:
    """Lists the fleet; returns what is printed."""

    def printed(*arguments: str) -> str:
        code, out, err = command("runs", "runs", *arguments)
        assert (code, err) == (0, UNREADABLE)
        return out

    return printed


def paths(printed: Runs, *arguments: str) -> list[str]:
    runs = json.loads(printed("--format", "json", *arguments))["runs"]
    return [run["path"].removeprefix("runs/") for run in runs]


def test_each_run_has_a_row_newest_first_and_unreadable_files_are_named(printed: Runs) -> None:
    assert printed() == """\
6 runs: 4 ended, 1 lost, 1 killed; the highest peak is at least 7.50 GB, in runs/nightly/killed.

runs/nightly/killed               ≥ 7.50 GB  ███████████████████████████████████
runs/nightly/resnet                 2.00 GB  █████████
runs/bert-cut/named.yaml          ≥ 1.89 GB  █████████
runs/bert/quark_profile.yaml        1.89 GB  █████████
runs/nightly/yolo                   1.00 GB  █████
runs/quarks/quark_profile.1.yaml     734 MB  ███

MODEL     METHOD      CONFIG  STATUS     SIZE  ACTIVATIONS        TIME       PEAK  WRITTEN              WHEN  PATH
--------  ----------  ------  ------  -------  -----------  ----------  ---------  -------  ----------------  --------------------------------
                              ended                             10.0 s     734 MB  1.05 MB  2023-11-14 22:16  runs/quarks/quark_profile.1.yaml
          Entropy             lost                              2.00 s  ≥ 1.89 GB           2023-11-14 22:15  runs/bert-cut/named.yaml
bert      Entropy             ended    400 MB       101 MB  1 min 30 s    1.89 GB   105 MB  2023-11-14 22:15  runs/bert/quark_profile.yaml
yolo8     Percentile  XINT8   ended   12.0 MB       107 MB  1 min 00 s    1.00 GB  3.00 MB  2023-11-14 22:13  runs/nightly/yolo
resnet50  MinMax      XINT8   ended    102 MB       107 MB  1 min 00 s    2.00 GB  3.00 MB  2023-11-14 22:13  runs/nightly/resnet
          MinMSE              killed                            30.0 s  ≥ 7.50 GB      1 B  2023-11-14 22:13  runs/nightly/killed
"""  # fmt: skip


ANSWER = "6 runs: 4 ended, 1 lost, 1 killed; the highest peak is at least 7.50 GB, in runs/nightly/killed."


def test_a_failed_child_is_shown_beside_the_status_of_a_successful_run(
    tmp_path: Path, command: Commands
) -> None:
    folder = RecordedFolder(tmp_path / "r", by_launcher=True)
    for pid, error in ((20, None), (21, "ValueError")):
        process = folder.process(pid).begin(0, run=str(pid))
        process.close(process.step("Calibration", 1), 2, error=error)
        process.end(3, error=error)
    folder.ended(Ending(time=4, exit_code=0))
    for arguments, said in (
        ((), "ended, 1 failed"),
        (("--where", "failed>0", "--where", "status=ended"), "ended, 1 failed"),
        (("--where", "failed>1"), "no run"),
        (("--format", "json"), '"failed": 1'),
    ):
        assert said in command.output("runs", tmp_path, *arguments), arguments


def test_a_peak_that_page_faults_contradict_is_at_least_that_as_show_says(
    tmp_path: Path, command: Commands
) -> None:
    process = RecordedFolder(tmp_path / "r").process().begin(0)
    low = {semconv.MEMORY_PEAK: 300 * 10**6, semconv.MEMORY_PEAK_SOURCE: "at_least"}
    process.close(process.step("Calibration", 1), 2, attributes=low)
    process.end(3, attributes=low)
    listed = command.output("runs", tmp_path / "r")
    assert "the highest peak is at least 300 MB" in listed
    assert "≥ 300 MB" in listed
    assert "Memory reached at least 300 MB" in command.output("show", tmp_path / "r")


def test_a_table_has_the_models_with_their_sizes_and_the_memory_of_each_method(
    printed: Runs,
) -> None:
    for number, peak in enumerate((3 * GB, 4 * GB)):
        write_recording(Path(f"runs/again/{number}"), method="LayerWisePercentile", peak=peak)
    arguments = ("--rows", "model", "--columns", "calibration.method", "--value", "memory.peak")
    assert printed(*arguments) == f"""\
{ANSWER.replace("6 runs: 4", "8 runs: 6")}

MODEL        SIZE  ACTIVATIONS  (none)  Entropy  LayerWisePercentile   MinMax  Percentile
--------  -------  -----------  ------  -------  -------------------  -------  ----------
(none)                          734 MB
bert       400 MB       101 MB          1.89 GB
resnet50   102 MB       107 MB                               3.50 GB  2.00 GB
yolo8     12.0 MB       107 MB                                                    1.00 GB
memory.peak by model and {METHOD}: the median where a cell has several runs, up to 2. 2 runs left out, which did not end well or have no memory.peak.
"""  # fmt: skip
    assert printed(*arguments, "--format", "csv", "--where", "model=yolo8") == (
        "model,model.size,model.activation_size,Percentile\nyolo8,12000000,107000000,1000000000\n"
    )
    assert json.loads(printed(*arguments, "--format", "json", "--where", "status=killed")) == {
        "rows": "model",
        "columns": METHOD,
        "value": "memory.peak",
        "unit": "By",
        "table": [
            {
                "model": None, "model.size": None, "model.activation_size": None,
                "cells": {"MinMSE": {"median": 7_500_000_000, "runs": 1}},
            }
        ],
        "left_out": 0,
        "unreadable": [
            {"path": path, "problem": problem.removeprefix(f"{path}: ")}
            for path, _, problem in (
                line.removeprefix("otel-quant:   ").partition(": ")
                for line in UNREADABLE.splitlines()[1:]
            )
        ],
    }  # fmt: skip


def test_runs_of_each_library_have_a_row_and_torch_models_have_a_name(
    tmp_path: Path, command: Commands
) -> None:
    for library, model in (
        ("onnxruntime", {semconv.INPUT_PATH: "m/net.onnx"}),
        ("amd-quark", {semconv.INPUT_PATH: "net.onnx"}),
        ("torchao", {semconv.MODEL_NAME: "Tiny"}),
    ):
        process = RecordedFolder(tmp_path / "own" / library).process().begin(0)
        known = {semconv.LIBRARY_NAME: library, semconv.MEMORY_PEAK: len(library) * GB, **model}
        process.end(3, attributes=known)
    _, _, _, _, *rows, _ = command.output("runs", tmp_path / "own", "--rows", "model").splitlines()
    assert [row.split() for row in rows] == [
        ["Tiny", "torchao", "7.00", "GB"],
        ["net", "amd-quark", "9.00", "GB"],
        ["net", "onnxruntime", "11.0", "GB"],
    ]


def test_any_two_fields_make_a_pivot_table(printed: Runs) -> None:
    assert printed("--rows", "host.name", "--columns", "config.name", "--value", "duration") == f"""\
{ANSWER}

host.name  (none)       XINT8
---------  ------  ----------
(none)     50.0 s
node7              1 min 00 s
duration by host.name and {CONFIG}: the median where a cell has several runs, up to 2. 2 runs left out, which did not end well or have no duration.
"""  # fmt: skip


@pytest.mark.parametrize(
    ("conditions", "found"),
    [
        (("calibration.method=MinMax",), ["nightly/resnet"]),
        (("quant.calibration.method = MinMax",), ["nightly/resnet"]),
        (("memory.peak>1.5GB", "memory.peak<2 GiB", "status=ended"), ["bert/quark_profile.yaml", "nightly/resnet"]),
        (("memory.peak>=2GB", "memory.peak<=2000000000"), ["nightly/resnet"]),
        (("duration>1min",), ["bert/quark_profile.yaml"]),
        (("when>=2023-11-14T22:16",), ["quarks/quark_profile.1.yaml"]),
        (("when<2023-11-14",), []),
        (("config.name!=XINT8", "status=ended"), ["quarks/quark_profile.1.yaml", "bert/quark_profile.yaml"]),
        (("libraries=onnx 1.22.0", "model!=yolo8"), ["nightly/resnet"]),
        (("activation.type=QUInt8", "model=yolo8"), ["nightly/yolo"]),
        (("cpu.time>10s", "model.float.weight_bytes<100MB"), ["nightly/yolo"]),
        (("gpu.memory.peak>1GB",), []),
    ],
)  # fmt: skip
def test_conditions_select_runs(
    conditions: tuple[str, ...], found: list[str], printed: Runs
) -> None:
    options = [part for condition in conditions for part in ("--where", condition)]
    assert paths(printed, *options) == found


def test_a_question_in_gib_is_answered_in_gib(printed: Runs) -> None:
    chosen = ("--where", "model=resnet50", "--where", "memory.peak>1GiB", "--value", "memory.peak")
    out = printed(*chosen, "--format", "markdown")
    assert "GiB" in out
    assert "GB" not in out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--where", "MinMax"), "--where MinMax: is no condition; expected NAME=VALUE, with =, !=, <, <=, > or >=: calibration.method=MinMax, 'memory.peak>12 GiB'"),
        (("--where", "memory.peak>much"), "--where memory.peak>much: 'much' is no number; memory.peak is one, such as 1.89 GB"),
        (("--where", "memory.peak>2s"), "--where memory.peak>2s: 's' is no unit of memory.peak; expected one of B, kB, MB, GB, TB, KiB, MiB, GiB, TiB"),
        (("--where", "model>a"), "--where model>a: model is a text, such as bert; expected model=... or model!=..."),
        (("--where", "when>now"), "--where when>now: 'now' is no date; expected 2026-11-22 or 2026-11-22T06:59, in UTC unless it has an offset"),
        (("--where", "memry.peak>1"), "--where memry.peak>1: no run has 'memry.peak'; expected a column of the list (model, status, memory.peak, ...) or an attribute of docs/telemetry.md without `quant.`"),
        (("--sort", "peak"), "--sort peak: no run has 'peak'; expected a column of the list (model, status, memory.peak, ...) or an attribute of docs/telemetry.md without `quant.`"),
        (("--value", "status"), "--value status: 'ended' is no figure; expected a name such as memory.peak or duration"),
    ],
)  # fmt: skip
def test_an_unknown_name_or_value_is_a_usage_error(
    options: tuple[str, ...], said: str, command: Commands
) -> None:
    assert command("runs", "runs", *options) == (2, "", f"otel-quant: {said}\n")


def test_runs_are_sorted_by_any_field_and_runs_without_it_are_last(printed: Runs) -> None:
    known = ["nightly/yolo", "nightly/resnet", "bert/quark_profile.yaml"]
    rest = ["nightly/killed", "bert-cut/named.yaml", "quarks/quark_profile.1.yaml"]
    assert paths(printed, "--sort", "model.size")[:3] == known
    assert sorted(paths(printed, "--sort", "model.size")[3:]) == sorted(rest)
    assert paths(printed, "--sort", "model.size", "--reverse")[:3] == known[::-1]


def test_a_requested_field_is_a_column(printed: Runs) -> None:
    text = printed("--format", "csv", "--where", "host.name=node7", "--sort", "cpu.time")
    first, *_ = csv.DictReader(io.StringIO(text))
    assert first == {
        "model": "resnet50", METHOD: "MinMax", CONFIG: "XINT8",
        "status": "ended", "model.size": "102400000", "model.activation_size": "107000000",
        "duration": "60", "memory.peak": "2000000000", DISK_WRITE: "3000000",
        "when": "2023-11-14T22:13:20Z", "host.name": "node7", "cpu.time": "12.5",
        "path": "runs/nightly/resnet",
    }  # fmt: skip


def test_an_empty_result_prints_that_there_are_no_runs(printed: Runs) -> None:
    assert printed("--where", "status=running") == "no run below runs with status=running\n"


def test_a_folder_that_does_not_exist_is_an_error(command: Commands) -> None:
    code, _, err = command("runs", "runs", "nowhere")
    assert code == 1
    assert err.startswith("otel-quant: ")


def test_the_page_has_the_table_and_the_list(printed: Runs) -> None:
    Path("runs/nightly/killed/report.html").touch()
    html = printed("--format", "html").replace(NO_BREAK, " ")
    assert f"<h1>{ANSWER[:-1]}</h1>" in html
    assert html.count('<rect class="bar" width="100.0%" y="5" height="12"/>') == 1
    assert 'http-equiv="Content-Security-Policy" content="default-src &#39;none&#39;;' in html
    assert '<td title="median of 1 run">734.0</td>' in html
    assert '<td title="median of 1 run">2,000.0</td>' in html
    assert '<th scope="row" class="t">resnet50</th><td>102.4</td><td>107.0</td>' in html
    link = '<a href="runs/nightly/killed/report.html">runs/nightly/killed</a>'
    assert f'<tr class="killed"><th scope="row" class="t">{link}</th>' in html
    assert "<td>≥ 7,500.0</td>" in html
    assert "3 paths could not be read, or not in all parts:</p>" in html
    assert "runs/nightly/broken: has no manifest.json" in html
