"""What ``otel-quant run`` does from the start of the program to its end, and after it."""

from __future__ import annotations

import dataclasses
import gc
import logging
import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

from otel_quant.base.fault_boundary import FAULTS, start_thread
from otel_quant.base.log import LOG
from otel_quant.format.event_file import REPORT, processes_in
from otel_quant.launcher.ending import LaunchedRecording
from otel_quant.launcher.program import Program, ProgramElsewhere
from otel_quant.launcher.start import missing_script, take_notes, why_no_step, why_nothing_sent

if TYPE_CHECKING:
    from otel_quant.cli.on_warning import WarningCommand
    from otel_quant.launcher.upload import Upload
    from otel_quant.recordings.model import Ending, Recording
    from otel_quant.views.document import Document

_VIEW_ENDS: Final = 10.0  # Seconds that the live view has for its last look
_MOST_STEPS: Final = 50  # Steps that are printed at the end, of all processes together
_FEWEST_STEPS: Final = 5  # Steps that are printed of each of many processes


def recorded_to_its_end(
    program: Program | ProgramElsewhere, made: str, began_ns: int, arguments: Sequence[str],
    environ: Mapping[str, str], options: Namespace | SimpleNamespace,
) -> int:  # fmt: skip
    """Completes the recording of a program that was started, and prints it; returns the program's exit code."""
    folder = Path(made)
    ended: Ending | None = None
    held = _HeldMessages()
    warner = upload = None
    if options.on_warning is not None:
        from otel_quant.cli.on_warning import WarningCommand

        warner = WarningCommand(folder, options.on_warning)
        start_thread(warner.look_until_the_end, "otel-quant warnings")
    if options.upload is not None:
        from otel_quant.launcher.upload import Upload

        upload = Upload(folder, options.upload)
        start_thread(upload.send_until_the_end, "otel-quant upload")
    recording = LaunchedRecording(
        folder, began_ns, program.pid, arguments, environ, options.continues
    )
    with _shown(folder, options.watch) as while_stopped:
        how = program.wait(while_stopped, recording.look_last)
        with FAULTS.kept_in("end of the recording"), suppress(KeyboardInterrupt):
            ended = recording.finish(how)
    # What is missing after Ctrl-C can be had from the recording later: the program is over.
    with FAULTS.kept_in("end of the recording"), suppress(KeyboardInterrupt, BrokenPipeError):
        gc.disable()  # of many steps it would look through all objects again and again; we end soon
        text = _last_words(
            folder, ended, missing_script(arguments, how[0]), options, warner, upload
        )
        held.release("--upload" if options.quiet else "")
        if text:
            print(text, file=sys.stderr)
    return how[0]


class _HeldMessages:
    """Our messages, which wait for the end, not to stand within the program's output."""

    def __init__(self) -> None:
        self._held: list[logging.LogRecord] = []
        LOG.addFilter(self._hold)

    def _hold(self, record: logging.LogRecord) -> bool:
        self._held.append(record)
        return False  # it goes no further

    def release(self, beginning: str) -> None:
        """Has the logger handle those that begin so."""
        LOG.removeFilter(self._hold)
        for record in self._held:
            if record.msg.startswith(beginning):
                LOG.handle(record)


def _last_words(
    folder: Path, ended: Ending | None, missing: str | None, options: Namespace | SimpleNamespace,
    warner: WarningCommand | None, upload: Upload | None,
) -> str:  # fmt: skip
    """Returns what is printed at the end, and makes the report."""
    from otel_quant.recordings.reader import read
    from otel_quant.views.endings import ending_lines
    from otel_quant.views.show import document
    from otel_quant.views.text import printable

    notes = take_notes(os.fspath(folder))
    # Short where it is below the current folder
    near = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    if not folder.is_dir():
        line = f"{near} was removed while the program ran: there is no recording"
        return _without_recording(line, ending_lines(ended), options)
    if missing is not None and not processes_in(folder):
        for each in folder.iterdir():
            each.unlink()
        if options.out is None:
            folder.rmdir()
        return _without_recording(f"{missing} does not exist: nothing was recorded", (), options)
    recorded = read(near, ended)
    if warner is not None:
        with FAULTS.kept_in("--on-warning"):
            warner.end(recorded)
    text = ""
    if not options.quiet:
        from otel_quant.cli.audit import audited

        text = _text(recorded, notes)
        with FAULTS.kept_in("audit"):
            text += "".join(f"\naudit:     {printable(line)}" for line in audited(recorded))
    if options.fix:
        from otel_quant.cli.fix import fixed_beside

        with FAULTS.kept_in("--fix"):
            text += "".join(f"\nfix:       {printable(line)}" for line in fixed_beside(recorded))
    if not options.no_report:
        with FAULTS.kept_in("report"):
            text += _report(recorded)
    for tracker in options.trackers:
        from otel_quant.cli.trackers import log_run

        with FAULTS.kept_in(f"--{tracker}"):
            text += f"\n{printable(log_run(recorded, tracker))}"
    text += upload.end() if upload is not None else ""
    lines = [] if options.quiet else [text]
    if options.brief is not None:
        with FAULTS.kept_in("--brief"):
            of = document({os.fspath(recorded.path): recorded})
            lines += _brief(of, options.brief)
    return "\n".join(lines)


