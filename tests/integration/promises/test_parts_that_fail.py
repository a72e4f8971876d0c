"""Probes and sinks made to raise, malformed settings: each is logged once, and nothing else changes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from otel_quant.schema import semconv
from tests.fixtures.figures import ATTRIBUTES
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import Workshop

PRELUDE = """
import sys
import otel_quant.capture.runtime
from otel_quant.capture.probes.readers import Probes
from otel_quant.schema.events import Sink

def broken(*args, **kwargs):
    raise RuntimeError("made to fail")

def break_probes(*names):
    made = otel_quant.capture.runtime.Probes
    otel_quant.capture.runtime.Probes = lambda *resources, **given: Probes(
        *resources, **{**given, **dict.fromkeys(names, broken)}
    )

def break_sink(kind):
    for name, method in vars(Sink).items():
        if callable(method) and name != "forget":
            setattr(kind, name, broken)
"""
BODY = """
for number in range(3):
    with otel_quant.step("outer", attributes={"mine": number}):
        with otel_quant.step("inner"):
            pass
print("done")
sys.exit(5)
"""
OF_PEAK = {semconv.MEMORY_PEAK_SOURCE, semconv.MEMORY_PEAK_RATIO}
# Few machines let a program read what energy their processors use.
HAS_ENERGY = os.access("/sys/class/powercap/intel-rapl:0/energy_uj", os.R_OK)
OF_CPU = {name for name in ATTRIBUTES["cpu"] if HAS_ENERGY or not name.endswith(".energy")}
FIGURES = {
    **ATTRIBUTES,
    "cpu": OF_CPU,
    "memory": ATTRIBUTES["memory"] | OF_PEAK,
    "gpu": set(),
    "cache": set(),
}
IDENTITY = {
    semconv.RUN_ID, semconv.RUN_NAME, semconv.STEP_NAME, semconv.STEP_KIND, semconv.STEP_INDEX,
    "mine",
}  # fmt: skip
TREE = [("quantization", [("outer", [("inner", [])])] * 3)]


Run = Callable[[str], list[str]]


@pytest.fixture
def run(workshop: Workshop, otlp: OtlpReceiver) -> Run:
    """Runs the steps after something else; returns the lines on standard error."""

    def run(before: str) -> list[str]:
        finished = workshop.script(PRELUDE + before + BODY).run(
            {**otlp.environment("http/protobuf"), "OTEL_QUANT_PROFILE": "profile.yaml"}
        )
        assert (finished.returncode, finished.stdout) == (5, "done\n")
        return finished.stderr.splitlines()

    return run


def said(origin: str) -> str:
    return (
        f"{origin} failed and is skipped; the program goes on without it: "
        "RuntimeError: made to fail"
    )


def profile_of(workshop: Workshop) -> list[dict[str, Any]]:
    content = yaml.safe_load((workshop.folder / "profile.yaml").read_text())
    records = content["memory_usage"]
    assert isinstance(records, list)
    return records


@pytest.mark.parametrize(
    "broken", [("memory", "cache"), ("disk", "gpu"), ("cpu",), tuple(FIGURES)], ids=" ".join
)
def test_a_probe_that_raises_loses_only_its_own_values(
    run: Run, workshop: Workshop, otlp: OtlpReceiver, broken: tuple[str, ...]
) -> None:
    lines = run(f"break_probes{broken}\n")
    assert sorted(lines) == sorted(said(f"probe {name}") for name in broken)
    assert otlp.tree() == TREE
    expected = IDENTITY.union(*(keys for name, keys in FIGURES.items() if name not in broken))
    assert [set(span.attributes) for span in otlp.spans_named("outer")] == [expected] * 3
    assert len(otlp.records_of(semconv.CHECKPOINT_EVENT)) == 14
    assert len(profile_of(workshop)) == 14


@pytest.mark.parametrize("broken", ["SpansSink", "MetricsSink", "LogsSink", "QuarkYamlSink"])
def test_a_sink_that_raises_does_not_affect_the_others(
    run: Run, workshop: Workshop, otlp: OtlpReceiver, broken: str
) -> None:
    lines = run(f"break_sink(otel_quant.capture.runtime.{broken})\n")
    origins = {
        "SpansSink": "spans", "MetricsSink": "metrics", "LogsSink": "logs",
        "QuarkYamlSink": "quark_yaml",
    }  # fmt: skip
    assert lines == [said(f"sink {origins[broken]}")]
    assert otlp.tree() == ([] if broken == "SpansSink" else TREE)
    assert len(otlp.records_of(semconv.CHECKPOINT_EVENT)) == (0 if broken == "LogsSink" else 14)
    assert (semconv.STEP_DURATION in otlp.metric_names()) == (broken != "MetricsSink")
    if broken == "QuarkYamlSink":
        assert not (workshop.folder / "profile.yaml").exists()
    else:
        assert len(profile_of(workshop)) == 14


EVERY_PART = """
break_probes("memory", "disk", "cpu", "gpu")
for name in ("SpansSink", "MetricsSink", "LogsSink", "QuarkYamlSink"):
    break_sink(getattr(otel_quant.capture.runtime, name))
otel_quant.capture.runtime.Recorder._taken = broken
"""


@pytest.mark.parametrize(
    ("breaks", "most"),
    [
        (EVERY_PART, 12),
        *(
            (f"otel_quant.capture.runtime.{part} = broken\n", 2)
            for part in ("new_run_info", "settings_from", "SpansSink", "Recorder.start")
        ),
    ],
)
def test_a_run_that_cannot_begin_sends_nothing_and_the_script_continues(
    run: Run, otlp: OtlpReceiver, breaks: str, most: int
) -> None:
    lines = run(breaks)
    assert len(lines) == len(set(lines)) <= most
    assert all("made to fail" in line for line in lines)
    assert otlp.spans == []


def test_a_provider_that_raises_does_not_affect_the_script(run: Run, otlp: OtlpReceiver) -> None:
    lines = run(
        """
from opentelemetry.sdk.trace import Tracer
from opentelemetry.sdk.metrics import Histogram
Tracer.start_span = broken
Histogram.record = broken
"""
    )
    assert sorted(lines) == [said("sink metrics"), said("sink spans")]
    assert len(otlp.records_of(semconv.CHECKPOINT_EVENT)) == 14
