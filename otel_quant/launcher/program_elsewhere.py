"""Runs a program on a system other than Linux, where nothing tells who else was sent a signal, or what has stopped.

Ctrl-C reaches the program from the terminal, as it reaches this process; SIGTERM is passed on.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from otel_quant.launcher.program_end import Ending


class Program:
    """A running program. To be started on the main thread."""

    def __init__(
        self, arguments: Sequence[str], environ: Mapping[str, str], output: str | None = None
    ) -> None:
        with nullcontext() if output is None else Path(output).open("ab") as file:
            self._process = subprocess.Popen(  # noqa: S603 - what the user asks for
                arguments, env=environ, stdout=file, stderr=file
            )
        self.pid = self._process.pid

    def wait(
        self,
        while_stopped: Callable[[], AbstractContextManager[None]] = nullcontext,
        when_ended: Callable[[], object] = lambda: None,
    ) -> Ending:
        """Waits until the program has ended; `while_stopped` is not needed, as this process stops alone."""
        handlers = {
            signal.SIGINT: lambda *_: None,
            signal.SIGTERM: lambda *_: self._process.terminate(),
        }
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        code = self._process.wait()
        when_ended()
        for number, handler in before.items():
            signal.signal(number, handler)
        return Ending(code) if code >= 0 else Ending(signal=-code)
