"""The library works with the oldest versions that it asks for.

The file runs in an environment that holds the lower end of every range and nothing else, which
`scripts/test.py` makes.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from opentelemetry import metrics, trace
from opentelemetry._logs import set_logger_provider
from opentelemetry.sdk import _logs as sdk_logs
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_quant.schema import semconv

SIGNALS = """
import json, sys
sys.path.insert(0, sys.argv[1])
from tests.oldest.test_oldest_versions import signals_of_one_run
json.dump(signals_of_one_run(), sys.stdout)
"""


def _log_exporter() -> object:
    from opentelemetry.sdk._logs import export

    for name in ("InMemoryLogRecordExporter", "InMemoryLogExporter"):
        if hasattr(export, name):
            return getattr(export, name)()
    raise AssertionError(f"no in-memory exporter of logs in {sdk_logs.__name__}")


def signals_of_one_run() -> dict[str, object]:
    """Runs two nested steps, one of which fails, and returns what was exported."""
    spans, records, points = InMemorySpanExporter(), _log_exporter(), InMemoryMetricReader()
    tracers, loggers = TracerProvider(), LoggerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    loggers.add_log_record_processor(SimpleLogRecordProcessor(records))
    trace.set_tracer_provider(tracers)
    metrics.set_meter_provider(MeterProvider([points]))
    set_logger_provider(loggers)

    import otel_quant

    otel_quant.QuantInstrumentor().instrument()
    with otel_quant.run():
        try:
            with otel_quant.step(otel_quant.ProfileStep.CALIBRATION), otel_quant.step("inner"):
                raise ValueError("no samples")
        except ValueError:
            pass
        # Read while the run is on: its live metrics end with it.
        data = points.get_metrics_data()
    names = {span.context.span_id: span.name for span in spans.get_finished_spans()}
    return {
        "spans": [
            (span.name, names.get(span.parent.span_id) if span.parent else None,
             span.status.status_code.name)
            for span in spans.get_finished_spans()
        ],
        "records": [(item.log_record.event_name, item.log_record.body) for item in records.get_finished_logs()],
        "metrics": sorted(
            metric.name
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ),
    }  # fmt: skip


def ran(folder: Path, *command: str | Path, **variables: str) -> str:
    """Runs a Python command, which exits with 0 and prints nothing on standard error."""
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=variables, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def steps_in(path: Path) -> list[str]:
    return [record["step"] for record in yaml.safe_load(path.read_text())["memory_usage"]]


def test_every_signal_is_sent(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    sent = yaml.safe_load(ran(tmp_path, "-c", SIGNALS, root))
    event, answer = sent["records"].pop(-2)
    assert (event, answer.partition(" peaked at ")[0]) == (semconv.ANSWER_EVENT, "Memory")
    assert sent == {
        "spans": [
            ["inner", "Calibration", "ERROR"],
            ["Calibration", "quantization", "ERROR"],
            ["quantization", None, "UNSET"],
        ],
        "records": [
            [semconv.RUN_STARTED_EVENT, "quantization started"],
            *([semconv.CHECKPOINT_EVENT, name]
            for name in ("Start", "Calibration Start", "inner Start", "inner End",
                         "Calibration End", "End"))
        ],
        "metrics": [
            semconv.RUN_DISK_IO, semconv.RUN_LAST_SEEN, semconv.RUN_MEMORY_LIMIT, semconv.RUN_MEMORY_PEAK,
            semconv.RUN_MEMORY_USAGE, semconv.RUN_START, semconv.STEP_ACTIVE, semconv.STEP_CPU_TIME,
            semconv.STEP_DISK_IO, semconv.STEP_DURATION, semconv.STEP_MEMORY_GROWTH, semconv.STEP_MEMORY_PEAK,
        ],
    }  # fmt: skip


def test_the_file_and_children_work(tmp_path: Path) -> None:
    (tmp_path / "quantize.py").write_text(
        "import multiprocessing, otel_quant\n"
        "otel_quant.QuantInstrumentor().instrument()\n"
        "def work():\n"
        "    with otel_quant.step('work'): pass\n"
        "with otel_quant.step('main'):\n"
        "    child = multiprocessing.get_context('fork').Process(target=work)\n"
        "    child.start(); child.join()\n"
        "    assert child.exitcode == 0\n"
    )
    ran(tmp_path, "quantize.py", OTEL_QUANT_PROFILE="profile.yaml")
    assert sorted(map(steps_in, tmp_path.glob("profile*.yaml"))) == [
        ["Start", "main Start", "main End", "End"],
        ["Start", "work Start", "work End", "End"],
    ]


def test_opentelemetry_instrument_writes_the_file_without_output(tmp_path: Path) -> None:
    (tmp_path / "quantize.py").write_text("import otel_quant\nwith otel_quant.step('main'): pass\n")
    launcher = Path(sys.executable).with_name("opentelemetry-instrument")
    said = ran(tmp_path, launcher, sys.executable, "quantize.py", OTEL_QUANT_PROFILE="profile.yaml")
    assert said == ""
    assert steps_in(tmp_path / "profile.yaml") == ["Start", "main Start", "main End", "End"]


def test_a_log_line_explains_that_profiles_need_newer_packages(tmp_path: Path) -> None:
    (tmp_path / "quantize.py").write_text(
        "import otel_quant\nfor _ in range(2):\n    with otel_quant.run(), otel_quant.step('main'): pass\n"
    )
    launcher = Path(sys.executable).with_name("opentelemetry-instrument")
    done = subprocess.run(
        [launcher, sys.executable, "quantize.py"], cwd=tmp_path, capture_output=True, text=True,
        env={"OTEL_QUANT_PROFILES": "otlp", "OTEL_QUANT_PROFILE": "profile.yaml"}, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert "profiles need opentelemetry-exporter-otlp 1.45 or newer" in line


def test_a_recording_is_sent_later(tmp_path: Path) -> None:
    (tmp_path / "quantize.py").write_text(
        "import otel_quant\nwith otel_quant.step('Calibration'): pass\n"
    )
    program = "run", "--no-report", "--quiet", "--out", "recording", "--", sys.executable
    ran(tmp_path, "-m", "otel_quant", *program, "quantize.py")
    signals = (f"OTEL_{signal}_EXPORTER" for signal in ("TRACES", "METRICS", "LOGS"))
    console = dict.fromkeys(signals, "console")
    printed = ran(tmp_path, "-m", "otel_quant", "send", "recording", **console)
    assert printed.splitlines()[-1] == (
        "recording: 2 spans, 6 log records, 11 points of metrics sent"
    )


@pytest.mark.skipif(
    not sys.prefix.endswith("-oldest"), reason="says which versions the oldest environment holds"
)
def test_the_environment_has_the_oldest_supported_versions() -> None:
    pinned = {
        "opentelemetry-api": "1.38.0", "opentelemetry-distro": "0.59b0",
        "opentelemetry-exporter-otlp": "1.38.0", "opentelemetry-instrumentation": "0.59b0",
        "psutil": "5.9.0", "wrapt": "1.14.0",
    }  # fmt: skip
    assert {name: version(name) for name in pinned} == pinned
