"""Whether a thread is where a program waits for a GPU, or copies to it and from it: by the name of what it calls there.

Methods of tensors are C code: Python's stack ends at the line that calls them. Which of its calls runs is told by the
position in the code.
"""

from __future__ import annotations

import dis
from types import CodeType, FrameType
from typing import Final

from otel_quant.diagnosis.gpus import COPY, EITHER, WAIT

_CALLS: Final = {
    **dict.fromkeys(("synchronize", "_cuda_synchronize", "item", "tolist", "nonzero"), WAIT),
    **dict.fromkeys(("masked_select", "_unique2", "bincount", "histc", "equal"), WAIT),
    **dict.fromkeys(("to", "copy_", "cuda"), COPY),
    "cpu": EITHER,
}
"""By the name of a function of torch. Of onnxruntime ``run`` waits."""

_LOADS: Final = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_NAME")

_MOST: Final = 2_000
_KNOWN: Final[dict[int, tuple[CodeType, dict[int, str]]]] = {}
"""The calls in code by its id, so many at most; the code itself is kept, so that no other gets its id."""


def kind_at(frame: FrameType) -> str:
    """Returns what kind of call an innermost frame is in; empty for any other."""
    code = frame.f_code
    known = _KNOWN.get(id(code))
    if known is None:
        if len(_KNOWN) >= _MOST:
            _KNOWN.clear()
        known = _KNOWN[id(code)] = code, _calls_in(code)
    return known[1].get(frame.f_lasti, "")


def _calls_in(code: CodeType) -> dict[int, str]:
    """Returns the calls of these kinds, by their positions in the code."""
    known = {**_CALLS, "run": WAIT} if "onnxruntime" in code.co_filename else _CALLS
    loaded: dict[tuple[int | None, int], str] = {}  # The newest name by where it begins
    found = {}
    for each in dis.get_instructions(code):
        place = each.positions
        if place is None or place.col_offset is None:
            continue  # Python was told to forget them
        begins = place.lineno, place.col_offset
        if each.opname in _LOADS:
            loaded[begins] = str(each.argval)
        # A call begins where the name of its function does: ``x.sum`` in ``x.sum()``
        elif each.opname.startswith("CALL") and (kind := known.get(loaded.get(begins, ""))):
            found[each.offset] = kind
    return found
