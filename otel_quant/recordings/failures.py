"""Which failure came first: in which steps of a run, and in which of several processes if it led to the program's own."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Final, NamedTuple

from otel_quant.base.fault_boundary import BECAUSE
from otel_quant.recordings.model import RecordedRun, RecordedStep, Recording, known, script_of
from otel_quant.recordings.summary import outermost_runs
from otel_quant.schema import semconv

EXIT_CODE: Final = "exit code "
"""How the error of a process begins that failed without an exception."""

_OF_CHILDREN: Final = frozenset({
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError",
    "torch.multiprocessing.spawn.ProcessExitedException",
    "concurrent.futures.process.BrokenProcessPool",
    "joblib.externals.loky.process_executor.TerminatedWorkerError",
})  # fmt: skip
"""Exceptions that report the failure of a child process."""

_OF_SPAWN: Final = "torch.multiprocessing.spawn.ProcessRaisedException"
"""The same with the child's traceback, which is cut before what the child has raised where it is long."""

_OF_COMMAND: Final = "subprocess.CalledProcessError"
"""The same of the child whose command is in the message."""


_PEERS: Final = re.compile(
    r"(?is)(?=.*(gloo|nccl|c10d|torch\.distributed\.|tcpstore)).*(clos(ed|ure)|reset by peer|broken pipe"
    r"|(read|write) error|remote process|failed to recv|got 0 bytes|timed? ?out)"
)
"""What torch raises in a rank because another rank is gone or does not answer."""

_UNFINISHED: Final = ".UnfinishedStepError"
"""What the recorder closes steps with that are open when their run ends."""

_SEEN_LATE: Final = 0.25
"""Seconds after the end of a child process after which the launcher has seen it, at most."""


def is_unfinished(step: RecordedStep) -> bool:
    """Whether a step was still open when its run ended: in another thread, mostly."""
    return (step.error or "").endswith(_UNFINISHED)


class Failure(NamedTuple):
    """How a run failed."""

    run: RecordedRun
    steps: tuple[RecordedStep, ...]  # Those that the exception has ended, outermost first
    time: float  # When

    @property
    def of(self) -> RecordedRun | RecordedStep:
        """What has the exception: the innermost step, else the run."""
        return self.steps[-1] if self.steps else self.run


def is_caused_by_peer(failure: Failure) -> bool:
    """Whether torch's exception shows that another rank was the cause."""
    return _PEERS.search(f"{failure.of.error}: {failure.of.error_message}") is not None


def failed_steps(
    run: RecordedRun, is_it: Callable[[RecordedStep], bool]
) -> tuple[RecordedStep, ...]:
    """Returns the steps that one exception has ended, outermost first: those that ended last.

    A program may have survived the same exception of an earlier step.
    """
    failed = [step for step in run.steps if step.error is not None and is_it(step)]
    found: list[RecordedStep] = []
    while failed:
        found.append(max(failed, key=lambda step: (step.end or 0.0, -step.index)))
        failed = [step for step in failed if step.parent == found[-1].index]
    return tuple(found)


def handled_last(run: RecordedRun | None) -> tuple[RecordedStep, ...]:
    """Returns the steps that one exception has ended, if no step began after them: its program handled it, and began no other."""
    found = () if run is None else failed_steps(run, lambda step: not is_unfinished(step))
    is_last = run and found and all(step.start <= (found[0].end or 0.0) for step in run.steps)
    return found if is_last else ()


def has_ended(run: RecordedRun, step: RecordedStep, code: str | None = None) -> bool:
    """Whether the exception of a step has ended its run, too. A profile has no message of the run's."""
    if not has_exit_code(run.error):
        return step.error == run.error and run.error_message in (None, step.error_message)
    given = step.error_message or ""
    made = f"{EXIT_CODE}{given if given.isdecimal() else 1}"  # exit("text") is 1
    return step.error == "SystemExit" and made == (run.error or code)


def failures(recording: Recording) -> list[Failure]:
    """Returns the runs that failed, in the order of their failures."""
    found = [_failure(run, partial(has_ended, run)) for run in recording.runs if run.error]
    return sorted(found, key=attrgetter("time"))


def failure_of(recording: Recording) -> Failure | None:
    """Returns the failure of a program that failed by itself, as :func:`first_failure` does."""
    if recording.state != "failed":
        return None
    runs, ending = outermost_runs(recording), recording.ending
    is_single = recording.launcher is None and len({run.process for run in runs}) == 1
    own = [run for run in runs if is_single or run.parent_pid == recording.launcher]
    newest = max(own, key=attrgetter("start"), default=None)
    return first_failure(recording, newest, None if ending is None else ending.exit_code)


