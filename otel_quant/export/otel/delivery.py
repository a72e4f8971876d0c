"""Sends what the sinks emitted: at once while the process runs, within a time limit at its exit.

otel-quant owns no exporter. It asks the providers that automatic instrumentation made to flush,
on threads of its own, because a flush takes as long as the endpoint takes. What their exporters
could not send is kept and sent again. Providers that the program made are left to it:
with those alone, nothing here does anything.

The threads begin with the first run: at the exit of the interpreter, Python 3.12 and later start
none. Of a run that begins at the exit, the SDK sends what there is as it shuts down.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sized
from queue import Empty, SimpleQueue
from typing import Any, Final

from opentelemetry.instrumentation.utils import suppress_instrumentation

from otel_quant.base.fault_boundary import FAULTS, start_thread
from otel_quant.base.log import LOG
from otel_quant.base.waited import WAITED
from otel_quant.export.otel import sdk_workarounds
from otel_quant.export.otel.automatic_providers import AUTOMATIC_PROVIDERS, LEFT_OUT_AT_EXIT
from otel_quant.export.otel.sdk_workarounds import WORKAROUNDS

SPACING: Final = 0.25
"""Shortest time between two flushes, in seconds: short against the second that a killed run may
lose. Without it 300 steps in 1.7 s make 700 requests rather than 35, and take 0.4 s of CPU more."""

RETRY: Final = 5.0  # Seconds between two attempts to send what the exporters could not send

FORK_PATIENCE: Final = 1.0
"""Seconds that a fork waits for the flush in progress; after that the endpoint is taken to hang."""

LEAST_WAIT: Final = 0.1
"""Seconds that each process waits for an endpoint for which others have waited in vain: it may be back."""

MOST: Final = 4096
"""Spans, or log records, that are kept for each exporter: twice what the SDK's queue holds. Not a
number of batches: a busy run makes hundreds of small ones in a minute if its exporter fails at once."""

METRICS_COUNT_AS: Final = 64
"""One export of metrics, so that an hour of them is kept: older points are refused by Prometheus."""

REFUSALS: Final = 3
"""How often an endpoint may refuse a batch and take another. Then it refuses it for what is in it."""


class Delivery:
    """Flushes the providers."""

    def __init__(self) -> None:
        self._unsent: dict[str, list[Unsent]] = {}  # by signal
        self._late: list[str] = []  # signals that the last wait left unsent
        self._given_up: set[str] = set()
        self._forking = threading.local()
        self._answers = True  # the endpoint, at the last flush
        self._start_over()

    def _start_over(self) -> None:
        # Not an Event: a signal handler, or a collected generator, may end a step in the
        # middle of a call of ours, and only this queue's put can be interrupted by itself.
        self._wanted: SimpleQueue[None] = SimpleQueue()
        self._is_wanted = self._is_over = False
        self._has_begun = threading.Lock()  # held from the start of the threads on
        self._flushers: list[_Flusher] = []
        self._flushing = threading.Lock()

    def soon(self) -> None:
        """Sends log records and finished spans without delay, on a thread. Returns at once."""
        if not AUTOMATIC_PROVIDERS:
            return
        if not self._is_wanted:
            self._is_wanted = True
            self._wanted.put(None)
        if self._has_begun.acquire(blocking=False):
            start_thread(self._run, "otel-quant-delivery")
            flushers = [_Flusher(signal, self._force_flush) for signal in AUTOMATIC_PROVIDERS]
            self._flushers = [flusher for flusher in flushers if flusher.is_running]

    def within(self, timeout: float, send: Callable[[float], bool]) -> bool:
        """Calls one of the next two; a program and its child processes wait for that long together, not each."""
        before, began = WAITED.seconds, time.monotonic()
        least = 0.0 if self._given_up else min(timeout, LEAST_WAIT)
        sent = send(max(timeout - before, least))
        seconds = before + time.monotonic() - began
        WAITED.seconds = 0.0 if sent else max(seconds, WAITED.seconds)
        return sent

    def drain(self, timeout: float) -> bool:
        """Sends everything, except for signals that were given up."""
        deadline = time.monotonic() + timeout
        flushers = [it for it in self._flushers if it.signal not in self._given_up]
        asked = {flusher.signal: flusher.flush() for flusher in flushers}
        self._late = list(asked)  # of a wait that is interrupted
        self._late = [
            signal
            for signal, flushed in asked.items()
            if not flushed.wait(max(0.0, deadline - time.monotonic()))
        ]
        return not self._late

    def finish(self, timeout: float) -> bool:
        """Sends everything, and nothing after that: the SDK is about to shut down."""
        deadline = time.monotonic() + timeout
        self._is_over = True
        drained = self.drain(timeout)
        # A flush of our own thread that is still in progress would find exporters that are shut
        # down, and the SDK would log that on the program's standard error.
        if not self._flushing.acquire(timeout=max(0.0, deadline - time.monotonic())):
            self._late = list(AUTOMATIC_PROVIDERS)
            return False
        self._flushing.release()
        return drained

    def abandon(self) -> None:
        """Gives up on the signals that the last wait left unsent: nothing waits for them again.

        Their providers are not shut down at exit, where the SDK would wait for them once more.
        """
        self._given_up.update(self._late)
        if WORKAROUNDS.applied:
            LEFT_OUT_AT_EXIT.update(self._late)

    def before_fork(self) -> None:
        """Waits for the flush in progress, and begins no other until the fork is done.

        A child that is forked in the middle of a flush inherits locks that are never released:
        their threads exist in the parent alone. An endpoint that hangs delays one fork, not each.
        """
        if not WORKAROUNDS.applied:
            return
        with FAULTS.kept_in("time that a program waits"):
            WAITED.share()
        holds = self._flushing.acquire(timeout=FORK_PATIENCE if self._answers else 0)
        self._forking.holds = holds
        if not holds:
            WAITED.seconds += FORK_PATIENCE * self._answers
            self._answers = False

    def after_fork_in_parent(self) -> None:
        """Allows flushes again."""
        if getattr(self._forking, "holds", False):
            self._forking.holds = False
            self._flushing.release()

    def after_fork_in_child(self) -> None:
        """Starts over: the parent's thread and connections are not the child's."""
        with FAULTS.kept_in("connections of the parent process"):
            sdk_workarounds.close_inherited_connections(AUTOMATIC_PROVIDERS.values())
        for unsent in self._unsent.values():
            for each in unsent:
                each.forget()
        self._start_over()

    def _run(self) -> None:
        with FAULTS.kept_in("exporters"):
            for signal, provider in AUTOMATIC_PROVIDERS.items():
                if signal not in self._unsent:
                    exporters = sdk_workarounds.exporters_within([provider])
                    self._unsent[signal] = [*map(Unsent, exporters)]
        is_new = True
        while True:
            try:
                self._wanted.get(timeout=RETRY)
            except Empty:
                if not any(each.is_waiting for unsent in self._unsent.values() for each in unsent):
                    continue
            self._is_wanted = False
            self._flush("logs", "traces", "profiles")
            time.sleep(SPACING)
            if is_new:
                # Metrics leave once a minute as a rule. A run that is killed in its first minute
                # would be in no metric; by now its first step is open.
                is_new = False
                self._flush("metrics")

    def _flush(self, *signals: str) -> None:
        with self._flushing:
            for signal in signals:
                if signal in AUTOMATIC_PROVIDERS and not self._is_over:
                    self._force_flush(signal)
        self._answers = True

    def _force_flush(self, signal: str) -> None:
        with FAULTS.kept_in(f"delivery of {signal}"):
            # A provider that the program has shut down returns False: its exporter sends no more.
            if AUTOMATIC_PROVIDERS[signal].force_flush() is not False:
                for unsent in self._unsent.get(signal, ()):
                    unsent.send_again()


class _Flusher:
    """A thread that flushes one provider whenever it is asked to."""

    def __init__(self, signal: str, force_flush: Callable[[str], None]) -> None:
        self.signal = signal
        self._force_flush = force_flush
        self._asked: SimpleQueue[threading.Event] = SimpleQueue()
        self.is_running = start_thread(self._run, f"otel-quant-flush-{signal}") is not None

    def flush(self) -> threading.Event:
        """Begins a flush; returns what is set when it is over."""
        flushed = threading.Event()
        self._asked.put(flushed)
        return flushed

    def _run(self) -> None:
        while True:
            flushed = self._asked.get()
            self._force_flush(self.signal)
            flushed.set()


class Unsent:
    """Keeps the batches that an exporter could not send, and sends them before anything newer.

    The exporter itself gives up after `OTEL_EXPORTER_OTLP_TIMEOUT` (10 s), and after half a minute
    whatever that is: what a run did while its Collector was away for longer would be missing for ever.
    A batch may have arrived although the exporter got no answer: it then arrives twice, with the same
    times and identifiers.
    """

    def __init__(self, exporter: Any) -> None:
        self._send = exporter.export
        exporter.export = self.export
        self.forget()

    def forget(self) -> None:
        """Drops what is kept. In a forked child it is the parent's, as is the lock."""
        self._lock = threading.Lock()
        self._kept: deque[tuple[Any, dict[str, Any]]] = deque()  # the oldest first
        self._refusals = 0  # of the oldest
        self._has_said_what_is_lost = False

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
            while sum(_size(kept) for kept, _ in self._kept) > MOST:
                self._lose_the_oldest()
        if isinstance(result, OSError):
            raise result
        return result

    def send_again(self) -> None:
        """Sends what is kept, without a span for the request, as the SDK's threads do."""
        with self._lock, suppress_instrumentation():
            self._send_kept()

    def _send_kept(self) -> Any:
        """Sends the oldest first: a store may take no point that is older than its newest.

        If that fails, the newest is tried: one batch that is refused holds up no other. Returns the
        result of the newest.
        """
        results: list[Any] = []
        index = 0
        while self._kept:
            is_last = index == -1 or len(self._kept) == 1
            batch, options = self._kept[index]
            del self._kept[index]  # if the exporter raises anything else, it would do so again
            try:
                result = self._send(batch, **options)
                is_sent = getattr(result, "name", "") != "FAILURE"
            except OSError as error:  # over HTTP in 1.38, if nothing listens
                result, is_sent = error, False
            if is_last:
                results.append(result)
            if is_sent:
                self._refusals = self._refusals + 1 if index else 0
                index = 0
                if self._refusals == REFUSALS:
                    self._lose_the_oldest()
            else:
                self._kept.insert(len(self._kept) if index else 0, (batch, options))
                if is_last:
                    break  # the endpoint is away
                index = -1
        return results[0] if results else None

    def _lose_the_oldest(self) -> None:
        self._kept.popleft()
        self._refusals = 0
        if not self._has_said_what_is_lost:
            self._has_said_what_is_lost = True
            LOG.warning(
                "telemetry is lost: the endpoint refuses it, or has been away for too long to keep it all "
                "(%d spans or log records, %d exports of metrics)",
                MOST,
                MOST // METRICS_COUNT_AS,
            )


def _size(batch: Any) -> int:
    return len(batch) if isinstance(batch, Sized) else METRICS_COUNT_AS
