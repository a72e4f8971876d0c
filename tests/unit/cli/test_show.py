"""``otel-quant show`` with complete, truncated and malicious files."""

from __future__ import annotations

import csv
import io
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
STEP                START   TIME  TIME  MEM START  MEM END   MEM +/-  MEM SEEN  GPU START  GPU END  GPU SEEN   READ  accuracy  STATUS
                        s      s     %        MiB      MiB       MiB       MiB        MiB      MiB       MiB    MiB
------------------  -----  -----  ----  ---------  -------  --------  --------  ---------  -------  --------  -----  --------  ----------
Model Quantization   1.00  13.50  84.4      101.5    151.5    +50.00    1800.2      300.0    310.0     900.0  65.00      0.75  ok
  Calibration        2.00  11.50  71.9      200.0   1800.2  +1600.25    1800.2      900.0    800.0     900.0  64.50         -  ValueError
Model Loaded        15.00      -     -      152.0        -         -     152.0      310.0        -     310.0      -         -  point

(SEEN is the highest at the checkpoints, not between them)

total_quantization_time_seconds  16.0
peak_memory_mb                   1900.12

model cost: float
MACs  4,089
"""

DESCRIBED = """\
# Quark Profiling Results

run:
  id: "0123456789abcdef"
  command: "python quantize.py | tee log"
  host: "node7"
  system: "Linux 6.1.0 x86_64"
  python: "3.11.2"
  otel_quant: "0.2.0"
  memory_limit_mb: 4000.0
  memory_limit_source: "cgroup"
  gpus: ["NVIDIA H200", "NVIDIA H200"]

memory_usage:
- step: "Start"
  relative_time_secs: 0.0
  cpu_memory_mb: 100.0
- step: "Calibration Start"
  relative_time_secs: 1.0
  cpu_memory_mb: 200.0
  # libraries: ["amd-quark 0.13", "onnxruntime 1.22.0"]
  # calibration_method: "Percentile"
- step: "Calibration End"
  relative_time_secs: 4.0
  cpu_memory_mb: 300.0
  error_message: "no layer | named 'conv1' in <model>, which has more of them than a line can show"
  error: "ValueError"
  # peak_memory_mb: 3000.00
  # calibration_samples: 128
- step: "End"
  relative_time_secs: 5.0
  cpu_memory_mb: 300.0

# Summary Metrics
peak_memory_mb: 2900.0

# Metric Definitions:
#
# Checkpoint Metrics (per record):
# - step: A name.
# - relative_time_secs: A time.
# - cpu_memory_mb: Memory.
#
# Summary Metrics (overall):
# - peak_memory_mb: Memory.

run_end:
  ended: "with ValueError"
  libraries: ["amd-quark 0.13", "onnxruntime 1.22.0"]
  calibration_method: "Percentile"
  calibration_samples: 128
  calibration_items: 1024
  tree_peak_memory_mb: 3000.0
  tree_peak_memory_source: "kernel"
  memory_limit_share: 0.75
  gpu_memory_limit_share: 0.123

onnx_model_cost:
- role: "float"
  size: 104857600
- role: "quantized"
  size: 27262976
"""

DESCRIBED_TABLE = """\
STEP         START  TIME  TIME  MEM START  MEM END  MEM +/-  MEM PEAK  OF LIMIT  STATUS
                 s     s     %        MiB      MiB      MiB       MiB         %
-----------  -----  ----  ----  ---------  -------  -------  --------  --------  ------------------------------------------------------------------------
Calibration   1.00  3.00  60.0      200.0    300.0  +100.00    3000.0      75.0  ValueError: no layer | named 'conv1' in <model>, which has more of them…

memory peak      3,000.0 MiB, 75.0 % of the limit
memory limit     4,000.0 MiB (of the control group)
GPU memory peak  12.3 % of the memory of the fullest GPU
GPUs             NVIDIA H200, NVIDIA H200
libraries        amd-quark 0.13, onnxruntime 1.22.0
calibration      Percentile, 128 samples (batches), 1024 items
ended            with ValueError
command          python quantize.py | tee log
host             node7, Linux 6.1.0 x86_64
Python           3.11.2, otel-quant 0.2.0

