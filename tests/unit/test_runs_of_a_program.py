"""Blocks that are runs of their own, as in a notebook."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import yaml

SCRIPT = """
import logging
import otel_quant
from otel_quant.capture.runtime import RUNTIME
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

spans = InMemorySpanExporter()
trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(spans))

RUNTIME.recorder  # created before a file is requested, as a hook does
with otel_quant.run(profile="first.yaml"):
    with otel_quant.step("a"):
        pass
with otel_quant.step("between"):
    pass
try:
    with otel_quant.run(profile="second.yaml"):
        with otel_quant.step("b"):
            raise KeyError("no such layer")
except KeyError:
    pass
for span in spans.get_finished_spans():
    print(span.name, span.status.status_code.name, span.attributes.get("error.type"))
print(len({span.context.trace_id for span in spans.get_finished_spans()}))
"""


def test_each_block_is_a_run_with_a_trace_and_a_file_of_its_own(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert result.stdout.splitlines() == [
        "a UNSET None",
        "quantization UNSET None",
        "between UNSET None",
        "quantization UNSET None",
        "b ERROR KeyError",
        "quantization ERROR KeyError",
        "3",
    ], result.stderr
    steps = {
        path.name: [record["step"] for record in yaml.safe_load(path.read_text())["memory_usage"]]
        for path in tmp_path.glob("*.yaml")
    }
    assert steps == {
        "first.yaml": ["Start", "a Start", "a End", "End"],
        "second.yaml": ["Start", "b Start", "b End", "End"],
    }
