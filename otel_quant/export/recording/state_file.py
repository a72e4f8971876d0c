"""``state.<pid>.json``: the newest figures of a process, written over in place.

The number of samples of a step has a place of fixed width, so that a sample costs one small write.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from otel_quant.base.files import PAGE, PageFile
from otel_quant.export.recording.event_file import as_json
from otel_quant.export.recording.layout import SCHEMA

_DIGITS: Final = 15
"""Characters for a number of samples."""

_SAMPLES: Final = '"samples":'


class StateFile:
    """Writes the file. It is made with the first write."""

    def __init__(self, path: Path) -> None:
        self._file = PageFile(path)
        self._places: dict[int, int] = {}

    def write(
        self,
        run: str,
        time_ns: int,
        clock_ns: int,
        attributes: Mapping[str, Any],
        steps: Sequence[tuple[int, int, int | None]],
    ) -> None:
        """Writes everything."""
        head = as_json(
            {
                "schema": SCHEMA,
                "time": time_ns,
                "clock": clock_ns,
                "run": run,
                "attributes": attributes,
            }
        )
        for first in range(len(steps) + 1):
            text, places = _with_steps(head, steps[first:])
            if len(text) < PAGE:
                break
        else:
            return  # attributes of a program that fill a page by themselves
        self._file.write(text)
        self._places = places

    def count(self, index: int, samples: int) -> bool:
        """Writes the samples of one step over."""
        place = self._places.get(index)
        if place is None:
            return False
        self._file.write_at(place, f"{samples:{_DIGITS}d}")
        return True

    def forget(self) -> None:
        """In a forked child: closes its copy."""
        self._file.forget()


def _with_steps(
    head: str, steps: Sequence[tuple[int, int, int | None]]
) -> tuple[str, dict[int, int]]:
    """Returns the whole text, and where in it each step's samples are."""
    text, places = head[:-1] + ',"steps":[', {}
    for number, (index, samples, expected) in enumerate(steps):
        text += f'{"," if number else ""}{{"index":{index},{_SAMPLES}'
        places[index] = len(text)
        text += f"{samples:{_DIGITS}d}"
        text += f',"expected":{json.dumps(expected)}}}'
    return text + "]}", places