def first_failure(
    recording: Recording, own: RecordedRun | None, exit_code: int | None
) -> Failure | None:
    """Returns the failure of a program, or the first of another process that is known to have led to it.

    `own` is the run of the program itself, if it has one; `exit_code` is the program's, if it is known. What
    failed before and is not known to have led to it, the program may have survived.
    """
    code = None if exit_code is None else f"{EXIT_CODE}{exit_code}"
    first = None if own is None else _failure(own, partial(has_ended, own, code=code))
    while earlier := [*_led_to(first, recording, code)]:
        first = min(earlier, key=lambda each: (is_caused_by_peer(each), each.time))
    return first if first is not None and first.of.error else None


def _failure(run: RecordedRun, is_it: Callable[[RecordedStep], bool]) -> Failure:
    steps = failed_steps(run, is_it)
    ends = (*(each.end for each in steps[-1:]), run.end, run.gone, run.start)
    return Failure(run, steps, known(ends)[0])


def _led_to(failure: Failure | None, recording: Recording, code: str | None) -> Iterator[Failure]:
    """Yields what led to a failure, or to the end of a program without a run, in processes that it has started."""
    every = failures(recording)
    if failure is None:
        yield from (each for each in every if _has_led(each, every, code, ""))
        return
    runs = [run for run in recording.runs if _is_below(run, failure, recording)]
    error, message = failure.of.error, failure.of.error_message
    found = [each for each in every if each.run in runs]
    is_silent = error == "SystemExit" and failure.run.error != "SystemExit"  # no text tells why
    if has_exit_code(error) or is_silent:
        error = failure.run.error or code
    else:  # a pool passes on what a worker has raised, others quote it
        same = _with_what_is_passed_on(runs, error, message or "")
        yield from (each for each in same if each.time < failure.time)
    for each in found:
        late = _SEEN_LATE if each.run.end is None and not each.steps else 0.0
        if each.time - late < failure.time and _has_led(each, every, error, message or ""):
            yield each


def _with_what_is_passed_on(
    runs: Sequence[RecordedRun], error: str | None, message: str
) -> list[Failure]:
    """Returns the failures of steps by an exception that a pool has passed on."""
    found = [_failure(run, partial(_is_passed_on, error, message)) for run in runs]
    if error == _OF_SPAWN and message.endswith("…"):
        failed = [run for run in runs if run.error]
        found += [_failure(run, lambda step: not is_unfinished(step)) for run in failed]
    return [each for each in found if each.steps]


def _is_passed_on(error: str | None, message: str, step: RecordedStep) -> bool:
    # What the worker's was raised from stays there.
    text = f"{step.error}: {str(step.error_message).partition(BECAUSE)[0]}"
    return text == f"{error}: {message}" or message.endswith(text)


def _has_led(failure: Failure, every: Sequence[Failure], error: str | None, message: str) -> bool:
    """Whether a failure is known to have led to an exception, or an exit code, of the process above; None for any."""
    if error == _OF_COMMAND:
        command = str(failure.run.attributes.get(semconv.PROCESS_COMMAND_LINE, ""))
        return (script_of(command) or "-") in message
    if has_exit_code(error) or error in _OF_CHILDREN:
        # Whoever has waited for it went on if another was started after it.
        ended = known((failure.run.gone, failure.time))[0]
        others = (each.run.began for each in every if each.run is not failure.run)
        is_survived = any((began or -math.inf) > ended for began in others)
        own = failure.run.error if has_exit_code(failure.run.error) else f"{EXIT_CODE}1"
        return not is_survived and error in (None, own, *_OF_CHILDREN)
    return re.search(rf"\b(pid|process)\b.*\b{failure.run.pid}\b", message) is not None


def has_exit_code(error: str | None) -> bool:
    """Whether a process has no exception, but an exit code at most."""
    return error is None or error.startswith(EXIT_CODE)


def _is_below(run: RecordedRun, failure: Failure, recording: Recording) -> bool:
    """Whether a process was started by one that failed, or by one that is not known and that it may have started."""
    parents = {each.pid: each.parent_pid for each in recording.runs}
    above, pid = failure.run.pid, run.pid
    while pid in parents and pid != above:
        pid = parents.pop(pid)
    is_outermost = failure.run in outermost_runs(recording)
    return run.pid != above and (pid == above or (is_outermost and pid != recording.launcher))