peak_memory_mb  2900.0

model cost: float
file and external data  100.00 MiB

model cost: quantized
file and external data  26.00 MiB, 26.00 % of the float model's
"""

DESCRIBED_MARKDOWN = r"""| STEP | START s | TIME s | TIME % | MEM START MiB | MEM END MiB | MEM +/- MiB | MEM PEAK MiB | OF LIMIT % | STATUS |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| Calibration | 1.00 | 3.00 | 60.0 | 200.0 | 300.0 | +100.00 | 3000.0 | 75.0 | ValueError: no layer \| named 'conv1' in \<model\>, which has more of them… |

|  |  |
| --- | --- |
| memory peak | 3,000.0 MiB, 75.0 % of the limit |
| memory limit | 4,000.0 MiB (of the control group) |
| GPU memory peak | 12.3 % of the memory of the fullest GPU |
| GPUs | NVIDIA H200, NVIDIA H200 |
| libraries | amd-quark 0.13, onnxruntime 1.22.0 |
| calibration | Percentile, 128 samples (batches), 1024 items |
| ended | with ValueError |
| command | python quantize.py \| tee log |
| host | node7, Linux 6.1.0 x86\_64 |
| Python | 3.11.2, otel-quant 0.2.0 |

|  |  |
| --- | --- |
| peak\_memory\_mb | 2900.0 |

**model cost: float**

|  |  |
| --- | --- |
| file and external data | 100.00 MiB |

**model cost: quantized**

|  |  |
| --- | --- |
| file and external data | 26.00 MiB, 26.00 % of the float model's |
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
    assert show(capsys, complete, other) == f"{complete}\n\n{TABLE}\n{other}\n\n{TABLE}"


