"""The sinks and the kinds of events."""

from __future__ import annotations

import inspect
from typing import get_args

import pytest

from otel_quant.capture.measured_run import KeptRun
from otel_quant.export.otel.logs import LogsSink
from otel_quant.export.otel.metrics import MetricsSink
from otel_quant.export.otel.spans import SpansSink
from otel_quant.export.quark_yaml.sink import QuarkYamlSink
from otel_quant.export.recording.sink import RecordingSink
from otel_quant.schema.events import EventKind, Sink, method_of


@pytest.mark.parametrize(
    "sink", [KeptRun, LogsSink, MetricsSink, QuarkYamlSink, RecordingSink, SpansSink]
)
def test_each_method_that_receives_an_event_has_the_name_of_a_kind(sink: type[Sink]) -> None:
    receiving = {
        name
        for name, method in inspect.getmembers(sink, inspect.isfunction)
        if name[0] != "_" and "event" in inspect.signature(method).parameters
    }
    assert receiving <= {method_of(kind) for kind in get_args(EventKind)} | {
        "receive",
        "send_reading",
    }
