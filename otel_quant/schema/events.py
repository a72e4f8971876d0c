"""What happens in a run: made once by the recorder, received by every sink, held by a recording.

:data:`EVENTS` has every kind, with its line in a recording. The attributes have the names of the telemetry.
`otel-quant send` makes the same events of a recording and gives them to the same sinks, whose interface is here too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import Token
from numbers import Integral, Real
from operator import attrgetter
from typing import Any, Final, NamedTuple

from otel_quant.schema import readings, semconv
from otel_quant.schema.code_lines import Node, Spot
from otel_quant.schema.dataclass import dataclass, field

_PHASES: Final[Mapping[str, readings.Phase]] = {"started": "start", "ended": "end"}

Attributes = Mapping[str, readings.AttributeValue]


@dataclass(slots=True, kw_only=True)
class Event:
    """One event of a run. Nobody changes it; frozen, it would take four times as long to make."""

    kind: str  # One of :data:`EVENTS`
    time_ns: int  # Wall clock, nanoseconds since the epoch
    clock_ns: int  # Monotonic clock, nanoseconds
    run: readings.RunInfo
    step: readings.StepInfo | None = None  # The step that it is about; None for the run
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
    # Samples and layers of the step; from its start the recorder's own counts, which go on
    counts: readings.Counts = field(default_factory=readings.Counts)
    items: int | None = None  # Items in its samples; None if one of them did not tell
    error: str | None = None  # Class name of the exception, or the signal, that ended it
    error_message: str | None = None  # Its message, on one line
    models: tuple[readings.CostedModel, ...] = ()
    layer: readings.LayerAccuracy | None = None  # What a library has computed of a layer
    # The open steps, in the order in which they opened
    steps: tuple[readings.StepProgress, ...] = ()

    # What only the program that is measured has, and what no recording holds:
    exception: BaseException | None = None  # What ended the step
    reading: readings.Reading | None = None  # What was read
    # The run's first reading; what only rises is relative to it
    baseline: readings.Reading | None = None
    peaks: readings.Peaks | None = None  # Highest figures of the step, or of the run so far
    # The stacks of the run so far, a tree by the index of each step; the sampler may add to them
    stacks: Mapping[int, Node] | None = None
    lines: Mapping[int, Spot] = field(default_factory=dict)  # Where each step was last seen

    @property
    def phase(self) -> readings.Phase:
        """What kind of checkpoint it is."""
        return _PHASES.get(self.kind.partition(".")[2], "point")

    @property
    def ended_ns(self) -> int:
        """When it ended, by the clock of its start: the wall clock may have been set since."""
        return self.began_ns + self.lasted_ns

    @property
    def duration(self) -> float:
        """Seconds that it lasted."""
        return self.lasted_ns / 1e9


def identity_of(step: readings.StepInfo) -> dict[str, readings.AttributeValue]:
    """Returns the attributes that identify a step."""
    return present({
        semconv.STEP_NAME: step.label, semconv.STEP_KIND: step.kind, semconv.STEP_INDEX: step.index,
        semconv.LIBRARY_NAME: step.library, semconv.LIBRARY_VERSION: step.library_version,
        semconv.CODE_FUNCTION_NAME: step.function,
    })  # fmt: skip


def run_ids_of(run: readings.RunInfo) -> dict[str, readings.AttributeValue]:
    """Returns what every span and log record of a run has."""
    return present(
        {semconv.RUN_ID: run.id, semconv.RUN_NAME: run.name or None, semconv.RUN_RANK: run.rank}
    )


def cost_of(cost: readings.CostedModel) -> dict[str, readings.AttributeValue]:
    """Returns the totals of a costed model."""
    return {semconv.of_model(cost.role, name): value for name, value in cost.figures.items()}


def present(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns attributes without those that are None."""
    return {key: value for key, value in attributes.items() if value is not None}


# --- the kinds, and their lines in a recording ----------------------------------------------


class EventField(NamedTuple):
    """A field of an event's line: the same in all kinds that have it."""

    kind: str  # Kind of its value, as :mod:`otel_quant.format.fields` reads it
    of: Callable[[Event], Any] | None = None  # Its value; None if only the writer knows it


