"""The identifiers of a span, for what refers to it without the API of OpenTelemetry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from otel_quant.schema.records import AttributeValue


class SpanIds(NamedTuple):
    """The identifiers of a span, in hexadecimal digits."""

    trace_id: str  # Its trace
    span_id: str  # The span
    parent_span_id: str | None  # The span above; None for a root
    # Attributes of what the telemetry comes from; of the run's span only
    resource: Mapping[str, AttributeValue] | None = None
