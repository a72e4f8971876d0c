"""Has what the sinks emitted leave the process: at once while it runs, bounded at exit.

otel-quant owns no exporter. It asks the providers that the program configured to flush,
where they can (the SDK's can; the API's do nothing), and does so on threads of its own,
because a flush lasts as long as the endpoint likes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final

from opentelemetry import metrics, trace
from opentelemetry._logs import get_logger_provider

from otel_quant.fault_boundary import FAULTS
from otel_quant.telemetry.inherited import close_inherited

SPACING: Final = 0.25
"""Shortest time between two requests to flush, in seconds: short against the second that
a killed run may lose, long against the cost of one request."""

FORK_PATIENCE: Final = 1.0
"""Seconds that a fork waits for the flush in progress; an endpoint that takes longer is
taken to hang."""

_PROVIDERS: Final[dict[str, Callable[[], Any]]] = {
    "logs": get_logger_provider,
    "traces": trace.get_tracer_provider,
    "metrics": metrics.get_meter_provider,
}


class Delivery:
    """Flushes the providers.

    Args:
        spacing: Shortest time between two requests, in seconds.
    """

    def __init__(self, spacing: float = SPACING) -> None:
        self._spacing = spacing
        # Not an Event: a signal handler, or a collected generator, may end a step in the
        # middle of a call of ours, and only this queue's put can be interrupted by itself.
        self._wanted: SimpleQueue[None] = SimpleQueue()
        self._is_wanted = False
        self._thread: threading.Thread | None = None
        self._flushing = threading.Lock()
        self._forking = threading.local()
        self._answers = True  # the endpoint, at the last flush
        self._is_fork = False
        self._is_over = False

    def soon(self) -> None:
        """Has log records and finished spans sent without delay. Returns at once."""
        self._renew()
        if not self._is_wanted:
            self._is_wanted = True
            self._wanted.put(None)
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="otel-quant-delivery", daemon=True
            )
            self._thread.start()

    def drain(self, timeout: float) -> bool:
        """Has everything sent.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            Whether all of it has left.
        """
        self._renew()
        return _in_parallel("flush", "force_flush", timeout)

    def finish(self, timeout: float) -> bool:
        """Has everything sent, and sends nothing more: the SDK is about to shut down.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            Whether all of it has left.
        """
        deadline = time.monotonic() + timeout
        self._is_over = True
        drained = self.drain(timeout)
        # A flush of this module's own thread that is still under way would meet exporters
        # that are shut down, and the SDK would say so on the program's stderr.
        if not self._flushing.acquire(timeout=max(0.0, deadline - time.monotonic())):
            return False
        self._flushing.release()
        return drained

    def abandon(self) -> None:
        """Gives up on what could not be sent, so that the SDK does not wait for it either.

        Each provider is shut down on a thread of its own. A provider that is shutting
        down refuses a second shutdown, so the one that the SDK runs at the interpreter's
        exit returns at once.
        """
        _in_parallel("shutdown", "shutdown", 0.2)

    def before_fork(self) -> None:
        """Lets the flush in progress end, and begins no other until the fork is done.

        A child that is forked in the middle of a flush inherits an exporter that waits
        for ever: for a lock of a connection pool, or a poller of gRPC's, whose thread
        exists in the parent alone. An endpoint that hangs holds up one fork, not each.
        """
        holds = self._flushing.acquire(timeout=FORK_PATIENCE if self._answers else 0)
        self._forking.holds = holds
        if not holds:
            self._answers = False

    def after_fork_in_parent(self) -> None:
        """Goes on."""
        if getattr(self._forking, "holds", False):
            self._forking.holds = False
            self._flushing.release()

    def after_fork_in_child(self) -> None:
        """Starts over: the parent's thread is not here."""
        self._wanted = SimpleQueue()
        self._is_wanted = False
        self._thread = None
        self._flushing = threading.Lock()
        self._is_fork = True
        self._is_over = False

    def _renew(self) -> None:
        """In a forked child, before anything is sent: lets go of the parent's connections."""
        if self._is_fork:
            self._is_fork = False
            with FAULTS.kept_in("connections of the parent process"):
                close_inherited(provider() for provider in _PROVIDERS.values())

    def _run(self) -> None:
        is_new = True
        while True:
            self._wanted.get()
            self._is_wanted = False
            self._flush("logs", "traces")
            time.sleep(self._spacing)
            if is_new:
                # Metrics leave once a minute as a rule. A run that is killed in its first is
                # missed by whoever watches metrics, unless it has been heard of: by now its
                # first step is open.
                is_new = False
                self._flush("metrics")

    def _flush(self, *signals: str) -> None:
        with self._flushing:
            for signal in signals:
                if not self._is_over:
                    _call(signal, "force_flush", "delivery")
        self._answers = True


def _in_parallel(what: str, method: str, timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    threads = [
        threading.Thread(
            target=_call,
            args=(signal, method, what),
            name=f"otel-quant-{what}-{signal}",
            daemon=True,
        )
        for signal in _PROVIDERS
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


def _call(signal: str, method: str, what: str) -> None:
    with FAULTS.kept_in(f"{what} of {signal}"):
        act = getattr(_PROVIDERS[signal](), method, None)
        if act is not None:
            act()
