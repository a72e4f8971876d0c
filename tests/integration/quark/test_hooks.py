"""Hooks on real Quark: set late, set twice, removed; the program itself does not change."""

from __future__ import annotations

import json
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import clean_environment
from tests.integration.quark.conftest import (
    TIMEOUT,
    FloatModels,
    QuarkRun,
    Run,
    command,
)

pytestmark = [
    pytest.mark.quark,
    pytest.mark.skipif(find_spec("quark") is None, reason="amd-quark is not installed"),
]

DYNAMIC = ["Model Caching", "Quantization (Dynamic)", "model cost", "model cost"]


@pytest.fixture(scope="module")
def late(run: Run, float_models: FloatModels) -> QuarkRun:
    """A notebook that calls ``instrument()`` after it has imported Quark."""
    return run("late.py", float_models.onnx, launcher=False, protocol="http/protobuf")


def test_a_late_instrument_reaches_aliases_once_and_uninstrument_puts_them_back(
    late: QuarkRun,
) -> None:
    found = json.loads((late.out / "report.json").read_text())
    assert found == dict.fromkeys(
        ("alias replaced", "hooked once", "pickles", "restored", "hooked again"), True
    )
    # In a pool, too:
    assert (late.out / "pool.onnx").read_bytes() == (late.out / "alias.onnx").read_bytes()


def test_providers_that_are_set_after_the_first_step_get_the_rest_of_the_run(
    late: QuarkRun, float_models: FloatModels
) -> None:
    otlp = late.otlp
    root = next(span for span in otlp.by_start() if span.name == "quantization")
    assert root.parent_id == ""
    names = [child.name for child in otlp.children(root) if child.name != "quantization"]
    assert names == [*DYNAMIC, *DYNAMIC, "Look at it"]
    # The run's span begins when the run did, and the pool's worker continues its trace.
    first = min(span.start_ns for span in otlp.spans if span.name == "Model Caching")
    assert root.start_ns < first
    worker = next(child for child in otlp.children(root) if child.name == "quantization")
    assert [child.name for child in otlp.children(worker)] == DYNAMIC
    assert {span.trace_id for span in otlp.spans} == {root.trace_id}
    assert root.attributes["process.pid"] != worker.attributes["process.pid"]

    assert {"quant.step.duration", "quant.model.size"} <= otlp.metric_names("otel_quant")
    records = [r for r in otlp.records_of("quant.checkpoint.taken") if r.span_id]
    assert [r.body for r in records if r.span_id == root.span_id] == ["End"]
    # Quark's decorator was applied before the hooks were set: its scopes have the function.
    step = otlp.children(root)[0]
    assert step.attributes["quant.library.name"] == "amd-quark"
    assert step.attributes["quant.input.path"] == f"{float_models.onnx}/matmul.onnx"
    assert step.attributes["code.function.name"] == (
        "quark.onnx.utils.model_utils.cache_onnx_model_and_infer_shapes"
    )


def fails(
    models: Path, folder: Path, *, otlp: OtlpReceiver | None
) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    return subprocess.run(
        command("fails.py", models, folder, instrumented=otlp is not None),
        cwd=folder,
        env=clean_environment() | (otlp.environment() if otlp else {}),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


def test_an_exception_within_quark_ends_the_program_as_without_us(
    float_models: FloatModels, tmp_path: Path, otlp: OtlpReceiver
) -> None:
    with_us = fails(float_models.onnx, tmp_path / "with", otlp=otlp)
    without = fails(float_models.onnx, tmp_path / "without", otlp=None)

    last = with_us.stderr.strip().splitlines()[-1]
    assert with_us.returncode == without.returncode == 1
    assert last == without.stderr.strip().splitlines()[-1]
    assert last.startswith("RuntimeError: The calibration failed")

    span = otlp.span("Calibration")
    kind, _, message = last.partition(": ")
    assert span.status == "ERROR"
    assert span.attributes["error.type"] == kind
    assert span.status_message == message
    assert [event.name for event in span.events] == ["exception"]
    assert span.events[0].attributes["exception.message"] == message
    root = otlp.span("quantization")
    assert root.status == "ERROR"
    assert root.attributes["quant.run.failed_steps"] == 1
    assert kind.endswith(root.attributes["error.type"])
    record = otlp.records_of("quant.checkpoint.taken")[-2]
    assert (record.body, record.severity) == ("Calibration End", "ERROR")
    assert record.attributes["error.type"] == kind
