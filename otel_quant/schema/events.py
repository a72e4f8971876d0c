"""What happens in a run: made once by the recorder, received by every sink, held by a recording.

The attributes have the names of the telemetry. `otel-quant send` makes the same events of a
recording and gives them to the same sinks, whose interface is here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import Token
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from otel_quant.schema import semconv
from otel_quant.schema.code_lines import Node, Place
from otel_quant.schema.readings import (
    AttributeValue,
    CostedModel,
    Counts,
    LayerAccuracy,
    Peaks,
    Phase,
    Reading,
    RunInfo,
    StepInfo,
    StepProgress,
)

EventKind = Literal[
    "run.started", "step.started", "progress.expected", "step.ended", "checkpoint", "layer.measured", "models.costed",
    "reading.taken", "forecast.exceeded", "forecast.stalled", "run.reported", "run.ended", "run.killed",
]  # fmt: skip
"""``step.started``: a step opens; its code runs only after all sinks have received it. ``progress.expected``:
it is known how many calibration samples or layers a step goes through, the newest of its counts. ``checkpoint``: one that is neither the start
nor the end of a step. ``layer.measured``: a library has computed how well it has quantized a
layer. ``models.costed``: the static cost of models is known. ``reading.taken``: about once
a second; while a sink receives it no sample is taken. ``forecast.exceeded``: memory will not suffice, once
for a step. ``forecast.stalled``: a step waits for its next sample far too long. ``run.reported``: a worker process is between two tasks and may be terminated at any time; the
run goes on with the next step, if there is one. ``run.killed``: the program was killed, as
`otel-quant send` learns from a recording."""

_PHASES: Final[Mapping[str, Phase]] = {
    "run.started": "start",
    "step.started": "start",
    "step.ended": "end",
    "run.ended": "end",
}

Attributes = Mapping[str, AttributeValue]


@dataclass(slots=True, kw_only=True)
class Event:
    """One event of a run. Nobody changes it; frozen, it would take four times as long to make."""

    kind: EventKind
    time_ns: int  # Wall clock, nanoseconds since the epoch
    clock_ns: int  # Monotonic clock, nanoseconds
    run: RunInfo
    step: StepInfo | None = None  # The step that it is about; None for the run
    name: str = ""  # ``Calibration Start``; of a forecast or a kill, the message
    sequence: int = 0  # Position of the checkpoint in the run, from 0
    elapsed: float = 0.0  # Seconds since the run's first checkpoint
    # Attributes of the span of the step or the run, or of the log record of anything else
    attributes: Attributes = field(default_factory=dict)
    # Of a run: attributes of its last span, if it began after a report; else the same as `attributes`
    of_span: Attributes | None = None
    checkpoint: Attributes = field(default_factory=dict)  # What was in use at the checkpoint
    custom: Mapping[str, object] = field(default_factory=dict)  # The program's own metrics, by name
    latest_custom: Mapping[str, object] = field(default_factory=dict)  # The last value of each
    devices: tuple[Attributes, ...] = ()  # What was used of each GPU
    began_ns: int = 0  # Of what has ended: wall clock at its start
    lasted_ns: int = 0  # Of what has ended: by the monotonic clock
    # Of a step that has ended: the lines of code with the most time and the most growth of memory
    top_lines: dict[str, Any] | None = None
    counts: Counts = field(default_factory=Counts)  # Samples and layers of the step
    items: int | None = None  # Items in its samples; None if one of them did not tell
    error: str | None = None  # Class name of the exception, or the signal, that ended it
    error_message: str | None = None  # Its message, on one line
    models: tuple[CostedModel, ...] = ()
    layer: LayerAccuracy | None = None  # What a library has computed of a layer
    steps: tuple[StepProgress, ...] = ()  # The open steps, in the order in which they opened

    # What only the program that is measured has, and what no recording holds:
    exception: BaseException | None = None  # What ended the step
    reading: Reading | None = None  # What was read
    baseline: Reading | None = None  # The run's first reading; what only rises is relative to it
    peaks: Peaks | None = None  # Highest figures of the step, or of the run so far
    # The stacks of the run so far, a tree by the index of each step; the sampler may add to them
    stacks: Mapping[int, Node] | None = None
    lines: Mapping[int, Place] = field(default_factory=dict)  # Where each step was last seen

    @property
    def phase(self) -> Phase:
        """What kind of checkpoint it is."""
        return _PHASES.get(self.kind, "point")

    @property
    def ended_ns(self) -> int:
        """When it ended, by the clock of its start: the wall clock may have been set since."""
        return self.began_ns + self.lasted_ns

    @property
    def duration(self) -> float:
        """Seconds that it lasted."""
        return self.lasted_ns / 1e9


def identity_of(step: StepInfo) -> dict[str, AttributeValue]:
    """Returns the attributes that identify a step."""
    return present(
        {
            semconv.STEP_NAME: step.label,
            semconv.STEP_KIND: step.kind,
            semconv.STEP_INDEX: step.index,
            semconv.LIBRARY_NAME: step.library,
            semconv.LIBRARY_VERSION: step.library_version,
            semconv.CODE_FUNCTION_NAME: step.function,
        }
    )


def run_ids_of(run: RunInfo) -> dict[str, AttributeValue]:
    """Returns what every span and log record of a run has."""
    return present(
        {semconv.RUN_ID: run.id, semconv.RUN_NAME: run.name or None, semconv.RUN_RANK: run.rank}
    )


def cost_of(cost: CostedModel) -> dict[str, AttributeValue]:
    """Returns the totals of a costed model."""
    return {semconv.of_model(cost.role, name): value for name, value in cost.figures.items()}


def present(attributes: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Returns attributes without those that are None."""
    return {key: value for key, value in attributes.items() if value is not None}


class Sink:
    """Receives a run as it happens: events by methods of the names of their kinds, of which it has some.

    ``step.started`` calls ``step_started(event)``; what treats all alike overrides :meth:`receive`. The
    recorder sends one event at a time for a given step, but steps of different threads may begin
    and end at the same time; ``reading.taken`` and ``forecast.exceeded`` come from the sampler's
    thread at any time, and perhaps once more after the run has ended. A method may raise: the error
    is logged once; the program and the other sinks are not affected.
    """

    name: str = "sink"  # Its name in the log

    def receive(self, event: Event) -> None:
        """Receives an event: calls the method of its kind, if there is one."""
        method = getattr(self, method_of(event.kind), None)
        if method is not None:
            method(event)

    # What happens too often to be an event:

    def step_entered(self, step: StepInfo) -> Token[Any] | None:
        """The code of the step is about to run in the calling context.

        Called each time the code is entered: once for a function, once for every resumption of
        a generator.
        """
        return None

    def step_left(self, step: StepInfo, token: Token[Any] | None) -> None:
        """The code of the step no longer runs in the calling context."""

    def counted(self, step: StepInfo, unit: str, count: int) -> None:
        """A step has begun ``count`` more samples or layers."""

    def sampled(self, reading: Reading) -> None:
        """A sample was taken between two checkpoints, on the sampler's thread."""

    def forget(self) -> None:
        """Drops the run, without writing or sending anything.

        Called in a forked child, whose run it is not, and when the sink is not used any more.
        """


def method_of(kind: EventKind) -> str:
    """Returns the name of the method of a kind of event."""
    return kind.replace(".", "_")
