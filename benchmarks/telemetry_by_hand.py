"""The telemetry of one step, sent again with nothing but the OpenTelemetry SDK.

What a step of ours has sent is taken from the exporters: its span, its two log records, its
metric values. Then the same names, attributes and values are sent by the few lines that
somebody would write without otel-quant. Nothing is measured: it is the price of the telemetry
alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from local_sdk import Discard
from opentelemetry import metrics, trace
from opentelemetry._logs import LogRecord, SeverityNumber, get_logger, get_logger_provider

import otel_quant
from otel_quant.schema.readings import AttributeValue

_STEP = "quant.step.name"

CALIBRATION: Final[Mapping[str, AttributeValue]] = {
    "quant.library.name": "amd-quark",
    "quant.library.version": "0.13",
    "code.function.name": "quark.onnx.calibration.run_calibration",
    "quant.input.path": "models/resnet50.onnx",
    "quant.output.path": "models/resnet50_int8.onnx",
    "quant.config.name": "XINT8",
    "quant.calibration.method": "MinMSE",
    "quant.calibration.samples": 512,
    "quant.weight.type": "int8",
    "quant.activation.type": "uint8",
    "quant.execution.provider": "CPUExecutionProvider",
}
"""What the calibration of a real quantization adds to the attributes that every step has."""


@dataclass(frozen=True)
class Sent:
    """What one step has sent.

    Attributes:
        span: Attributes of the span.
        logs: Attributes of each log record.
        values: Of each metric value: the instrument's kind, name, the value and its attributes.
    """

    span: dict[str, Any]
    logs: tuple[dict[str, Any], ...]
    values: tuple[tuple[str, str, float, dict[str, Any]], ...]

    def __str__(self) -> str:
        logs = " and ".join(str(len(attributes)) for attributes in self.logs)
        return (
            f"one span with {len(self.span)} attributes, {len(self.values)} metric values, "
            f"{len(self.logs)} log records with {logs} attributes"
        )


def sent_by_one_step(discard: Discard) -> Sent:
    """Runs one step with calibration as its name, in a run of its own, with exporters just configured."""
    with otel_quant.run(), otel_quant.step("Calibration", attributes=CALIBRATION):
        pass
    providers: tuple[Any, ...] = (  # the SDK's, which have more than their types
        trace.get_tracer_provider(),
        metrics.get_meter_provider(),
        get_logger_provider(),
    )
    for provider in providers:
        provider.force_flush()
    spans = [span for span in discard.spans if span.name == "Calibration"]
    logs = [log.log_record for log in discard.logs]
    return Sent(
        dict(spans[0].attributes),
        tuple(dict(log.attributes) for log in logs if _STEP in (log.attributes or {})),
        tuple(_values(discard.metrics)),
    )


def _values(data: Any) -> list[tuple[str, str, float, dict[str, Any]]]:
    """Returns the values of instruments that a step writes to; others are observed."""
    found = []
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    if _STEP not in point.attributes or metric.name == "quant.step.active":
                        continue
                    histogram = hasattr(point, "bucket_counts")
                    kind = "histogram" if histogram else "counter"
                    value = point.sum if histogram else point.value
                    found.append((kind, metric.name, value, dict(point.attributes)))
    return found


def by_hand(sent: Sent) -> Callable[[], None]:
    """Returns a function that sends the telemetry of one step."""
    tracer = trace.get_tracer("by_hand")
    logger = get_logger("by_hand")
    meter = metrics.get_meter("by_hand")
    writes = []
    for kind, name, value, attributes in sent.values:
        instrument: Any = getattr(meter, f"create_{kind}")(f"by_hand.{name}")
        write = instrument.record if kind == "histogram" else instrument.add
        writes.append((write, value, attributes))
    known_at_start = dict(list(sent.span.items())[:16])
    known_at_end = dict(list(sent.span.items())[16:])
    start_log, end_log = sent.logs

    def emit(body: str, attributes: dict[str, Any]) -> None:
        logger.emit(
            LogRecord(
                timestamp=time.time_ns(),
                severity_number=SeverityNumber.INFO,
                severity_text="INFO",
                event_name="by_hand",
                body=body,
                attributes=dict(attributes),
            )
        )

    def send() -> None:
        with tracer.start_as_current_span("Calibration", attributes=known_at_start) as span:
            emit("Calibration Start", start_log)
            span.set_attributes(known_at_end)
            for write, value, attributes in writes:
                write(value, dict(attributes))
            emit("Calibration End", end_log)

    return send
