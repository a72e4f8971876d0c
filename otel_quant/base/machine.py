"""What this process was started with and may use: its environment, processors, and how busy these are.

The launcher's program waits for this module.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # not typing's, which takes a tenth of the time until the program starts
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Final

NOTES: Final = ".pythons"  # As in sitecustomize.py, which can import nothing of ours


def processors() -> int:
    """Returns how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load() -> float | None:
    """Returns how many threads have run or waited for a processor, on average of a minute; None on Windows."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def environment_at_start(
    environ: Mapping[str, str] = os.environ, pid: int | None = None
) -> dict[str, str]:
    """Returns the environment at the start of this process or another: Python itself sets ``LC_CTYPE`` in ``os.environ``."""
    try:
        with open(f"/proc/{pid or 'self'}/environ", "rb") as file:  # noqa: PTH123 - the program waits for pathlib
            pairs = file.read().split(b"\0")
    except OSError:
        return dict(environ)
    known = (os.fsdecode(pair).partition("=") for pair in pairs)
    return {name: value for name, equals, value in known if equals}


def note_for_launcher(kind: str, names: Iterable[str]) -> None:
    """Adds lines to the file that `otel-quant run` has made for notes of the program that it has started, if it has."""
    try:
        notes = os.open(f"{os.environ['OTEL_QUANT_RECORD']}/{NOTES}", os.O_WRONLY | os.O_APPEND)
    except (KeyError, OSError):
        return
    try:
        os.write(notes, "".join(f"{kind} {name}\n" for name in names).encode(errors="replace"))
    finally:
        os.close(notes)
