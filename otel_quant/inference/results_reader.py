"""Reads the JSON of a result again."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from otel_quant.inference.results import SCHEMA, InferenceResult

_Record = TypeVar("_Record")


def read_result(text: str) -> InferenceResult:
    """Returns the result of a JSON text."""
    return read_record(text, InferenceResult, SCHEMA)


def read_record(text: str, kind: type[_Record], schema: int) -> _Record:
    """Returns the record of a JSON text."""
    document = json.loads(text)
    if not isinstance(document, dict) or document.get("schema") != schema:
        raise ValueError(f"the schema is not {schema}")
    found = _made(kind, document)
    assert isinstance(found, kind)
    return found


def _made(kind: Any, value: Any) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        inner = next(each for each in arguments if each is not type(None))
        return None if value is None else _made(inner, value)
    if origin is tuple and isinstance(value, list):
        return tuple(_made(arguments[0], each) for each in value)
    if origin is Mapping and isinstance(value, dict):
        return {str(key): _made(arguments[1], each) for key, each in value.items()}
    if is_dataclass(kind) and isinstance(value, dict):
        hints, record = get_type_hints(kind), kind
        assert isinstance(record, type)
        return record(**{
            each.name: _made(hints[each.name], value.get(each.name))
            for each in fields(kind)
            if each.name in value
            or (each.default is MISSING and each.default_factory is MISSING)
        })  # fmt: skip
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if origin is None and isinstance(value, kind) and isinstance(value, bool) == (kind is bool):
        return value
    raise ValueError(f"{value!r:.80} is not {kind}")
