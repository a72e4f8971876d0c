"""``otel-quant show`` of a profile: its whole output, in each format."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from otel_quant.cli import main
from tests.unit.cli.shown_profiles import (
    COMPLETE,
    COST,
    COST_SHOWN,
    DESCRIBED,
    DESCRIBED_TABLE,
    MESSAGE,
    RUN,
    TABLE,
    show,
)


def test_the_steps_are_shown_as_a_table(complete: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show(capsys, complete) == TABLE


def test_the_cost_of_models_is_shown_with_units(
    complete: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    complete.write_text(COMPLETE.partition("\nonnx_model_cost:")[0] + COST)
    assert show(capsys, complete).partition("model cost:")[1:] == ("model cost:", COST_SHOWN[11:])


def test_several_files_are_headed_by_their_paths(
    complete: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = complete.with_name("q.yaml")
    other.write_text(COMPLETE)
    assert show(capsys, complete, other) == f"{complete}\n\n{TABLE}\n{other}\n\n{TABLE}"


def test_a_file_says_how_near_the_limit_it_came_what_made_it_and_how_it_ended(
    complete: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    complete.write_text(DESCRIBED)

    assert show(capsys, complete) == DESCRIBED_TABLE


@pytest.mark.parametrize("form", ["table", "markdown", "csv", "json"])
def test_values_of_any_kind_in_what_made_the_run_are_printed(
    complete: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    values = ["[1, {a: b}]", "{a: [1]}", "9" * 400, ".nan", "-.inf", '"\\e[2J"', "true", "null"]
    for value in values:
        run = "".join(f"  {key}: {value}\n" for key in RUN)
        records = f'- step: "a Start"\n  relative_time_secs: {value}\n  cpu_memory_mb: {value}\n'
        end = f'- step: "a End"\n  error_message: {value}\n  error: {value}\n'
        complete.write_text(f"run:\n{run}\nmemory_usage:\n{records}{end}")

        out = show(capsys, complete, "--format", form)
        assert not [letter for letter in out if letter not in "\n\xa0" and not letter.isprintable()]


def test_json_and_csv_have_what_the_file_says_of_its_run(
    complete: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    complete.write_text(DESCRIBED)
    [document] = json.loads(show(capsys, complete, "--format", "json"))

    assert document["run"] == RUN
    assert document["steps"] == [
        {
            "step": "Calibration",
            "depth": 0,
            "start_secs": 1.0,
            "duration_secs": 3.0,
            "duration_share": 0.6,
            "cpu_memory_start_mb": 200.0,
            "cpu_memory_end_mb": 300.0,
            "cpu_memory_delta_mb": 100.0,
            "cpu_memory_peak_mb": 3000.0,
            "cpu_memory_seen_mb": 300.0,
            "cpu_memory_limit_share": 0.75,
            "error_message": MESSAGE,
            "status": "ValueError",
        }
    ]
    assert document["onnx_model_cost"] == [
        {"role": "float", "size": 104857600},
        {"role": "quantized", "size": 27262976, "size_ratio": 0.26},
    ]
    [row] = csv.DictReader(io.StringIO(show(capsys, complete, "--format", "csv")))
    assert row == {
        "file": str(complete),
        **{key: str(value) for key, value in document["steps"][0].items()},
        **{f"run_{key}": str(value) for key, value in RUN.items()},
        "run_gpus": "NVIDIA H200, NVIDIA H200",
        "run_libraries": "amd-quark 0.13, onnxruntime 1.22.0",
    }


def test_a_killed_run_says_what_made_it_and_how_near_the_limit_it_was_seen(
    complete: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = DESCRIBED[: DESCRIBED.index("# Summary Metrics")]
    complete.write_text(text.replace('"End"', '"Last"'))

    table = show(capsys, complete).partition("\n\n")[2]
    assert table == (
        "memory peak   at least 3.15 GB, 75.0 % of the limit\n"
        "memory limit  4.19 GB (of the control group)\n"
        "GPUs          NVIDIA H200, NVIDIA H200\n"
        "libraries     amd-quark 0.13, onnxruntime 1.22.0\n"
        "calibration   Percentile, 128 samples (batches)\n"
        "command       python quantize.py | tee log\n"
        "host          node7, Linux 6.1.0 x86_64\n"
        "Python        3.11.2, otel-quant 0.2.0\n"
        "\n"
        "truncated: the run has no End: it is still running, or was killed\n"
        "  open steps:      none\n"
        "  last checkpoint: Last (5.00 s, 315 MB)\n"
    )


def test_csv_has_the_same_figures_unrounded(
    complete: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    end = "1900.12,kernel,without an exception"
    assert show(capsys, complete, "--format", "csv") == (
        "file,step,depth,start_secs,duration_secs,duration_share,cpu_memory_start_mb,cpu_memory_end_mb,"
        "cpu_memory_delta_mb,cpu_memory_seen_mb,gpu_memory_start_mb,gpu_memory_end_mb,"
        "gpu_memory_seen_mb,disk_read_mb,status,accuracy,run_tree_peak_memory_mb,"
        "run_tree_peak_memory_source,run_ended\n"
        f"{complete},Model Quantization,0,1.0,13.5,0.8438,101.5,151.5,50.0,1800.25,300.0,310.0,900.0,65.0,ok,0.75,{end}\n"
        f"{complete},Calibration,1,2.0,11.5,0.7188,200.0,1800.25,1600.25,1800.25,900.0,800.0,900.0,64.5,ValueError,,{end}\n"
        f"{complete},Model Loaded,0,15.0,,,152.0,,,152.0,310.0,,310.0,,point,,{end}\n"
    )


def test_json_has_the_same_figures_and_the_rest_of_the_file(
    complete: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [document] = json.loads(show(capsys, complete, "--format", "json"))

    assert document["steps"][1] == {
        "step": "Calibration",
        "depth": 1,
        "start_secs": 2.0,
        "duration_secs": 11.5,
        "duration_share": 0.7188,
        "cpu_memory_start_mb": 200.0,
        "cpu_memory_end_mb": 1800.25,
        "cpu_memory_delta_mb": 1600.25,
        "cpu_memory_seen_mb": 1800.25,
        "gpu_memory_start_mb": 900.0,
        "gpu_memory_end_mb": 800.0,
        "gpu_memory_seen_mb": 900.0,
        "disk_read_mb": 64.5,
        "accuracy": None,
        "status": "ValueError",
    }
    del document["steps"]
    assert document == {
        "file": str(complete),
        "truncated": False,
        "run": {
            "tree_peak_memory_mb": 1900.12,
            "tree_peak_memory_source": "kernel",
            "ended": "without an exception",
        },
        "state": "ended",
        "recording": {
            "path": str(complete),
            "state": "ended",
            "duration_secs": 16.0,
            "memory_peak": round(1900.12 * (1 << 20)),
            "problems": [],
        },
        "summary": {"total_quantization_time_seconds": 16.0, "peak_memory_mb": 1900.12},
        "onnx_model_cost": [{"role": "float", "macs": 4089, "precision": {"float32": 1.0}}],
    }


def test_a_killed_run_shows_its_open_steps_and_last_figures(
    complete: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    complete.write_text(COMPLETE[: COMPLETE.index('- step: "Calibration End"') + 40])

    assert show(capsys, complete) == (
        "STEP                START  MEM START  MEM SEEN  GPU START  GPU SEEN  STATUS\n"
        "                        s         MB        MB         MB        MB\n"
        "------------------  -----  ---------  --------  ---------  --------  ------\n"
        "Model Quantization   1.00      106.4     209.7      314.6     943.7  open\n"
        "  Calibration        2.00      209.7     209.7      943.7     943.7  open\n"
        "(SEEN is the highest at the checkpoints, not between them)\n"
        "\n"
        "memory peak  at least 210 MB\n"
        "\n"
        "truncated: the run has no End: it is still running, or was killed\n"
        "  open steps:      Model Quantization > Calibration\n"
        "  last checkpoint: Calibration Start (2.00 s, 210 MB, 944 MB on GPUs)\n"
    )


def test_a_run_that_failed_shows_its_exception(
    complete: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    complete.write_text(COMPLETE.replace("\n\n# Summary", '\n  error: "MemoryError"\n\n# Summary'))

    assert show(capsys, complete) == TABLE.replace("without an exception", "with MemoryError")


def test_a_run_without_steps_shows_no_steps(
    complete: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    complete.write_text('memory_usage:\n- step: "Start"\n  timestamp: 100.0\n')

    assert show(capsys, complete) == (
        "no steps\n"
        "\n"
        "truncated: the run has no End: it is still running, or was killed\n"
        "  open steps:      none\n"
        "  last checkpoint: Start (0.00 s)\n"
    )


def test_peaks_in_comments_are_shown_instead_of_the_highest_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = tmp_path / "profile.yaml"
    profile.write_text(
        "# Quark Profiling Results\n\nmemory_usage:\n"
        + "".join(
            f'- step: "{name}"\n  relative_time_secs: {second}.0\n  cpu_memory_mb: 100.0\n{note}'
            for name, second, note in (
                ("Start", 0, ""),
                ("Calibration Start", 1, ""),
                ("Calibration End", 3, "  # peak_memory_mb: 1234.50\n"),
            )
        )
    )

    assert main(["show", str(profile)]) == 0
    assert capsys.readouterr().out.splitlines()[:5] == [
        "STEP         START  TIME     %  MEM START  MEM END  MEM +/-  MEM PEAK  STATUS",
        "                 s     s               MB       MB       MB        MB",
        "-----------  -----  ----  ----  ---------  -------  -------  --------  ------",
        "Calibration   1.00  2.00  66.7      104.9    104.9      0.0   1,294.5  ok",
        "",
    ]
