"""Sees which Python lines a process is at before its first run, from 0.2 s after its start on.

A recorded program begins this as it starts. Nothing is loaded until its thread runs: what ends before
that pays for nothing. The run that begins takes what was seen.
"""

from __future__ import annotations

import _thread
import atexit
import os
import sys
import time

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.forks import pause_at_forks, until_gone

TYPE_CHECKING = False  # not typing's, which takes a third of Python's own start to load
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Final

    from otel_quant.capture.probes.readers import Sampler
    from otel_quant.capture.stack_sampler import StackSampler

_BEGINS: Final = 0.2  # Seconds after the start of the process

_BETWEEN: Final = 1_000_000_000
"""Nanoseconds between two writes, at least, for a process that is killed."""

_ORIGIN: Final = "stacks before the first step"


class EarlyStacks:
    """The stacks of a process before its first run."""

    def __init__(self) -> None:
        self._began_ns = 0
        self._is_over = False
        self._stacks: StackSampler | None = None
        self._sampler: Sampler | None = None
        # Held while modules are loaded: a child that is forked meanwhile would wait for their locks for ever.
        self._loading = _thread.RLock()
        self._waiting = _thread.allocate_lock()  # Held while the thread waits that loads all else
        self._due_ns = 0  # Monotonic clock, when they are to be written
        self._file: Path | None = None  # Once they have been
        self._native_id: int | None = None  # The kernel's of that thread, once it runs

    def begin(self) -> None:
        """Begins, once; in a forked child there is none."""
        if not self._began_ns:
            self._began_ns = time.perf_counter_ns()
            self._due_ns = self._began_ns + _BETWEEN
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(
                    before=self._loading.acquire,
                    after_in_parent=self._loading.release,
                    after_in_child=self._forget,
                )
            pause_at_forks(self)
            self.resume()
            atexit.register(self._end)

    def take(self) -> StackSampler | None:
        """Ends, and returns what was seen, which the run that begins adds to; None if nothing was."""
        with self._loading:  # nothing begins meanwhile
            self._stop()
            found, self._stacks, self._sampler = self._stacks, None, None
        if self._file is not None:
            self._file.unlink(missing_ok=True)
        return found

    def _stop(self) -> None:
        self._is_over = True
        if self._sampler is not None:
            self._sampler.stop()

    def _end(self) -> None:
        """Ends with the process."""
        self._stop()
        if self._file is not None:
            with FAULTS.kept_in(_ORIGIN):
                self._write()

    def pause(self) -> None:
        """Ends the thread that waits."""
        if self._waiting.locked():
            self._waiting.release()
        until_gone(lambda: self._native_id)

    def resume(self) -> None:
        """Waits, unless all is loaded."""
        if self._sampler is None and not self._is_over:
            self._native_id = None
            self._waiting.acquire(blocking=False)
            _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        self._native_id = _thread.get_native_id()
        pause = _BEGINS - (time.perf_counter_ns() - self._began_ns) / 1e9
        while not self._waiting.acquire(timeout=max(0.0, pause)):
            if "threading" in sys.modules:  # else who imports it first is its main thread
                with FAULTS.kept_in(_ORIGIN), self._loading:
                    self._load()
                break
            self._began_ns = time.perf_counter_ns()  # what was before is not known
            pause = _BEGINS / 4

    def _load(self) -> None:
        from otel_quant.base.environment import settings_from
        from otel_quant.capture.probes.memory import MemoryProbe
        from otel_quant.capture.probes.readers import Sampler
        from otel_quant.capture.stack_sampler import sampler_for
        from otel_quant.schema.readings import Reading

        settings, memory = settings_from(os.environ, warn=False), MemoryProbe()
        if self._is_over or (stacks := sampler_for(settings, self._began_ns)) is None:
            return

        def sample() -> None:
            now = time.perf_counter_ns()
            stacks.take({}, Reading(0, now, {"memory": memory.sample()}))
            if settings.launched and now >= self._due_ns:
                self._write()

        self._stacks, self._sampler = stacks, Sampler(sample, settings.sample_interval)
        self._sampler.start()

    def _write(self) -> None:
        """Writes what was seen so far: the process may be killed before it begins a run, or begin none."""
        from pathlib import Path

        from otel_quant.format.event_file import BEFORE_RUNS, StacksWriter, process_file

        if self._stacks is not None:
            folder, writer = Path(os.environ["OTEL_QUANT_RECORD"]), StacksWriter(_BETWEEN)
            self._file = process_file(folder, "stacks", str(os.getpid()), BEFORE_RUNS)
            writer.write(self._file, BEFORE_RUNS, self._stacks.stacks.steps, time.perf_counter_ns())
            self._due_ns = writer.due_ns

    def _forget(self) -> None:
        self._is_over, self._stacks, self._sampler = True, None, None
        self._loading.release()


EARLY_STACKS = EarlyStacks()  # Those of this process
