"""``otel-quant show`` with complete, truncated and malicious files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from otel_quant.cli import main
from otel_quant.profile.reader import Record, parse
from otel_quant.rendering.table import printable, table

COMPLETE = """\
# Quark Profiling Results

memory_usage:
- step: "Start"
  timestamp: 1700000000.5
  relative_time_secs: 0.0
  cpu_memory_mb: 100.0
  gpu_memory_mb: 300.0
  disk_read_mb: 0.0
- step: "Model Quantization Start"
  timestamp: 1700000001.5
  relative_time_secs: 1.0
  cpu_memory_mb: 101.5
  gpu_memory_mb: 300.0
  disk_read_mb: 1.0
- step: "Calibration Start"
  timestamp: 1700000002.5
  relative_time_secs: 2.0
  cpu_memory_mb: 200.0
  gpu_memory_mb: 900.0
  disk_read_mb: 1.0
- step: "Calibration End"
  timestamp: 1700000014.0
  relative_time_secs: 13.5
  cpu_memory_mb: 1800.25
  gpu_memory_mb: 800.0
  disk_read_mb: 65.5
  error: "ValueError"
- step: "Model Quantization End"
  timestamp: 1700000015.0
  relative_time_secs: 14.5
  cpu_memory_mb: 151.5
  gpu_memory_mb: 310.0
  disk_read_mb: 66.0
  accuracy: 0.75
- step: "Model Loaded"
  timestamp: 1700000015.5
  relative_time_secs: 15.0
  cpu_memory_mb: 152.0
  gpu_memory_mb: 310.0
  disk_read_mb: 66.0
- step: "End"
  timestamp: 1700000016.5
  relative_time_secs: 16.0
  cpu_memory_mb: 150.0
  gpu_memory_mb: 310.0
  disk_read_mb: 66.0

# Summary Metrics
total_quantization_time_seconds: 16.0
peak_memory_mb: 1900.12

# Metric Definitions:
#
# Checkpoint Metrics (per record):
# - step: A name.
#    - more of it
# - timestamp: A time.
# - relative_time_secs: A time.
# - cpu_memory_mb: Memory.
# - gpu_memory_mb: Memory.
# - disk_read_mb: Bytes.
# - accuracy: A share.
#
# Summary Metrics (overall):
# - total_quantization_time_seconds: A time.
# - peak_memory_mb: Memory.

onnx_model_cost:
- role: "float"
  macs: 4089
  precision: {float32: 1.0}
"""

TABLE = """\
STEP                START s  TIME s  MEM START  MEM END   MEM +/-  MEM SEEN  GPU START  GPU END  GPU SEEN   READ  accuracy  STATUS
------------------  -------  ------  ---------  -------  --------  --------  ---------  -------  --------  -----  --------  ----------
Model Quantization     1.00   13.50      101.5    151.5    +50.00    1800.2      300.0    310.0     900.0  65.00      0.75  ok
  Calibration          2.00   11.50      200.0   1800.2  +1600.25    1800.2      900.0    800.0     900.0  64.50         -  ValueError
Model Loaded          15.00       -      152.0        -         -     152.0      310.0        -     310.0      -         -  point
(memory and disk in MiB; SEEN is the highest at the checkpoints, not between them)

total_quantization_time_seconds  16.0
peak_memory_mb                   1900.12

model cost: float
MACs  4,089
"""

COST = """\

onnx_model_cost:
- role: "quantized"
  path: "out/int8.onnx"
  size: 26738688
  params: 25557032
  macs: 4133742592
  macs_contraction: 4089284608
  backward_macs: 8178569216
  weight_bytes: 25600000
  memory: 134217728
  peak_activation_bytes: 6422528
  nodes: 420
  qdq_nodes: 296
  max_memory_node: "Conv_0"
  integer_mac_share: 0.999712
  precision.int8: 0.999712
  precision.float32: 0.000288
  uncosted_ops: ["Foo:1", "Bar:2"]
  colour: 1234567
- path: "huge.onnx"
  size: {huge}
  error: "cannot be costed"
""".replace("{huge}", "9" * 400)

COST_SHOWN = f"""\
model cost: quantized
path                       out/int8.onnx
file and external data     25.50 MiB
parameters                 25,557,032
MACs                       4,133,742,592
MACs of contractions       4,089,284,608
backward MACs              8,178,569,216
weights                    24.41 MiB
memory                     128.00 MiB
peak of activations        6.12 MiB
nodes                      420
(De)QuantizeLinear nodes   296
node with the most memory  Conv_0
contractions in integers   99.97 %
contractions in int8       99.97 %
contractions in float32    0.03 %
nodes without known MACs   Foo:1, Bar:2
colour                     1234567