@dataclass(frozen=True, slots=True)
class EventKind:
    """A kind of event."""

    when: str  # An event is made
    required: tuple[str, ...] = ()  # Fields of its line, beside its times; no line without one
    optional: tuple[str, ...] = ()
    is_received: bool = True  # Sinks receive it; else only recordings have it, made of others
    _values: Sequence[tuple[str, Callable[[Event], Any]]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Finds once what each line needs: a step has two of them."""
        fields = ((name, FIELDS[name].of) for name in (*self.required, *self.optional))
        known = [(name, value_of) for name, value_of in fields if value_of is not None]
        object.__setattr__(self, "_values", known)

    def line_of(self, event: Event) -> dict[str, Any]:
        """Returns the fields that are known of the event itself; None for what it has not."""
        return {name: value_of(event) for name, value_of in self._values}


def custom_value(value: object) -> str | bool | int | float | None:
    """Returns what OpenTelemetry can send of the value of a custom metric; None for nothing.

    An integer of more than 64 bits would make an exporter fail with all that is sent with it.
    """
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, Integral) and abs(int(value)) < 1 << 63:
        return int(value)
    if isinstance(value, Real):
        try:
            return float(value)
        except OverflowError:
            return None
    return None


def encodable(text: str) -> str:
    """Returns a text with escapes for what UTF-8 does not have."""
    return text.encode("utf-8", "backslashreplace").decode()


def shown_custom(custom: Mapping[str, object]) -> dict[str, Any] | None:
    """Returns the values of the program's metrics that telemetry can have; None without metrics."""
    known = {name: custom_value(value) for name, value in custom.items()}
    return present(known) if custom else None


def _line_of_model(cost: readings.CostedModel) -> dict[str, Any]:
    return present({
        "role": cost.role, "path": cost.path, "figures": dict(cost.figures),
        "heaviest": [*map(dict, cost.heaviest)],
        "error": cost.error, "began": cost.start_ns, "ended": cost.end_ns,
    })  # fmt: skip


def _mark_in(event: Event) -> int | None:
    """Returns what is above all marks of the kernel by then, in bytes: a higher one rose later."""
    memory = None if event.reading is None else event.reading.memory
    return None if memory is None else memory.above_marks


FIELDS: Final[Mapping[str, EventField]] = {
    "run": EventField("text", attrgetter("run.id")),
    "rank": EventField("whole", attrgetter("run.rank")),
    "world_size": EventField("whole", attrgetter("run.world_size")),
    "index": EventField("whole", attrgetter("step.index")),
    "step": EventField("whole", lambda event: event.step and event.step.index),
    "step_kind": EventField("text", attrgetter("step.kind")),
    "parent": EventField("whole", attrgetter("step.parent")),
    "name": EventField("text", attrgetter("name")),
    "attributes": EventField("attributes", attrgetter("attributes")),
    "checkpoint": EventField("attributes", attrgetter("checkpoint")),
    "custom": EventField("attributes", lambda event: shown_custom(event.custom)),
    "mark": EventField("whole", _mark_in),
    "samples": EventField("whole", attrgetter("counts.samples")),
    "items": EventField("whole", attrgetter("items")),
    "devices": EventField("many attributes", lambda event: event.devices or None),
    "error": EventField("text", attrgetter("error")),
    "error_message": EventField("text", attrgetter("error_message")),
    "models": EventField("models", lambda event: [*map(_line_of_model, event.models)]),
    "layer": EventField("text", attrgetter("layer.layer")),
    "measure": EventField("text", attrgetter("layer.measure")),
    "value": EventField("number", attrgetter("layer.value")),
    "better": EventField("lower or higher", attrgetter("layer.better")),
    "unit": EventField("text", attrgetter("layer.unit")),
    "number": EventField("whole", attrgetter("layer.number")),
    "total": EventField("whole", attrgetter("counts.current.total")),
    "layers": EventField("whole"),
    "passes": EventField("whole"),
    "samples by step": EventField("whole by name"),
    "layers by step": EventField("whole by name"),
    "passes by step": EventField("whole by name"),
    "resource": EventField("attributes"),
    "trace_id": EventField("32 digits"),
    "span_id": EventField("16 digits"),
    "parent_span_id": EventField("16 digits"),
    "pid": EventField("whole"),
    "parent_pid": EventField("whole"),
    "argv0": EventField("text"),
    "boot": EventField("text"),
}  # fmt: skip
"""By name; what follows a space in it is not in the line."""


def _kind(
    when: str, required: str = "", optional: Iterable[str] = (), *, is_received: bool = True
) -> EventKind:
    return EventKind(when, tuple(required.split()), tuple(optional), is_received)


_IDS: Final = ("trace_id", "span_id", "parent_span_id")
_CHECKPOINT: Final = ("checkpoint", "custom")
_SPANNED: Final = ("attributes", *_IDS, *_CHECKPOINT)
_OUTCOME: Final = ("attributes", "devices", "error", "error_message", *_CHECKPOINT)

EVENTS: Final[Mapping[str, EventKind]] = {
    "process.started": _kind("first event of a file", "pid parent_pid", ["argv0", "boot"], is_received=False),
    "run.started": _kind("a run begins; without an SDK, `trace_id` and `parent_span_id` come from `TRACEPARENT`, and `resource` has the program's name", "run", ["rank", "world_size", "resource", *_SPANNED]),
    "run.attributes": _kind("more is known of the run, or a worker has begun another root span", "run", ["resource", "attributes", *_IDS], is_received=False),
    "step.started": _kind("a step opens, before its code runs", "run index name step_kind", ["parent", "mark", *_SPANNED]),
    "progress.expected": _kind("it is known how many calibration samples, layers or passes a step goes through, the newest of its counts"),
    "samples.expected": _kind("how many samples a step will consume", "run index total", is_received=False),
    "layers.expected": _kind("how many layers a step goes through from now on", "run index total", is_received=False),
    "passes.expected": _kind("how many passes through parts of the model a step makes", "run index total", is_received=False),
    "samples.consumed": _kind("a second or more after the last of a step, in a long step less often", "run index samples", is_received=False),
    "layers.begun": _kind("as often", "run index layers", is_received=False),
    "passes.begun": _kind("as often", "run index passes", is_received=False),
    "step.ended": _kind("a step has closed", "run index", ["samples", "items", *_OUTCOME]),
    "layer.measured": _kind(f"the library has computed how well it has quantized a layer; of a step {semconv.MOST_LAYERS:,} at most", "run index number layer measure", ["value", "better", "unit"]),
    "layer.observed": _kind(f"a calibration ends, for each layer that has an observer; of a step {semconv.MOST_LAYERS:,} at most", "run index name", ["attributes"]),
    "checkpoint": _kind("another checkpoint was taken", "run name", ["step", *_CHECKPOINT]),
    "models.costed": _kind("the cost of models is known", "run models"),
    "reading.taken": _kind("about once a second; while a sink receives it no sample is taken"),
    "heartbeat": _kind("every 30 s; `samples`, `layers` and `passes` by index of the open steps", "run", ["attributes", "samples by step", "layers by step", "passes by step"], is_received=False),
    "forecast.exceeded": _kind("memory will not suffice, once for a step"),
    "forecast.stalled": _kind("a step waits for its next sample far too long"),
    "run.reported": _kind("a worker process is between two tasks and may be terminated at any time; the run goes on with the next step, if there is one"),
    "run.ended": _kind("a run has ended; `attributes` has all attributes of the run's span, some of which come from its steps and models", "run", _OUTCOME),
    "run.killed": _kind("the program was killed, as `otel-quant send` learns from a recording"),
}  # fmt: skip
"""Every kind, by name, those of one subject together."""


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

    def step_entered(self, step: readings.StepInfo) -> Token[Any] | None:
        """The code of the step is about to run in the calling context.

        Called each time the code is entered: once for a function, once for every resumption of
        a generator.
        """
        return None

    def step_left(self, step: readings.StepInfo, token: Token[Any] | None) -> None:
        """The code of the step no longer runs in the calling context."""

    def counted(self, step: readings.StepInfo, unit: str, count: int) -> None:
        """A step has begun ``count`` more samples or layers."""

    def sampled(self, reading: readings.Reading) -> None:
        """A sample was taken between two checkpoints, on the sampler's thread."""

    def forget(self) -> None:
        """Drops the run, without writing or sending anything.

        Called in a forked child, whose run it is not, and when the sink is not used any more.
        """


def method_of(kind: str) -> str:
    """Returns the name of the method of a kind of event."""
    return kind.replace(".", "_")
