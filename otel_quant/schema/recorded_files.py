"""What the files of a recording hold, field by field, and what a reader takes of them.

``docs/recording.schema.json`` publishes the same; a test compares the two. A file may be damaged, edited, or made
by another program. A value of another type or size is left out here, for all readers, and noted: what comes
after need not expect one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from sys import intern
from typing import Any, Final, TypeAlias

from otel_quant.schema import semconv
from otel_quant.schema.catalog import FORMER
from otel_quant.schema.stacks import Place

_END: Final = 1 << 63
"""Whole numbers are smaller: telemetry has 64 bits for each."""

_HIGHEST: Final = 1e300
"""Numbers are smaller: units and rates multiply them, and what overflows is no number."""

_HEXADECIMAL: Final = "0123456789abcdef"

_NAMED: Final = 3
"""Values that are named, of those that were left out."""


class LeftOut(dict[str, int]):
    """The values of a file that were left out, by name, and how many of each."""

    def __missing__(self, name: str) -> int:
        return 0

    def in_words(self, file: str) -> tuple[str, ...]:
        """Returns the sentence that says so; none if nothing was left out."""
        if not self:
            return ()
        words = [f"{name} ({count:,} times)" if count > 1 else name for name, count in self.items()]
        more = f" and {len(words) - _NAMED:,} more" if len(words) > _NAMED else ""
        return (f"{file}: not readable and left out: {', '.join(words[:_NAMED])}{more}",)


Check: TypeAlias = Callable[[Any, LeftOut], Any]
"""Returns what a reader takes of a value; None if that is of another type or size."""


class Fields:
    """The fields of a mapping: those that it must have, and those that it may have."""

    def __init__(
        self,
        name: str,
        required: Mapping[str, Check],
        optional: Mapping[str, Check],
        when: str = "",  # An event is written; for docs/recording.md
    ) -> None:
        self.name = name
        self.when = when
        self.required = required.keys()
        self.checks = {**required, **optional}

    def __call__(self, value: Any, left_out: LeftOut) -> dict[str, Any] | None:
        """Returns the fields that are known and right; None if one is missing that must be there."""
        if type(value) is not dict:
            return None
        found: dict[str, Any] = {}
        for name, each in value.items():
            if each is None or (check := self.checks.get(name)) is None:
                continue
            if check is text and type(each) is str:  # most fields, without a call
                found[name] = intern(each)  # names of steps recur
                continue
            if check is whole and type(each) is int and 0 <= each < _END:
                found[name] = each
                continue
            taken = check(each, left_out)
            if taken is None:
                left_out[f"{self.name}.{name}"] += 1
            else:
                found[name] = taken
        return found if self.required <= found.keys() else None


def integer(least: int) -> Check:
    """Returns what takes a whole number."""
    return lambda value, _: value if type(value) is int and least <= value < _END else None


whole: Final = integer(0)  # A number of things, or nanoseconds


def number(value: Any, _: LeftOut) -> float | None:
    """Takes a number."""
    return value if type(value) in (int, float) and -_HIGHEST < value < _HIGHEST else None


def text(value: Any, _: LeftOut) -> str | None:
    """Takes a text."""
    return value if type(value) is str else None


def one_of(*texts: str) -> Check:
    """Returns what takes one of some texts."""
    return lambda value, _: value if type(value) is str and value in texts else None


def digits(length: int) -> Check:
    """Returns what takes so many hexadecimal digits."""
    return lambda value, _: (
        value
        if type(value) is str and len(value) == length and not value.strip(_HEXADECIMAL)
        else None
    )


def many(check: Check, name: str) -> Check:
    """Returns what takes a list, without those that are something else."""

    def take(value: Any, left_out: LeftOut) -> tuple[Any, ...] | None:
        if type(value) is not list:
            return None
        found = tuple(
            each for each in (check(each, left_out) for each in value) if each is not None
        )
        if len(found) < len(value):
            left_out[name] += len(value) - len(found)
        return found

    return take


def attributes(value: Any, left_out: LeftOut) -> dict[str, Any] | None:
    """Takes attributes, under their present names; a list is a tuple, as before it was written."""
    if type(value) is not dict:
        return None
    wrong = []
    for name, each in value.items():
        kind = type(each)
        if kind is str:
            value[name] = intern(each)
            continue
        if (
            (kind is int and -_END <= each < _END)
            or (kind is float and -_HIGHEST < each < _HIGHEST)
            or kind is bool
        ):
            continue
        if kind is list and all(
            type(item) in (str, bool) or number(item, left_out) is not None for item in each
        ):
            value[name] = tuple(each)
        else:
            wrong.append(name)
    for name in wrong:
        left_out[name] += 1
        del value[name]
    for name in FORMER.keys() & value.keys():
        value[FORMER[name]] = value.pop(name)
    return value


def by_name(check: Check) -> Check:
    """Returns what takes a mapping, without those of its values that are something else."""

    def take(value: Any, left_out: LeftOut) -> dict[str, Any] | None:
        if type(value) is not dict:
            return None
        found = {name: check(each, left_out) for name, each in value.items()}
        for name in [name for name, each in found.items() if each is None]:
            left_out[name] += 1
            del found[name]
        return found

    return take


def _name_and_bytes(value: Any, left_out: LeftOut) -> tuple[str, int] | None:
    match value:
        case [str() as name, int() as size] if whole(size, left_out) is not None:
            return name, size
    return None


def place(value: Any, left_out: LeftOut) -> Place | None:
    """Takes a line of code."""
    match value:
        case [str() as file, str() as function, int() as line, str() as library]:
            return Place(file, function, line, library)
    return None


def _stack_row(value: Any, left_out: LeftOut) -> tuple[int, ...] | None:
    is_row = type(value) is list and len(value) == 7
    if is_row and all(type(each) is int and -1 <= each < _END for each in value):
        return tuple(value)
    return None


# --- the local file -----------------------------------------------------------------------

PROFILE_RUN: Final = {
    "id": semconv.RUN_ID,
    "rank": semconv.RUN_RANK,
    "command": semconv.PROCESS_COMMAND_LINE,
    "host": semconv.HOST_NAME,
    "system": semconv.OS_DESCRIPTION,
    "python": semconv.PYTHON_VERSION,
    "otel_quant": semconv.OTEL_QUANT_VERSION,
    "memory_limit_mb": semconv.MEMORY_LIMIT,
    "memory_limit_source": semconv.MEMORY_LIMIT_SOURCE,
    "gpus": semconv.GPU_NAMES,
}
"""Keys of the section ``run`` of a profile, and the attributes of the run that they are."""

PROFILE_RUN_END: Final = {
    "tree_peak_memory_mb": semconv.MEMORY_PEAK,
    "tree_peak_memory_source": semconv.MEMORY_PEAK_SOURCE,
    "memory_limit_share": semconv.MEMORY_PEAK_RATIO,
}
"""The same of the section ``run_end``."""

# --- the files ----------------------------------------------------------------------------

_TIMES: Final[Mapping[str, Check]] = {"time": whole, "clock": whole}
_RUN: Final[Mapping[str, Check]] = {**_TIMES, "run": text}
_STEP: Final[Mapping[str, Check]] = {**_RUN, "index": whole}
_SPAN: Final[Mapping[str, Check]] = {
    "trace_id": digits(32), "span_id": digits(16), "parent_span_id": digits(16),
}  # fmt: skip
_CHECKPOINT: Final[Mapping[str, Check]] = {"checkpoint": attributes, "custom": attributes}
_SPANNED: Final[Mapping[str, Check]] = {"attributes": attributes, **_SPAN, **_CHECKPOINT}
_OUTCOME: Final[Mapping[str, Check]] = {
    "attributes": attributes, "devices": many(attributes, "devices"),
    "error": text, "error_message": text, **_CHECKPOINT,
}  # fmt: skip

MODEL: Final = Fields(
    "model",
    {"role": text, "figures": attributes},
    {
        "path": text, "error": text, "began": whole, "ended": whole, "span_id": digits(16),
        "heaviest": many(attributes, "heaviest"),
    },
)  # fmt: skip

EVENTS: Final[Mapping[str, Fields]] = {
    each.name: each
    for each in (
        Fields(
            "process.started",
            {**_TIMES, "pid": whole, "parent_pid": whole},
            {"argv0": text},
            "first event of a file",
        ),
        Fields(
            "run.started",
            _RUN,
            {"rank": whole, "world_size": whole, "resource": attributes, **_SPANNED},
            "a run begins; without an SDK, `trace_id` and `parent_span_id` are those of `TRACEPARENT`, "
            "and `resource` has the program's name",
        ),
        Fields(
            "run.attributes",
            _RUN,
            {"resource": attributes, "attributes": attributes, **_SPAN},
            "more is known of the run, or a worker has begun another root span",
        ),
        Fields(
            "step.started",
            {**_STEP, "name": text, "step_kind": text},
            {"parent": whole, **_SPANNED},
            "a step opens, before its code runs",
        ),
        Fields(
            "samples.expected",
            {**_STEP, "total": whole},
            {},
            "how many samples a step will consume",
        ),
        Fields(
            "samples.consumed",
            {**_STEP, "samples": whole},
            {},
            "a second or more after the last of a step, in a long step less often",
        ),
        Fields(
            "step.ended",
            _STEP,
            {"samples": whole, "items": whole, **_OUTCOME},
            "a step has closed",
        ),
        Fields(
            "checkpoint",
            {**_RUN, "name": text},
            {"step": whole, **_CHECKPOINT},
            "another checkpoint was taken",
        ),
        Fields(
            "models.costed",
            {**_RUN, "models": many(MODEL, "models")},
            {},
            "the cost of models is known",
        ),
        Fields(
            "heartbeat",
            _RUN,
            {"attributes": attributes, "samples": by_name(whole)},
            "every 30 s; `samples` by index of the open steps",
        ),
        Fields(
            "run.ended",
            _RUN,
            _OUTCOME,
            "a run has ended; `attributes` has those of its steps and models too that the run's span has",
        ),
    )
}
"""The events, by kind."""

STATE: Final = Fields(
    "state",
    _RUN,
    {
        "attributes": attributes, "began": whole, "problem": text,
        "steps": many(
            Fields("step", {"index": whole}, {"samples": whole, "expected": whole, "line": place}),
            "steps",
        ),
    },
)  # fmt: skip

ENDING: Final = Fields(
    "ending",
    {"time": number},
    {
        "exit_code": integer(-_END), "signal": text, "cause": text,
        "out_of_memory": one_of("known", "guessed"), "evidence": text, "process": text, "process_signal": text, "error": text, "where": text,
        "open_steps": many(text, "open_steps"), "memory": whole, "memory_limit": whole,
        "memory_limit_source": text, "memory_per_sample": integer(-_END),
        "processes": many(_name_and_bytes, "processes"), "disk": many(_name_and_bytes, "disk"),
        "advice": many(Fields("advice", {"text": text, "source": text}, {}), "advice"),
    },
)  # fmt: skip

MANIFEST: Final = Fields(
    "manifest",
    {},
    {
        "began": whole, "made_by": one_of("launcher", "process"), "pid": whole,
        "origin": attributes, "ended": whole, "ending": ENDING, "summary": by_name(number),
    },
)  # fmt: skip
"""The manifest. Of what must be there, a kill may leave nothing."""

STACKS: Final = Fields(
    "stacks",
    {"places": many(place, "places"), "steps": by_name(many(_stack_row, "steps"))},
    {"run": text},
)
"""The stacks of a run. A row of a step: the row of its caller, its place, and five amounts."""

CURVE: Final = Fields(
    "curve", {**_TIMES, "length": integer(1), "columns": many(text, "columns")}, {}
)
"""The first line of a curve."""


def is_bucket(cells: Any) -> bool:
    """Whether a line of a curve is one of its buckets."""
    try:
        return type(cells) is list and all(
            -_END < cell < _END for cell in cells if cell is not None
        )
    except TypeError:
        return False
