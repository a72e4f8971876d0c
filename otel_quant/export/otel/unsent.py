"""Keeps what an exporter could not send, and sends it again before anything newer.

An exporter of OpenTelemetry's tries to send a batch for `OTEL_EXPORTER_OTLP_TIMEOUT` (10 s) and at
most six times, and then drops it. What a run did while its Collector was away for longer would be
missing for ever. Only exporters of automatic instrumentation are treated so: see `Delivery`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sized
from typing import Any, Final

from opentelemetry.instrumentation.utils import suppress_instrumentation

from otel_quant.base.log import LOG
from otel_quant.export.otel.sdk_workarounds import WORKAROUNDS, objects_within

MOST: Final = 4096
"""Spans, or log records, that are kept for each exporter: twice what the SDK's queue holds."""

METRICS_COUNT_AS: Final = 64
"""One export of metrics, so that an hour of them is kept at the SDK's interval of a minute: older
points are refused by Prometheus."""


class Unsent:
    """Stands before an exporter and keeps the batches that it could not send.

    A batch may have arrived although the exporter got no answer: it then arrives twice, with the
    same times and identifiers.
    """

    def __init__(self, exporter: Any) -> None:
        self._send = exporter.export
        exporter.export = self.export
        self.forget()

    def forget(self) -> None:
        """Drops what is kept. In a forked child it is the parent's, as is the lock."""
        self._lock = threading.Lock()
        self._kept: deque[tuple[Any, dict[str, Any]]] = deque()
        self._says_what_is_lost = True

    @property
    def is_waiting(self) -> bool:
        """Whether something is kept."""
        return bool(self._kept)

    def export(self, batch: Any, **options: Any) -> Any:
        """Sends what is kept and then a batch; keeps what cannot be sent."""
        if not WORKAROUNDS.applied:
            return self._send(batch, **options)
        with self._lock:
            self._kept.append((batch, options))
            result = self._send_kept()
        if isinstance(result, OSError):
            raise result
        return result

    def send_again(self) -> None:
        """Sends what is kept, without a span for the request, as the SDK's threads do."""
        with self._lock, suppress_instrumentation():
            self._send_kept()

    def _send_kept(self) -> Any:
        result = None
        while self._kept:
            result, is_sent = self._try(0)
            if is_sent:
                continue
            if len(self._kept) == 1 or not self._try(-1)[1]:
                break
            # The endpoint works: if it refuses the oldest once more, it always will.
            result, is_sent = self._try(0)
            if not is_sent:
                self._lose()
        while sum(map(_size, self._kept)) > MOST:
            self._lose()
        return result

    def _try(self, index: int) -> tuple[Any, bool]:
        """Sends one of those that are kept; keeps it unless it was sent."""
        kept = self._kept[index]
        del self._kept[index]  # if the exporter raises anything else, it would do so again
        result: Any
        try:
            result = self._send(kept[0], **kept[1])
            is_sent = getattr(result, "name", "") != "FAILURE"
        except OSError as error:
            result, is_sent = error, False
        if not is_sent:
            (self._kept.append if index else self._kept.appendleft)(kept)
        return result, is_sent

    def _lose(self) -> None:
        self._kept.popleft()
        if self._says_what_is_lost:
            self._says_what_is_lost = False
            LOG.warning(
                "telemetry is lost: the endpoint refuses it, or has been away for too long to keep "
                "it all (%d spans or log records, %d exports of metrics)",
                MOST,
                MOST // METRICS_COUNT_AS,
            )


def keep_unsent(provider: Any) -> list[Unsent]:
    """Has every exporter of a provider keep what it cannot send."""
    return [
        Unsent(item)
        for item in list(objects_within([provider]))
        # What an exporter sends with has an `export` too, and is nothing that could be flushed.
        if type(item).__module__.startswith("opentelemetry.exporter.")
        and hasattr(item, "export")
        and hasattr(item, "force_flush")
    ]


def _size(kept: tuple[Any, dict[str, Any]]) -> int:
    return len(kept[0]) if isinstance(kept[0], Sized) else METRICS_COUNT_AS
