"""What has become of each Python process of the program, noted as it started by its sitecustomize."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

_NOTES: Final = ".pythons"
"""As in otel_quant/on_pythonpath/sitecustomize.py, which can import nothing of ours."""

_REASONS: Final = (
    ("instrumented", "no quantization library that otel-quant knows was called"),
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
    """Returns why there may be no step, in a few words.

    Args:
        notes: What :func:`take_notes` has returned.
    """
    found = dict(note.split(" ", 1) for note in notes if " " in note)
    for outcome, reason in _REASONS:
        if outcome in found:
            return reason.format(python=found[outcome])
    return _NO_PYTHON
