"""What the files of a recording hold, field by field, and what a reader takes of them.

`docs/recording.schema.json` is made of it. A file may be damaged, edited, or made by another program. A value
of another type or size is left out here, for all readers, and noted: what comes after need not expect one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from sys import intern
from typing import Any, Final, NamedTuple, TypeAlias

from otel_quant.schema import events, semconv
from otel_quant.schema.catalog import FORMER
from otel_quant.schema.code_lines import Place
from otel_quant.schema.events import FIELDS

_END: Final = 1 << 63  # Whole numbers are smaller: telemetry has 64 bits for each

_HIGHEST: Final = 1e300
"""Numbers are smaller: units and rates multiply them, and what overflows is no number."""

_NAMED: Final = 3  # Values that are named, of those that were left out

_LIMITS: Final[Mapping[type, float]] = {int: _END, float: _HIGHEST, bool: 2}
"""Numbers of a type are smaller."""

JsonSchema: TypeAlias = Mapping[str, Any]


class LeftOut(Counter[str]):
    """The values of a file that were left out, by name, and how many of each."""

    def in_words(self, file: str) -> tuple[str, ...]:
        """Returns the sentence for the user; none if nothing was left out."""
        if not self:
            return ()
        words = [f"{name} ({count:,} times)" if count > 1 else name for name, count in self.items()]
        more = f" and {len(words) - _NAMED:,} more" if len(words) > _NAMED else ""
        return (f"{file}: not readable and left out: {', '.join(words[:_NAMED])}{more}",)


class Kind(NamedTuple):
    """A kind of value."""

    # Returns what a reader takes of a value; None if that is of another type or size
    take: Callable[[Any, LeftOut], Any]
    schema: JsonSchema


class Fields:
    """A mapping: the fields that it must have, and those that it may have."""

    def __init__(
        self,
        name: str,
        required: Mapping[str, Kind | Fields],
        optional: Mapping[str, Kind | Fields],
        when: str = "",  # An event is written; for docs/recording.md
    ) -> None:
        self.name, self.when = name, when
        self.kinds = {**required, **optional}
        self._required = required.keys()
        self._takes = {field: kind.take for field, kind in self.kinds.items()}

    @property
    def schema(self) -> JsonSchema:
        """Its JSON schema: null is as good as a field that is absent."""
        fields = {
            name: kind.schema if name in self._required else {"anyOf": [kind.schema, {"type": "null"}]}
            for name, kind in self.kinds.items()
        }  # fmt: skip
        return {
            "type": "object", "required": list(self._required), "properties": fields,
            "additionalProperties": False,
        }  # fmt: skip

    def take(self, value: Any, left_out: LeftOut) -> dict[str, Any] | None:
        """Returns the fields that are known and right; None if one is missing that must be there."""
        if type(value) is not dict:
            return None
        found: dict[str, Any] = {}
        for name, each in value.items():
            if each is None or (take := self._takes.get(name)) is None:
                continue
            if take is text.take and type(each) is str:  # most fields, without a call
                found[name] = intern(each)  # names of steps recur
                continue
            if take is whole.take and type(each) is int and 0 <= each < _END:
                found[name] = each
                continue
            taken = take(each, left_out)
            if taken is None:
                left_out[f"{self.name}.{name}"] += 1
            else:
                found[name] = taken
        return found if self._required <= found.keys() else None


def _kind(is_right: Callable[[Any], bool], schema: JsonSchema) -> Kind:
    return Kind(lambda value, _: value if is_right(value) else None, schema)


def _integer(least: int) -> Kind:
    return _kind(
        lambda value: type(value) is int and least <= value < _END,
        {"type": "integer", "minimum": least, "maximum": _END - 1},
    )


whole: Final = _integer(0)  # A number of things, or nanoseconds
_signed: Final = _integer(-_END)
number: Final = _kind(
    lambda value: type(value) in (int, float) and -_HIGHEST < value < _HIGHEST, {"type": "number"}
)
text: Final = _kind(lambda value: type(value) is str, {"type": "string"})


def one_of(*texts: str) -> Kind:
    """Returns the kind that is one of some texts."""
    return _kind(lambda value: type(value) is str and value in texts, {"enum": list(texts)})


def digits(length: int) -> Kind:
    """Returns the kind that is so many hexadecimal digits."""
    pattern = f"^[0-9a-f]{{{length}}}$"
    is_right = re.compile(pattern.replace("$", r"\Z")).match
    return _kind(
        lambda value: type(value) is str and is_right(value) is not None,
        {"type": "string", "pattern": pattern},
    )


def many(kind: Kind | Fields, name: str) -> Kind:
    """Returns the kind that is a list; what in it is something else is left out."""

    def take(value: Any, left_out: LeftOut) -> tuple[Any, ...] | None:
        if type(value) is not list:
            return None
        taken = [kind.take(each, left_out) for each in value]
        found = tuple([each for each in taken if each is not None])
        if len(found) < len(value):
            left_out[name] += len(value) - len(found)
        return found

    return Kind(take, {"type": "array", "items": kind.schema})


def _take_attributes(value: Any, left_out: LeftOut) -> dict[str, Any] | None:
    """Takes attributes, under their present names; a list is a tuple, as before it was written."""
    if type(value) is not dict:
        return None
    wrong = []
    for name, each in value.items():
        kind = type(each)
        if kind is str:
            value[name] = intern(each)
        elif kind is list and all(
            type(item) in (str, bool) or number.take(item, left_out) is not None for item in each
        ):
            value[name] = tuple(each)
        elif (limit := _LIMITS.get(kind)) is None or not -limit <= each < limit:
            wrong.append(name)
    for name in wrong:
        left_out[name] += 1
        del value[name]
    for name in FORMER.keys() & value.keys():
        value[FORMER[name]] = value.pop(name)
    return value


_PLAIN: Final = {"type": ["string", "number", "boolean"]}
_ATTRIBUTE: Final = {"anyOf": [_PLAIN, {"type": "array", "items": _PLAIN}]}
attributes: Final = Kind(
    _take_attributes, {"type": "object", "additionalProperties": _ATTRIBUTE}
)  # fmt: skip


def by_name(kind: Kind) -> Kind:
    """Returns the kind that is a mapping; what in it is something else is left out."""

    def take(value: Any, left_out: LeftOut) -> dict[str, Any] | None:
        if type(value) is not dict:
            return None
        found = {name: kind.take(each, left_out) for name, each in value.items()}
        for name in [name for name, each in found.items() if each is None]:
            left_out[name] += 1
            del found[name]
        return found

    return Kind(take, {"type": "object", "additionalProperties": kind.schema})


def _row(*kinds: Kind, make: Callable[..., Any] = lambda *values: values) -> Kind:
    """Returns the kind that is a list of one value of each kind."""

    def take(value: Any, left_out: LeftOut) -> Any:
        if type(value) is not list or len(value) != len(kinds):
            return None
        found = [kind.take(each, left_out) for kind, each in zip(kinds, value, strict=True)]
        return None if None in found else make(*found)

    schemas = [kind.schema for kind in kinds]
    items = {"type": "array", "minItems": len(kinds), "items": False, "prefixItems": schemas}
    return Kind(take, items)


place: Final = _row(text, text, whole, text, make=Place)  # A line of code


_COLUMNS: Final = (*[_integer(-1)] * 2, *[whole] * 5)


def _take_stack_row(value: Any, left_out: LeftOut) -> tuple[int, ...] | None:
    # Looked at as a whole: a file has thousands of rows, and each kind by itself takes three times as long.
    is_row = type(value) is list and len(value) == len(_COLUMNS) and {*map(type, value)} == {int}
    if is_row and value[0] >= -1 <= value[1] and min(value[2:]) >= 0 and max(value) < _END:
        return tuple(value)
    return None


_stack_row: Final = _row(*_COLUMNS)._replace(take=_take_stack_row)

# --- the local file -----------------------------------------------------------------------

PROFILE_RUN: Final = {
    "id": semconv.RUN_ID, "rank": semconv.RUN_RANK, "command": semconv.PROCESS_COMMAND_LINE,
    "host": semconv.HOST_NAME, "system": semconv.OS_DESCRIPTION, "python": semconv.PYTHON_VERSION,
    "otel_quant": semconv.OTEL_QUANT_VERSION, "memory_limit_mb": semconv.MEMORY_LIMIT,
    "memory_limit_source": semconv.MEMORY_LIMIT_SOURCE, "gpus": semconv.GPU_NAMES,
    "gpu_memory_source": semconv.GPU_MEMORY_SOURCE,
}  # fmt: skip
"""Keys of the section ``run`` of a profile, and the attributes of the run that they are."""

PEAK_SOURCE: Final = "peak_memory_source"
"""Key of a comment on a step of a profile: ``at_least`` where its peak may have been much higher."""

PROFILE_RUN_END: Final = {
    "tree_peak_memory_mb": semconv.MEMORY_PEAK,
    "tree_peak_memory_source": semconv.MEMORY_PEAK_SOURCE,
    "memory_limit_share": semconv.MEMORY_PEAK_RATIO,
}
"""The same of the section ``run_end``."""


# --- the files ----------------------------------------------------------------------------
# fmt: off

_TIMES: Final = {"time": whole, "clock": whole}
_RUN: Final = {**_TIMES, "run": text}

MODEL: Final = Fields("model", {"role": text, "figures": attributes}, {
    "path": text, "error": text, "began": whole, "ended": whole, "span_id": digits(16),
    "heaviest": many(attributes, "heaviest"),
})

_KINDS: Final[Mapping[str, Kind]] = {
    "whole": whole, "number": number, "text": text, "attributes": attributes,
    "32 digits": digits(32), "16 digits": digits(16), "lower or higher": one_of("lower", "higher"),
    "many attributes": many(attributes, "devices"), "models": many(MODEL, "models"), "whole by name": by_name(whole),
}
"""By name of a kind of value in :data:`otel_quant.schema.events.FIELDS`."""


def _fields_of(names: Iterable[str]) -> dict[str, Kind]:
    return {name.partition(" ")[0]: _KINDS[FIELDS[name].kind] for name in names}


def of_events() -> Mapping[str, Fields]:
    """Returns the fields of each kind of event that has a line."""
    return {
        name: Fields(name, _TIMES | _fields_of(kind.required), _fields_of(kind.optional), kind.when)
        for name, kind in events.EVENTS.items()
        if kind.required
    }


EVENTS: Final = of_events()

_STEP: Final = Fields("step", {"index": whole}, {
    "samples": whole, "expected": whole, "layers": whole, "expected_layers": whole,
    "passes": whole, "expected_passes": whole, "line": place, "own": place, "waits_for": text,
})
STATE: Final = Fields("state", _RUN, {
    "attributes": attributes, "began": whole, "problem": text, "steps": many(_STEP, "steps"),
})

ENDING: Final = Fields("ending", {"time": number}, {
    "exit_code": _signed, "signal": text, "cause": text, "out_of_memory": one_of("known", "guessed"),
    "evidence": text, "process": text, "process_signal": text, "error": text, "where": text, "why_no_step": text,
    "open_steps": many(text, "open_steps"), "memory": whole, "memory_limit": whole,
    "memory_limit_source": text, "memory_per_sample": _signed, "memory_per_layer": _signed,
    "memory_per_second": whole, "memory_of_others": whole, "processes": many(_row(text, whole), "processes"),
    "lost": number, "saved": text, "resume": text, "advice": many(Fields("advice", {"text": text, "source": text}, {}), "advice"),
})

_FAILED: Final = {"pid": whole, "name": text, "began": whole, "ended": whole}
FAILED: Final = Fields("failed", _FAILED, {
    "exit_code": _signed, "signal": text, "rank": whole, "world_size": whole, "job": text,
})
"""A child process that did not exit with 0."""

# Of what must be there, a kill may leave nothing.
MANIFEST: Final = Fields("manifest", {}, {
    "began": whole, "clock": whole, "boot": text, "made_by": one_of("launcher", "process"), "pid": whole,
    "origin": attributes, "ended": whole, "ending": ENDING, "summary": by_name(number), "trace_id": digits(32),
    "span_id": digits(16), "failed": many(FAILED, "failed"), "continues": text,
    "oom_counter": text, "oom_inode": whole, "oom_kills": whole,
})

_STACKS: Final = {"places": many(place, "places"), "steps": by_name(many(_stack_row, "steps"))}
STACKS: Final = Fields("stacks", _STACKS, {"run": text})
"""The stacks of a run. A row of a step: the row of its caller, its place, and five amounts."""

CURVE: Final = Fields("curve", {**_TIMES, "length": _integer(1), "columns": many(text, "columns")}, {})
"""The first line of a curve."""

# fmt: on


def is_bucket(cells: Any) -> bool:
    """Whether a line of a curve is one of its buckets."""
    try:
        return type(cells) is list and all(-_END < it < _END for it in cells if it is not None)
    except TypeError:
        return False
