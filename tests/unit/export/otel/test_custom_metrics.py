"""However much a program adds, whatever it is called and whatever its value is, the rest is sent."""

from __future__ import annotations

import enum
import logging
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.base.log import warn_once
from otel_quant.export.otel.logs import LogsSink
from otel_quant.export.otel.metrics import CustomGauges
from otel_quant.export.otel.spans import SpansSink, custom_of
from otel_quant.schema import semconv
from otel_quant.schema.readings import CostedModel
from tests.fixtures.sent import SentRun
from tests.unit.export.otel.literal_run import (
    BEGAN,
    LATER,
    PEAKS,
    RUN,
    RUN_SPAN,
    START,
    STEP,
    STEP_SPAN,
)
from tests.unit.export.otel.signals import Signals

LABELS = {semconv.STEP_NAME: "Calibration"}


class Bits(enum.IntEnum):
    EIGHT = 8


class Raises(float):
    def __float__(self) -> float:
        raise ValueError("made to fail")


def sent(*given: Mapping[str, object]) -> dict[str, Any]:
    """Returns what reaches an OTLP exporter, by name of the metric."""
    reader = InMemoryMetricReader()
    gauges = CustomGauges(MeterProvider([reader]).get_meter("test"))
    for values in given:
        gauges.set(values, LABELS)
    data = reader.get_metrics_data()
    assert data is not None
    found: dict[str, Any] = {}
    for metric in encode_metrics(data).resource_metrics[0].scope_metrics[0].metrics:
        (point,) = metric.gauge.data_points
        assert {pair.key: pair.value.string_value for pair in point.attributes} == LABELS
        found[metric.name] = getattr(point, point.WhichOneof("value"))
    return found


def test_a_name_invalid_in_opentelemetry_is_corrected_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    values = {"layer 3 (fp8)": 1, "depth": 2, "größe": 3, "x" * 300: 4, "": 5, "a/b-c.d_e": 6}

    assert sent(values, values) == {
        "quant.custom.layer_3__fp8_": 1, "quant.custom.depth": 2, "quant.custom.gr__e": 3,
        "quant.custom." + "x" * 242: 4, "quant.custom.": 5, "quant.custom.a/b-c.d_e": 6,
    }  # fmt: skip
    assert [record.name for record in caplog.records] == ["otel_quant"] * 3
    assert caplog.messages[0] == (
        "custom metric 'layer 3 (fp8)' is sent as the metric 'quant.custom.layer_3__fp8_': "
        "OpenTelemetry accepts at most 255 ASCII letters, digits, '_', '.', '-' and '/'; give it such "
        "a name to choose it"
    )


def test_a_value_that_cannot_be_sent_does_not_stop_the_metrics_after_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FAULTS, "counts", {})
    values: dict[str, object] = {
        "nan": math.nan, "infinite": -math.inf, "text": "fine", "list": [1, 2], "none": None,
        "yes": True, "raises": Raises(1), "many bits": 10**30, "too many": 10**400, "object": object(),
        "enum": Bits.EIGHT, "fraction": Fraction(1, 4), "lone": "\ud800", "last": 7,
    }  # fmt: skip

    assert sent(values) == {
        "quant.custom.many_bits": 1e30, "quant.custom.enum": 8, "quant.custom.fraction": 0.25,
        "quant.custom.last": 7,
    }  # fmt: skip
    assert [line for line in caplog.messages if "failed" in line] == [
        "custom metric 'raises' failed and is skipped; the program goes on without it: "
        "ValueError: made to fail"
    ]
    del values["raises"], values["nan"]
    assert custom_of(values) == {
        "quant.custom.infinite": -math.inf, "quant.custom.text": "fine", "quant.custom.yes": True,
        "quant.custom.many bits": 1e30, "quant.custom.enum": 8, "quant.custom.fraction": 0.25,
        "quant.custom.lone": "\\ud800", "quant.custom.last": 7,
    }  # fmt: skip


CUSTOM = {f"metric {number}": number for number in range(200)}
OF_STEP = {f"mine.{number}": number for number in range(200)}
PRECISIONS = ("float32", "float16", "bfloat16", "int8", "int8_weight_only", "int4", "int2")
FIGURES = (
    "size", "params", "macs", "macs_contraction", "backward_macs", "weight_bytes", "memory",
    "peak_activation_bytes", "nodes", "qdq_nodes", "integer_mac_share", "max_memory_node",
    *(f"precision.{precision}" for precision in PRECISIONS),
)  # fmt: skip
RUN_IDENTITY = {**RUN_SPAN, semconv.LIBRARY_NAME: "amd-quark"}
FIGURES_OF_STEP = {semconv.MEMORY_PEAK: 4000, semconv.GPU_MEMORY_PEAK: 700}


def send(sink: SpansSink | LogsSink, models: bool = False) -> None:
    """Sends a sink a run with one step, to which the program adds what it can."""
    run = SentRun(RUN, START, sink)
    run.began()
    run.opened(STEP, START, OF_STEP)
    run.closed(STEP, LATER, PEAKS, samples=5, custom=CUSTOM)
    if models:
        run.costed(
            *(
                CostedModel(role, "m.onnx", BEGAN, BEGAN, dict.fromkeys(FIGURES, 1))
                for role in ("float", "quantized")
            )
        )
    run.ended(LATER, PEAKS, custom=CUSTOM)


def spans_of() -> dict[str, Any]:
    """Returns the spans of such a run, by name."""
    signals = Signals()
    send(signals.spans_sink(), models=True)
    return signals.spans()


def test_the_programs_attributes_do_not_displace_ours(caplog: pytest.LogCaptureFixture) -> None:
    warn_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        spans = spans_of()
    step, root = spans["My calibration"], spans["quantization"]
    assert {span.name: span.dropped_attributes for span in spans.values()} == dict.fromkeys(
        spans, 0
    )
    shown = dict(step.attributes)
    assert {**shown, **STEP_SPAN, **FIGURES_OF_STEP} == shown
    assert [key for key in shown if key.startswith("mine.")] == list(OF_STEP)[:64]
    assert sum(key.startswith("quant.custom.") for key in shown) == 32
    shown = dict(root.attributes)
    assert {**shown, **RUN_IDENTITY, **FIGURES_OF_STEP} == shown
    assert {f"quant.model.{role}.{f}" for role in ("float", "quantized") for f in FIGURES} <= set(
        shown
    )
    assert [record.getMessage() for record in caplog.records] == [
        "only the first 64 attributes of a step are kept; set fewer to choose them",
        "only the first 32 custom metrics are on spans and log records; add fewer to choose them",
    ]


def test_a_checkpoint_record_loses_nothing_to_custom_metrics() -> None:
    signals = Signals()
    send(signals.logs_sink())
    records = signals.log_exporter.get_finished_logs()
    assert {record.dropped_attributes for record in records} == {0}
    last = signals.records()[-1][-1]
    assert last[semconv.RUN_ID] == RUN.id
    assert (last[semconv.CHECKPOINT_NAME], last[semconv.CHECKPOINT_MEMORY]) == ("End", 1200)
    assert sum(key.startswith("quant.custom.") for key in last) == 32
