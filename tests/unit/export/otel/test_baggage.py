"""The program's own context survives in a step, and the run's baggage reaches it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import otel_quant
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider

trace.set_tracer_provider(TracerProvider())
token = context.attach(baggage.set_baggage("team", "mine"))
context.attach(context.set_value("key", "kept"))
with otel_quant.step("outer"), otel_quant.step("inner"):
    print(sorted(baggage.get_all().items()), context.get_value("key"))
print(sorted(baggage.get_all().items()), trace.get_current_span().get_span_context().is_valid)
"""


def test_steps_keep_the_baggage_of_the_context(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.getcwd(),
            "TRACEPARENT": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "BAGGAGE": "team=theirs,run=nightly",
        },
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert result.stdout.splitlines() == [
        "[('run', 'nightly'), ('team', 'mine')] kept",
        "[('team', 'mine')] False",
    ], result.stderr
