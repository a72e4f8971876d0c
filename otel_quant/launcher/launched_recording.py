"""What the launcher itself writes into a recording, from the program's start to its end."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from otel_quant.fault_boundary import FAULTS
from otel_quant.launcher import program
from otel_quant.recordings import manifest
from otel_quant.recordings.model import Ending


class LaunchedRecording:
    """The recording of a program that has just been started.

    It never raises: what fails is logged once and is missing from the recording.

    Args:
        folder: The recording.
        began_ns: Wall clock before the program was started, in nanoseconds since the epoch.
    """

    def __init__(self, folder: Path, began_ns: int) -> None:
        self._folder, self._began_ns = folder, began_ns
        with FAULTS.kept_in("manifest"):
            manifest.create(folder, began_ns, "launcher")

    def finish(self, ended: program.Ending) -> None:
        """Completes the recording.

        Args:
            ended: How the program has ended.
        """
        now = time.time_ns()
        ending = Ending(
            time=(now - self._began_ns) / 1e9,
            exit_code=ended.code,
            signal=None if ended.signal is None else _name(ended.signal),
        )
        with FAULTS.kept_in("manifest"):
            manifest.complete(self._folder, ended=now, ending=ending)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
