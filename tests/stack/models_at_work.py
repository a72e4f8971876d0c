"""A real `otel-quant inference` that reports to a Collector, and what dashboards show after it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.integration.inference.planted import (
    float_matmuls,
    quantized_matmuls,
    unsupported_operator_between,
)
from tests.stack.grafana_panels import Shown
from tests.stack.processes import ROOT

MEASURED: Final = "a night's models"
"""Name of the run that the inference belongs to."""

_CPU: Final = "CPUExecutionProvider"
SHOWN: Final[dict[str, tuple[str, ...]]] = {
    "Models side by side: Run, Model, Role, Provider": (
        f"{MEASURED}, exp, quantized, {_CPU}",
        f"{MEASURED}, float, float, {_CPU}",
        f"{MEASURED}, int8, quantized, {_CPU}",
    ),
    "Latency: Run": (MEASURED,),
    "Peak memory: Run": (MEASURED,),
    "Time in conversions: Run": (MEASURED,),
    "Findings: Run, Model, Kind": (  # int8 has weights of its own, and no Relu
        f"{MEASURED}, exp, unfused", f"{MEASURED}, int8, weights", f"{MEASURED}, int8, weights",
        f"{MEASURED}, int8, zero_point",
    ),
    "Measured models: Model, File, Runtime, Not measured": (
        "exp, exp.onnx, onnxruntime, -",
        "float, float.onnx, onnxruntime, -",
        "int8, int8.onnx, onnxruntime, -",
        "none, none.onnx, onnxruntime, loading it failed: cannot be opened: No such file or directory; "
        "expected an ONNX file",
    ),
    "Share of time by operator: Operator": (
        "DequantizeLinear", "Exp", "MatMul", "QLinearConv", "QLinearMatMul", "QuantizeLinear", "Relu",
        "Transpose",
    ),
    "Slowest kernels: Model, Node, Operator": (
        "exp, Transpose, Transpose", "exp, Transpose_token_5, Transpose", "exp, c1, QLinearConv",
        "exp, c1_DQ, DequantizeLinear", "exp, c2, QLinearConv", "exp, c2_DQ, DequantizeLinear",
        "exp, exp, Exp", "exp, exp_Q, QuantizeLinear", "exp, x_Q, QuantizeLinear",
        "float, m1, MatMul", "float, m2, MatMul", "float, relu, Relu", "int8, m1, QLinearMatMul",
        "int8, m2, QLinearMatMul", "int8, m2_DQ, DequantizeLinear", "int8, x_Q, QuantizeLinear",
    ),
}  # fmt: skip
"""Panels, with columns whose values do not depend on the machine, and their rows, sorted."""


def measure(environment: Mapping[str, str], folder: Path) -> None:
    """Measures three models, one of them with a defect, and one that is not there."""
    float_matmuls().save(folder / "float.onnx")
    quantized_matmuls().save(folder / "int8.onnx")
    unsupported_operator_between().save(folder / "exp.onnx")
    files = [f"{name}.onnx" for name in ("float", "int8", "exp", "none")]
    named = {"PYTHONPATH": str(ROOT), "OTEL_QUANT_RUN_NAME": MEASURED}
    done = subprocess.run(
        [sys.executable, "-m", "otel_quant", "inference", "--runs", "50", *files],
        env={**os.environ, **environment, **named},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr


def rows_in(panels: Mapping[str, Shown]) -> dict[str, tuple[str, ...]]:
    """Returns what the dashboard's tables show, as `SHOWN` has it."""
    found = {}
    for place in SHOWN:
        title, _, columns = place.partition(": ")
        rows = panels[title].rows(*columns.split(", "))
        # Whether int8 is slower than float, which is a finding, depends on the machine.
        found[place] = tuple(", ".join(row) for row in sorted(rows) if "slower" not in row)
    return found
