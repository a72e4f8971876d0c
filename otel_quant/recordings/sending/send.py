"""Sends the telemetry of a recording."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry.instrumentation.utils import suppress_instrumentation

from otel_quant.recordings.model import RecordedRun, Recording
from otel_quant.recordings.sending.endpoint import NotSentError, configured_endpoint, send
from otel_quant.recordings.sending.identifiers import Identifiers
from otel_quant.recordings.sending.replay import Replay

_BATCH: Final = 512
"""Spans or log records of one request, as the SDK sends by default."""


@dataclass(slots=True)
class Sent:
    """How much has been sent."""

    spans: int = 0
    records: int = 0
    points: int = 0

    def __str__(self) -> str:
        return f"{self.spans} spans, {self.records} log records, {self.points} points of metrics"


def send_recording(
    recording: Recording, *, ending_lines: Sequence[str] = (), only_unended: bool = False
) -> Sent:
    """Sends the telemetry of a recording to where the environment says.

    `ending_lines` say how the program ended, the most important first.
    """
    runs = unended(recording) if only_unended else [
        run for run in recording.runs if run.state != "running"
    ]  # fmt: skip
    sent = Sent()
    if not runs:
        return sent
    endpoint = configured_endpoint()
    identifiers = Identifiers(recording)
    try:
        with suppress_instrumentation():  # no spans for the requests
            for run in runs:
                replay = Replay(run, recording, identifiers, ending_lines)
                replay.play(only_unended=only_unended)
                for batch in _batches(replay.spans):
                    send(endpoint.spans, batch)
                    sent.spans += len(batch) if endpoint.spans else 0
                for batch in _batches(replay.records):
                    send(endpoint.records, batch)
                    sent.records += len(batch) if endpoint.records else 0
                for data, number in replay.meters.all():
                    send(endpoint.points, data)
                    sent.points += number if endpoint.points else 0
    except NotSentError as error:
        raise NotSentError(
            f"the endpoint did not take it: {error}; before that {sent} were sent; the recording "
            "is as it was and can be sent again"
        ) from error
    return sent


def unended(recording: Recording) -> list[RecordedRun]:
    """Returns the runs of an SDK whose spans have not ended and never will."""
    return [
        run
        for run in recording.runs
        if run.end is None and run.state != "running" and run.span_id is not None
    ]


def _batches(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (items[first : first + _BATCH] for first in range(0, len(items), _BATCH))
