"""The local file, compared whole."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from otel_quant.export.quark_yaml.columns import ProgramMetrics
from otel_quant.export.quark_yaml.metrics import CheckpointMetric, SummaryMetric
from otel_quant.export.quark_yaml.sink import QuarkYamlSink
from otel_quant.recordings.profile_reader import parse
from otel_quant.schema import semconv
from otel_quant.schema.figures import GPU, GPU_MEMORY, TREE_MEMORY
from otel_quant.schema.readings import (
    CostedModel,
    DiskReading,
    GpuReading,
    Limits,
    MemoryReading,
    Peaks,
    Reading,
    RunInfo,
    StepInfo,
)
from otel_quant.version import VERSION
from tests.fixtures.figures import OF_QUARK, peaks_of
from tests.fixtures.sent import SentRun

MIB = 1024 * 1024
RUN = RunInfo(
    id="0123456789abcdef",
    pid=1,
    limits=Limits(400 * MIB, "cgroup"),
    rank=3,
    origin={
        semconv.PROCESS_COMMAND_LINE: "python quantize.py --name 'a \"b\"'",
        semconv.HOST_NAME: "node7",
        semconv.OS_DESCRIPTION: "Linux 6.1.0 x86_64",
        semconv.PYTHON_VERSION: "3.11.2",
        semconv.OTEL_QUANT_VERSION: VERSION,
    },
)


def reading(second: int) -> Reading:
    return Reading(
        time_ns=1_700_000_000_500_000_000 + second * 1_000_000_000,
        clock_ns=second * 1_000_000_000,
        resources={
            "memory": MemoryReading(
                rss=100 * MIB, tree_rss=(100 + second) * MIB, high_water=(110 + second) * MIB
            ),
            "disk": DiskReading(read=second * MIB, write=second * MIB // 2),
        },
    )


class Script:
    """Sends a run to a sink, with one checkpoint each second."""

    def __init__(self, path: Path, *, strict: bool = False) -> None:
        self.metrics = ProgramMetrics(OF_QUARK)
        self.sink = QuarkYamlSink(path, self.metrics, strict=strict)
        self.sent = SentRun(RUN, reading(0), self.sink, metrics=self.metrics)
        self.second = 0

    def now(self) -> Reading:
        self.second += 1
        return reading(self.second - 1)

    def start(self) -> None:
        self.now()
        self.sent.began()

    def open(self, name: str, library: str | None = None, method: str | None = None) -> None:
        info = StepInfo(0, name, name, library=library, library_version="0.13")
        attributes = {semconv.CALIBRATION_METHOD: method} if method else {}
        self.sent.opened(info, self.now(), attributes)

    def close(
        self,
        name: str,
        error: BaseException | None = None,
        peaks: Peaks | None = None,
        samples: int | None = None,
        items: int | None = None,
    ) -> None:
        step = StepInfo(0, name, name)
        self.sent.closed(step, self.now(), peaks, samples=samples, items=items, error=error)

    def point(self, name: str) -> None:
        self.sent.point(name, self.now())

    def end(self, error: BaseException | None = None) -> None:
        now, peaks = self.now(), Peaks(peaks_of(100 * MIB), {TREE_MEMORY.name: "kernel"})
        custom = self.metrics.at_end(now, reading(0), peaks)
        self.sent.ended(now, peaks, of_run=custom, error=error)


HEADER = "# Quark Profiling Results\n\n"

MADE_BY = f"""\
run:
  id: "0123456789abcdef"
  rank: 3
  command: "python quantize.py --name 'a \\"b\\"'"
  host: "node7"
  system: "Linux 6.1.0 x86_64"
  python: "3.11.2"
  otel_quant: "{VERSION}"
  memory_limit_mb: 400.0
  memory_limit_source: "cgroup"

"""

RUN_END = """\

run_end:
  ended: "without an exception"
  tree_peak_memory_mb: 100.0
  tree_peak_memory_source: "kernel"
  memory_limit_share: 0.25
"""

CALIBRATION = """\
memory_usage:
- step: "Start"
  timestamp: 1700000000.5
  relative_time_secs: 0.0
  cpu_memory_mb: 100.0
  disk_read_mb: 0.0
  disk_write_mb: 0.0
- step: "Calibration Start"
  timestamp: 1700000001.5
  relative_time_secs: 1.0
  cpu_memory_mb: 101.0
  disk_read_mb: 1.0
  disk_write_mb: 0.5
"""

CALIBRATION_ENDED = """\
- step: "Calibration End"
  timestamp: 1700000002.5
  relative_time_secs: 2.0
  cpu_memory_mb: 102.0
  disk_read_mb: 2.0
  disk_write_mb: 1.0
