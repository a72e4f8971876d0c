"""A folder of runs, one of each kind, for the tests of what lists them."""

from __future__ import annotations

from pathlib import Path

from otel_quant.recordings.model import Ending
from otel_quant.schema import semconv
from tests.fixtures.profiles import records
from tests.fixtures.recorded import RecordedFolder

GB = 10**9

OURS = f"""\
# Quark Profiling Results

run:
  id: "aaaa"
  command: "python q.py"

{
    records(
        ("Start", 0, 1000),
        ("Calibration Start", 1, 1000, '# calibration_method: "Entropy"'),
        ("Calibration End", 2, 1500, "# peak_memory_mb: 1800.00"),
        ("End", 90, 1200),
        began=1_700_000_100.0,
    )
}
# Summary Metrics
total_quantization_time_seconds: 90.0
peak_memory_mb: 1790.0
total_disk_write_mb: 100.0

run_end:
  ended: "without an exception"
  calibration_method: "Entropy"
  tree_peak_memory_mb: 1800.0

onnx_model_cost:
- role: "float"
  path: "models/bert/model.onnx"
  size: 400000000
  weight_bytes: 399000000
  memory: 500000000
"""
"""A profile of ours, of a model that is called by its folder."""

QUARKS = f"""\
# Quark Profiling Results

{records(("Start", 0, 500), ("End", 10, 600), began=1_700_000_200.0)}
# Summary Metrics
total_quantization_time_seconds: 10.0
peak_memory_mb: 700.0
total_disk_write_mb: 1.0
"""
"""Quark's own file."""


def write_profile(path: Path, text: str) -> None:
    """Writes a profile into a folder that is made."""
    path.parent.mkdir(parents=True)
    path.write_text(text)


def write_recording(
    folder: Path,
    model: str = "resnet50.onnx",
    method: str = "MinMax",
    peak: float = 2 * GB,
    at: float = 0,
) -> Path:
    """Makes the recording of a run that has ended well after 60 seconds, by a launcher."""
    recording = RecordedFolder(folder, {"host.name": "node7"}, by_launcher=True)
    process = recording.process().begin(at + 5)
    step = process.step("Calibration", at + 6, attributes={semconv.ACTIVATION_TYPE: "QUInt8"})
    process.close(step, at + 40, attributes={semconv.MEMORY_PEAK: int(peak) // 2})
    size = {"resnet50.onnx": 102_400_000}.get(model, 12_000_000)
    process.end(
        at + 50,
        attributes={
            semconv.MEMORY_PEAK: int(peak) // 2, semconv.CALIBRATION_METHOD: method,
            semconv.CONFIG_NAME: "XINT8", semconv.INPUT_PATH: f"models/{model}",
            "quant.model.float.size": size, "quant.model.float.weight_bytes": size,
            "quant.model.float.memory": size + 107_000_000,
            semconv.LIBRARIES: ["amd-quark 0.13", "onnx 1.22.0"],
        },
    )  # fmt: skip
    totals = {"disk.read": 10, "disk.write": 3_000_000, "cpu": 12.5}
    recording.curve([(at + 1, {"memory": peak, "process.python": peak}, totals)])
    (folder / "quark_profile.yaml").write_text(OURS)  # the recording's own, no run of its own
    recording.ended(Ending(time=at + 60, exit_code=0), summary={"memory": peak, **totals})
    return folder


def write_killed(folder: Path) -> None:
    """Makes the recording of a run that was killed while it calibrated."""
    recording = RecordedFolder(folder, by_launcher=True)
    process = recording.process().begin(1)
    process.step("Calibration", 2, attributes={semconv.CALIBRATION_METHOD: "MinMSE"})
    process.state(29, **{semconv.READING_MEMORY_PEAK: 7 * GB})
    process.gone()
    recording.curve([(29, {"memory": 7.4 * GB}, {"disk.write": 1})])
    ending = Ending(time=30, signal="SIGKILL", memory=int(7.5 * GB))
    recording.ended(ending, summary={"memory": 7.4 * GB, "disk.write": 1})


def write_fleet(top: Path) -> Path:
    """Makes one run of each kind, and what is none."""
    write_recording(top / "nightly" / "resnet")
    write_recording(top / "nightly" / "yolo", "yolo8.onnx", "Percentile", 1 * GB)
    write_killed(top / "nightly" / "killed")
    write_profile(top / "bert" / "quark_profile.yaml", OURS)
    write_profile(top / "bert-cut" / "named.yaml", OURS[: OURS.index('- step: "End"')])
    write_profile(top / "quarks" / "quark_profile.1.yaml", QUARKS)
    write_profile(top / "other" / "docker-compose.yaml", "services: {}\n")
    write_profile(top / "web" / "manifest.json", '{"name": "an application"}')
    write_profile(top / "empty" / "quark_profile.yaml", "")
    (top / "nightly" / "broken").mkdir()
    (top / "nightly" / "broken" / "manifest.json").write_text('{"schema": 1, "beg')
    RecordedFolder(top / "newer")
    (top / "newer" / "manifest.json").write_text('{"schema": 9, "made_by": "launcher"}')
    (top / "loop").symlink_to(top)
    return top
