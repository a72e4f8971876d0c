"""Follows a recording until it is over or the reader has enough."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from otel_quant.base.files import open_regular
from otel_quant.export.recording.layout import OUTPUT
from otel_quant.recordings.model import Recording
from otel_quant.recordings.reader import read
from otel_quant.views.watch import Looked, PlainView

if TYPE_CHECKING:
    from rich.live import Live

_PAUSE: Final = 1.0
"""Seconds between two looks."""

_SHARE: Final = 10
"""A look that takes long is followed by a pause this many times as long."""

_LAST_ROWS: Final = 60

_TAIL: Final = 8192
"""Bytes of the output that are read."""


class LiveView:
    """Shows a recording until it is over."""

    def __init__(self, path: Path, out: TextIO, *, once: bool = False) -> None:
        self._path, self._out, self._once = path, out, once
        self._ended = threading.Event()
        self._live: Live | None = None

    def show(self) -> None:
        """Shows it until it is over, until :meth:`end` or Ctrl-C."""
        try:
            if not self._out.isatty() or os.environ.get("TERM") == "dumb":
                view = PlainView()
                for recording in self._looks(lambda: None):
                    for line in view.lines(recording):
                        print(line, file=self._out, flush=True)
            else:
                self._on_a_terminal()
        except KeyboardInterrupt:
            pass  # whoever looks has seen enough

    def end(self) -> None:
        """Has :meth:`show`, on another thread, look for the last time now."""
        self._ended.set()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leaves the screen as it was for a block, in which this process is stopped."""
        live = self._live
        if live is None or not live.is_started:
            yield
            return
        live.stop()
        try:
            yield
        finally:
            live.start()

    def _on_a_terminal(self) -> None:
        from rich.console import Console
        from rich.live import Live

        from otel_quant.views.screen import screen

        console = Console(file=self._out)
        newest: Looked | None = None
        log: list[str] = []

        def draw() -> None:
            # Again and again: the terminal may have another size.
            if newest is not None:
                live.update(screen(newest, *console.size, log), refresh=True)

        with Live(
            console=console,
            auto_refresh=False,
            screen=not self._once,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        ) as live:
            self._live = live
            try:
                for recording in self._looks(draw):
                    newest = Looked(recording)
                    log = last_lines(self._path / OUTPUT)
                    draw()
            except KeyboardInterrupt:
                pass
        if newest is not None:  # what stays when the screen is gone
            console.print(screen(newest, console.width, _LAST_ROWS, log))

    def _looks(self, between: Callable[[], None]) -> Iterator[Recording]:
        while True:
            began = time.monotonic()
            is_last = self._once or self._ended.is_set()
            recording = read(self._path)
            yield recording
            if is_last or recording.state != "running":
                return
            until = time.monotonic() + max(_PAUSE, _SHARE * (time.monotonic() - began))
            while (left := until - time.monotonic()) > 0 and not self._ended.wait(min(0.25, left)):
                between()


def last_lines(path: Path) -> list[str]:
    """Returns the last lines of the program's output; none if it is not in the recording."""
    try:
        with open_regular(path) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    # A progress bar writes over its line: its last state counts.
    lines = [line.rpartition("\r")[2] for line in text.rstrip("\r\n").split("\n")]
    return lines if size <= _TAIL else lines[1:]
