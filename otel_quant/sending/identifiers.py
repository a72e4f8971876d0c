"""The ids of what a recording sends: those that the program has sent live, or made ones."""

from __future__ import annotations

import hashlib
from collections import deque
from itertools import count
from typing import Final

from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import SpanContext, TraceFlags

from otel_quant.recordings.model import RecordedRun, RecordedStep, Recording
from otel_quant.schema import semconv

SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)


class Identifiers:
    """The ids of the spans of a recording: the program's own, else made from the id of the run.

    A program without an SDK has no spans, so its recording has no ids of them. Made ones are the same each
    time that the recording is sent.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.program = recording.span or _made_program(recording)
        self._starters = {_key(run): self._starter(run) for run in recording.runs}
        self._steps: dict[tuple[tuple[str, str], int | None], RecordedStep] = {
            (_key(run), step.index): step for run in recording.runs for step in run.steps
        }

    def of_run(self, run: RecordedRun) -> SpanContext:
        """Returns the ids of a run's span."""
        return self._context(run, run.span_id, "run")

    def above_run(self, run: RecordedRun) -> SpanContext | None:
        """Returns the ids of the span above a run's; None at the top of a trace."""
        starter = self._starters[_key(run)]
        if starter is not None:
            above, step = starter
            return self.of_run(above) if step is None else self.of_step(above, step)
        program = self._program_of(run)
        span_id = run.parent_span_id if program is None else program[1]
        return None if span_id is None else self._context(run, span_id)

    def of_step(self, run: RecordedRun, step: RecordedStep) -> SpanContext:
        """Returns the ids of a step's span."""
        return self._context(run, step.span_id, f"step {step.index}")

    def above_step(self, run: RecordedRun, step: RecordedStep) -> SpanContext:
        """Returns the ids of the span above a step's."""
        if step.span_id is not None and step.parent_span_id is not None:
            return self._context(run, step.parent_span_id)
        above = self._steps.get((_key(run), step.parent))
        return self.of_run(run) if above is None else self.of_step(run, above)

    def of_cost(self, run: RecordedRun, number: int) -> SpanContext:
        """Returns the ids of the span of a model's cost."""
        return self._context(run, run.models[number].get("span_id"), f"model {number}")

    def root_of(self, run: RecordedRun, step: RecordedStep | None) -> SpanContext:
        """Returns the ids of the root span that an outermost step is in: a worker has several."""
        if step is None or step.parent_span_id is None or run.span_id is None:
            return self.of_run(run)
        return self._context(run, step.parent_span_id)

    def _context(self, run: RecordedRun, recorded: str | None, what: str = "") -> SpanContext:
        """Returns the recorded id of a span in the run's trace, or one that is made of what it is."""
        span_id = recorded or _made(run.id, what, 8)
        return SpanContext(int(self._trace(run), 16), int(span_id, 16), False, SAMPLED)

    def _trace(self, run: RecordedRun) -> str:
        starter, program = self._starters[_key(run)], self._program_of(run)
        if starter is not None:
            return self._trace(starter[0])
        return run.trace_id or _made(run.id, "trace", 16) if program is None else program[0]

    def _program_of(self, run: RecordedRun) -> tuple[str, str] | None:
        """Returns trace and id of the program's span, where a run is in its trace."""
        return self.program if _is_without_trace(run) else None

    def _starter(self, run: RecordedRun) -> tuple[RecordedRun, RecordedStep | None] | None:
        """Returns the run whose process has started one without ids, and the step that was open then."""
        for other in self._recording.runs if run.span_id is None else ():
            if other.pid == run.parent_pid is not None and _is_open(other, run.start):
                open_then = [step for step in other.steps if _is_open(step, run.start)]
                return other, open_then[-1] if open_then else None
        return None


def _key(run: RecordedRun) -> tuple[str, str]:
    return run.process, run.id


def _is_without_trace(run: RecordedRun) -> bool:
    """Whether neither an SDK nor ``TRACEPARENT`` has given a run its trace."""
    return run.span_id is None and run.trace_id is None


def _made_program(recording: Recording) -> tuple[str, str] | None:
    """Returns ids of the span above all runs, where a launcher that sends would have made one."""
    command = str(recording.origin.get(semconv.PROCESS_COMMAND_LINE, ""))
    first = next(filter(_is_without_trace, recording.runs), None)
    # The span of a Python is above the spans of its children already.
    if recording.ending is None or first is None or not command or command.startswith("python"):
        return None
    return _made(first.id, "program trace", 16), _made(first.id, "program", 8)


def _is_open(item: RecordedRun | RecordedStep, time: float) -> bool:
    return item.start < time and (item.end is None or time <= item.end)


def _made(of: str, what: object, size: int) -> str:
    """Returns an id of a number of bytes, in hexadecimal digits."""
    return hashlib.blake2b(f"{of} {what}".encode(), digest_size=size).hexdigest()


class RecordedIds(IdGenerator):
    """Gives spans the recorded ids."""

    def __init__(self) -> None:
        self.next: deque[SpanContext] = deque()

    def generate_trace_id(self) -> int:
        """Returns the id of the trace of the next span."""
        return self.next[0].trace_id

    def generate_span_id(self) -> int:
        """Returns the id of the next span."""
        return self.next.popleft().span_id


class MadeIds(IdGenerator):
    """Gives spans ids that are the same each time for what is the same."""

    def __init__(self, what: str) -> None:
        self._what, self._count = what, count()

    def generate_trace_id(self) -> int:
        """Returns the id of the trace."""
        return int(_made(self._what, "trace", 16), 16)

    def generate_span_id(self) -> int:
        """Returns the id of the next span."""
        return int(_made(self._what, next(self._count), 8), 16)
