"""Which devices a ``*_VISIBLE_DEVICES`` variable leaves visible, and in which order.

CUDA, HIP and the ROCm runtime share the grammar: a comma-separated list of either positions or
identifiers. An entry that names no device ends the list; the entries before it count. A device
that is named twice makes the list empty. As in those runtimes, only the leading digits of a
position count (``1gpu`` is 1), and the start of an identifier is enough if only one device's
identifier starts with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

_POSITION: Final = re.compile(r"\s*\+?(\d+)")


def select_visible(value: str | None, count: int, names: Mapping[str, int]) -> tuple[int, ...]:
    """Reads a variable such as ``CUDA_VISIBLE_DEVICES``."""
    if value is None:
        return tuple(range(count))
    entries = [entry.strip() for entry in value.split(",")]
    by_name = entries[0][:1].isalpha()
    selected: list[int] = []
    for entry in entries:
        number = _named(entry, names) if by_name else _positioned(entry, count)
        if number is None:
            break
        if number in selected:
            return ()
        selected.append(number)
    return tuple(selected)


def _positioned(entry: str, count: int) -> int | None:
    match = _POSITION.match(entry)
    if match is None:
        return None
    position = int(match.group(1))
    return position if position < count else None


def _named(entry: str, names: Mapping[str, int]) -> int | None:
    if entry in names:
        return names[entry]
    return _only(number for name, number in names.items() if entry and name.startswith(entry))


def _only(numbers: Iterable[int]) -> int | None:
    distinct = set(numbers)
    return distinct.pop() if len(distinct) == 1 else None
