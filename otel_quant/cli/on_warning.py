"""``otel-quant run --on-warning``: a command gets what is worth interrupting somebody for, as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.base.log import LOG
from otel_quant.recordings.reader import read
from otel_quant.views.answer import exceeded, outcome, sentences, stalled
from otel_quant.views.steps import subject_of
from otel_quant.views.writers import moment_json

if TYPE_CHECKING:
    from otel_quant.recordings.model import Recording

_EVERY: Final = 5.0
"""Seconds between two looks at the recording."""

_SHARE: Final = 30.0
"""How many times as long as a look took the next one is waited for: 3 % of a core at most."""

_LONGEST: Final = 30.0
"""Seconds that the command may take."""


class WarningCommand:
    """Runs a command for each step that memory will not suffice for or that stalls, and at the run's end."""

    def __init__(self, folder: Path, command: str) -> None:
        self._folder, self._command = folder, command
        self._told: set[tuple[str, str, int]] = set()
        self._ended = threading.Event()
        self._lock = threading.Lock()

    def look_until_the_end(self) -> None:
        """Looks at the recording again and again."""
        pause = _EVERY
        while not self._ended.wait(pause):
            began = time.monotonic()
            with FAULTS.kept_in("--on-warning"):
                self.look(read(self._folder))
            pause = max(_EVERY, _SHARE * (time.monotonic() - began))

    def look(self, recording: Recording) -> None:
        """Tells what is new; a step that goes on after a stall may stall again."""
        known: dict[tuple[str, str, int], tuple[str, str]] = {}
        for run in recording.runs:
            for step in run.steps:
                texts = {"memory": exceeded(run, step), "stall": stalled(run, step)}
                known |= {
                    (kind, run.id, step.index): (step.name, text)
                    for kind, text in texts.items()
                    if text
                }
        with self._lock:
            for key in [key for key in known if key not in self._told]:
                name, text = known[key]
                self._tell(key[0], f"{name}: {text}", step=name)
            self._told = set(known)

    def end(self, recording: Recording) -> None:
        """Tells how the program ended."""
        self._ended.set()
        self.look(recording)
        subject, ending = subject_of(recording), recording.ending
        lines = [f"{outcome(recording, subject)}.", *sentences(recording, subject)]
        how = {"exit_code": ending.exit_code, "signal": ending.signal} if ending else {}
        self._tell("end", " ".join(lines), state=recording.state, **how)

    def _tell(self, kind: str, text: str, **more: Any) -> None:
        message = {"kind": kind, "text": text, "time": moment_json(time.time()), **more}
        message["recording"] = os.fspath(self._folder.absolute())
        try:
            done = subprocess.run(  # noqa: S602 - the user's own command
                self._command, shell=True, input=json.dumps(message), text=True, timeout=_LONGEST,
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            )  # fmt: skip
            if done.returncode:
                last = f"{done.stderr}\n".rstrip().rpartition("\n")[2]
                LOG.warning("--on-warning: exit code %d: %s", done.returncode, last)
        except subprocess.TimeoutExpired:
            LOG.warning("--on-warning: not done after %.0f s", _LONGEST)
