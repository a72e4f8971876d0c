"""Has no thread of ours while the program forks: from 3.12 on CPython warns it of each thread that there is."""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False  # not typing's, which takes a third of Python's own start to load
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final, Protocol

    class Pausing(Protocol):
        """What has a thread."""

        def pause(self) -> None:
            """Ends the thread."""

        def resume(self) -> None:
            """Starts it again."""


_RUNNING: Final[list[Pausing]] = []


def pause_at_forks(each: Pausing) -> None:
    """Has something pause at every fork from now on."""
    if sys.version_info >= (3, 12) and hasattr(os, "fork"):
        if not hasattr(os.fork, "__wrapped__"):
            os.fork, os.forkpty = _pausing(os.fork), _pausing(os.forkpty)
        if each not in _RUNNING:
            _RUNNING.append(each)


def _pausing(original: Callable[[], Any]) -> Any:
    # Not by `os.register_at_fork`, whose functions are called before CPython counts.
    def fork() -> Any:
        pid, caller = os.getpid(), sys._getframe(1)
        for each in _RUNNING:  # to which one may add another as it ends
            each.pause()
        # A warning of the program's own threads is to name the line that forks.
        code, place = _call.__code__, caller.f_code.co_filename
        named = code.replace(co_filename=place, co_firstlineno=caller.f_lineno)
        function: Any = type(_call)
        try:
            return function(named, caller.f_globals)(original)
        finally:
            if os.getpid() == pid:
                for each in _RUNNING:
                    each.resume()
            else:
                _RUNNING.clear()

    fork.__wrapped__ = original  # type: ignore[attr-defined] # as functools.wraps does
    return fork


_call = lambda function: function()  # noqa: E731 - on one line, which is given another number


def until_gone(native_id: Callable[[], int | None]) -> None:
    """Waits until the kernel has no such thread: `join` returns before. Not for ever: it may wait for us."""
    for _ in range(1000):
        known = native_id()
        if known is not None and not os.path.exists(f"/proc/self/task/{known}"):  # noqa: PTH110 - as above
            break
        time.sleep(0.001)
