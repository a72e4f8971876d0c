"""What a program is started with: a folder for its recording, and its environment.

In the folder is a file in which each Python process of the program notes, by its sitecustomize, what has
become of it; the launcher reports at the end why there is no step, or nothing sent. The program waits for
this module: it imports little.
"""

from __future__ import annotations

import errno
import os
import sys
import time

from otel_quant.base.destinations import sends
from otel_quant.base.machine import NOTES, environment_at_start, note_for_launcher

TYPE_CHECKING = False  # not typing's, which takes a tenth of the time until the program starts
if TYPE_CHECKING:
    import signal
    from collections.abc import Mapping, Sequence
    from typing import Final
else:
    import _signal as signal  # as in program.py

ON_PYTHONPATH: Final = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "program", "importlib_bootstrap"
)
"""The folder whose sitecustomize instruments a Python program."""

# Variables of otel_quant.schema.settings, which takes as long to load.
RECORD: Final = "OTEL_QUANT_RECORD"
LAUNCHER_PID: Final = "OTEL_QUANT_LAUNCHER_PID"

TRACEPARENT: Final = "TRACEPARENT"
_OWN_TRACES: Final = frozenset({
    TRACEPARENT, "OTEL_TRACES_SAMPLER", "OTEL_PROPAGATORS", "OTEL_CONFIG_FILE", "OTEL_SDK_DISABLED",
})  # fmt: skip
"""Where one of these is set, it decides which trace a process is in."""

_SCRIPTS: Final = (".py", ".sh")
_NOT_FOUND: Final = (2, 127)
"""Exit codes of interpreters whose script does not exist: of Python and dash, of bash."""

_IN_NAMES: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")

_START_LASTS: Final = 0.1
"""Seconds that the program is left alone at most; a Python starts in a fifth of that."""

_NOT_CALLED: Final = "no quantization library that otel-quant knows was called, nor otel_quant.step"
_REASONS: Final = (
    ("nested", "what `otel-quant run` has started within it is in {}"),
    ("instrumented", _NOT_CALLED),
    ("unsent", _NOT_CALLED),
    ("failed", "automatic instrumentation failed, as the program's output shows"),
    ("old", "{} is older than Python 3.11"),
    ("absent", "{} has no otel-quant: install it in that environment"),
)
"""The text of a note, and why there is no step then, the most helpful first."""

_NO_PYTHON: Final = (
    "no Python was started, or one with -S, -E or -I, which keep otel-quant out of it"
)


_WALL_NS: Final = time.time_ns() - time.monotonic_ns()


def now_ns() -> int:
    """Returns the wall clock in nanoseconds since the epoch, without what has been set of it since this process began."""
    return time.monotonic_ns() + _WALL_NS


def make_folder(chosen: str | None, arguments: Sequence[str]) -> str:
    """Makes the folder, and the folders above one that was chosen."""
    if chosen:
        folder, get = os.path.abspath(chosen), os.environ.get
        if get("SLURM_STEP_NUM_TASKS", "1") != "1":  # `srun` gives all of its tasks one command
            folder += f"/{get('SLURMD_NODENAME', 'node')}-{get('SLURM_PROCID', '0')}"
        os.makedirs(folder, exist_ok=True)
        if os.listdir(folder):
            raise FileExistsError(errno.EEXIST, "holds files", folder)
    else:
        folder = _new_folder(default_folder(script_name(arguments), time.time()))
    os.close(os.open(f"{folder}/{NOTES}", os.O_CREAT | os.O_WRONLY, 0o666))
    return folder


def _new_folder(name: str) -> str:
    folder, number = os.path.abspath(name), 1
    while True:
        try:
            os.mkdir(folder)
            return folder
        except FileExistsError:  # of another run that began within this second
            number += 1
        folder = os.path.abspath(f"{name}-{number}")


def default_folder(program: str, began: float) -> str:
    """Returns the name of a recording's folder."""
    stem = os.path.splitext(os.path.basename(program))[0]
    # Without `re`, whose import takes a twentieth of the time until the program starts.
    known = "".join(each if each in _IN_NAMES else " " for each in stem)
    name = "-".join(known.split()).strip("-.") or "program"
    return f"otel-quant-{name}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(began))}"


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


def missing_script(arguments: Sequence[str], code: int) -> str | None:
    """Returns the script that an interpreter did not find, by its exit code; None for any other end."""
    name = script_name(arguments)
    is_missing = name.endswith(_SCRIPTS) and not os.path.exists(name)
    return name if code in _NOT_FOUND and is_missing else None


def program_environment(
    folder: str, arguments: Sequence[str], settings: Mapping[str, str]
) -> Mapping[str, str]:
    """Returns what this process was started with, and what makes the program's recording.

    The Pythons of a pipeline that sends are one trace, below a span that the launcher sends at the end.
    """
    environ = environment_at_start()
    path = environ.get("PYTHONPATH")
    # An empty entry is the current folder: `PYTHONPATH=` has none, `PYTHONPATH=a:` has one.
    entries = [each for each in path.split(os.pathsep) if each != ON_PYTHONPATH] if path else []
    environ["PYTHONPATH"] = os.pathsep.join([ON_PYTHONPATH, *entries])
    environ[RECORD] = folder
    environ[LAUNCHER_PID] = str(os.getpid())
    environ.update(settings)
    # The span of a Python is above the spans of its children already.
    is_python = os.path.basename(arguments[0]).startswith("python")
    sends_spans = environ.get("OTEL_TRACES_EXPORTER") != "none" and sends(environ)
    if sends_spans and not is_python and _OWN_TRACES.isdisjoint(environ):
        environ[TRACEPARENT] = f"00-{os.urandom(16).hex()}-{os.urandom(8).hex()}-01"
    return environ


def let_it_start(folder: str) -> None:
    """Waits until a Python of the program has started, or the program has ended, for a tenth of a second at most.

    What the launcher loads next takes as long as the start of a Python, and may be on the same processor.
    """
    note_for_launcher("nested", [folder])
    ends = time.monotonic() + _START_LASTS
    try:
        while not os.path.getsize(f"{folder}/{NOTES}") and time.monotonic() < ends:
            if sys.platform == "linux" and signal.SIGCHLD in signal.sigpending():
                break
            time.sleep(_START_LASTS / 50)
    except OSError:
        pass  # it has removed the folder


def notes_in(folder: str) -> Sequence[str]:
    """Returns the notes."""
    try:
        with open(f"{folder}/{NOTES}", encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return ()


def take_notes(folder: str) -> Sequence[str]:
    """Returns the notes, and removes their file: it is no part of the recording."""
    notes = notes_in(folder)
    try:
        os.unlink(f"{folder}/{NOTES}")
    except OSError:
        pass
    return notes


def why_no_step(notes: Sequence[str]) -> str:
    """Returns why there may be no step, in a few words."""
    known = (each.format(found[-1]) for kind, each in _REASONS if (found := noted(notes, kind)))
    return next(known, _NO_PYTHON)


def why_nothing_sent(notes: Sequence[str]) -> str:
    """Returns why telemetry was not sent although it was asked for; empty if that is not known."""
    needs = "has no OpenTelemetry SDK; expected pip install 'otel-quant[otlp]' there"
    later = "(otel-quant send sends this recording later)"
    found = noted(notes, "unsent")
    return f"no telemetry was sent: {found[-1]} {needs} {later}" if found else ""


def noted(notes: Sequence[str], kind: str) -> Sequence[str]:
    """Returns what notes of a kind have: a Python, a folder, an option."""
    return [note.removeprefix(f"{kind} ") for note in notes if note.startswith(f"{kind} ")]
