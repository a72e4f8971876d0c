"""``otel-quant run --on-warning``: a command gets what is worth interrupting somebody for, as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.base.log import LOG
from otel_quant.recordings.reader import read
from otel_quant.views.answer import outcome, sentences
from otel_quant.views.endings import exceeded, stalled
from otel_quant.views.steps import subject_of
from otel_quant.views.text import phrase
from otel_quant.views.writers import moment_json

if TYPE_CHECKING:
    from otel_quant.recordings.model import Recording

_EVERY: Final = 5.0
"""Seconds between two looks at the recording; of one that takes long to read, 30 times as many as that takes."""

_LONGEST: Final = 30.0  # Seconds that the command may take
_KINDS: Final = {"memory": exceeded, "stall": stalled}


class WarningCommand:
    """Runs a command for each step that memory will not suffice for or that stalls, and at the run's end."""

    def __init__(self, folder: Path, command: str) -> None:
        self._folder, self._command = folder, command
        self._known: dict[tuple[str, str, int], bool] = {}  # Whether it was told
        self._ended, self._lock = threading.Event(), threading.Lock()

    def look_until_the_end(self) -> None:
        """Looks at the recording again and again."""
        pause = _EVERY
        while not self._ended.wait(pause):
            began = time.monotonic()
            with FAULTS.kept_in("--on-warning"):
                self.look(read(self._folder))
            pause = max(_EVERY, 30 * (time.monotonic() - began))

    def look(self, recording: Recording) -> None:
        """Tells what is new; a step that goes on after a stall may stall again."""
        with self._lock:
            known = {}
            steps = [(run, step) for run in recording.runs for step in run.steps]
            for (of, step), (kind, find) in product(steps, _KINDS.items()):
                if text := find(of, step):
                    key = kind, of.id, step.index
                    # The forecast of the first samples may be wrong: that of an open step has to be so twice.
                    known[key] = kind == "stall" or step.end is not None or key in self._known
                    if known[key] and not self._known.get(key):
                        at = phrase(", at {}", kind == "stall" and step.line, attrgetter("words"))
                        self._tell(kind, f"{step.name}: {text}{at}", step=step.name)
            self._known = known

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
            why = done.stderr.strip().rpartition("\n")[2]
            problem = f"exit code {done.returncode}: {why}" if done.returncode else ""
        except subprocess.TimeoutExpired:
            problem = f"not done after {_LONGEST:.0f} s"
        if problem:
            LOG.warning("--on-warning: %s", problem)
