"""``otel-quant show`` of a recording: as of a file, and what a recording knows more."""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
from pathlib import Path

import pytest

from otel_quant.recordings.model import Advice, Ending
from otel_quant.schema import semconv
from tests.fixtures import recorded
from tests.fixtures.commands import Commands
from tests.fixtures.recorded import RecordedFolder
from tests.unit.cli.shown_profiles import Show

MIB = 1 << 20


def killed(path: Path) -> RecordedFolder:
    """Returns the recording of a run that was killed in a calibration."""
    folder = RecordedFolder(path, {"process.command_line": "x.py --n 1", "host.name": "box"})
    process = folder.process()
    process.begin(
        1,
        attributes={semconv.MEMORY_LIMIT: 8000 * MIB, semconv.MEMORY_LIMIT_SOURCE: "cgroup"},
        checkpoint={semconv.CHECKPOINT_MEMORY: 100 * MIB},
    )
    load = process.step("Load Model", 2, checkpoint={semconv.CHECKPOINT_MEMORY: 101 * MIB})
    process.close(
        load, 3, attributes={semconv.MEMORY_PEAK: 160 * MIB},
        checkpoint={semconv.CHECKPOINT_MEMORY: 150 * MIB}, error="ValueError", error_message="no",
    )  # fmt: skip
    step = process.step("Calibration", 4, checkpoint={semconv.CHECKPOINT_MEMORY: 153 * MIB})
    process.state(
        61,
        [{"index": step, "samples": 37, "expected": 512}],
        **{semconv.READING_MEMORY: 7500 * MIB, semconv.READING_MEMORY_PEAK: 7600 * MIB},
        **{semconv.FORECAST_MEMORY: 103 * 10**9, semconv.FORECAST_MEMORY_LIMIT: 8000 * MIB},
    )
    process.gone()
    return folder


def test_a_child_that_was_killed_alone_is_shown_with_its_open_step(
    tmp_path: Path, show: Show
) -> None:
    folder = RecordedFolder(tmp_path / "r", {"process.command_line": "x.py"})
    parent = folder.process(100).begin()
    parent.close(parent.step("Model Quantization", 1), 9)
    child = folder.process(101, parent=100).begin(2, run="89abcdef01234567")
    step, line = child.step("Calibration", 3), ["/a/x.py", "compute_histogram", 18, ""]
    child.state(8, [{"index": step, "samples": 37, "expected": 512, "line": line}])
    child.gone()
    parent.end(10)
    first, *_ = show(tmp_path / "r").splitlines()
    assert first.endswith(" in Calibration, sample 37 of 512, at compute_histogram (x.py:18).")


