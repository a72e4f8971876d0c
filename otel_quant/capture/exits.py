"""How a program ends of which Python keeps nothing: the text of `sys.exit("text")`, and threads that an exception has ended.

Little is loaded here: every program that is recorded imports it.
"""

from __future__ import annotations

import _thread
import os
import sys

from otel_quant.base.fault_boundary import FAULTS, error_type, message_of

TYPE_CHECKING = False  # not typing's, which takes a third of Python's own start to load
if TYPE_CHECKING:
    import threading
    from types import FrameType
    from typing import Any, Final


class _Message:
    """The text that `sys.exit` was called with, alive for as long as its exception.

    Where the program catches the exception, Python frees it within a function; where it ends the program, below none.
    """

    def __init__(self, text: str) -> None:
        lines: list[str] = []
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            at = f"line {frame.f_lineno}, in {frame.f_code.co_qualname}"
            lines.append(f'  File "{frame.f_code.co_filename}", {at}\n')
            frame = frame.f_back
        self._text, self._lines = text, "".join(reversed(lines))
        self._thread = _thread.get_ident()

    def __del__(self) -> None:
        if sys._getframe().f_back is None and self._thread == LAST_ERRORS.main_thread:
            LAST_ERRORS.error = SystemExit(self._text)
            LAST_ERRORS.error.tb = self._lines


class LastErrors:
    """What ended this process, and its threads."""

    def __init__(self) -> None:
        self.main_thread = 0
        self.error: Any = None  # SystemExit with the text that the program has ended with
        self.thread: str | None = None  # The first thread that an exception has ended, and which

    def watch(self) -> None:
        """Notes the text of `sys.exit`, from now on."""
        self.main_thread, leave = _thread.get_ident(), sys.exit
        note = FAULTS.kept_in("text of an exit").around(_Message)

        def ending(*status: Any) -> None:
            # In this frame, which the exception keeps
            _message = note(*status) if status and type(status[0]) is str else None
            leave(*status)

        ending.__doc__, ending.__module__ = leave.__doc__, leave.__module__
        ending.__name__ = ending.__qualname__ = "exit"
        vars(sys)["exit"] = ending

    def watch_threads(self) -> None:
        """Notes the first thread that an exception ends, from now on."""
        import threading

        note = FAULTS.kept_in("exception of a thread").around(self._note)
        tell = threading.excepthook

        def excepthook(ended: threading.ExceptHookArgs) -> None:
            note(ended)
            tell(ended)

        threading.excepthook = excepthook

    def _note(self, ended: threading.ExceptHookArgs) -> None:
        error = ended.exc_value
        if error is None or isinstance(error, SystemExit) or self.thread is not None:
            return
        from otel_quant.base.environment import settings_from
        from otel_quant.capture.stack_sampler import raised_at
        from otel_quant.diagnosis.headline import error_text

        message = message_of(error, paths=settings_from(os.environ, warn=False).paths)
        name = ended.thread.name if ended.thread is not None else ""
        text = error_text(error_type(error), message, raised_at(error))
        self.thread = f"{name} died of {text}".strip()


LAST_ERRORS: Final = LastErrors()  # Those of this process
