"""Makes the folder of a recording."""

from __future__ import annotations

import errno
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Final

from otel_quant.export.recording.layout import default_folder
from otel_quant.launcher.python_notes import expect_notes

_SCRIPTS: Final = (".py", ".sh")


def make_folder(chosen: str | None, arguments: Sequence[str]) -> Path:
    """Makes the folder, and the folders above one that was chosen."""
    if chosen:
        folder = Path(chosen).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise FileExistsError(errno.EEXIST, "holds files", str(folder))
    else:
        folder = _new_folder(default_folder(script_name(arguments), time.time()))
    expect_notes(folder)
    return folder


def _new_folder(name: str) -> Path:
    for number in count(1):
        folder = Path.cwd() / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:  # of another run that began within this second
            continue
        break
    return folder


def script_name(arguments: Sequence[str]) -> str:
    """Returns the name of what runs: the script, else the module of ``-m``, else the program."""
    for number, argument in enumerate(arguments):
        if argument.endswith(_SCRIPTS):
            return argument
        if argument == "-m" and number + 1 < len(arguments):
            return arguments[number + 1].replace(".", "-")
        if argument == "-c":
            break
    return arguments[0]
