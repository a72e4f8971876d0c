"""Which failure came first, of steps and of processes; what a program has survived is not its reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_quant.recordings.failures import failure_of, failures
from otel_quant.recordings.model import Ending, RecordedRun, RecordedStep, Recording
from otel_quant.schema import semconv

LAUNCHER, OWN = 90, 100
CHILD_FAILED = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"


def step(error: str | None, end: float, message: str | None = None, index: int = 0) -> RecordedStep:
    return RecordedStep(
        index=index, name=f"step {index}", kind="Calibration", start=0.0, end=end,
        state="failed" if error else "ended", error=error, error_message=message,
    )  # fmt: skip


def run(
    pid: int,
    error: str | None,
    end: float,
    message: str | None = None,
    *steps: RecordedStep,
    **more: Any,
) -> RecordedRun:
    known: dict[str, Any] = {
        "parent_pid": LAUNCHER if pid == OWN else OWN, "start": 0.5, "process": str(pid),
        "attributes": {semconv.PROCESS_COMMAND_LINE: f"python {pid}.py"},
    }  # fmt: skip
    return RecordedRun(
        id=str(pid), pid=pid, end=end, state="failed", error=error, error_message=message,
        steps=steps, **{**known, **more},
    )  # fmt: skip


HANDLED = step("RuntimeError", 1.0, "handled")
OF_RANKS = run(OWN, CHILD_FAILED, 9.0, "=== FAILED")
FAILED: dict[str, tuple[list[RecordedRun], int, tuple[int, list[int]] | None]] = {
    "an exception outside of steps": ([run(OWN, "ValueError", 9.0, "real", HANDLED)], 1, (OWN, [])),
    "an exception of the same class that was caught": (
        [run(OWN, "RuntimeError", 9.0, "real", HANDLED)], 1, (OWN, []),
    ),
    "an exception of a step": (
        [run(OWN, "ValueError", 9.0, "real", HANDLED, step("ValueError", 8.0, "real", 1))], 1, (OWN, [1]),
    ),
    "an exit outside of steps": ([run(OWN, None, 9.0, None, HANDLED)], 3, None),
    "an exit within a step": ([run(OWN, None, 9.0, None, HANDLED, step("SystemExit", 8.0, "3", 1))], 3, (OWN, [1])),
    "an exit that was caught": ([run(OWN, None, 9.0, None, step("SystemExit", 8.0, "2"))], 3, None),
    "an exit with a text": ([run(OWN, None, 9.0, None, step("SystemExit", 8.0, "no model"))], 1, (OWN, [0])),
    "ranks": ([OF_RANKS, run(1, "KeyError", 5.0, "a"), run(2, "OSError", 4.0, "b")], 1, (2, [])),
    "ranks that lost the one that failed": (
        [OF_RANKS, run(1, "RuntimeError", 4.0, "[/gloo/transport/tcp/pair.cc:561] Connection closed by peer"), run(2, "OSError", 5.0, "b")],
        1, (2, []),
    ),
    "ranks that were started again": (
        [OF_RANKS, run(1, "KeyError", 2.0, "a", began=1.0, gone=2.1), run(2, "OSError", 4.0, "b", began=3.0)],
        1, (2, []),
    ),
    "a worker that the message names": (
        [run(OWN, "RuntimeError", 9.0, "DataLoader worker (pid(s) 7) exited"), run(6, "KeyError", 1.0), run(7, "OSError", 2.0)],
        1, (7, []),
    ),
    "a worker that the message does not name": (
        [run(OWN, "RuntimeError", 9.0, "shape (7, 3)"), run(7, "OSError", 2.0)], 1, (OWN, []),
    ),
    "an exception that a pool has passed on": (
        [run(OWN, "ValueError", 9.0, "bad shard"), run(7, None, 8.0, None, step("ValueError", 8.0, "bad shard"))],
        1, (7, [0]),
    ),
    "an exception that quotes a worker's": (
        [
            run(OWN, "torch.multiprocessing.spawn.ProcessRaisedException", 9.0, "-- Process 1 terminated: ValueError: bad shard"),
            run(6, None, 8.0, None, step("ValueError", 7.0, "bad")),
            run(7, "exit code 1", 8.5, None, step("ValueError", 8.0, "bad shard")),
        ],
        1, (7, [0]),
    ),
    "an exception that quotes a worker's, cut before that": (
        [
            run(OWN, "torch.multiprocessing.spawn.ProcessRaisedException", 9.0, "-- Process 1 terminated: Traceback …"),
            run(5, None, 8.0, None, step("KeyError", 2.0, "survived")),
            run(6, "exit code 1", 8.5, None, step("RuntimeError", 6.0, "[gloo/pair.cc:561] Connection closed by peer")),
            run(7, "exit code 1", 8.5, None, step("ValueError", 7.0, "bad shard")),
        ],
        1, (7, [0]),
    ),
    "an exception that quotes one of no step": (
        [run(OWN, "torch.multiprocessing.spawn.ProcessRaisedException", 9.0, "-- Process 1 terminated: ValueError: bad"), run(7, "exit code 1", 8.5)],
        1, (OWN, []),
    ),
    "an exit with a worker's exit code": (
        [run(OWN, None, 9.0), run(6, "exit code 3", 1.0), run(7, "exit code 4", 2.0)], 4, (7, []),
    ),
    "a worker that was seen only as it ended": (
        [run(OWN, None, 9.0), run(7, "SystemExit", 2.0, "no model", began=2.1)], 1, (7, []),
    ),
    "an exit with another code than the worker's": ([run(OWN, None, 9.0), run(7, "OSError", 2.0)], 3, None),
    "a command that the message names": (
        [run(OWN, "subprocess.CalledProcessError", 9.0, "Command '['python', '7.py']' returned"), run(6, "KeyError", 1.0), run(7, "OSError", 2.0)],
        1, (7, []),
    ),
    "a command that is no Python": (
        [run(OWN, "subprocess.CalledProcessError", 9.0, "Command 'gcc' returned"), run(6, "KeyError", 1.0)], 1, (OWN, []),
    ),
    "the worker of a rank": (
        [OF_RANKS, run(1, "RuntimeError", 5.0, "worker (pid 7) died"), run(7, "OSError", 4.0, "b", parent_pid=1)],
        1, (7, []),
    ),
    "stages of a shell": (
        [run(1, "KeyError", 2.0, began=1.0, parent_pid=50), run(2, "OSError", 4.0, began=3.0, parent_pid=50)], 1, (2, []),
    ),
    "a worker that failed later": ([run(OWN, CHILD_FAILED, 3.0), run(1, "KeyError", 5.0, "a")], 1, (OWN, [])),
}  # fmt: skip


def recording(runs: list[RecordedRun], exit_code: int | None) -> Recording:
    ending = None if exit_code is None else Ending(time=10.0, exit_code=exit_code)
    return Recording(
        path=Path("r"), began_ns=0, state="failed", duration=10.0, runs=tuple(runs), ending=ending,
        launcher=None if exit_code is None else LAUNCHER,
    )  # fmt: skip


@pytest.mark.parametrize(("runs", "exit_code", "expected"), FAILED.values(), ids=FAILED)
def test_the_first_failure_is_the_one_that_is_known_to_have_led_to_the_end(
    runs: list[RecordedRun], exit_code: int, expected: tuple[int, list[int]] | None
) -> None:
    found = failure_of(recording(runs, exit_code))
    assert (found and (found.run.pid, [each.index for each in found.steps])) == expected


def test_without_a_launcher_the_first_of_several_processes_counts() -> None:
    runs = [run(1, "KeyError", 5.0, parent_pid=50), run(2, "OSError", 4.0, parent_pid=50)]
    found = failure_of(recording(runs, None))
    assert found is not None
    assert found.run.pid == 2


def test_a_program_that_ended_well_has_no_failure_but_those_within_it() -> None:
    ended = replace(recording([run(OWN, None, 9.0), run(7, "OSError", 2.0)], 0), state="ended")
    assert failure_of(ended) is None
    assert [each.run.pid for each in failures(ended)] == [7]