"""

RUN_ENDED = """\
- step: "End"
  timestamp: 1700000003.5
  relative_time_secs: 3.0
  cpu_memory_mb: 103.0
  disk_read_mb: 3.0
  disk_write_mb: 1.5

# Summary Metrics
total_quantization_time_seconds: 3.0
peak_memory_mb: 113.0
total_disk_read_mb: 3.0
total_disk_write_mb: 1.5
"""

DEFINED = """\

# Metric Definitions:
#
# Checkpoint Metrics (per record):
# - step: The point that was reached. The run begins with Start and closes with End;
#    - a step writes its name with "Start" when it opens and with "End" when it closes
#    - steps nest: one that opens before another has closed is part of it
#    - any other name is a checkpoint that the program asked for
# - timestamp: Wall clock at the reading: seconds since 1970-01-01 00:00 UTC.
# - relative_time_secs: Seconds since the first checkpoint, by a clock that setting the time does not move.
# - cpu_memory_mb: RAM held at that instant (RSS) by this process and all its living descendants together, in MiB. A page that several of them share counts for each.
# - gpu_memory_mb: Memory in use, by any process, on all GPUs that this one can see, added up, in MiB. Left out where there is no GPU or its driver does not report it.
# - disk_read_mb: Fetched from storage since the first checkpoint by this process and its descendants, in MiB; exited ones count once their parent has waited for them. Data that never left the page cache is not in it. Left out where the system keeps no such counts.
# - disk_write_mb: Sent to storage since the first checkpoint by this process and its descendants, in MiB; exited ones count once their parent has waited for them. Data that never left the page cache is not in it. Left out where the system keeps no such counts.
#
# Summary Metrics (overall):
# - total_quantization_time_seconds: Seconds from the first checkpoint to the last.
# - peak_memory_mb: Most RAM that this process alone, without its descendants, has held since it began, in MiB: the kernel's own mark (VmHWM) on Linux, elsewhere the largest reading of the run.
# - peak_gpu_memory_mb: Largest total of memory in use on all visible GPUs in any reading of the run, at checkpoints and between them, in MiB. Left out where gpu_memory_mb is.
# - total_disk_read_mb: Fetched from storage during the run by this process and its descendants, in MiB; exited ones count once their parent has waited for them. Data that never left the page cache is not in it. Left out where the system keeps no such counts.
# - total_disk_write_mb: Sent to storage during the run by this process and its descendants, in MiB; exited ones count once their parent has waited for them. Data that never left the page cache is not in it. Left out where the system keeps no such counts.
# - peak_cache_dir_disk_usage_mb: Most that any one of the watched cache directories grew beyond what it held when its watch began, in MiB: the sizes of its files, added up at each checkpoint and five times a second, less often if that takes long. Left out if none grew.
"""


def test_a_run_is_written_as_quark_writes_it(tmp_path: Path) -> None:
    script = Script(tmp_path / "p.yaml")
    script.start()
    script.open("Calibration")
    script.close("Calibration")
    script.end()

    text = (tmp_path / "p.yaml").read_text()
    assert (
        text == HEADER + MADE_BY + CALIBRATION + CALIBRATION_ENDED + RUN_ENDED + DEFINED + RUN_END
    )


def test_a_strict_file_has_only_quarks_content(tmp_path: Path) -> None:
    script = Script(tmp_path / "p.yaml", strict=True)
    script.start()
    script.open("Calibration", library="amd-quark", method="MinMax")
    script.close("Calibration", samples=8)
    script.end()

    text = (tmp_path / "p.yaml").read_text()
    assert text == HEADER + CALIBRATION + CALIBRATION_ENDED + RUN_ENDED + DEFINED


def test_run_attributes_are_in_the_file_as_soon_as_steps_set_them(tmp_path: Path) -> None:
    script = Script(tmp_path / "p.yaml")
    script.start()
    script.open("Calibration", library="amd-quark", method="MinMax")
    known = '  # libraries: ["amd-quark 0.13"]\n  # calibration_method: "MinMax"\n'
    assert (tmp_path / "p.yaml").read_text() == HEADER + MADE_BY + CALIBRATION + known

    script.open("Calibration", library="amd-quark", method="Entropy")
    script.close("Calibration", samples=8, items=64)
    script.open("Other", library="onnxruntime")
    script.close("Other", samples=4, items=32)
    text = (tmp_path / "p.yaml").read_text()
    assert [line for line in text.splitlines() if line.startswith("  # ")] == [
        '  # libraries: ["amd-quark 0.13"]',
        '  # calibration_method: "MinMax"',
        "  # calibration_samples: 8",
        '  # libraries: ["amd-quark 0.13", "onnxruntime 0.13"]',
        "  # calibration_samples: 12",
    ]
    so_far = parse(text).run

    script.end()
    text = (tmp_path / "p.yaml").read_text()
    assert yaml.safe_load(text)["run_end"] == {
        "ended": "without an exception", "libraries": ["amd-quark 0.13", "onnxruntime 0.13"],
        "calibration_method": "MinMax", "calibration_samples": 12, "calibration_items": 96,
        "tree_peak_memory_mb": 100.0, "tree_peak_memory_source": "kernel",
        "memory_limit_share": 0.25,
    }  # fmt: skip
    assert parse(text).run == {**yaml.safe_load(text)["run"], **yaml.safe_load(text)["run_end"]}
    assert so_far == {
        **yaml.safe_load(text)["run"], "libraries": ["amd-quark 0.13", "onnxruntime 0.13"],
        "calibration_method": "MinMax", "calibration_samples": 12,
    }  # fmt: skip


def test_the_distance_to_the_gpu_limit_is_taken_from_the_fullest_gpu(tmp_path: Path) -> None:
    gpus = tuple(GpuReading(index, f"GPU-{index}", "MI300X", 0, 100 * MIB) for index in range(2))
    first = Reading(0, 0, {"gpu": gpus})
    peaks = Peaks(
        devices={GPU.name: {0: {GPU_MEMORY.name: 25 * MIB}, 1: {GPU_MEMORY.name: 90 * MIB}}}
    )
    sink = QuarkYamlSink(tmp_path / "p.yaml", ProgramMetrics((GPU,)))
    run = SentRun(replace(RUN, limits=Limits()), first, sink)
    run.began()
    run.ended(first, peaks)

    content = yaml.safe_load((tmp_path / "p.yaml").read_text())
    assert content["run"]["gpus"] == ["MI300X", "MI300X"]
    assert content["run_end"] == {"ended": "without an exception", "gpu_memory_limit_share": 0.9}


@pytest.mark.parametrize("strict", [False, True])
def test_errors_and_model_costs_are_written_unless_strict(tmp_path: Path, strict: bool) -> None:
    script = Script(tmp_path / "p.yaml", strict=strict)
    script.start()
    script.open("Calibration")
    script.close("Calibration", error=ValueError("no such\n\tlayer"))
    script.sent.costed(CostedModel("float", 'a "b".onnx', 0, 1, {"macs": 12}))
    figures = {"precision.int8": 0.75, "uncosted_ops": ("Custom:2",)}
    script.sent.costed(CostedModel("quantized", None, 0, 1, figures))
    script.sent.costed(CostedModel("float", None, 0, 1, {}, (), "no graph"))
    script.end()

    error = '  error_message: "no such layer"\n  error: "ValueError"\n'
    made_by, end = MADE_BY, RUN_END
    cost = (
        "\nonnx_model_cost:\n"
        '- role: "float"\n  path: "a \\"b\\".onnx"\n  macs: 12\n'
        '- role: "quantized"\n  precision.int8: 0.75\n  uncosted_ops: ["Custom:2"]\n'
        '- role: "float"\n  error: "no graph"\n'
    )
    if strict:
        error = cost = made_by = end = ""
    text = (tmp_path / "p.yaml").read_text()
    records = CALIBRATION + CALIBRATION_ENDED + error + RUN_ENDED
    assert text == HEADER + made_by + records + DEFINED + end + cost
    assert yaml.safe_load(text).get("onnx_model_cost") == (
        None
        if strict
        else [
            {"role": "float", "path": 'a "b".onnx', "macs": 12},
            {"role": "quantized", "precision.int8": 0.75, "uncosted_ops": ["Custom:2"]},
            {"role": "float", "error": "no graph"},
        ]
    )


@pytest.mark.parametrize("strict", [False, True])
def test_the_exception_that_ended_the_run_is_written_unless_strict(
    tmp_path: Path, strict: bool
) -> None:
    script = Script(tmp_path / "p.yaml", strict=strict)
    script.start()
    script.end(error=RuntimeError())

    content = yaml.safe_load((tmp_path / "p.yaml").read_bytes())
    last = content["memory_usage"][-1]
    assert (last["step"], last.get("error")) == ("End", None if strict else "RuntimeError")
    ended = content.get("run_end", {}).get("ended")
    assert ended == (None if strict else "with RuntimeError")


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no text")


def metric(
    kind: type[CheckpointMetric | SummaryMetric], name: str, words: str, value: object
) -> Any:
    """A metric of the program that always has the same value."""
    methods = {"get_definition": lambda _: words, "collect": lambda *_: value}
    return type(kind.__name__, (kind,), {"name": name, **methods})()


@pytest.mark.parametrize("strict", [False, True])
def test_peaks_between_checkpoints_are_written_as_comments_unless_strict(
    tmp_path: Path, strict: bool
) -> None:
    script = Script(tmp_path / "profile.yaml", strict=strict)
    script.start()
    script.open("Calibration")
    script.close("Calibration", peaks=Peaks(peaks_of(1234 * MIB + MIB // 2, 77 * MIB)))

    peaks = "  # peak_memory_mb: 1234.50\n  # peak_gpu_memory_mb: 77.00\n"
    text = (tmp_path / "profile.yaml").read_text()
    head = HEADER if strict else HEADER + MADE_BY
    assert text == head + CALIBRATION + CALIBRATION_ENDED + ("" if strict else peaks)


def test_custom_metrics_are_in_the_records_the_summary_and_the_definitions(tmp_path: Path) -> None:
    script = Script(tmp_path / "p.yaml")
    sizes = {"conv1": [1, 2.5], "nan": float("nan")}
    words = "Sizes of\nthe tensors,\rin elements."
    script.metrics.checkpoint_metrics[1:] = [metric(CheckpointMetric, "tensor sizes", words, sizes)]
    script.metrics.summary_metrics[1:] = [
        metric(SummaryMetric, "unprintable", "Cannot be shown.", Unprintable()),
        metric(SummaryMetric, "ratio", "Compression.", 3.9),
    ]
    script.start()
    script.end()

    assert (tmp_path / "p.yaml").read_text() == (
        HEADER + MADE_BY + "memory_usage:\n"
        '- step: "Start"\n  "tensor sizes": {conv1: [1, 2.5], nan: .nan}\n'
        '- step: "End"\n  "tensor sizes": {conv1: [1, 2.5], nan: .nan}\n'
        "\n# Summary Metrics\ntotal_quantization_time_seconds: 1.0\nratio: 3.9\n"
        "\n# Metric Definitions:\n#\n# Checkpoint Metrics (per record):\n"
        + DEFINED[DEFINED.index("# - step") : DEFINED.index("# - timestamp")]
        + "# - tensor sizes: Sizes of\n#the tensors,\n#in elements.\n"
        "#\n# Summary Metrics (overall):\n"
        "# - total_quantization_time_seconds: Seconds from the first checkpoint to the last.\n"
        "# - unprintable: Cannot be shown.\n# - ratio: Compression.\n" + RUN_END
    )


def test_any_step_name_gives_a_valid_file(tmp_path: Path) -> None:
    names = ['"quoted"', "a: b # c", "- list\n- of\r\nlines", "\x1b[2J", "\udc80", "量化", "\\", ""]
    script = Script(tmp_path / "p.yaml")
    script.start()
    for name in names:
        script.open(name)
    script.end()

    records = yaml.safe_load((tmp_path / "p.yaml").read_bytes())["memory_usage"]
    assert [record["step"] for record in records] == [
        "Start",
        *(f"{name} Start".replace("\udc80", "\\udc80") for name in names),
        "End",
    ]


def test_a_forked_child_writes_nothing_after_forget(tmp_path: Path) -> None:
    script = Script(tmp_path / "p.yaml")
    script.start()
    pid = os.fork()
    if pid == 0:
        try:
            script.sink.forget()
            script.open("Child")
            script.end()
            os._exit(0)
        finally:
            os._exit(1)

    assert os.waitpid(pid, 0)[1] == 0
    script.open("Calibration")
    assert (tmp_path / "p.yaml").read_text() == HEADER + MADE_BY + CALIBRATION


def test_the_file_is_renamed_if_quarks_own_has_the_same_path(tmp_path: Path) -> None:
    script = Script(tmp_path / "p.yaml")
    script.start()

    script.sink.move_off(tmp_path / "other.yaml")
    assert script.sink.path == tmp_path / "p.yaml"

    script.sink.move_off(tmp_path / "p.yaml")
    script.open("Calibration")
    assert script.sink.path == tmp_path / "p.otel.yaml"
    assert [path.name for path in tmp_path.iterdir()] == ["p.otel.yaml"]
    assert (tmp_path / "p.otel.yaml").read_text() == HEADER + MADE_BY + CALIBRATION