def _without_recording(
    why: str, ending: Sequence[str], options: Namespace | SimpleNamespace
) -> str:
    """Returns why there is nothing to show, in the forms that are asked for."""
    from otel_quant.views.document import Document, Lines
    from otel_quant.views.text import printable

    lines = [] if options.quiet else [printable(f"otel-quant: {why}"), *map(printable, ending)]
    if options.brief is not None:
        with FAULTS.kept_in("--brief"):
            of = Document((Lines((why, *ending)),), title="otel-quant run", is_bad=True)
            lines += _brief(of, options.brief)
    return "\n".join(lines)


def _brief(document: Document, path: str) -> Iterator[str]:
    """Yields the answer for programs, unless it goes to a file."""
    from otel_quant.views.writers import brief_line

    line = brief_line(document)
    if path == "-":
        yield line
    else:
        Path(path).write_text(f"{line}\n", "utf-8")


@contextmanager
def _shown(folder: Path, is_watched: bool) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Shows the recording during a block; gives what makes room on the screen meanwhile."""
    if not is_watched:
        yield nullcontext
        return
    from otel_quant.views.watch import LiveView

    view = LiveView(folder, sys.stderr)

    def show() -> None:
        with FAULTS.kept_in("live view"):
            view.show()

    thread = start_thread(show, "otel-quant view")
    try:
        yield view.paused
    finally:
        view.end()
        if thread is not None:
            with suppress(KeyboardInterrupt):
                thread.join(_VIEW_ENDS)


def _text(recording: Recording, notes: Sequence[str]) -> str:
    """Returns what is printed at the end: the steps, what went wrong, and where the recording is."""
    from otel_quant.views.endings import ending_lines
    from otel_quant.views.show import document
    from otel_quant.views.text import printable, terminal_width
    from otel_quant.views.writers import terminal_text

    where = printable(shlex.quote(os.fspath(recording.path)))
    # What models cost is in the report: it would take the steps off the screen.
    runs = tuple(dataclasses.replace(run, models=()) for run in recording.runs)
    most = max(_FEWEST_STEPS, _MOST_STEPS // max(1, len(runs)))
    shown = document({where: dataclasses.replace(recording, runs=runs)}, most)
    lines = []
    is_empty = not any(run.steps or run.error for run in runs)
    if not is_empty or ending_lines(recording.ending):
        lines += ["", terminal_text(shown, terminal_width(sys.stderr))]
    if any(len(run.steps) > most for run in runs):
        lines.append(f"more steps: otel-quant show {where}")
    if is_empty:
        # A process that has begun a run makes its file before it writes the first event.
        is_lost = not runs and bool(processes_in(recording.path))
        why = "the recording could not be written" if is_lost else printable(why_no_step(notes))
        code = recording.ending.exit_code if recording.ending is not None else None
        failed = f"the program failed with exit code {code}, and " if code else ""
        lines.append(f"otel-quant: {failed}no step was recorded: {why}")
    if unsent := why_nothing_sent(notes):
        lines.append(f"otel-quant: {printable(unsent)}")
    lines.append(f"recording: {where}")
    if recording.state == "ended" and any(run.steps for run in runs):
        lines.append(f"compare:   otel-quant compare {where} OTHER")
    return "\n".join(lines)


def _report(recording: Recording) -> str:
    """Makes the report; returns a line with its place, or why there is none."""
    from otel_quant.views.html import write_page
    from otel_quant.views.report import render
    from otel_quant.views.text import printable

    path = recording.path / REPORT
    try:
        write_page(path, render(recording))
    except OSError as error:
        return f"\nreport:    none, {error}"
    return f"\nreport:    {printable(os.fspath(path))}"