def test_a_killed_run_is_shown_with_its_open_step_memory_and_end(
    tmp_path: Path, show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = killed(tmp_path / "r")
    folder.ended(
        Ending(
            time=62.0, signal="SIGKILL", out_of_memory="known",
            evidence="oom_kill rose from 0 to 1", where="Calibration, sample 37 of 512",
            memory=7700 * MIB, memory_limit=8000 * MIB, memory_limit_source="cgroup",
            memory_per_sample=200 * MIB, processes=(("python (4711)", 7600 * MIB),),
            advice=(Advice(text="fewer samples", source="a table"),),
        ),
    )  # fmt: skip
    monkeypatch.setattr("time.time", lambda: 1_700_000_061.0 + 300)
    assert show(folder.path).splitlines() == [
        "x.py was killed by SIGKILL after 1 min 02 s in Calibration, sample 37 of 512: out of memory.",
        "Memory peaked at 8.07 GB: 96.2 % of the limit of 8.39 GB.",
        "2 steps took 59.0 s of 1 min 02 s, most of it Calibration: 58.0 s, 93.5 % of the run.",
        "Calibration: memory would be 103 GB after the last sample (estimated); the limit is 8.39 GB.",
        "",
        "known from  oom_kill rose from 0 to 1",
        "memory      8.07 GB, 96.2 % of the limit of 8.39 GB (cgroup), 210 MB more with each sample",
        "largest     python (4711) 7.97 GB",
        "",
        "What would help",
        "- fewer samples [a table]",
        "",
        "STEP                     START   TIME     %  MEM START  MEM END   MEM PEAK  OF LIMIT  SAMPLES  STATE",
        "                             s      s               MB       MB         MB         %",
        "-----------------------  -----  -----  ----  ---------  -------  ---------  --------  -------  ----------------------",
        "(before the first step)   0.00   2.00   3.2          -    105.9          -         -        -",
        "Load Model                2.00   1.00   1.6      105.9    157.3      167.8       2.0        -  failed: ValueError: no",
        "Calibration               4.00  58.00  93.5      160.4        -  ≥ 7,864.3      93.8       37  killed",
        "(between steps)              -   1.00   1.6      157.3    160.4          -         -        -",
        "",
        "memory limit  8.39 GB (of the control group)",
        "calibration   37 samples (batches)",
        "command       x.py --n 1",
        "host          box",
        "recorder      about 12 MB and 0.2 to 0.5 s of CPU time of each recorded process, which its figures include",
    ]


def test_what_had_failed_before_a_program_was_ended_is_shown(tmp_path: Path, show: Show) -> None:
    folder = RecordedFolder(
        tmp_path / "r", {"process.command_line": "python x.py"}, by_launcher=True
    )
    program = folder.process(11, parent=os.getpid()).begin(1)
    program.close(program.step("Load Model", 1), 2)
    worker = folder.process(12, parent=11).begin(3, run="89abcdef01234567")
    worker.end(5, error="ValueError", error_message="bad shard")
    program.end(60, error="KeyboardInterrupt")
    folder.ended(Ending(time=61.0, signal="SIGINT"))
    first, second, *_ = show(folder.path).splitlines()
    assert first == "x.py was killed by SIGINT after 1 min 01 s."
    assert (
        second
        == "Before that, worker 12 failed with ValueError: bad shard, 5.00 s after the start."
    )


def test_the_worst_layers_of_each_step_are_shown(tmp_path: Path, show: Show) -> None:
    process = RecordedFolder(tmp_path / "run").process().begin()
    of_loss = process.step("Calibration", 1)
    known = {"better": "lower"}
    for number in range(12):
        process.measure(
            of_loss, 2, f"layer {number}", "loss", value=number / 1e4, number=number, **known
        )
    process.measure(of_loss, 2, "layer 12", "loss", number=12, **known)
    process.close(of_loss, 3)
    of_errors = process.step("Model Evaluation", 4)
    for layer, ratio, cosine in (("a", 31.25, 0.99987), ("b", 2.914, 1.0)):
        process.measure(of_errors, 5, layer, "qdq_err", value=ratio, unit="dB", better="higher")
        process.measure(of_errors, 5, layer, "cosine", value=cosine, better="higher")
    process.gone()  # while the step is open
    assert show(tmp_path / "run").partition("Worst")[2].partition("\nrecording")[0].splitlines() == [
        " layers of Calibration, by loss",
        "",
        "Layer           loss",
        "--------  ----------",
        "layer 12  not finite",
        *(f"layer {number:<3}{value:>11}" for number, value in [
            (11, 0.0011), (10, 0.001), (9, 0.0009), (8, 0.0008), (7, 0.0007), (6, 0.0006), (5, 0.0005),
            (4, 0.0004), (3, 0.0003),
        ]),
        "Lower values are better. Median: 0.00055. 3 layers left out.",
        "",
        "Worst layers of Model Evaluation, by qdq_err",
        "",
        "Layer  qdq_err (dB)",
        "-----  ------------",
        "b              2.91",
        "a              31.2",
        "Higher values are better. Median: 17.1.",
        "",
        "Worst layers of Model Evaluation, by cosine",
        "",
        "Layer    cosine",
        "-----  --------",
        "a      0.999870",
        "b          1.00",
        "Higher values are better. Median: 0.999935.",
    ]  # fmt: skip


def test_items_of_calibrations_are_shown_if_every_sample_has_a_count(
    tmp_path: Path, show: Show
) -> None:
    folder = RecordedFolder(tmp_path / "r")
    process = folder.process()
    for run, items in (("a" * 16, (8, 16)), ("b" * 16, (8, None))):
        process.begin(0, run)
        for at, count in enumerate(items):
            told = {} if count is None else {semconv.CALIBRATION_ITEM_COUNT: count}
            index = process.step("Calibration", at)
            process.close(index, at + 0.5, samples=2, attributes=told)
        process.end(3, goes_on=True)
    lines = show(folder.path).splitlines()
    assert [line.split(maxsplit=1)[1] for line in lines if line.startswith("calibration ")] == [
        "4 samples (batches), 24 items",
        "4 samples (batches)",
    ]


def test_json_has_the_totals_of_the_run(tmp_path: Path, show: Show) -> None:
    folder = killed(tmp_path / "r")
    (document,) = json.loads(show(folder.path, "--format", "json"))
    assert document["file"] == f"{folder.path}: process 4711"
    assert document["state"] == "lost"
    assert document["recording"] == {
        "path": str(folder.path), "state": "lost", "duration_secs": 61.0, "memory_peak": 7600 * MIB,
        "memory_limit": 8000 * MIB, "problems": [], "duration_seconds": 61.0,
        "memory_peak_bytes": 7600 * MIB, "memory_limit_bytes": 8000 * MIB,
    }  # fmt: skip
    assert document["last_reading"]["open_steps"] == [
        {"step": "Calibration", "samples": 37, "expected_samples": 512}
    ]


def test_what_is_for_programs_has_one_base_and_one_unit(tmp_path: Path, show: Show) -> None:
    folder = RecordedFolder(tmp_path / "r", by_launcher=True)
    process = folder.process(parent=os.getpid()).begin(1)
    low = {semconv.MEMORY_PEAK: 40, semconv.MEMORY_PEAK_SOURCE: "at_least", semconv.DISK_READ: 7}
    index = process.step("Calibration", 2, checkpoint={semconv.CHECKPOINT_MEMORY: 30})
    process.close(index, 6, samples=5, attributes=low)
    process.step("Export ONNX", 6.5, checkpoint={semconv.CHECKPOINT_MEMORY: 35})
    process.gone()
    folder.ended(Ending(time=8, signal="SIGKILL"))
    (document,) = json.loads(show(folder.path, "--format", "json"))
    names = (
        "step", "start_seconds", "duration_seconds", "share_of_run", "memory_peak_bytes",
        "memory_peak_is_least", "disk_read_bytes", "samples",
    )  # fmt: skip
    assert [[row[name] for name in names] for row in document["steps"]] == [
        ["(before the first step)", 0, 2, 0.25, None, None, None, None],
        ["Calibration", 2, 4, 0.5, 40, True, 7, 5],
        ["Export ONNX", 6.5, 1.5, 0.1875, 35, True, None, None],
        ["(between steps)", None, 0.5, 0.0625, None, None, None, None],
    ]  # fmt: skip
    # What was there before stays as it was.
    old = document["steps"][1]
    assert [old[name] for name in ("start_secs", "duration_secs", "cpu_memory_peak_mb")] == [
        1,
        4,
        0,
    ]


def test_each_step_of_a_library_that_has_more_than_its_name_is_shown(
    tmp_path: Path, show: Show
) -> None:
    folder = RecordedFolder(tmp_path / "r", by_launcher=True)
    process = folder.process(parent=os.getpid()).begin(1)
    parts = {
        semconv.CONFIG_NAME: "W4A16", semconv.ALGORITHMS: ("GPTQ", "RTN"), semconv.WEIGHT_TYPE: "int4, int8",
        semconv.PARTS_BITS: (4, 8), semconv.PARTS_BLOCK_SIZE: (32, 64), semconv.OUTPUT_PATH: "out",
    }  # fmt: skip
    for name, attributes in {
        "Model Loading": {}, "Model Quantization": parts, "Model Evaluation": {semconv.ACCURACY_COUNT: 7},
    }.items():  # fmt: skip
        of_library = {semconv.LIBRARY_NAME: "auto-round", **attributes}
        process.close(process.step(name, 2, attributes=of_library), 3)
    process.close(process.step("own", 4, attributes={semconv.OUTPUT_PATH: "x"}), 5)
    process.end(6)
    folder.ended(Ending(time=8, exit_code=0, why_no_step="no library was called"))
    *_, table = (part for part in show(folder.path).split("\n\n") if part.startswith("STEP  "))
    assert [" ".join(line.split()) for line in table.splitlines()[2:]] == [
        "Model Quantization auto-round W4A16, GPTQ, RTN, int4, int8 weights, group of 32, 64 - out",
        "Model Evaluation auto-round - 7 -",
    ]
    (document,) = json.loads(show(folder.path, "--format", "json"))
    assert document["recording"]["ending"]["why_no_step"] is None
    names = ("library_name", "algorithms", "parts_bits", "parts_block_size", "accuracy_count")
    [quantized] = [row for row in document["steps"] if row["step"] == "Model Quantization"]
    assert [quantized[name] for name in names] == [
        "auto-round",
        ["GPTQ", "RTN"],
        [4, 8],
        [32, 64],
        None,
    ]


def test_a_recording_without_a_run_prints_that_it_has_none(tmp_path: Path, show: Show) -> None:
    folder = RecordedFolder(tmp_path / "r", by_launcher=True)
    folder.ended(Ending(time=2.0, exit_code=3))
    assert show(folder.path).splitlines() == [
        "r failed with exit code 3 after 2.00 s.",
        "No step was recorded.",
    ]
    (document,) = json.loads(show(folder.path, "--format", "json"))
    assert document["recording"]["state"] == "failed"


def test_the_table_has_the_thousand_most_important_steps_and_json_has_all(
    tmp_path: Path, show: Show
) -> None:
    folder = RecordedFolder(tmp_path / "r")
    process = folder.process().begin(0)
    checkpoint = {"checkpoint": {semconv.CHECKPOINT_MEMORY: 100 * MIB}}
    for number in range(1200):
        step = process.step(f"Layer {number}", number, **checkpoint)
        error = {"error": "ValueError"} if number == 7 else {}
        process.close(step, number + 0.1 + number / 9999, samples=number, **checkpoint, **error)
    process.end(1200)
    shown = show(folder.path)
    lines = [line.split() for line in shown.splitlines() if line.startswith("Layer ")]
    names = [line[1] for line in lines if line[2] != "raised"]
    assert names == ["7", *map(str, range(201, 1200))]
    assert "200 steps of 1,200 left out, the shortest: none took more than 120 ms." in shown
    (document,) = json.loads(show(folder.path, "--format", "json"))
    rows = list(csv.DictReader(io.StringIO(show(folder.path, "--format", "csv"))))
    assert len(rows) == len(document["steps"]) == 1201  # and the time between them
    for row, step in zip(rows, document["steps"], strict=True):
        assert {name: row[name] for name in step if step[name] is not None} == {
            name: f"{value:.12g}" if isinstance(value, float) else str(value)
            for name, value in step.items()
            if value is not None
        }


@pytest.mark.parametrize("at", [0, 300, 511])
def test_a_damaged_line_does_not_hide_its_neighbours(tmp_path: Path, show: Show, at: int) -> None:
    folder = RecordedFolder(tmp_path / "r")
    process = folder.process().begin(0)
    for number in range(255):
        process.close(process.step(f"Layer {number}", number), number + 1)
    process.end(255)
    path = folder.path / "events.4711.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines.insert(at, b'{"schema":1,"kind"\n')
    path.write_bytes(b"".join(lines))
    shown = show(folder.path)
    assert shown.count("\nLayer ") == 255
    assert "events.4711.jsonl: not readable and left out: line" in shown


def test_a_module_is_called_by_its_name_and_a_peak_above_the_limit_has_a_reason(
    tmp_path: Path, show: Show
) -> None:
    command = "python -m onnxruntime.quantization.preprocess --input a.onnx"
    origin = {semconv.PROCESS_COMMAND_LINE: command, semconv.MEMORY_LIMIT: 734 * 10**6}
    process = RecordedFolder(tmp_path / "r", origin=origin).process().begin(0)
    process.close(process.step("Calibration", 1), 2, attributes={semconv.MEMORY_PEAK: 780 * 10**6})
    process.end(3, error="ValueError")
    first, *_ = lines = show(tmp_path / "r").splitlines()
    assert first.startswith("onnxruntime.quantization.preprocess failed after 3.00 s")
    peak = "Memory peaked at 780 MB in Calibration: 106.3 % of the limit of 734 MB"
    assert f"{peak}, which counts what processes share once." in lines


def test_the_brief_answer_of_several_recordings_has_the_first_sentence_of_each(
    tmp_path: Path, command: Commands
) -> None:
    for name, build in {"good": recorded.good, "failed": recorded.failed}.items():
        build(tmp_path / name)
    paths = [str(tmp_path / name) for name in ("good", "failed")]
    own = {path: json.loads(command.output("show", path, "--brief")) for path in paths}
    good, failed = (f"{path}: {own[path]['verdict']}" for path in paths)
    both = json.loads(command.output("show", *paths, "--brief"))
    assert (both["verdict"], both["evidence"], both["is_bad"]) == (failed, [good], True)
    [then] = both["next"]
    assert command(*shlex.split(then)[1:]).code == 0
