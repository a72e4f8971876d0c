"""The times of kernels are those that the profiler's file has."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from otel_quant.inference.onnx_profile import read_profile
from tests.integration.inference.planted import unsupported_operator_between


def test_sums_agree_with_the_file_of_a_real_session(tmp_path: Path) -> None:
    path = unsupported_operator_between().save(tmp_path / "model.onnx")
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    for _ in range(9):
        session.run(None, {"x": np.zeros((1, 16, 32, 32), np.float32)})
    file = Path(session.end_profiling())
    profile = read_profile(file)

    events = json.loads(file.read_text())
    runs = [(each["ts"], each["dur"]) for each in events if each["name"] == "model_run"]
    faster = sorted(sorted(runs[1:], key=lambda run: run[1])[:4])
    assert list(profile.runs) == faster
    expected: dict[str, int] = {}
    for event in events:
        if event["cat"] == "Node" and any(
            begin <= event["ts"] <= begin + length for begin, length in faster
        ):
            name = event["args"]["op_name"]
            expected[name] = expected.get(name, 0) + event["dur"]
    found: dict[str, float] = {}
    for kernel in profile.kernels:
        found[kernel.op_type] = found.get(kernel.op_type, 0) + kernel.micros * len(faster)
    assert found == pytest.approx(expected, rel=0.01)
    assert {kernel.calls for kernel in profile.kernels} == {1.0}
    assert profile.run_micros > sum(kernel.micros for kernel in profile.kernels)
