"""Which batches are kept, in which order they are sent, and which are given up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.instrumentation.utils import is_instrumentation_enabled
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_quant.export.otel import delivery
from otel_quant.export.otel.delivery import Unsent
from otel_quant.export.otel.sdk_workarounds import WORKAROUNDS

LOST = (
    "telemetry is lost: the endpoint refuses it, or has been away for too long to keep it all "
    "(4096 spans or log records, 64 exports of metrics)"
)


class Exporter(SpanExporter):
    """An exporter to an endpoint that accepts what `takes` allows, and that keeps it."""

    def __init__(self) -> None:
        self.takes: Callable[[Any], bool] = lambda batch: True
        self.arrived: list[Any] = []

    def export(self, spans: Any) -> SpanExportResult:
        if not self.takes(spans):
            return SpanExportResult.FAILURE
        self.arrived.append(spans)
        return SpanExportResult.SUCCESS


@pytest.fixture(autouse=True)
def _applied() -> Iterator[None]:
    WORKAROUNDS.apply()
    yield
    WORKAROUNDS.undo()


def test_queued_batches_are_sent_in_order_before_new_ones() -> None:
    exporter = Exporter()
    kept = Unsent(exporter)
    exporter.takes = lambda batch: False
    assert [exporter.export([number]) for number in range(3)] == [SpanExportResult.FAILURE] * 3
    kept.send_again()  # as every 5 s
    assert kept.is_waiting
    exporter.takes = lambda batch: True
    assert exporter.export([3]) is SpanExportResult.SUCCESS
    assert exporter.arrived == [[0], [1], [2], [3]]
    assert not kept.is_waiting


def test_an_invalid_batch_is_dropped_without_blocking_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    exporter = Exporter()
    kept = Unsent(exporter)
    exporter.takes = lambda batch: batch != ["refused"]
    names = ["refused", "next", "refused", "last"]
    results = [exporter.export([name]) for name in names]
    assert [result.name for result in results] == ["FAILURE", "SUCCESS", "FAILURE", "SUCCESS"]
    assert exporter.arrived == [["next"], ["last"]]
    assert caplog.messages == []
    for number in range(2 * delivery.REFUSALS):
        exporter.export([number])
    assert not kept.is_waiting
    assert caplog.messages == [LOST]


def test_batches_survive_outages_of_any_length() -> None:
    exporter = Exporter()
    kept = Unsent(exporter)
    exporter.takes = lambda batch: False
    exporter.export(["first"])
    for _ in range(1000):
        kept.send_again()
    answers = iter([False, True, True])  # the first; the second, the first
    exporter.takes = lambda batch: next(answers)
    exporter.export(["second"])
    assert exporter.arrived == [["second"], ["first"]]


def test_a_full_queue_drops_the_oldest_batches(
    caplog: pytest.LogCaptureFixture,
) -> None:
    exporter = Exporter()
    kept = Unsent(exporter)
    exporter.takes = lambda batch: False
    for number in range(10):
        exporter.export([number] * 512)
        kept.send_again()
    metrics = [object() for _ in range(8)]  # with as many exports of metrics as 512 records
    for each in metrics:
        exporter.export(each)
    exporter.takes = lambda batch: True
    kept.send_again()
    assert exporter.arrived == [*([number] * 512 for number in range(3, 10)), *metrics]
    assert caplog.messages == [LOST]
    assert delivery.MOST == 8 * 512


def test_a_batch_is_kept_if_the_exporter_raises_a_connection_error() -> None:
    exporter = Exporter()
    kept = Unsent(exporter)

    def refuse(batch: Any) -> bool:
        raise ConnectionError("refused")

    exporter.takes = refuse
    with pytest.raises(ConnectionError, match="refused"):
        exporter.export(["kept"])
    kept.send_again()
    exporter.takes = lambda batch: True
    kept.send_again()
    assert exporter.arrived == [["kept"]]


def test_a_batch_that_the_exporter_cannot_handle_is_not_kept() -> None:
    exporter = Exporter()
    kept = Unsent(exporter)

    def fail(batch: Any) -> bool:
        raise ValueError(batch)

    exporter.takes = fail
    with pytest.raises(ValueError, match="unheard of"):
        exporter.export(["unheard of"])
    assert not kept.is_waiting


def test_retries_are_invisible_to_http_instrumentations() -> None:
    exporter = Exporter()
    kept = Unsent(exporter)
    exporter.takes = lambda batch: False
    exporter.export(["kept"])
    exporter.takes = lambda batch: not is_instrumentation_enabled()
    kept.send_again()
    assert exporter.arrived == [["kept"]]


def test_a_forked_child_does_not_inherit_queued_batches() -> None:
    exporter = Exporter()
    kept = Unsent(exporter)
    exporter.takes = lambda batch: False
    exporter.export(["parent's"])
    kept.forget()
    exporter.takes = lambda batch: True
    exporter.export(["child's"])
    assert exporter.arrived == [["child's"]]


def test_uninstrument_restores_the_exporter() -> None:
    exporter = Exporter()
    kept = Unsent(exporter)
    WORKAROUNDS.undo()
    exporter.takes = lambda batch: False
    exporter.export(["dropped"])
    assert not kept.is_waiting
