"""Has the end of a program that was killed sent to where its telemetry goes.

A process of its own does it: it has the SDK as the environment configures it, and can be stopped
when the time is over.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from otel_quant.base.log import LOG
from otel_quant.export.otel.default_exporters import defaults_in
from otel_quant.recordings.model import Recording
from otel_quant.recordings.reader import read

_WITHOUT: Final = frozenset({"OTEL_QUANT_RECORD", "QUARK_PROFILING", "OTEL_QUANT_PROFILE"})


def send_ending(folder: Path, environ: Mapping[str, str], timeout: float) -> None:
    """Ends the spans that were open, under their own ids, and sends a log record.

    Does nothing where no span was open, or nothing is configured that sends.
    """
    is_silent = defaults_in(environ, environ) is not None
    if timeout <= 0 or is_silent or not _has_open_spans(read(folder)):
        return
    environ = {name: value for name, value in environ.items() if name not in _WITHOUT}
    environ["OTEL_METRICS_EXPORTER"] = "none"
    try:
        subprocess.run(  # noqa: S603 - our own module
            [sys.executable, "-m", "otel_quant", "send", "--only-unended", os.fspath(folder)],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=timeout,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        if isinstance(error, subprocess.TimeoutExpired):
            reason = f"it took longer than {timeout:g} s (OTEL_QUANT_EXIT_TIMEOUT)"
        elif isinstance(error, subprocess.CalledProcessError) and error.stderr.strip():
            reason = error.stderr.strip().splitlines()[-1].removeprefix("otel-quant: ")
        else:
            reason = type(error).__name__
        LOG.warning("the end of the program could not be sent: %s", reason)


def _has_open_spans(recording: Recording) -> bool:
    ending = recording.ending
    if ending is None or (ending.signal is None and ending.process is None):
        return False
    return any(
        run.end is None and run.state != "running" and run.span_id is not None
        for run in recording.runs
    )
