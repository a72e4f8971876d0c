"""A resource that is declared once is in every signal, the file and the documentation."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml
from opentelemetry import metrics, trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_quant.capture.probes.readers import Probes
from otel_quant.capture.recorder.recorder import Recorder
from otel_quant.capture.recorder.run_info import new_run_info
from otel_quant.export.otel import logs as logs_module
from otel_quant.export.otel.logs import LogsSink
from otel_quant.export.otel.metrics import MetricsSink
from otel_quant.export.otel.spans import SpansSink
from otel_quant.export.quark_yaml.columns import ProgramMetrics
from otel_quant.export.quark_yaml.sink import QuarkYamlSink
from otel_quant.schema import catalog
from otel_quant.schema.figures import RESOURCES, Figure, Metric, Resource, Series, YamlColumn

MIB: Final = 1 << 20
STEP: Final = {"quant.step.kind": "Calibration", "quant.step.name": "Calibration"}


class ExampleReading(NamedTuple):
    """What the probe returns."""

    received: int
    connections: int


class ExampleProbe:
    """Bytes that rise by 3 MiB at each reading, and 5, 9, 2, 4 ... connections."""

    def __init__(self) -> None:
        self._received = 10 * MIB
        self._connections = iter((5, 9, 2, 4))

    def __call__(self, pids: Collection[int]) -> ExampleReading:
        self._received += 3 * MIB
        return ExampleReading(self._received, next(self._connections))


EXAMPLE: Final = Resource(
    name="example",
    figures=(
        Figure(
            "example.received",
            "By",
            "Bytes that the process tree received from the example",
            lambda example: example.received,
            ("delta", "rate"),
            "1048576",
            checkpoint="example_received",
            steps=(
                Series(
                    Metric("quant.step.example.io", "counter", "By", "Bytes moved."),
                    labels={"way": "in"},
                ),
            ),
            live=Series(Metric("quant.run.example.io", "observable_counter", "By", "Bytes.")),
            column=YamlColumn(
                "example_received_mb", "Received since the first checkpoint, in MiB."
            ),
        ),
        Figure(
            "example.connections",
            "{connection}",
            "Connections of the process tree",
            lambda example: example.connections,
            ("start", "end", "delta", "peak"),
            "4",
        ),
    ),
)
ALL: Final = (*RESOURCES, EXAMPLE)


def of_the_example(found: Any) -> dict[str, Any]:
    return {name: value for name, value in dict(found or {}).items() if "example" in name}


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Any, Any]]:
    spans, logs, points = (
        InMemorySpanExporter(),
        InMemoryLogRecordExporter(),
        InMemoryMetricReader(),
    )
    tracers, loggers, meters = TracerProvider(), LoggerProvider(), MeterProvider([points])
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    loggers.add_log_record_processor(SimpleLogRecordProcessor(logs))
    monkeypatch.setattr(trace, "get_tracer", tracers.get_tracer)
    monkeypatch.setattr(logs_module, "get_logger", loggers.get_logger)
    monkeypatch.setattr(metrics, "get_meter", meters.get_meter)
    yield spans, logs, points
    meters.shutdown()


def run(path: Path, *, strict: bool) -> Recorder:
    """Runs one step of one run; its four readings are those of the probe."""
    spans = SpansSink()
    shown = ProgramMetrics(ALL)
    sinks = [
        QuarkYamlSink(path, shown, strict=strict),
        spans,
        MetricsSink(ALL, lambda: recorder.latest, spans.context_of),
        LogsSink(lambda: None, spans.context_of),
    ]
    recorder = Recorder(
        new_run_info({}), Probes(ALL, example=ExampleProbe()), sinks, shown, sample_interval=0
    )
    recorder.close(recorder.open("Calibration"))
    recorder.end()
    return recorder


def test_its_figures_are_on_spans_and_on_checkpoint_records(
    signals: tuple[Any, Any, Any], tmp_path: Path
) -> None:
    run(tmp_path / "p.yaml", strict=False)
    spans, logs, _ = signals
    step, root = spans.get_finished_spans()
    seconds = (step.end_time - step.start_time) / 1e9

    found = of_the_example(step.attributes)
    assert found.pop("quant.example.received_rate") == pytest.approx(3 * MIB / seconds, rel=1e-3)
    assert found == {
        "quant.example.received": 3 * MIB,
        "quant.example.connections.start": 9,
        "quant.example.connections.end": 2,
        "quant.example.connections.delta": -7,
        "quant.example.connections.peak": 9,
    }
    found = of_the_example(root.attributes)
    assert found.pop("quant.example.received_rate") > 0
    assert found == {
        "quant.example.received": 9 * MIB,
        "quant.example.connections.start": 5,
        "quant.example.connections.end": 4,
        "quant.example.connections.delta": -1,
        "quant.example.connections.peak": 9,
    }
    assert [of_the_example(each.log_record.attributes) for each in logs.get_finished_logs()] == [
        {"quant.checkpoint.example_received": received * MIB} for received in (0, 3, 6, 9)
    ]


def test_its_figures_are_metrics(signals: tuple[Any, Any, Any], tmp_path: Path) -> None:
    run(tmp_path / "p.yaml", strict=False)
    (resource,) = signals[2].get_metrics_data().resource_metrics
    (scope,) = resource.scope_metrics
    assert {
        metric.name: [(point.value, dict(point.attributes)) for point in metric.data.data_points]
        for metric in scope.metrics
        if "example" in metric.name
    } == {
        "quant.step.example.io": [(3 * MIB, STEP | {"way": "in"})],
        "quant.run.example.io": [(9 * MIB, {})],
    }


def test_its_column_is_in_the_file_but_not_in_a_strict_one(tmp_path: Path) -> None:
    run(tmp_path / "ours.yaml", strict=False)
    run(tmp_path / "strict.yaml", strict=True)
    ours, strict = ((tmp_path / name).read_text() for name in ("ours.yaml", "strict.yaml"))

    assert [record["example_received_mb"] for record in yaml.safe_load(ours)["memory_usage"]] == [
        0.0, 3.0, 6.0, 9.0,
    ]  # fmt: skip
    assert "# - example_received_mb: Received since the first checkpoint, in MiB.\n" in ours
    assert "example" not in strict


def test_its_names_are_documented() -> None:
    known = {attribute.name for attribute in catalog.attributes(RESOURCES)}
    added = [a for a in catalog.attributes(ALL) if a.name not in known]
    assert {(a.name, a.type, a.unit, a.places) for a in added} == {
        ("quant.example.received", "int", "By", ("run", "step")),
        ("quant.example.received_rate", "double", "By/s", ("run", "step")),
        ("quant.example.connections.start", "int", "{connection}", ("run", "step")),
        ("quant.example.connections.end", "int", "{connection}", ("run", "step")),
        ("quant.example.connections.delta", "int", "{connection}", ("run", "step")),
        ("quant.example.connections.peak", "int", "{connection}", ("run", "step")),
        ("quant.checkpoint.example_received", "int", "By", ("checkpoint",)),
        ("way", "string", "", ("metric",)),
    }
    metrics_added = [m for m in catalog.metrics(ALL) if m not in catalog.metrics(RESOURCES)]
    assert [(m.name, m.attributes) for m in metrics_added] == [
        (
            "quant.step.example.io",
            ("quant.step.kind", "quant.step.name", "quant.library.name", "way", "error.type"),
        ),
        ("quant.run.example.io", ()),
    ]


def test_a_metric_that_shows_a_part_which_its_figure_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="shows the part 'rate'") as refused:
        Figure(
            "example.sent",
            "By",
            "Bytes sent",
            lambda record: record,
            ("delta",),
            "1",
            steps=(Series(Metric("quant.step.example.rate", "gauge", "By/s", "Rate."), "rate"),),
        )
    assert str(refused.value) == (
        "figure 'example.sent': metric 'quant.step.example.rate' shows the part 'rate'; expected "
        "one of delta: add it to the figure's parts"
    )