def test_a_file_says_how_near_the_limit_it_came_what_made_it_and_how_it_ended(
    complete: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    complete.write_text(DESCRIBED)

    assert show(capsys, complete) == DESCRIBED_TABLE


def test_markdown_has_the_same_as_tables_and_escapes_what_would_end_a_cell(
    complete: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    complete.write_text(DESCRIBED)

    assert show(capsys, complete, "--format", "markdown") == DESCRIBED_MARKDOWN


MESSAGE = "no layer | named 'conv1' in <model>, which has more of them than a line can show"

RUN = {
    "id": "0123456789abcdef",
    "command": "python quantize.py | tee log",
    "host": "node7",
    "system": "Linux 6.1.0 x86_64",
    "python": "3.11.2",
    "otel_quant": "0.2.0",
    "memory_limit_mb": 4000.0,
    "memory_limit_source": "cgroup",
    "gpus": ["NVIDIA H200", "NVIDIA H200"],
    "libraries": ["amd-quark 0.13", "onnxruntime 1.22.0"],
    "calibration_method": "Percentile",
    "calibration_samples": 128,
    "calibration_items": 1024,
    "ended": "with ValueError",
    "tree_peak_memory_mb": 3000.0,
    "tree_peak_memory_source": "kernel",
    "memory_limit_share": 0.75,
    "gpu_memory_limit_share": 0.123,
}


def test_steps_within_others_are_indented_in_markdown_too(
    complete: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = show(capsys, complete, "--format", "markdown").splitlines()[2:5]

    assert [row.split("|")[1] for row in rows] == [
        " Model Quantization ",
        " \u00a0\u00a0Calibration ",
        " Model Loaded ",
    ]


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
    complete.write_text(DESCRIBED[: DESCRIBED.index("# Summary Metrics")].replace("End", "Last"))

    table = show(capsys, complete).partition("\n\n")[2]
    assert table == (
        "(SEEN is the highest at the checkpoints, not between them)\n"
        "\n"
        "memory peak   at least 3,000.0 MiB, 75.0 % of the limit\n"
        "memory limit  4,000.0 MiB (of the control group)\n"
        "GPUs          NVIDIA H200, NVIDIA H200\n"
        "libraries     amd-quark 0.13, onnxruntime 1.22.0\n"
        "calibration   Percentile, 128 samples (batches)\n"
        "command       python quantize.py | tee log\n"
        "host          node7, Linux 6.1.0 x86_64\n"
        "Python        3.11.2, otel-quant 0.2.0\n"
        "\n"
        "truncated: the run has no End: it is still running, or it was killed\n"
        "  open steps:      Calibration\n"
        "  last checkpoint: Last (5.00 s, 300.00 MiB)\n"
    )


def test_csv_has_the_same_figures_unrounded(
    complete: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(capsys, complete, "--format", "csv") == (
        "file,step,depth,start_secs,duration_secs,duration_share,cpu_memory_start_mb,cpu_memory_end_mb,"
        "cpu_memory_delta_mb,cpu_memory_seen_mb,gpu_memory_start_mb,gpu_memory_end_mb,"
        "gpu_memory_seen_mb,disk_read_mb,status,accuracy\n"
        f"{complete},Model Quantization,0,1.0,13.5,0.8438,101.5,151.5,50.0,1800.25,300.0,310.0,900.0,65.0,ok,0.75\n"
        f"{complete},Calibration,1,2.0,11.5,0.7188,200.0,1800.25,1600.25,1800.25,900.0,800.0,900.0,64.5,ValueError,\n"
        f"{complete},Model Loaded,0,15.0,,,152.0,,,152.0,310.0,,310.0,,point,\n"
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
        "run": {},
        "summary": {"total_quantization_time_seconds": 16.0, "peak_memory_mb": 1900.12},
        "onnx_model_cost": [{"role": "float", "macs": 4089, "precision": {"float32": 1.0}}],
    }


def test_a_killed_run_shows_its_open_steps_and_last_figures(
    complete: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    complete.write_text(COMPLETE[: COMPLETE.index('- step: "Calibration End"') + 40])

    assert show(capsys, complete) == (
        "STEP                START  MEM START  MEM SEEN  GPU START  GPU SEEN  STATUS\n"
        "                        s        MiB       MiB        MiB       MiB\n"
        "------------------  -----  ---------  --------  ---------  --------  ------\n"
        "Model Quantization   1.00      101.5     200.0      300.0     900.0  open\n"
        "  Calibration        2.00      200.0     200.0      900.0     900.0  open\n"
        "\n"
        "(SEEN is the highest at the checkpoints, not between them)\n"
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
    for cut in range(97, len(COMPLETE), 97):
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

    for form in ("table", "markdown", "csv", "json"):
        out = show(capsys, complete, "--format", form)
        blanks = "\n\xa0" if form == "markdown" else "\n"  # the second indents steps
        assert not [letter for letter in out if letter not in blanks and not letter.isprintable()]
        assert "red" in out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"steps: []\n", "not a quark_profile.yaml: no line 'memory_usage:'"),
        (b"\x00\xff\x80" * 50, "not a quark_profile.yaml: no line 'memory_usage:'"),
        (None, "No such file or directory"),
        (
            b"",
            "the file is empty; expected the records of a run, which writes the first as it begins",
        ),
        (
            b"# Quark Profiling Results\n\nmemory_usage:\n",
            "the file ends before its first checkpoint; expected the records of a run, which "
            "writes the first as it begins",
        ),
    ],
)
def test_a_file_that_is_no_profile_or_has_no_checkpoint_is_refused_with_its_path(
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
    assert capsys.readouterr().out.splitlines()[:5] == [
        "STEP         START  TIME  TIME  MEM START  MEM END  MEM +/-  MEM PEAK  STATUS",
        "                 s     s     %        MiB      MiB      MiB       MiB",
        "-----------  -----  ----  ----  ---------  -------  -------  --------  ------",
        "Calibration   1.00  2.00  66.7      100.0    100.0    +0.00    1234.5  ok",
        "",
    ]
