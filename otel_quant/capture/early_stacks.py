"""Sees which Python lines a process is at before its first run, from 0.2 s after its start on.

A recorded program begins this with its first import. Little is loaded until its thread takes the first sample: what ends
before that pays for nothing. The run that begins takes what was seen.
"""

from __future__ import annotations

import _thread
import atexit
import os
import time

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.exits import LAST_ERRORS

TYPE_CHECKING = False  # not typing's, which takes a third of Python's own start to load
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Final

    from otel_quant.capture.probes.memory import MemoryProbe
    from otel_quant.capture.sampler import Sampler
    from otel_quant.capture.stack_sampler import StackSampler

_BEGINS: Final = 0.2  # Seconds after the start of the process

_BETWEEN: Final = 1_000_000_000
"""Nanoseconds between two writes, at least, for a process that is killed."""


class EarlyStacks:
    """The stacks of a process before its first run."""

    def __init__(self) -> None:
        self._began_ns = 0
        self._stacks: StackSampler | None = None
        self._sampler: Sampler | None = None  # None before the begin and after the end
        self._memory: MemoryProbe | None = None  # Once all is loaded
        self._is_written = False  # Whether there is a recording already
        self._due_ns = 0  # Monotonic clock, when they are to be written
        self._file: Path | None = None  # Once they have been
        # Held while modules are loaded: a child that is forked meanwhile would wait for their locks for ever.
        self._loading = _thread.RLock()

    def begin(self) -> None:
        """Begins, once; in a forked child there is none."""
        if self._began_ns:
            return
        self._began_ns = time.perf_counter_ns()  # before the import, which comes here again
        self._due_ns = self._began_ns + _BETWEEN
        # Here: it loads threading, as the first lines of `launched` say.
        from otel_quant.capture.sampler import Sampler

        LAST_ERRORS.watch_threads()
        if hasattr(os, "register_at_fork"):
            before, after = self._loading.acquire, self._loading.release
            os.register_at_fork(before=before, after_in_parent=after, after_in_child=self._forget)
        self._sampler = Sampler(self._sample, _BEGINS)
        self._sampler.start()
        atexit.register(self._end)

    def take(self) -> StackSampler | None:
        """Returns what is seen until a run begins, which adds to it; None if nothing is."""
        with self._loading:
            self._load()
            return self._stacks

    def stop(self) -> None:
        """Ends, as a run begins."""
        self._stop()
        with self._loading:  # it may still be
            self._stacks = None
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def _stop(self) -> None:
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            sampler.stop()

    def _end(self) -> None:
        """Ends with the process."""
        self._stop()
        if self._file is not None:
            with FAULTS.kept_in("stacks before the first step"):
                self._write()

    def _sample(self) -> None:
        stacks, sampler = self.take(), self._sampler
        if stacks is None or sampler is None or self._memory is None:
            return
        from otel_quant.schema.readings import Reading  # with all that is loaded

        stacks.look_ahead(sampler.see_anywhere)
        now = time.perf_counter_ns()
        stacks.take({}, Reading(0, now, {"memory": self._memory.sample()}))
        if self._is_written and now >= self._due_ns:
            self._write()

    def _load(self) -> None:
        """Loads what a sample needs, once."""
        if self._memory is not None:
            return
        from otel_quant.base.environment import settings_from
        from otel_quant.capture.gil import within_and_pread
        from otel_quant.capture.probes.memory import MemoryProbe
        from otel_quant.capture.stack_sampler import sampler_for

        settings = settings_from(os.environ, warn=False)
        stacks, sampler = sampler_for(settings, self._began_ns), self._sampler
        if sampler is None or stacks is None:
            self._stop()
            return
        within_and_pread()  # loads ctypes
        self._is_written, self._memory = settings.launched, MemoryProbe()
        self._stacks = stacks
        sampler.sample_every(settings.sample_interval)

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
        self._stacks = self._sampler = self._file = None
        self._loading.release()


EARLY_STACKS = EarlyStacks()  # Those of this process
