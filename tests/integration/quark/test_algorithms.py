"""Quark's algorithms tell which layer or sample of how many they are at, also after a kill, and how well each is quantized."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from otel_quant.recordings.model import RecordedStep
from otel_quant.recordings.reader import read
from tests.fixtures.programs import Finished, Launched, clean_environment, launcher
from tests.fixtures.programs import run as run_command
from tests.integration.libraries.conftest import each
from tests.integration.quark.conftest import PROGRAMS, TIMEOUT, FloatModels

pytestmark = pytest.mark.quark

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def ran(
    tmp_path_factory: pytest.TempPathFactory, float_models: FloatModels
) -> tuple[Path, Finished]:
    """The folder of the program, which is killed in the last algorithm, and what it and the launcher printed."""
    folder = tmp_path_factory.mktemp("algorithms")
    (folder / "out").mkdir()
    command = [sys.executable, str(PROGRAMS / "algorithms.py"), str(float_models.onnx), "out"]
    # Without the variable Quark computes GPTQ's losses as well, and does not log them.
    environment = {"PYTHONPATH": str(ROOT), "QUARK_DISABLE_CUDA_GRAPH": "1"}
    done = run_command(
        [*launcher("--out", "r"), *command], folder, clean_environment(environment), TIMEOUT
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-4000:]
    return folder, done


@pytest.fixture(scope="module")
def steps(ran: tuple[Path, Finished]) -> tuple[RecordedStep, ...]:
    """The steps of the program as they are recorded."""
    (run,) = read(ran[0] / "r").runs
    return run.steps


def test_each_sample_and_layer_of_an_algorithm_is_counted_also_before_a_kill(
    ran: tuple[Path, Finished], steps: tuple[RecordedStep, ...]
) -> None:
    folder, done = ran
    three = each("Advanced Algorithms", "layer", 3)
    assert (
        (folder / "progress.txt").read_text().splitlines()
        == [
            *each("Pre-process", "sample", 3),  # SmoothQuant
            *each("Calibration", "sample", 3),
            *each("Post-process", "layer", 2),  # GPTQ
            *three,
            *three,
            *three[:2],
        ]
    )
    of_language_models = [step for step in steps if step.name == "Advanced Algorithms"]
    assert [(str(step.counts), step.state) for step in of_language_models] == [
        ("layer 3 of 3", "ended"),
        ("layer 3 of 3", "ended"),
        ("layer 2 of 3", "killed"),
    ]
    killed = "in Advanced Algorithms, layer 2 of 3"
    assert killed in done.stderr
    assert killed in Launched(folder).otel_quant("show", "r").stdout


def test_distances_and_losses_of_layers_are_those_that_quark_logs(
    ran: tuple[Path, Finished], steps: tuple[RecordedStep, ...]
) -> None:
    folder, done = ran
    output = done.stdout + done.stderr
    found: list[tuple[Any, ...]] = [
        (layer.layer, layer.measure, layer.value) for step in steps for layer in step.layers
    ]

    def logged(pattern: str) -> list[float]:
        return [float(text) for text in re.findall(pattern, output)]

    distances = logged(r"The average L2 distance is from \S+ to (\d+\.\d+)")
    of_conv = ("conv1", "conv2", "gemm")
    assert found[:3] == [
        (layer, "average L2 distance", value)
        for layer, value in zip(of_conv, distances, strict=True)
    ]

    of_samples = found[3:9]
    measures = ("Cosine Similarity", "L2 Distance")
    assert [each[:2] for each in of_samples] == [
        (f"y, sample {number}", measure) for number in (1, 2, 3) for measure in measures
    ]
    cosines, lengths = ([value for *_, value in of_samples[at::2]] for at in (0, 1))
    assert [min(cosines)] == logged(r"Min Cosine Similarity: (\S+?)\x1b")
    assert [max(lengths)] == logged(r"Max L2 Distance: (\S+?)\x1b")
    assert sum(cosines) / 3 == pytest.approx(logged(r"Mean Cosine Similarity: (\S+?)\x1b")[0])
    assert sum(lengths) / 3 == pytest.approx(logged(r"Mean L2 Distance: (\S+?)\x1b")[0])

    sensitivities = json.loads((folder / "out" / "sensitivities.json").read_text())["results"]
    assert found[9:12] == [(each["name"], "cosine_metric", each["score"]) for each in sensitivities]

    layers = re.findall(r"Quantizing (\S+) in layer (\d)/3", output)
    losses = logged(r"avg loss: (\S+?)\x1b")
    assert len(losses) == 3 * 7
    assert found[12:] == [
        (f"model.layers.{int(number) - 1}.{name}", "avg loss", loss)
        for (name, number), loss in zip(layers, losses, strict=True)
    ]
