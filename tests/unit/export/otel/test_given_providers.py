"""`instrument(tracer_provider=..., ...)` uses these providers, and `uninstrument()` lets them go."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Iterator

import pytest

from otel_quant import QuantInstrumentor, step
from tests.unit.export.otel.signals import Signals

LIVE = {"quant.run.memory.usage", "quant.run.disk.io", "quant.step.active"}


class Backend(Signals):
    """Providers of the three signals, and what reached them."""

    def instrument(self) -> None:
        QuantInstrumentor().instrument(
            tracer_provider=self.tracers,
            meter_provider=self.meters,
            logger_provider=self.loggers,
        )

    def span_names(self) -> list[str]:
        return [span.name for span in self.all_spans()]

    def bodies(self) -> list[str]:
        return [str(body) for _, body, *_ in self.records()]

    def metrics(self) -> set[str]:
        return {name for name, _ in self.points()}


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

    assert backend.span_names() == ["step", "quantization"]
    assert backend.bodies() == [
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
    spans, records = backend.span_names(), backend.bodies()
    other.instrument()
    with step("after"):
        assert not backend.metrics() & LIVE
    QuantInstrumentor().uninstrument()

    assert (backend.span_names(), backend.bodies()) == (spans, records)
    assert other.span_names() == ["after", "quantization"]


def test_an_active_run_ends_before_the_providers_change() -> None:
    backend, other = Backend(), Backend()
    backend.instrument()
    with step("open"):
        QuantInstrumentor().uninstrument()
        other.instrument()
    with step("next"):
        pass
    QuantInstrumentor().uninstrument()

    assert backend.span_names() == ["open", "quantization"]
    assert other.span_names() == ["next", "quantization"]


def test_a_meter_provider_that_is_given_twice_shows_the_second_run_live_too() -> None:
    backend = Backend()
    for _ in range(2):
        backend.instrument()
        with step("step"):
            assert backend.metrics() >= LIVE
        QuantInstrumentor().uninstrument()


def test_a_point_of_a_counter_names_the_span_of_the_last_step() -> None:
    backend = Backend()
    backend.instrument()
    for steps in (1, 2):
        for _ in range(steps):
            with step("step"):
                pass
        exemplars = backend.exemplars("quant.step.cpu.time")
    last = backend.all_spans()[-1].context
    QuantInstrumentor().uninstrument()
    assert last is not None
    assert set(exemplars) == {last.span_id}


def test_the_last_steps_are_in_the_metrics_of_the_replaced_providers() -> None:
    backend = Backend()
    backend.instrument()
    for seconds in (0.0, 0.1):
        with step("step"):
            began = time.process_time()
            while time.process_time() < began + seconds:
                pass
    QuantInstrumentor().uninstrument()
    assert sum(value for _, value in backend.points()["quant.step.cpu.time", "s"]) >= 0.09


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
