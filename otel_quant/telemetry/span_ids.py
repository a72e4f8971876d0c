"""The identifiers of a span, for what refers to it without the API of OpenTelemetry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from otel_quant.records import AttributeValue


class SpanIds(NamedTuple):
    """The identifiers of a span, in hexadecimal digits.

    Attributes:
        trace_id: Its trace.
        span_id: The span.
        parent_span_id: The span above; None for a root.
        resource: Attributes of what the telemetry comes from; of the run's span only.
    """

    trace_id: str
    span_id: str
    parent_span_id: str | None
    resource: Mapping[str, AttributeValue] | None = None
