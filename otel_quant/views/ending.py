"""How a program stands and ended, and what its forecast says, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from otel_quant.recordings.model import STATES, Ending, RecordedRun, RecordedStep, Recording
from otel_quant.schema import semconv
from otel_quant.schema.units import WITHIN, cut, duration_text, share_text, size
from otel_quant.views.text import printable

_LONGEST: Final = 300
_LONGEST_NAME: Final = 80
_MOST: Final = 8

_CERTAIN: Final = {"known": "known from", "guessed": "guessed from"}


def ended_as(recording: Recording) -> str:
    """Returns how the whole stands: ``killed by SIGKILL``."""
    ending = recording.ending
    if recording.state == "killed" and ending is not None and ending.signal:
        return f"killed by {ending.signal}"
    if recording.state == "failed" and ending is not None and ending.exit_code:
        return f"failed with exit code {ending.exit_code}"
    return STATES["lost"].verb if recording.state == "lost" else recording.state


def ending_lines(ending: Ending | None) -> list[str]:
    """Returns what is to be said of an ending; nothing of a program that ended well."""
    if ending is None or not is_worth_telling(ending):
        return []
    facts = [*ending_facts(ending), *(("would help", each) for each in advice_of(ending))]
    lines = [headline(ending), *(f"  {name}: {text}" for name, text in facts)]
    return list(map(printable, lines))


def advice_of(ending: Ending) -> list[str]:
    """Returns what would help, and where that is known from."""
    return [f"{each.text} [{each.source}]" for each in ending.advice]


def is_worth_telling(ending: Ending) -> bool:
    """Returns whether there is more to say than an exit code."""
    return bool(ending.signal or ending.process or ending.open_steps or ending.error)


def headline(ending: Ending) -> str:
    """Returns what happened: ``the program was killed by SIGKILL: out of memory, in Calibration``."""
    cause = why(ending)
    if ending.where is not None:
        cause += f", in {cut(ending.where, _LONGEST)}"
    if ending.process is not None:
        by = f" was killed by {ending.process_signal}" if ending.process_signal else " died"
        return f"{cut(ending.process, _LONGEST)}{by}{cause}; the program {_exit(ending)}"
    if ending.signal is None and ending.error is not None:
        return f"the program failed with {cut(ending.error, _LONGEST)}{cause}"
    return f"the program {_exit(ending)}{cause}"


def why(ending: Ending) -> str:
    """Returns the cause, to be put behind what happened; empty if it is not known."""
    if ending.out_of_memory is not None:
        return f": out of memory{', probably' if ending.out_of_memory == 'guessed' else ''}"
    return f": {cut(ending.cause, _LONGEST_NAME)}" if ending.cause is not None else ""


def ending_facts(ending: Ending) -> Iterator[tuple[str, str]]:
    """Yields what is known beside that, each with its name, without the advice."""
    # Of a program that has failed by itself, the exception is told before.
    is_known = (
        ending.signal or ending.process or ending.cause or ending.out_of_memory or ending.error
    )
    if ending.evidence is not None and is_known:
        otherwise = "because" if ending.cause or ending.process or ending.error else "evidence"
        yield _CERTAIN.get(ending.out_of_memory or "", otherwise), cut(ending.evidence, _LONGEST)
    if len(ending.open_steps) > 1:
        yield "open steps", _listed(ending.open_steps, WITHIN)
    if ending.memory is not None or ending.memory_limit is not None:
        yield "memory", _memory(ending)
    for name, sizes in (("largest", ending.processes), ("disk", ending.disk)):
        if sizes:
            yield name, _listed([f"{cut(each, _LONGEST_NAME)} {size(of)}" for each, of in sizes])


def _exit(ending: Ending) -> str:
    if ending.signal is not None:
        return f"was killed by {ending.signal}"
    return f"ended with exit code {ending.exit_code}"


def _memory(ending: Ending) -> str:
    text = size(ending.memory) if ending.memory is not None else "unknown"
    # Addresses are another measure than memory in use.
    if ending.memory_limit and ending.memory_limit_source != "RLIMIT_AS":
        source = f" ({ending.memory_limit_source})" if ending.memory_limit_source else ""
        share = f"{share_text(ending.memory / ending.memory_limit)} of " if ending.memory else ""
        text += f", {share}the limit of {size(ending.memory_limit)}{source}"
    if ending.memory_per_sample:
        text += f", {size(ending.memory_per_sample)} more with each sample"
    return text


def _listed(texts: Sequence[str], between: str = ", ") -> str:
    more = len(texts) - _MOST
    shown = between.join(cut(each, _LONGEST_NAME + 20) for each in texts[:_MOST])
    return f"{shown} and {more:,} more" if more > 0 else shown


_GROWTHS: Final = (
    ("memory", semconv.FORECAST_MEMORY, semconv.FORECAST_MEMORY_LIMIT),
    ("GPU memory", semconv.FORECAST_GPU_MEMORY, semconv.FORECAST_GPU_MEMORY_LIMIT),
)


def forecast_of(run: RecordedRun, step: RecordedStep) -> Mapping[str, Any]:
    """Returns the attributes of a step's forecast: the newest of one that is open, else the warning."""
    last = run.last
    if step.end is None and last is not None and last.open_steps[-1:] == (step.index,):
        return last.attributes
    return step.attributes


def time_left(run: RecordedRun, step: RecordedStep) -> str:
    """Returns the time until the last sample of a step that is open; empty if it is not known."""
    left = forecast_of(run, step).get(semconv.FORECAST_TIME_LEFT)
    if step.state != "running" or not isinstance(left, int | float):
        return ""
    return f"about {duration_text(left)} left"


def exceeded(run: RecordedRun, step: RecordedStep) -> str:
    """Returns a step's forecast above the limit; empty if there is none."""
    attributes = forecast_of(run, step)
    for what, name, of_limit in _GROWTHS:
        at_end, limit = attributes.get(name), attributes.get(of_limit)
        if isinstance(at_end, int) and isinstance(limit, int) and at_end > limit:
            return (
                f"{what} would be {size(at_end)} after the last sample (estimated); "
                f"the limit is {size(limit)}"
            )
    return ""


def forecast_lines(recording: Recording) -> list[str]:
    """Returns a line for each step whose forecast is above the limit, or that has time left."""
    # A forecast is made of samples; of an open step the last reading has it.
    steps = [
        (run, step)
        for run in recording.runs
        for step in run.steps
        if step.end is None or step.samples is not None
    ]
    said = ((each[1].name, [*filter(None, (time_left(*each), exceeded(*each)))]) for each in steps)
    return [printable(f"{name}: {', '.join(texts)}") for name, texts in said if texts]
