"""Follows a recording until it is over or the reader has enough."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TextIO

from otel_quant.recordings.model import Recording
from otel_quant.recordings.reader import read
from otel_quant.watch.plain import PlainView

_EVERY: Final = 1.0
"""Seconds between two looks."""

_SHARE: Final = 10
"""A look that takes long is followed by a pause this many times as long."""

_LAST_ROWS: Final = 60

OUTPUT: Final = "output.log"
_TAIL: Final = 8192
"""Bytes of the output that are read."""


def follow(path: Path, out: TextIO, *, once: bool = False) -> None:
    """Shows a recording until it is over, or Ctrl-C.

    Args:
        path: The recording.
        out: Where to show it: a screen if it is a terminal, else lines.
        once: Whether to show what there is now, and no more.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no recording, or a newer one.
    """
    try:
        if not out.isatty() or os.environ.get("TERM") == "dumb":
            view = PlainView()
            for recording in _looks(path, lambda: None, once):
                for line in view.lines(recording):
                    print(line, file=out, flush=True)
        else:
            _on_a_terminal(path, out, once)
    except KeyboardInterrupt:
        pass  # whoever looks has seen enough


def _on_a_terminal(path: Path, out: TextIO, once: bool) -> None:
    from rich.console import Console
    from rich.live import Live

    from otel_quant.watch.screen import screen

    console = Console(file=out)
    newest: Recording | None = None
    log: list[str] = []

    def draw() -> None:
        # Again and again: the terminal may have another size.
        if newest is not None:
            live.update(screen(newest, *console.size, log), refresh=True)

    with Live(console=console, auto_refresh=False, screen=not once, transient=True) as live:
        try:
            for recording in _looks(path, draw, once):
                newest = recording
                log = last_lines(path / OUTPUT)
                draw()
        except KeyboardInterrupt:
            pass
    if newest is not None:  # what stays when the screen is gone
        console.print(screen(newest, console.width, _LAST_ROWS, log))


def _looks(path: Path, between: Callable[[], None], once: bool) -> Iterator[Recording]:
    while True:
        began = time.monotonic()
        recording = read(path)
        yield recording
        if once or recording.state != "running":
            return
        until = time.monotonic() + max(_EVERY, _SHARE * (time.monotonic() - began))
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(0.25, left))
            between()


def last_lines(path: Path) -> list[str]:
    """Returns the last lines of the program's output; none if it is not in the recording.

    Args:
        path: The file of the output.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    # A progress bar writes over its line: its last state counts.
    lines = [line.rpartition("\r")[2] for line in text.rstrip("\r\n").split("\n")]
    return lines if size <= _TAIL else lines[1:]
