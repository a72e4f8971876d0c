"""What a thread waits for, by the instruction that it is at: a GPU, a lock of Python's, or time; who is within a lock; what came before.

Methods of tensors and locks are C code: Python's stack ends at the line that calls them. Which of its calls runs is told
by the position in the code. Values of variables are not read: a lock has the name that it has there, ``_lock`` of ``self._lock``.
"""

from __future__ import annotations

import dis
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

from otel_quant.diagnosis.gpus import COPY, EITHER, WAIT
from otel_quant.diagnosis.spots import SLEEP

_CALLS: Final = {
    **dict.fromkeys(("synchronize", "_cuda_synchronize", "item", "tolist", "nonzero"), WAIT),
    **dict.fromkeys(("masked_select", "_unique2", "bincount", "histc", "equal"), WAIT),
    **dict.fromkeys(("to", "copy_", "cuda"), COPY),
    "cpu": EITHER,
    "sleep": SLEEP,
}
"""By the name of a function of torch, or of the module time. Of onnxruntime ``run`` waits."""

_WITH: Final = (
    "BEFORE_WITH"  # Up to Python 3.13: it calls __enter__, which is loaded first since then
)
_WITHS: Final = {dis.opmap.get(each) for each in (_WITH, "LOAD_SPECIAL")}
_WORK: Final = ("BINARY_", "CALL", "COMPARE_", "CONTAINS_", "DICT_", "FORMAT_", "FOR_ITER", "IMPORT_", "LIST_", "SET_", "STORE_S", "UNARY_")  # fmt: skip
"""How the instructions begin that may take long; others move a value or a name."""

_GLOBALS: Final = ("LOAD_GLOBAL", "LOAD_NAME")
_NO_NAMES: Final = ("LOAD_CONST", "LOAD_SPECIAL", "LOAD_SMALL_INT")
_MOST: Final = 2_000
_LONGEST: Final = 2_000
"""Bytes of instructions that are read while frames are held: in longer time the program would go on meanwhile, whose objects they keep."""


class _Found(NamedTuple):
    """What is known of a function's instructions, by their positions."""

    code: CodeType  # Kept, so that no other gets its id
    kinds: dict[int, str]  # Of calls for a GPU, and of those that sleep
    locks: dict[int, str]  # Names of the locks that are waited for
    # The parts that have one: their first position, the one behind the last, its name
    within: list[tuple[int, int, str]]


class Before(NamedTuple):
    """What was done before an instruction at which CPython hands over to another thread, in straight code."""

    line: int = 0  # 0 if nobody can tell
    function: str = ""  # That it has called, if it is named so in the module
    calls: str = ""  # What the instruction itself calls


_KNOWN: Final[dict[int, _Found]] = {}


def kind_at(frame: FrameType) -> str:
    """Returns what kind of call an innermost frame is in: one for a GPU, or one that sleeps; empty for any other."""
    return _found_in(frame.f_code).kinds.get(frame.f_lasti, "")


def lock_at(frame: FrameType) -> str:
    """Returns the name of the lock that an innermost frame waits for, if it is blocked; empty if it is not at one."""
    if frame.f_code.co_qualname == "Condition.__enter__" and frame.f_back is not None:
        frame = frame.f_back
    if frame.f_code.co_filename.endswith("threading.py"):
        return ""  # an event, a condition or a thread, which are made of locks
    return _found_in(frame.f_code).locks.get(frame.f_lasti, "")


def holder_in(frame: FrameType | None, name: str) -> FrameType | None:
    """Returns the innermost frame of a thread that is within ``with`` of a lock of a name; None if it has none."""
    while frame is not None:
        parts = _found_in(frame.f_code).within
        if any(first <= frame.f_lasti < end and name == lock for first, end, lock in parts):
            break
        frame = frame.f_back
    return frame


def before(code: CodeType, position: int) -> Before:
    """Returns what was done before the instruction at a position: nothing is known of it behind a place that others jump to."""
    done = Before()
    if len(code.co_code) > _LONGEST:
        return done
    names: dict[Any, tuple[str, str]] = {}  # The second is empty if the module has it not
    # A call that is under way has its position behind its own.
    *earlier, last = (each for each in dis.get_instructions(code) if each.offset <= position)
    for each in earlier:
        done = Before() if each.is_jump_target else done
        if each.opname.startswith(_WORK):
            function = names.get(_begin(each), ("", ""))[1] if "CALL" in each.opname else ""
            done = Before((each.positions and each.positions.lineno) or 0, function)
        elif each.opname.startswith("LOAD_") and each.opname not in _NO_NAMES and _begin(each):
            name = str(each.argval)
            names[_begin(each)] = name, name if each.opname in _GLOBALS else ""
    done = Before() if last.is_jump_target else done
    return done._replace(calls=names.get(_begin(last), ("", ""))[0])


def _begin(each: dis.Instruction) -> tuple[int, int] | None:
    """Returns where an instruction's text begins: a call's where its function's name does, ``x.sum`` in ``x.sum()``; None if Python was told to forget it."""
    line, _, column, _ = each.positions or (None, None, None, None)
    return None if line is None or column is None else (line, column)


def _found_in(code: CodeType) -> _Found:
    known = _KNOWN.get(id(code))
    if known is None:
        if len(_KNOWN) >= _MOST:
            _KNOWN.clear()
        known = _KNOWN[id(code)] = _find(code)
    return known


def _find(code: CodeType) -> _Found:
    calls = {**_CALLS, "run": WAIT} if "onnxruntime" in code.co_filename else _CALLS
    found, name = _Found(code, {}, {}, []), ""
    names = {*code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars}
    if names.isdisjoint({"acquire", *calls}) and _WITHS.isdisjoint(code.co_code[::2]):
        return found  # all instructions of a function take a millisecond, and few have any of these
    loaded: dict[Any, tuple[str, str]] = {}  # The newest two names by where they begin
    special = ""  # The method that the instruction before has loaded
    for each in dis.get_instructions(code):
        begins = _begin(each)
        if each.opname == _WITH or special == "__enter__":
            found.locks[each.offset] = name
            found.within.append((each.offset + 1, _end_of(code, each.offset), name))
        elif each.opname.startswith("LOAD_") and each.opname not in _NO_NAMES:
            loaded[begins] = name, str(each.argval)
            name = str(each.argval)
        elif "CALL" in each.opname and begins is not None:
            lock, function = loaded.get(begins, ("", ""))
            if function == "acquire":
                found.locks[each.offset] = lock
            elif function in calls:
                found.kinds[each.offset] = calls[function]
        special = each.argrepr if each.opname == "LOAD_SPECIAL" else ""
    return found


def _end_of(code: CodeType, start: int) -> int:
    """Returns where a ``with`` ends that begins at a position: its parts have one handler of exceptions."""
    entries = vars(dis.Bytecode(code))["exception_entries"]
    behind = min((each.start for each in entries if each.start > start), default=0)
    handlers = {each.target for each in entries if each.start == behind}
    return max((each.end for each in entries if each.target in handlers), default=start)
