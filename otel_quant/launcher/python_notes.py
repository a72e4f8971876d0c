"""What has become of each Python process of the program, noted as it started by its sitecustomize."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

_NOTES: Final = ".pythons"
"""As in otel_quant/capture/on_pythonpath/sitecustomize.py, which can import nothing of ours."""

_NOT_CALLED: Final = "no quantization library that otel-quant knows was called"
_UNSENT: Final = "unsent"
_REASONS: Final = (
    ("instrumented", _NOT_CALLED),
    (_UNSENT, _NOT_CALLED),
    ("failed", "automatic instrumentation failed, as the program's output says"),
    ("old", "{python} is older than Python 3.11"),
    ("absent", "{python} has no otel-quant: install it in that environment"),
)
"""What a note says, and why there is no step then, the most telling first."""

_NO_PYTHON: Final = (
    "no Python was started, or one with -S, -E or -I, which keep otel-quant out of it"
)


def expect_notes(folder: Path) -> None:
    """Makes the file for the notes, which are written only where it is."""
    (folder / _NOTES).touch()


def take_notes(folder: Path) -> Sequence[str]:
    """Returns the notes, and removes their file: it is no part of the recording."""
    path = folder / _NOTES
    try:
        notes = path.read_text("utf-8", "replace").splitlines()
        path.unlink()
    except OSError:
        return ()
    return notes


def why_no_step(notes: Sequence[str]) -> str:
    """Returns why there may be no step, in a few words."""
    found = _pythons(notes)
    for outcome, reason in _REASONS:
        if outcome in found:
            return reason.format(python=found[outcome])
    return _NO_PYTHON


def why_nothing_sent(notes: Sequence[str]) -> str:
    """Returns why telemetry was not sent although it was asked for; empty if that is not known."""
    python = _pythons(notes).get(_UNSENT)
    if python is None:
        return ""
    return (
        f"no telemetry was sent: {python} has no OpenTelemetry SDK; expected pip install "
        "'otel-quant[otlp]' there (otel-quant send sends this recording later)"
    )


def _pythons(notes: Sequence[str]) -> dict[str, str]:
    """Returns by outcome a Python that has it."""
    return dict(note.split(" ", 1) for note in notes if " " in note)
