"""Which threads wait for Python's global lock (GIL), by the address at which they sleep.

The GIL is within CPython's ``_PyRuntime``, and all other locks of a program are elsewhere. Linux shows the address. It
is read without giving the GIL away: that would wake one of the threads that wait for it.
"""

from __future__ import annotations

import functools
import gc
import operator
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from types import FrameType
from typing import Any, Final

from otel_quant.base.kernel_files import read_kept

_LONGEST: Final = 256  # Bytes of the file
_MOST: Final = 32  # Other threads that are looked at

COLLECTING_HANGS: Final = sys.version_info < (3, 11, 9)
"""Whether a garbage collection within ``sys._current_frames`` may never end: that holds a lock for which a thread that is
being started waits, with the GIL (python/cpython#106883)."""


def current_frames() -> dict[int, FrameType]:
    """Returns the innermost frame of each thread."""
    if not (COLLECTING_HANGS and gc.isenabled()):
        return sys._current_frames()
    try:
        # C code calls both, and does not give the GIL away in between: nobody sees that there are no collections.
        found: Iterator[Any] = map(operator.call, (gc.disable, sys._current_frames))
        _, frames = found
        return dict(frames)
    finally:
        gc.enable()


class GilWaits:
    """Asks Linux which threads wait for it."""

    rivals: tuple[int, ...] = ()  # Those at the last look that may have, other than a step's

    def waiting(self, files: Mapping[int, str], own: int, *, for_threads: bool) -> Collection[int]:
        """Returns one or two threads that were blocked for the GIL for as long as each of them was blocked; else none.

        They are a thread and another one, or two others if it waits for threads: what it waits for takes as long without
        a GIL. Of all threads the files ``schedstat`` are given, by identifier. The sampler's thread has just got the GIL.
        """
        self.rivals, before = (), self.rivals
        is_own = not for_threads and _is_waiting(files.get(own, ""))
        if is_own is False and not for_threads:
            return ()
        waiting: list[int] = []
        running: list[int] = []
        wanted = 2 if for_threads else 1
        others = files.keys() - {own, threading.get_ident()}
        for each in [*others.intersection(before), *others.difference(before)][:_MOST]:
            is_waiting = _is_waiting(files[each])
            if is_waiting is not False:
                (waiting if is_waiting else running).append(each)
            if len(waiting) == wanted:
                break
        self.rivals = (*waiting, *running)[:wanted]
        if is_own and waiting:
            return (own,)
        if len(self.rivals) < wanted or not (is_own or waiting):
            return ()
        # One that runs may have had it until now, or be in C code: then it was hardly blocked.
        return self.rivals if for_threads else (own, *self.rivals)


def _is_waiting(schedstat: str) -> bool | None:
    """Returns whether a thread waits for the GIL; None of one that runs."""
    within, pread = within_and_pread()
    if pread is None:
        return False
    try:
        system_call = schedstat.replace("schedstat", "syscall")
        arguments = read_kept(system_call, pread=pread).split(None, 2)
        return int(arguments[1], 16) in within if len(arguments) > 1 else None
    except (OSError, ValueError):
        return False  # it has ended, or nobody can tell


@functools.cache
def within_and_pread() -> tuple[range, Callable[[int, int, int], bytes] | None]:
    """Returns where the GIL is, and what reads a file without giving it away."""
    import ctypes  # the probes of a step have loaded it, and a program without one does not need it

    try:
        library = ctypes.PyDLL(None)
        first = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
        names, symbol = (ctypes.c_void_p * 4)(), ctypes.POINTER(ctypes.c_uint64)()
        # 1: with its Elf64_Sym
        library.dladdr1(ctypes.c_void_p(first), names, ctypes.byref(symbol), 1)
        within = range(first, first + symbol[2])
    except (AttributeError, OSError, TypeError, ValueError):
        return range(0), None  # another Python, or another system
    read, buffer = library.pread, ctypes.create_string_buffer(_LONGEST)

    def pread(descriptor: int, *_: int) -> bytes:
        size = read(descriptor, buffer, _LONGEST, ctypes.c_long(0))
        if size < 0:
            raise ProcessLookupError
        return buffer.raw[:size]

    return within, pread
