"""`instrument(tracer_provider=..., ...)` uses these providers, and `uninstrument()` lets them go."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_quant import QuantInstrumentor, step

LIVE = {"quant.run.memory.usage", "quant.run.disk.io", "quant.step.active"}


class Backend:
    """Providers of the three signals, and what reached them."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self._records = InMemoryLogRecordExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.loggers = LoggerProvider(shutdown_on_exit=False)
        self.loggers.add_log_record_processor(SimpleLogRecordProcessor(self._records))
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)

    def instrument(self) -> None:
        QuantInstrumentor().instrument(
            tracer_provider=self.tracers,
            meter_provider=self.meters,
            logger_provider=self.loggers,
        )

    def spans(self) -> list[str]:
        return [span.name for span in self._spans.get_finished_spans()]

    def records(self) -> list[str]:
        return [str(item.log_record.body) for item in self._records.get_finished_logs()]

    def metrics(self) -> set[str]:
        data = self._reader.get_metrics_data()
        return {
            metric.name
            for resource in (data.resource_metrics if data is not None else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture(autouse=True)
def uninstrumented() -> Iterator[None]:
    QuantInstrumentor().uninstrument()
    yield
    QuantInstrumentor().uninstrument()


def test_all_signals_go_to_the_providers_that_were_given() -> None:
    backend = Backend()
    backend.instrument()
    with step("step"):
        live = backend.metrics()
    QuantInstrumentor().uninstrument()

    assert backend.spans() == ["step", "quantization"]
    assert backend.records() == [
        "quantization started", "Start", "step Start", "step End", "End"
    ]  # fmt: skip
    assert live >= LIVE
    assert "quant.step.duration" in backend.metrics()


def test_nothing_goes_to_them_after_uninstrument() -> None:
    backend, other = Backend(), Backend()
    backend.instrument()
    with step("before"):
        pass
    QuantInstrumentor().uninstrument()
    spans, records = backend.spans(), backend.records()
    other.instrument()
    with step("after"):
        assert not backend.metrics() & LIVE
    QuantInstrumentor().uninstrument()

    assert (backend.spans(), backend.records()) == (spans, records)
    assert other.spans() == ["after", "quantization"]


def test_a_run_that_is_under_way_ends_before_the_providers_change() -> None:
    backend, other = Backend(), Backend()
    backend.instrument()
    with step("open"):
        QuantInstrumentor().uninstrument()
        other.instrument()
    with step("next"):
        pass
    QuantInstrumentor().uninstrument()

    assert backend.spans() == ["open", "quantization"]
    assert other.spans() == ["next", "quantization"]


def test_a_meter_provider_that_is_given_twice_shows_the_second_run_live_too() -> None:
    backend = Backend()
    for _ in range(2):
        backend.instrument()
        with step("step"):
            assert backend.metrics() >= LIVE
        QuantInstrumentor().uninstrument()


def test_uninstrument_keeps_no_reference_to_them() -> None:
    backend = Backend()
    backend.instrument()
    with step("step"):
        pass
    QuantInstrumentor().uninstrument()
    providers = [weakref.ref(each) for each in (backend.tracers, backend.meters, backend.loggers)]
    del backend
    gc.collect()

    assert [provider() for provider in providers] == [None, None, None]
