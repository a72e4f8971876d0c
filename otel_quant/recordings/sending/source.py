"""What the telemetry of a run says that it comes from: its resource and its scope."""

from __future__ import annotations

import uuid
from typing import Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from otel_quant.recordings.model import RecordedRun
from otel_quant.schema import semconv
from otel_quant.schema.records import AttributeValue
from otel_quant.version import VERSION

SCOPE: Final = InstrumentationScope(semconv.SCOPE, VERSION, semconv.SCHEMA_URL)

_NAME: Final = "service.name"
_INSTANCE: Final = "service.instance.id"


def resource_of(run: RecordedRun) -> Resource:
    """Returns what a run's telemetry comes from."""
    if run.span_id is not None:
        return Resource(run.resource)
    now = Resource.create()
    added = {_INSTANCE: str(uuid.uuid5(uuid.NAMESPACE_URL, f"urn:otel-quant:run:{run.id}"))}
    if str(now.attributes.get(_NAME)).startswith("unknown_service"):
        added |= {name: str(value) for name, value in run.resource.items()}
    return now.merge(Resource(added))


def run_ids_of(run: RecordedRun) -> dict[str, AttributeValue]:
    """Returns what every span and log record of a run has."""
    ids = {
        semconv.RUN_ID: run.id,
        semconv.RUN_NAME: run.attributes.get(semconv.RUN_NAME),
        semconv.RUN_RANK: run.rank,
    }
    return {key: value for key, value in ids.items() if value is not None}
