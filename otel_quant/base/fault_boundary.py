"""Catches the failures of otel-quant itself; the only module that catches ``Exception``.

A failure of ours must not affect the measured program, and its user must learn of it, once. All
code of ours that runs inside the user's program runs within :meth:`Faults.kept_in`; a command of
ours runs within :class:`LastResort`.
"""

from __future__ import annotations

import errno
import os
from _thread import RLock

TYPE_CHECKING = False  # not typing's, which takes a third of Python's own start to load
if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable
    from typing import Any, Final

_LONGEST: Final = 500
_DEEPEST: Final = 10
"""Characters of a message that are kept, and exceptions of a chain that are looked at."""

_OURS: Final = __file__.rpartition("base")[0]

BECAUSE: Final = "; because of "  # Stands in a message before the exception that has led to it

_TRACEBACKS: Final = ("RemoteTraceback", "_RemoteTraceback")
"""What pools raise an exception of a worker from: it holds the same again as text."""


class Faults:
    """Suppresses exceptions and logs the first of each origin."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._boundaries: dict[str, Boundary] = {}
        self.names_paths = True
        # Reentrant: a signal handler may report a failure in the middle of a report.
        self._lock = RLock()

    def kept_in(self, origin: str) -> Boundary:
        """Returns a context manager that suppresses every ``Exception``."""
        boundary = self._boundaries.get(origin)
        if boundary is None:
            boundary = self._boundaries[origin] = Boundary(self, origin)
        return boundary

    def call_each(
        self, kind: str, functions: Iterable[tuple[str, Callable[[Any], Any]]], argument: Any
    ) -> dict[str, Any]:
        """Calls functions of a kind, whichever of them fail; returns by name what is not None or an empty tuple.

        One loop for all: with a boundary around each a step would take a hundredth more.
        """
        found = {}
        for name, function in functions:
            try:
                result = function(argument)
            except Exception as error:
                if _is_of_a_signal_handler(error):
                    raise
                self.report(f"{kind} {name}", error)
                continue
            if result is not None and result != ():
                found[name] = result
        return found

    def report(self, origin: str, error: Exception) -> None:
        """Logs a failure unless one of the same origin has been logged."""
        with self._lock:
            count = self.counts.get(origin, 0)
            self.counts[origin] = count + 1
        if count == 0:
            try:
                from logging import DEBUG  # not loaded for a command that does not fail

                from otel_quant.base.log import LOG
            except OSError:  # no descriptor is free: the next failure of this origin is logged
                self.counts[origin] = 0
                return
            with_traceback = self.names_paths and LOG.isEnabledFor(DEBUG)
            name = type(error).__name__
            text = str(error) if self.names_paths else getattr(error, "strerror", None)
            LOG.warning(
                "%s failed and is skipped; the program goes on without it: %s",
                origin,
                name if text is None else f"{name}: {text}",
                exc_info=error if with_traceback else None,
            )

    def after_fork_in_child(self) -> None:
        """In a forked child: the lock may be held by a thread that does not exist here."""
        self._lock = RLock()


class Boundary:
    """See :meth:`Faults.kept_in`. Without state, for all threads; a generator takes three times as long."""

    __slots__ = ("_faults", "_origin")

    def __init__(self, faults: Faults, origin: str) -> None:
        self._faults = faults
        self._origin = origin

    def __enter__(self) -> Boundary:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if not isinstance(error, Exception) or _is_of_a_signal_handler(error):
            # It must reach the program: KeyboardInterrupt and SystemExit too.
            return False
        self._faults.report(self._origin, error)
        return True

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function that does the same in half of the time of ``with``; None of one that fails."""

        def call(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except Exception as error:
                if _is_of_a_signal_handler(error):
                    raise
                self._faults.report(self._origin, error)
                return None

        return call


def _is_of_a_signal_handler(error: Exception) -> bool:
    """Whether a handler of the program raised it in our code: a timeout (SIGALRM), torch's DataLoader (SIGCHLD)."""
    signal = __import__("_signal")  # built in: no file is read, which may be what has failed
    handlers = filter(callable, map(signal.getsignal, signal.valid_signals()))
    codes = {_code_of(handler) for handler in handlers}
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code in codes:
            return True
        traceback = traceback.tb_next
    return False


def _code_of(handler: object) -> object:
    function = getattr(handler, "func", handler)  # of a functools.partial
    function = getattr(function, "__func__", function)  # of a method
    return getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)


class LastResort:
    """The outermost frame of a command: ends it at an error that nothing in it has handled."""

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __enter__(self) -> LastResort:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if isinstance(error, Exception):
            self.error = error
        return self.error is not None

    def place(self) -> str:
        """Returns the file and line where the error was raised."""
        from traceback import extract_tb

        frames = extract_tb(getattr(self.error, "__traceback__", None))
        return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "an unknown place"


FAULTS: Final = Faults()  # The faults of this process: each origin is logged once in a process

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=FAULTS.after_fork_in_child)


def message_of(error: BaseException, *, paths: bool) -> str | None:
    """Returns the message of an exception on one line of 500 characters at most."""
    if not paths:
        return None
    with FAULTS.kept_in("message of an exception"):
        from otel_quant.base.secrets import masked  # as above

        text = " ".join(_without_frames(str(error))[: 2 * _LONGEST].split())
        if (cause := _cause_of(error)) is not None:
            why = " ".join(_without_frames(str(cause)).split())
            if why not in text or not why:
                what = ": ".join(filter(None, (type(cause).__name__, why)))
                text = f"{text[: _LONGEST // 2]}{BECAUSE}{what}{_place_of(cause)}"
        text = text or _place_of(error).removeprefix(", ")
        text = masked(text, is_prose=True)
        return (text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…") or None
    return None


def _cause_of(error: BaseException) -> BaseException | None:
    """Returns the error of a full disk that has led to another one, else the first of which others were raised `from`, or of a group."""
    first, above, is_said = None, error, True
    for _ in range(_DEEPEST):
        grouped = above.exceptions if isinstance(above, BaseExceptionGroup) else (None,)
        said = above.__cause__ or grouped[0]
        is_said, within = is_said and said is not None, said or above.__context__
        if within is None or type(within).__name__ in _TRACEBACKS:
            break
        if isinstance(within, OSError) and within.errno == errno.ENOSPC:
            return within
        first, above = within if is_said else first, within
    return first


def _place_of(error: BaseException) -> str:
    """Returns, as the end of a sentence, the line that has raised an exception, no line of ours; empty if none is known."""
    place, traceback = "", error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not code.co_filename.startswith(_OURS):  # Ctrl-C may have come while we worked
            file = code.co_filename.replace("\\", "/").rpartition("/")[2]
            place = f", raised at {code.co_name} ({file}:{traceback.tb_lineno})"
        traceback = traceback.tb_next
    return place


def _without_frames(text: str) -> str:
    """Returns a message without the frames of a traceback in it, which another process has had: its error is last."""
    before, traceback, after = text.rpartition("Traceback (most recent call last):\n")
    if not traceback:
        return text
    lines = after.splitlines()
    while lines and (not lines[0] or lines[0][0].isspace()):
        del lines[0]
    return "\n".join([*before.splitlines()[:-1], *lines])


def error_type(error: BaseException) -> str:
    """Returns the qualified name of an exception's class, for `error.type`."""
    kind = type(error)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}"


def start_thread(target: Callable[[], None], name: str) -> threading.Thread | None:
    """Starts a thread that does not keep the process alive; none once the interpreter is shutting down."""
    import threading

    thread = threading.Thread(target=target, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        if threading.main_thread().is_alive():
            raise
        return None
    return thread
