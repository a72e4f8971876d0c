"""Sends what the sinks emitted: at once while the process runs, within a time limit at its exit.

otel-quant owns no exporter. It asks the providers that automatic instrumentation made to flush,
on threads of its own, because a flush takes as long as the endpoint takes. Providers that the
program made are left to it: with those alone, nothing here does anything.
"""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue
from typing import Final

from otel_quant.fault_boundary import FAULTS
from otel_quant.telemetry.automatic_providers import AUTOMATIC_PROVIDERS
from otel_quant.telemetry.sdk_workarounds import WORKAROUNDS, close_inherited_connections

SPACING: Final = 0.25
"""Shortest time between two flushes, in seconds: short against the second that a killed run may
lose. Without it 300 steps in 1.7 s make 700 requests rather than 35, and take 0.4 s of CPU more."""

FORK_PATIENCE: Final = 1.0
"""Seconds that a fork waits for the flush in progress; after that the endpoint is taken to hang."""


class Delivery:
    """Flushes the providers."""

    def __init__(self) -> None:
        # Not an Event: a signal handler, or a collected generator, may end a step in the
        # middle of a call of ours, and only this queue's put can be interrupted by itself.
        self._wanted: SimpleQueue[None] = SimpleQueue()
        self._is_wanted = False
        self._thread: threading.Thread | None = None
        self._flushing = threading.Lock()
        self._forking = threading.local()
        self._answers = True  # the endpoint, at the last flush
        self._is_over = False

    def soon(self) -> None:
        """Sends log records and finished spans without delay, on a thread. Returns at once."""
        if not AUTOMATIC_PROVIDERS:
            return
        if not self._is_wanted:
            self._is_wanted = True
            self._wanted.put(None)
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="otel-quant-delivery", daemon=True
            )
            self._thread.start()

    def drain(self, timeout: float) -> bool:
        """Sends everything.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            Whether all of it was sent.
        """
        return _in_parallel("flush", "force_flush", timeout)

    def finish(self, timeout: float) -> bool:
        """Sends everything, and nothing after that: the SDK is about to shut down.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            Whether all of it was sent.
        """
        deadline = time.monotonic() + timeout
        self._is_over = True
        drained = self.drain(timeout)
        # A flush of our own thread that is still in progress would find exporters that are shut
        # down, and the SDK would log that on the program's standard error.
        if not self._flushing.acquire(timeout=max(0.0, deadline - time.monotonic())):
            return False
        self._flushing.release()
        return drained

    def abandon(self) -> None:
        """Gives up on what could not be sent, so that the SDK does not wait for it either.

        Each provider is shut down on a thread of its own. A provider that is shutting down
        refuses a second shutdown, so the one that the SDK runs when the interpreter exits returns
        at once.
        """
        if WORKAROUNDS.applied:
            _in_parallel("shutdown", "shutdown", 0.2)

    def before_fork(self) -> None:
        """Waits for the flush in progress, and begins no other until the fork is done.

        A child that is forked in the middle of a flush inherits locks that are never released:
        their threads exist in the parent alone. An endpoint that hangs delays one fork, not each.
        """
        if not WORKAROUNDS.applied:
            return
        holds = self._flushing.acquire(timeout=FORK_PATIENCE if self._answers else 0)
        self._forking.holds = holds
        if not holds:
            self._answers = False

    def after_fork_in_parent(self) -> None:
        """Allows flushes again."""
        if getattr(self._forking, "holds", False):
            self._forking.holds = False
            self._flushing.release()

    def after_fork_in_child(self) -> None:
        """Starts over: the parent's thread and connections are not the child's."""
        with FAULTS.kept_in("connections of the parent process"):
            close_inherited_connections(AUTOMATIC_PROVIDERS.values())
        self._wanted = SimpleQueue()
        self._is_wanted = False
        self._thread = None
        self._flushing = threading.Lock()
        self._is_over = False

    def _run(self) -> None:
        is_new = True
        while True:
            self._wanted.get()
            self._is_wanted = False
            self._flush("logs", "traces")
            time.sleep(SPACING)
            if is_new:
                # Metrics leave once a minute as a rule. A run that is killed in its first minute
                # would be in no metric; by now its first step is open.
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
        for signal in AUTOMATIC_PROVIDERS
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


def _call(signal: str, method: str, what: str) -> None:
    with FAULTS.kept_in(f"{what} of {signal}"):
        # The API's own providers, which are there without an SDK, can do neither.
        act = getattr(AUTOMATIC_PROVIDERS[signal], method, None)
        if act is not None:
            act()
