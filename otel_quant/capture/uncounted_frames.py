"""Wrappers whose frames ``stacklevel`` does not count.

A library that warns or logs with ``stacklevel=2`` means its caller. A frame of ours in between would
be named instead: the line would be wrong, and Python would apply its filters to a module of ours
(by default it shows deprecations to ``__main__`` alone). :mod:`warnings` and :mod:`logging` leave
out the frames of Python's import system, which they know by two words in the file name of the code.
So the code of a wrapper has these two words before the name of its file, in ``<>``: to coverage and
its like, such a name is not that of a file to look for. In a traceback they can be read; the line of
source is found all the same.

What looks at frames by itself (``sys._getframe``, ``inspect.stack``, loguru's ``depth``) sees a
wrapper's frame.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

_UNCOUNTED: Final = "<stacklevel skips it, as it does importlib._bootstrap> "


def uncounted(function: F) -> F:
    """Has ``stacklevel`` skip the frames of a function."""
    changed = cast(FunctionType, function)
    code = changed.__code__
    if not code.co_filename.startswith(_UNCOUNTED):
        changed.__code__ = code.replace(co_filename=_UNCOUNTED + code.co_filename)
    return function


def wraps(function: Callable[..., Any]) -> Callable[[F], F]:
    """Does what :func:`functools.wraps` does, and has ``stacklevel`` skip the wrapper."""

    def decorate(wrapper: F) -> F:
        functools.update_wrapper(uncounted(wrapper), function)
        return wrapper

    return decorate
