"""Operands and results of operators, as torch's observer of executions writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from otel_quant.inference.profile_json import Tensor
from otel_quant.inference.pytorch.operators import is_operator, type_of

_TENSOR: Final = re.compile(r"Tensor\(([^)]*)\)")


class Operand(NamedTuple):
    """A tensor that an operator takes or returns."""

    tensor: Tensor  # Its type and shape
    storage: int  # Number of its memory; the same for views of it


class Operands(NamedTuple):
    """What an operator took and returned."""

    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]


def read_operands(path: Path, names: Sequence[str]) -> Sequence[Operands] | None:
    """Returns the operands of operators."""
    try:
        nodes = json.loads(path.read_text(encoding="utf-8", errors="replace")).get("nodes", ())
    except (OSError, ValueError):
        return None
    began = sorted(nodes, key=lambda node: int(node["id"]))
    seen = [node for node in began if is_operator(node["name"])]
    if [node["name"] for node in seen] != list(names):
        return None
    return [
        Operands(tuple(_operands(node["inputs"])), tuple(_operands(node["outputs"])))
        for node in seen
    ]


def _operands(side: Mapping[str, Sequence[Any]]) -> Iterator[Operand]:
    for value, shape, kind in zip(side["values"], side["shapes"], side["types"], strict=False):
        types = _TENSOR.findall(kind)
        if kind.startswith("Tensor("):
            yield _operand(value, shape, types[0])
        elif types and isinstance(value, list) and len(value) == len(shape) == len(types):
            yield from map(_operand, value, shape, types)


def _operand(value: Sequence[Any], shape: Sequence[int], dtype: str) -> Operand:
    return Operand(Tensor(type_of(dtype), tuple(shape)), value[1])
