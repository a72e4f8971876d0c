"""Answers the dashboards' trace queries from spans, for where there is no Tempo.

It knows the few forms that the dashboards use and refuses any other, so that a query it
misreads cannot pass for one that found something.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from tests.fixtures.otlp_messages import Span

_FIELD: Final = r'(?:span|resource)\.(?:"[^"]+"|[\w.]+)|name'
_CONDITION: Final = re.compile(rf'({_FIELD}) (=~|!=|=|>) (nil|"[^"]*"|`[^`]*`|[\d.]+)')
_QUERY: Final = re.compile(r"\{ (.+?) \}((?: \| by\(.+?\))*)(?: \| (.+))?")
_STAGE: Final = re.compile(r"select\((.+)\)")

_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": lambda value, wanted: value == wanted,
    "!=": lambda value, wanted: value != wanted,
    "=~": lambda value, wanted: re.fullmatch(wanted, value or "") is not None,
    ">": lambda value, wanted: value is not None and value > wanted,
}


def found(query: str, spans: Iterable[Span]) -> list[Span]:
    """Returns the spans that a query's filter keeps."""
    conditions = [_condition(text) for text in _parts(query)[0].split(" && ")]
    return [span for span in spans if all(holds(span) for holds in conditions)]


def answer(query: str, spans: Iterable[Span]) -> list[dict[str, Any]]:
    """Returns what Tempo's search answers: the traces with the spans that match.

    As Tempo does, it gives the attributes that the filter names too, and a span's name only if
    that is selected; and of each group of spans those of one block, which here is one span.
    """
    groups = re.findall(r"by\((.+?)\)", _parts(query)[1])
    wanted = [*re.findall(_FIELD, _parts(query)[0]), *fields(query)]
    traces: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {}
    for span in found(query, spans):
        attributes = {
            field.split(".", 1)[1].strip('"'): value(span, field)
            for field in wanted
            if field != "name"
        }
        group = tuple(value(span, field) for field in groups)
        traces.setdefault(span.trace_id, {})[group] = {
            "spanID": span.span_id,
            **({"name": span.name} if "name" in fields(query) else {}),
            "startTimeUnixNano": str(span.start_ns),
            "durationNanos": str(span.end_ns - span.start_ns),
            "attributes": [
                {"key": key, "value": _typed(each)}
                for key, each in attributes.items()
                if each is not None
            ],
        }
    return [
        {
            "traceID": trace,
            "startTimeUnixNano": next(iter(each.values()))["startTimeUnixNano"],
            "spanSets": [{"spans": [span]} for span in each.values()],
        }
        for trace, each in traces.items()
    ]


def _typed(each: Any) -> dict[str, Any]:
    if isinstance(each, bool):
        return {"boolValue": each}
    if isinstance(each, int):
        return {"intValue": str(each)}
    if isinstance(each, float):
        return {"doubleValue": each}
    return {"stringValue": each if isinstance(each, str) else str(list(each))}


def fields(query: str) -> list[str]:
    """Returns the fields that a query gives back, each as it is in the query."""
    rest = _parts(query)[2] or ""
    stage = _STAGE.fullmatch(rest)
    if not stage:
        raise ValueError(f"{query}: no stage that is known here")
    return stage[1].split(", ")


def value(span: Span, field: str) -> Any:
    """Returns what a field is of a span, None where it has none."""
    if field == "name":
        return span.name
    scope, key = field.split(".", 1)
    return (span.attributes if scope == "span" else span.resource).get(key.strip('"'))


def _parts(query: str) -> tuple[str, str, str | None]:
    parts = _QUERY.fullmatch(query)
    if not parts:
        raise ValueError(f"{query}: no filter with groups and at most one stage more")
    return parts[1], parts[2], parts[3]


def _condition(text: str) -> Callable[[Span], bool]:
    parts = _CONDITION.fullmatch(text)
    if not parts:
        raise ValueError(f"{text}: no condition that is known here")
    field, operator, literal = parts.groups()
    wanted: Any = None
    if literal[0] in '"`':
        wanted = literal[1:-1]
    elif literal != "nil":
        wanted = float(literal)
    return lambda span: _OPERATORS[operator](value(span, field), wanted)