model cost: huge.onnx
path                    huge.onnx
file and external data  {"9" * 400}
error                   cannot be costed
"""


def show(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main(["show", *map(str, arguments)]) == 0
    return capsys.readouterr().out


@pytest.fixture
def complete(tmp_path: Path) -> Path:
    path = tmp_path / "p.yaml"
    path.write_text(COMPLETE)
    return path


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
    assert show(capsys, complete, other) == f"{complete}\n{TABLE}\n{other}\n{TABLE}"


def test_csv_has_the_same_figures_unrounded(
    complete: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(capsys, complete, "--format", "csv") == (
        "file,step,depth,start_secs,duration_secs,cpu_memory_start_mb,cpu_memory_end_mb,"
        "cpu_memory_delta_mb,cpu_memory_seen_mb,gpu_memory_start_mb,gpu_memory_end_mb,"
        "gpu_memory_seen_mb,disk_read_mb,status,accuracy\n"
        f"{complete},Model Quantization,0,1.0,13.5,101.5,151.5,50.0,1800.25,300.0,310.0,900.0,65.0,ok,0.75\n"
        f"{complete},Calibration,1,2.0,11.5,200.0,1800.25,1600.25,1800.25,900.0,800.0,900.0,64.5,ValueError,\n"
        f"{complete},Model Loaded,0,15.0,,152.0,,,152.0,310.0,,310.0,,point,\n"
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
        "summary": {"total_quantization_time_seconds": 16.0, "peak_memory_mb": 1900.12},
        "onnx_model_cost": [{"role": "float", "macs": 4089, "precision": {"float32": 1.0}}],
    }


def test_a_killed_run_shows_its_open_steps_and_last_figures(
    complete: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    complete.write_text(COMPLETE[: COMPLETE.index('- step: "Calibration End"') + 40])

    assert show(capsys, complete) == (
        "STEP                START s  MEM START  MEM SEEN  GPU START  GPU SEEN  STATUS\n"
        "------------------  -------  ---------  --------  ---------  --------  ------\n"
        "Model Quantization     1.00      101.5     200.0      300.0     900.0  open\n"
        "  Calibration          2.00      200.0     200.0      900.0     900.0  open\n"
        "(memory and disk in MiB; SEEN is the highest at the checkpoints, not between them)\n"
        "\n"
        "truncated: the run has no End: it is still running, or it was killed\n"
        "  open steps:      Model Quantization > Calibration\n"
        "  last checkpoint: Calibration Start (2.00 s, 200.00 MiB, 900.00 MiB on GPUs)\n"
    )


def test_a_run_that_failed_shows_its_exception(
    complete: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    complete.write_text(COMPLETE.replace("\n\n# Summary", '\n  error: "MemoryError"\n\n# Summary'))

    assert show(capsys, complete) == TABLE + "\nthe run ended with MemoryError\n"


def test_a_run_without_steps_shows_no_steps(
    complete: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    complete.write_text('memory_usage:\n- step: "Start"\n  timestamp: 100.0\n')

    assert show(capsys, complete) == (
        "no steps\n"
        "\n"
        "truncated: the run has no End: it is still running, or it was killed\n"
        "  open steps:      none\n"
        "  last checkpoint: Start\n"
    )


def records_of(text: str) -> list[Record]:
    return parse(text).records


def test_a_file_truncated_at_any_byte_shows_its_complete_records(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    every = records_of(COMPLETE)
    assert len(every) == 7
    # The keys of the first record are unknown until it ends; those of the last cost always are.
    after_the_first = COMPLETE.index('- step: "Model Quantization Start"')
    undetectable = COMPLETE.index("onnx_model_cost:") - 1
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
    for cut in range(0, len(COMPLETE), 97):
        path.write_text(COMPLETE[:cut])
        assert "truncated" in show(capsys, path) or cut >= undetectable


def test_names_that_quark_does_not_escape_are_read_correctly(
    complete: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ['say "hi"', "two\nlines", "back\\slash d", "a: b"]
    text = "# Quark Profiling Results\n\nmemory_usage:\n"
    for name in names:
        text += f'- step: "{name} Start"\n  cpu_memory_mb: 1.0\n'

    assert [record["step"] for record in records_of(text)] == [f"{name} Start" for name in names]


def test_names_cannot_send_control_codes_to_the_terminal(
    complete: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    complete.write_text(
        'memory_usage:\n- step: "\\e]0;owned\\a\\e[2J Start"\n  cpu_memory_mb: 1.0\n'
        '- step: "\x1b[31mred\u202e Start"\n  cpu_memory_mb: 1.0\n'
        '\nevil\x1b[1m: "\x9b2J"\n'
    )

    for form in ("table", "csv", "json"):
        out = show(capsys, complete, "--format", form)
        assert not [letter for letter in out if letter != "\n" and not letter.isprintable()]
        assert "red" in out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"steps: []\n", "not a quark_profile.yaml: no line 'memory_usage:'"),
        (b"\x00\xff\x80" * 50, "not a quark_profile.yaml: no line 'memory_usage:'"),
        (None, "No such file or directory"),
    ],
)
def test_a_file_that_is_not_a_profile_is_refused_with_its_path(
    content: bytes | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.yaml"
    if content is not None:
        path.write_bytes(content)

    assert main(["show", str(path)]) == 1

    assert capsys.readouterr() == ("", f"otel-quant: {path}: {message}\n")


def test_an_invalid_command_line_exits_with_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for arguments in ([], ["shew"], ["show"], ["show", "p", "--format", "xml"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
    assert "usage: otel-quant" in capsys.readouterr().err


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


def test_an_alias_in_a_value_is_not_followed() -> None:
    bomb = "{a: &a [1, 1], b: &b [*a, *a], c: [*b, *b]}"

    [record] = records_of(f'memory_usage:\n- step: "Start"\n  metric: {bomb}\n')

    assert record["metric"] == bomb


def test_columns_line_up_with_wide_characters() -> None:
    assert table(("NAME", "N", "STATUS"), [("量化", "1", "ok"), ("e\u0301a", "22", "b\x1b")]) == (
        "NAME   N  STATUS\n----  --  ------\n量化   1  ok\ne\u0301a    22  b\\x1b\n"
    )
    assert printable("a\u2066b\udc80") == "a\\u2066b\\udc80"


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
    assert capsys.readouterr().out.splitlines()[:4] == [
        "STEP         START s  TIME s  MEM START  MEM END  MEM +/-  MEM PEAK  STATUS",
        "-----------  -------  ------  ---------  -------  -------  --------  ------",
        "Calibration     1.00    2.00      100.0    100.0    +0.00    1234.5  ok",
        "(memory and disk in MiB)",
    ]
