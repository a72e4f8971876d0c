"""The table of a Quark user's experiment: the memory of each calibration method, by model."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from otel_quant.recordings.reader import read
from otel_quant.recordings.summary import value
from tests.fixtures.programs import clean_environment, launcher
from tests.integration.quark.conftest import PROGRAMS, TIMEOUT, FloatModels

pytestmark = [pytest.mark.quark, pytest.mark.slow]

METHODS = ("LayerWisePercentile", "MinMSE", "MinMax", "Percentile")
MODELS = ("conv", "matmul")
OTEL_QUANT = Path(sys.executable).with_name("otel-quant")


def quantize(folder: Path, source: Path, method: str) -> None:
    """Runs one experiment, recorded in `runs`."""
    name = f"{source.stem}-{method}"
    (folder / name).mkdir()
    arguments = [str(PROGRAMS / "method.py"), str(source), method, "out.onnx"]
    done = subprocess.run(
        [*launcher("--out", str(folder / "runs" / name)), sys.executable, *arguments],
        cwd=folder / name,
        env=clean_environment() | {"OTEL_QUANT_GPU": "false"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]


def test_eight_runs_make_the_table_of_models_and_methods(
    tmp_path: Path, float_models: FloatModels
) -> None:
    with ThreadPoolExecutor(2) as pool:
        experiments = [
            pool.submit(quantize, tmp_path, float_models.onnx / f"{model}.onnx", method)
            for model in MODELS
            for method in METHODS
        ]
    for experiment in experiments:
        experiment.result()

    def printed(*options: str) -> str:
        command = [OTEL_QUANT, "runs", "runs", "--rows", "model", "--columns", "calibration.method"]
        return subprocess.run(
            [*command, "--value", "memory.peak", *options],
            cwd=tmp_path, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip

    recorded = {
        (model, method): read(tmp_path / "runs" / f"{model}-{method}")
        for model in MODELS
        for method in METHODS
    }
    assert {each.state for each in recorded.values()} == {"ended"}
    table = json.loads(printed("--format", "json"))
    costs = {model: recorded[model, "MinMax"].runs[0].models[0]["figures"] for model in MODELS}
    assert table == {
        "rows": "model",
        "columns": "calibration.method",
        "value": "memory.peak",
        "unit": "By",
        "table": [
            {
                "model": model,
                "model.size": (float_models.onnx / f"{model}.onnx").stat().st_size,
                "model.activation_size": costs[model]["memory"] - costs[model]["weight_bytes"],
                "cells": {
                    method: {
                        "median": value(recorded[model, method], "memory.peak"),
                        "runs": 1,
                    }
                    for method in METHODS
                },
            }
            for model in MODELS
        ],
        "left_out": 0,
        "unreadable": [],
    }  # fmt: skip
    header, rule, *rows, empty, note = printed().splitlines()
    assert header.split() == ["MODEL", "SIZE", "ACTIVATIONS", *METHODS]
    assert set(rule) == {"-", " "}
    size = r" +[0-9.]+ [kMG]?B"
    for model, row in zip(MODELS, rows, strict=True):
        assert re.fullmatch(rf"{model}({size}){{6}}", row), row
    assert (empty, note) == ("", "memory.peak by model and calibration.method.")
