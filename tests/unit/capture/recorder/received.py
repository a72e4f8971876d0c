"""A sink that keeps what it receives, and recorders whose readings and metrics a test decides."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any

from otel_quant.capture.probes.readers import Probes
from otel_quant.capture.recorder.recorder import Recorder
from otel_quant.capture.recorder.run_info import new_run_info
from otel_quant.export.quark_yaml.columns import ProgramMetrics
from otel_quant.schema.events import Attributes, Event, Sink
from otel_quant.schema.readings import MemoryReading, Peaks, Reading, RunInfo


class Received(Sink):
    """Keeps what arrives, in its order."""

    def __init__(self) -> None:
        self.names: list[str] = []  # of checkpoints, and "reported" for a report
        self.steps: list[Event] = []  # ends of steps
        self.runs: list[Event] = []  # reports, and the run's end
        self.layers: list[tuple[Any, Any]] = []  # with their steps, as libraries computed them

    def run_started(self, event: Event) -> None:
        self.names.append(event.name)

    step_started = checkpoint = run_started

    def step_ended(self, event: Event) -> None:
        self.names.append(event.name)
        self.steps.append(event)

    def layer_measured(self, event: Event) -> None:
        self.layers.append((event.step, event.layer))

    def run_reported(self, event: Event) -> None:
        self.names.append("reported")
        self.runs.append(event)

    def run_ended(self, event: Event) -> None:
        self.names.append(event.name)
        self.runs.append(event)


def of_span(event: Event) -> Attributes:
    """Returns the attributes of the span that ends with a run or a report."""
    return event.attributes if event.of_span is None else event.of_span


class Metric(ProgramMetrics):
    """A metric ``m`` of a program, whose value at a checkpoint may be None: no value."""

    def __init__(
        self,
        at_checkpoint: Callable[[str], object] = lambda name: None,
        at_end: Callable[[], object] = lambda: None,
    ) -> None:
        self._at_checkpoint, self._at_end = at_checkpoint, at_end

    def at_checkpoint(self, name: str, reading: Reading, baseline: Reading) -> dict[str, object]:
        value = self._at_checkpoint(name)
        return {} if value is None else {"m": value}

    def at_end(self, reading: Reading, baseline: Reading, peaks: Peaks) -> dict[str, object]:
        self._at_end()
        return {}


def recorder_of(
    sinks: Sequence[Sink],
    memory: Callable[[Collection[int]], MemoryReading | None] = lambda pids: None,
    metrics: ProgramMetrics | None = None,
    *,
    info: RunInfo | None = None,
    sample_interval: float = 0,
    exact_peaks: bool = False,
    **probes: Any,
) -> Recorder:
    """Returns a recorder that reads the memory given by a test, and no disk or CPU time."""
    nothing = dict.fromkeys(("disk", "cpu"), lambda pids: None)
    return Recorder(
        info or new_run_info({}),
        Probes(memory=memory, **nothing, **probes),
        sinks,
        metrics,
        sample_interval=sample_interval,
        exact_peaks=exact_peaks,
    )


def in_thread(act: Callable[[], object], seconds: float = 60) -> threading.Thread:
    """Runs something in a thread, and waits for it at most so long."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(seconds)
    return thread
