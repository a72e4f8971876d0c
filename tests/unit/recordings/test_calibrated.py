"""What a recorded calibration took, from which other runs are estimated; the model is counted by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otel_quant.recordings.model import Ending
from otel_quant.schema import semconv
from otel_quant.schema.readings import OWN_MEMORY
from tests.fixtures.commands import Commands
from tests.fixtures.recorded import MB, RecordedFolder, model
from tests.unit.cli.costed_models import installed, save

NET = """
<ir_version: 9, opset_import: ["" : 17]>
net (float[N, 256] x) => (float[N, 256] y) {
   [head] y = MatMul (x, w)
}
"""
EACH, LARGEST, BINS = 2 * 4096 * 1024, 4096 * 1024, 2 * 2048 * 12
"""Bytes of the calibrated tensors of a sample of 4,096 items, of one of them, and of their histograms."""


@pytest.fixture(autouse=True)
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "net.onnx", NET, {"w": np.ones((256, 256), np.float32)})
    installed(monkeypatch, tmp_path, "onnxruntime", "quark")
    monkeypatch.chdir(tmp_path)


def record(
    path: Path, method: str = "Percentile", *, killed: bool = False, items: int = 4096, peak: int = 1000,
    after: int = 0, keeps: int = 0, weights: int = 262_144,
) -> None:  # fmt: skip
    """Records 20 samples in 20 s, each a second but for three; then 5 s, and 15 s of other things."""
    folder = RecordedFolder(path, {semconv.MEMORY_LIMIT: 4000 * MB}, by_launcher=True)
    process = folder.process().begin(0)
    known = {semconv.LIBRARY_NAME: "onnxruntime", semconv.CALIBRATION_METHOD: method}
    step = process.step("Calibration", 10, attributes=known)
    process.expect(step, 20, 10)
    for sample in range(1, 21):
        process.consume(step, sample, 10 + sample + (0.5 if sample in (5, 8, 11) else 0))
    grown = [(at / 10, max(0, at - 100) / 10 * keeps) for at in range(301)]
    after_them = [
        (at / 10, 40 * keeps) for at in range(301, 350)
    ]  # the values of all samples again
    folder.curve([(at, {"memory": 500.0 * MB + more}, {}) for at, more in grown + after_them])
    if killed:
        folder.ended(Ending(time=30, signal="SIGKILL", memory=peak * MB))
        return
    figures = {semconv.MEMORY_PEAK: peak * MB, semconv.CALIBRATION_ITEM_COUNT: 20 * items}
    process.close(step, 35, attributes=figures)
    if after:
        other = process.step("Export ONNX", 40)
        process.close(other, 45, attributes={semconv.MEMORY_PEAK: after * MB})
    costed: dict[str, Any] = dict(model("float", 97.5, 1.0))
    process.models(45, costed | {"figures": {"weight_bytes": weights}})
    process.end(50, attributes={"quant.model.float.weight_bytes": weights})
    folder.ended(Ending(time=50, exit_code=0))


def estimated(command: Commands, *arguments: str) -> list[Mapping[str, Any]]:
    given = ("net.onnx", "--dim", "N=4096", "--like", "R", "--format", "json", "--fit", *arguments)
    found: list[Mapping[str, Any]] = json.loads(command.output("estimate", *given))["estimates"]
    return found


def test_other_samples_are_estimated_from_what_a_run_took(
    tmp_path: Path, command: Commands
) -> None:
    record(tmp_path / "R", after=900)
    [found] = estimated(command, "--samples", "60", "--method", "onnxruntime:Percentile")
    real, further = 1000 * MB - OWN_MEMORY, 40 * (EACH + 2 * LARGEST)
    assert [part["bytes"] for part in found["memory"]] == [real, further]
    assert found["highest_bytes"] == round(1.1 * (real + further)) + OWN_MEMORY
    # Of 20 samples of a second, and the histograms of all in 5 s; some came twice as fast, or half
    # a second late.
    assert found["seconds"] == [
        pytest.approx(part * (25 + 60 * 1.25 * it)) for it, part in ((0.5, 0.9), (1, 1), (1.5, 1.1))
    ]
    # The limit is the recording's; the next sample would be above it.
    most = found["most_samples"]
    above = [1.1 * (real + (n - 20) * (EACH + 2 * LARGEST)) + OWN_MEMORY for n in (most, most + 1)]
    assert above[0] <= 4000 * MB < above[1]


def test_without_a_limit_the_one_of_the_recorded_run_counts(
    tmp_path: Path, command: Commands
) -> None:
    record(tmp_path / "R")
    asked = (
        "net.onnx",
        "--dim",
        "N=4096",
        "--like",
        "R",
        "--fit",
        "--method",
        "onnxruntime:MinMax",
    )
    said = command.output("estimate", *asked).splitlines()[0]
    assert (
        said
        == "net.onnx in 4.00 GB, the limit of that run: 128 samples are sure to fit with 1 of 1 method."
    )


def test_another_method_takes_what_the_arithmetic_has_more_or_less(
    tmp_path: Path, command: Commands
) -> None:
    record(tmp_path / "R")
    [found, *_, of_quark] = estimated(command, "--samples", "20")
    more = found["memory"][1]
    assert more["bytes"] == 2 * EACH - 20 * (EACH + 2 * LARGEST) - BINS
    assert more["computed_from"].endswith("0 more samples with MinMax")
    assert (found["seconds"], of_quark["probed_samples"]) == (None, 0)


def test_memory_before_or_after_the_calibration_is_needed_in_any_case(
    tmp_path: Path, command: Commands
) -> None:
    record(tmp_path / "R", "CalibrationMethod.MinMax", after=3000)
    [found] = estimated(command, "--samples", "9", "--method", "onnxruntime:MinMax")
    assert (found["peak_bytes"], found["most_samples"]) == (3000 * MB - OWN_MEMORY, 10**12)


def test_a_run_that_was_killed_had_not_begun_what_comes_after_the_last_sample(
    tmp_path: Path, command: Commands
) -> None:
    record(tmp_path / "R", killed=True)
    [found] = estimated(command, "--samples", "20", "--method", "onnxruntime:Percentile")
    assert found["memory"][1]["bytes"] == 40 * LARGEST + BINS
    assert found["seconds"] is None


@pytest.mark.parametrize(("grown", "kept"), [(0, 0), (EACH, 0), (EACH + 20 * MB, 20 * MB)])
def test_what_the_program_keeps_of_each_sample_is_added(
    grown: int, kept: int, tmp_path: Path, command: Commands
) -> None:
    record(tmp_path / "R", keeps=grown)
    [found] = estimated(command, "--samples", "30", "--method", "onnxruntime:Percentile")
    own = sum(part["bytes"] for part in found["memory"] if part["name"] == "kept by the program")
    assert own == pytest.approx(10 * kept, rel=0.1)


@pytest.mark.parametrize(
    ("recorded", "why"),
    [
        ({"method": "AWQ"}, "no calibration by onnxruntime or Quark whose samples were counted"),
        ({"peak": 0}, "its peak of memory is not known"),
        ({"weights": 4}, "another model, of 4 bytes of weights instead of 262,144"),
        ({"items": 8}, "its 20 samples had 160 items, not 4,096 each; expected --input or --dim with the length of its batches"),
    ],
)  # fmt: skip
def test_a_run_of_something_else_is_refused(
    recorded: dict[str, Any], why: str, tmp_path: Path, command: Commands
) -> None:
    record(tmp_path / "R", **recorded)
    code, _, said = command("estimate", "net.onnx", "--dim", "N=4096", "--like", "R")
    assert (code, said) == (1, f"otel-quant: --like: R: {why}\n")
