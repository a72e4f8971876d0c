"""The process that ends the open spans of a program that was killed, and sends a log record.

``python -m otel_quant.launcher.ending_sender FOLDER`` in the program's environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from opentelemetry import trace
from opentelemetry._logs import LogRecord, SeverityNumber, get_logger_provider
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, StatusCode, TraceFlags

from otel_quant.launcher.send_ending import open_runs
from otel_quant.recordings.model import Ending, RecordedRun, RecordedStep, Recording
from otel_quant.recordings.reader import read
from otel_quant.rendering.ending import ending_lines
from otel_quant.telemetry import semconv
from otel_quant.telemetry.default_exporters import defaults_in
from otel_quant.version import VERSION

_RESOURCE: Final = "OTEL_RESOURCE_ATTRIBUTES"
_FLUSH: Final = 60_000
"""Milliseconds; whoever has started this process stops it earlier."""


class GivenIds:
    """Gives the next span the ids that it had in the program. An ``IdGenerator`` of the SDK."""

    def __init__(self) -> None:
        self.trace_id = self.span_id = 0

    def generate_trace_id(self) -> int:
        """Returns the trace of the next span."""
        return self.trace_id

    def generate_span_id(self) -> int:
        """Returns the id of the next span."""
        return self.span_id

    def is_trace_id_random(self) -> bool:
        """Whether the SDK may say so of the trace."""
        return False


def main(folder: Path) -> None:
    """Sends what there is to send.

    Args:
        folder: The recording, with its ending.
    """
    recording = read(folder)
    runs = open_runs(recording)
    if recording.ending is None or not runs or defaults_in(os.environ, os.environ) is not None:
        return  # nothing is configured, so nothing is sent
    _configure(runs[0].resource)
    tracers, loggers = trace.get_tracer_provider(), get_logger_provider()
    if not hasattr(tracers, "id_generator"):
        return  # no SDK
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    ids = GivenIds()
    # What has ids in a recording has been sampled.
    tracers.id_generator, tracers.sampler = ids, ALWAYS_ON  # type: ignore[attr-defined]
    for run in runs:
        _end_spans(run, recording, recording.ending, ids)
        _send_record(run, recording, recording.ending)
    for provider in (loggers, tracers):
        if hasattr(provider, "force_flush"):
            provider.force_flush(_FLUSH)


def _configure(resource: Mapping[str, Any]) -> None:
    """Configures the SDK as automatic instrumentation does, for what the telemetry came from."""
    texts = {name: value for name, value in resource.items() if isinstance(value, str)}
    given = ",".join(f"{name}={quote(value)}" for name, value in texts.items())
    if given:
        os.environ[_RESOURCE] = given
    for group, chosen in (
        ("opentelemetry_distro", os.environ.get("OTEL_PYTHON_DISTRO")),
        ("opentelemetry_configurator", os.environ.get("OTEL_PYTHON_CONFIGURATOR")),
    ):
        for point in entry_points(group=group):
            if chosen in (None, point.name):
                point.load()().configure()
                break


def _end_spans(run: RecordedRun, recording: Recording, ending: Ending, ids: GivenIds) -> None:
    for step in _open_steps(run):
        attributes: dict[str, Any] = {
            **step.attributes,
            semconv.CALIBRATION_SAMPLE_COUNT: step.samples,
            semconv.CALIBRATION_SAMPLE_TOTAL: step.expected_samples,
        }
        _end_span(step, step.name, attributes, recording, ending, ids)
    attributes = {**run.attributes, **_attributes_of(ending)}
    _end_span(run, semconv.ROOT_SPAN, attributes, recording, ending, ids)


def _end_span(
    item: RecordedRun | RecordedStep,
    name: str,
    attributes: Mapping[str, Any],
    recording: Recording,
    ending: Ending,
    ids: GivenIds,
) -> None:
    if item.trace_id is None or item.span_id is None:
        return
    ids.trace_id, ids.span_id = int(item.trace_id, 16), int(item.span_id, 16)
    tracer = trace.get_tracer(semconv.SCOPE, VERSION, schema_url=semconv.SCHEMA_URL)
    span = tracer.start_span(
        name,
        context=_context(item.trace_id, item.parent_span_id),
        attributes=_present({**attributes, semconv.ERROR_TYPE: _error_type(ending)}),
        start_time=recording.began_ns + round(item.start * 1e9),
    )
    span.set_status(StatusCode.ERROR, next(iter(ending_lines(ending)), ""))
    span.end(end_time=recording.began_ns + round(max(item.start, ending.time) * 1e9))


def _send_record(run: RecordedRun, recording: Recording, ending: Ending) -> None:
    step = _innermost(run)
    item: RecordedRun | RecordedStep = run if step is None else step
    attributes: dict[str, Any] = {
        semconv.RUN_ID: run.id,
        semconv.PROCESS_PID: run.pid,
        semconv.RUN_RANK: run.rank,
        **_attributes_of(ending),
    }
    if step is not None:
        attributes |= {
            semconv.STEP_NAME: step.name,
            semconv.STEP_KIND: step.kind,
            semconv.STEP_INDEX: step.index,
            semconv.LIBRARY_NAME: step.attributes.get(semconv.LIBRARY_NAME),
            semconv.CALIBRATION_SAMPLE_COUNT: step.samples,
            semconv.CALIBRATION_SAMPLE_TOTAL: step.expected_samples,
        }
    logger = get_logger_provider().get_logger(semconv.SCOPE, VERSION, schema_url=semconv.SCHEMA_URL)
    logger.emit(
        LogRecord(
            timestamp=recording.began_ns + round(ending.time * 1e9),
            context=_context(item.trace_id, item.span_id),
            severity_number=SeverityNumber.ERROR,
            severity_text=SeverityNumber.ERROR.name,
            event_name=semconv.ENDING_EVENT,
            body="\n".join(ending_lines(ending)),
            attributes=_present(attributes),
        )
    )


def _attributes_of(ending: Ending) -> dict[str, Any]:
    return {
        semconv.ENDING_SIGNAL: ending.signal or ending.process_signal,
        semconv.ENDING_OUT_OF_MEMORY: ending.out_of_memory,
        semconv.ENDING_EVIDENCE: ending.evidence,
        semconv.ENDING_OPEN_STEPS: ending.open_steps or None,
        semconv.ENDING_MEMORY: ending.memory,
        semconv.ENDING_MEMORY_LIMIT: ending.memory_limit,
        semconv.ENDING_MEMORY_LIMIT_SOURCE: ending.memory_limit_source,
        semconv.ENDING_MEMORY_PER_SAMPLE: ending.memory_per_sample,
    }


def _error_type(ending: Ending) -> str:
    return ending.signal or ending.process_signal or "lost"


def _context(trace_id: str | None, span_id: str | None) -> Context:
    if trace_id is None or span_id is None:
        return Context()
    above = SpanContext(int(trace_id, 16), int(span_id, 16), False, TraceFlags(TraceFlags.SAMPLED))
    return trace.set_span_in_context(NonRecordingSpan(above), Context())


def _open_steps(run: RecordedRun) -> list[RecordedStep]:
    """Returns the open steps, innermost first: spans end in this order."""
    return [step for step in reversed(run.steps) if step.end is None]


def _innermost(run: RecordedRun) -> RecordedStep | None:
    return next(iter(_open_steps(run)), None)


def _present(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
