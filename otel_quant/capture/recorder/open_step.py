"""A step that is open, and which one is the current one of a thread or task."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Final, Protocol

from otel_quant.capture.forecast.step_forecast import StepForecast
from otel_quant.capture.recorder.peaks import PeakTracker
from otel_quant.capture.recorder.sinks import Sinks, SinkTokens
from otel_quant.schema.records import AttributeValue, Reading, StepInfo, StepProgress


@dataclass(slots=True, eq=False)
class OpenStep:
    """A step that has begun and not ended. Made by ``Recorder.open``."""

    info: StepInfo  # Its description
    recorder: _Run  # The run that it belongs to
    sinks: Sinks  # The sinks of that run
    parent: OpenStep | None  # The step that contains it; None for an outermost one
    start: Reading  # The reading at its start
    tracker: PeakTracker  # Its peaks
    # Attributes of its span; more may be added until the step closes
    attributes: dict[str, AttributeValue]
    samples: int = 0  # Calibration samples consumed so far
    items: int | None = 0  # Items in these samples; None if one of them did not tell
    # How many samples it will consume; None if that is not known
    expected_samples: int | None = None
    # Where it will be after them; None if their number is not known
    forecast: StepForecast | None = None
    closed: bool = False  # Whether its end has begun

    def outwards(self) -> Iterator[OpenStep]:
        """Yields this step, then the step that contains it, and so on to the outermost."""
        step: OpenStep | None = self
        while step is not None:
            yield step
            step = step.parent

    def enter(self) -> Entered:
        """Makes it the current step of the calling context; returns what :meth:`leave` needs."""
        return _CURRENT.set(self), self.sinks.enter(self.info)

    def leave(self, entered: Entered) -> None:
        """Undoes :meth:`enter`; does nothing in another context."""
        token, tokens = entered
        try:
            _CURRENT.reset(token)
        except ValueError:
            return  # a generator was garbage-collected in a context that never entered the step
        self.sinks.leave(self.info, tokens)

    def progress(self, clock_ns: int) -> StepProgress:
        """Returns how far it is."""
        return StepProgress(
            self.info,
            self.samples or None,
            self.expected_samples,
            self.forecast.result(clock_ns) if self.forecast else None,
        )


Entered = tuple[Token[OpenStep | None], SinkTokens]
"""What is needed to leave a step that was entered."""

_CURRENT: Final[ContextVar[OpenStep | None]] = ContextVar("otel_quant_step", default=None)


def current_step(recorder: object) -> OpenStep | None:
    """Returns the innermost open step of the calling context."""
    step = _CURRENT.get()
    while step is not None and (step.recorder is not recorder or step.closed):
        step = step.parent
    return step


class _Run(Protocol):
    """What those who hold a step ask of its run. ``Recorder`` says what each method does."""

    def close(self, step: OpenStep | None, error: BaseException | None = None) -> None: ...

    def count_in(self, step: OpenStep, attribute: str) -> None: ...

    def expect_samples(self, step: OpenStep, total: int) -> None: ...

    def count_sample(self, step: OpenStep, items: int | None) -> None: ...
