"""What the launcher itself writes into a recording, from the program's start to its end, and sends of that.

A process of its own sends the end of a program that was killed to where its telemetry goes: it has the SDK as
the environment configures it, and can be stopped when the time is over.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from otel_quant.base.environment import settings_from
from otel_quant.base.fault_boundary import FAULTS
from otel_quant.base.log import LOG
from otel_quant.capture.recorder.origin import git_head, shown_command
from otel_quant.export.otel.default_exporters import defaults_in
from otel_quant.export.recording.event_file import complete_manifest, create_manifest
from otel_quant.launcher.observer import INTERVAL, Observer
from otel_quant.launcher.post_mortem import ending_in
from otel_quant.launcher.program_end import Ending as ProgramEnding
from otel_quant.launcher.start import TRACEPARENT
from otel_quant.recordings.model import Ending, Recording
from otel_quant.recordings.reader import read
from otel_quant.schema import semconv

_WITHOUT: Final = frozenset({"OTEL_QUANT_RECORD", "QUARK_PROFILING", "OTEL_QUANT_PROFILE"})


def send_ending(folder: Path, environ: Mapping[str, str], timeout: float) -> None:
    """Ends the spans that were open, under their own ids, and sends a log record, and the span of a pipeline.

    Does nothing where there are none, or nothing is configured that sends.
    """
    is_silent = defaults_in(environ, environ) is not None
    if timeout <= 0 or is_silent or not _has_unsent_spans(read(folder)):
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


def _has_unsent_spans(recording: Recording) -> bool:
    ending = recording.ending
    if ending is None:
        return False
    if recording.span is not None:
        return any(run.trace_id == recording.span[0] for run in recording.runs)
    return (ending.signal is not None or ending.process is not None) and any(
        run.end is None and run.state != "running" and run.span_id is not None
        for run in recording.runs
    )


_GIT: Final = ("git", "-c", "core.fsmonitor=false", "--no-optional-locks")
_GIT_ENDS: Final = 2.0
"""Seconds that git gets to answer, after the program has ended."""


class LaunchedRecording:
    """The recording of a program that has just been started.

    It never raises: what fails is logged once and is missing from the recording.
    """

    def __init__(
        self,
        folder: Path,
        began_ns: int,
        pid: int,
        arguments: Sequence[str],
        environ: Mapping[str, str],
    ) -> None:
        self._folder, self._began_ns = folder, began_ns
        # The ids of the span above the spans of the program's processes
        ours = environ.get(TRACEPARENT) if TRACEPARENT not in os.environ else None
        self._span = (
            dict(zip(("trace_id", "span_id"), ours.split("-")[1:3], strict=True)) if ours else {}
        )
        self._observer: Observer | None = None
        settings = settings_from(environ, warn=False)
        self._exit_timeout = settings.exit_timeout
        with FAULTS.kept_in("manifest"):
            shown = arguments if settings.arguments else arguments[:1]
            command = shown_command(shown, paths=settings.paths)
            create_manifest(folder, began_ns, "launcher", {semconv.PROCESS_COMMAND_LINE: command})
        self._git: subprocess.Popen[bytes] | None = None
        with FAULTS.kept_in("git repository"):
            self._git = _ask_git(Path.cwd(), environ)
        with FAULTS.kept_in("observer"):
            interval = settings.sample_interval or INTERVAL
            self._observer = Observer(folder, pid, interval, environ)
            self._observer.start()

    def look_last(self) -> None:
        """Notes what is known of the program until it is waited for."""
        if self._observer is not None:
            self._observer.look_last()

    def finish(self, ended: ProgramEnding) -> Ending | None:
        """Completes the recording."""
        ending: Ending | None = None
        fields: dict[str, object] = {"ended": time.time_ns(), **self._span}
        with FAULTS.kept_in("observer"):
            if self._observer is not None:
                seen = self._observer.observe(ended)
                ending = fields["ending"] = ending_in(self._folder, self._began_ns, seen)
                fields["summary"] = self._observer.summary()
        with FAULTS.kept_in("git repository"):
            is_dirty = _answer_of(self._git) if self._git is not None else None
            if is_dirty is not None:
                fields["origin"] = {semconv.VCS_DIRTY: is_dirty}
        with FAULTS.kept_in("manifest"):
            complete_manifest(self._folder, **fields)
        with FAULTS.kept_in("end of the spans"):
            if ending is not None and (ending.signal or ending.process or self._span):
                send_ending(self._folder, os.environ, self._exit_timeout)
        return ending


def _ask_git(folder: Path, environ: Mapping[str, str]) -> subprocess.Popen[bytes] | None:
    """Asks git which files differ from the commit; None outside of a repository, or without git."""
    if git_head(folder)[0] is None:
        return None
    try:
        return subprocess.Popen(  # noqa: S603 - no word of it is the user's
            [*_GIT, "status", "--porcelain", "--untracked-files=no"],
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        return None


def _answer_of(git: subprocess.Popen[bytes]) -> bool | None:
    try:
        changes, _ = git.communicate(timeout=_GIT_ENDS)
    except subprocess.TimeoutExpired:
        git.kill()
        git.communicate()
        return None
    return bool(changes) if git.returncode == 0 else None
