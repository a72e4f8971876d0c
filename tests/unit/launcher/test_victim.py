"""Which process of a program was killed or failed first."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from otel_quant.launcher.observer import LastSeen, Observation, with_mark
from otel_quant.launcher.victim import Victim, find_victim
from otel_quant.recordings.model import RecordedRun
from tests.unit.launcher.ended_programs import (
    CHILD,
    MB,
    PROGRAM,
    kills,
    last_seen,
    recording,
    run,
    seen,
    step,
)

OPEN = step()
ERROR = {"end": 4.9, "state": "failed"}


def child(*steps: Any, number: int = 0, **fields: Any) -> RecordedRun:
    return run(*steps, pid=CHILD + number, id=str(number), **fields)


def failed(index: int, end: float, error: str = "ValueError", **fields: Any) -> Any:
    return step(index=index, end=end, error=error, state="failed", **fields)


@pytest.mark.parametrize(
    ("observation", "runs", "expected"),
    [
        pytest.param(
            seen(signal=signal.SIGKILL), [child(OPEN)], (PROGRAM, signal.SIGKILL, "0", [0], 5.0),
            id="a shell that was killed with the program that it ran",
        ),
        pytest.param(
            seen(exit_code=1, signals={CHILD: signal.SIGTERM, CHILD + 1: signal.SIGKILL},
                 last_seen={CHILD: last_seen(MB, 4.2), CHILD + 1: last_seen(MB, 4.6)}),
            [child(OPEN), child(OPEN, number=1)], (CHILD + 1, signal.SIGKILL, "1", [0], 4.6),
            id="a worker that was ended for another that was killed, but seen first",
        ),
        pytest.param(
            seen(exit_code=1), [child(OPEN, state="running")], (PROGRAM, None, None, [], 5.0),
            id="a worker that goes on after the program",
        ),
        pytest.param(
            seen(exit_code=0, signals={CHILD: signal.SIGKILL}, last_seen={CHILD: last_seen(MB)}),
            [child()], None,
            id="a worker without work",
        ),
        pytest.param(
            seen(exit_code=0, signals={CHILD: signal.SIGKILL}, last_seen={CHILD: last_seen(MB, 4)}),
            [child(OPEN)], (CHILD, signal.SIGKILL, "0", [0], 4.0),
            id="a worker that was killed and that the program survives",
        ),
        pytest.param(
            seen(exit_code=0, signals={CHILD: signal.SIGTERM}), [child(OPEN)], None,
            id="a worker that its pool has ended",
        ),
        pytest.param(
            seen(exit_code=0), [child(OPEN)], None, id="a worker that ended, nobody knows how",
        ),
        pytest.param(
            seen(exit_code=0), [run(failed(0, 4.8), **ERROR)], None,
            id="a program that has survived its exception",
        ),
        pytest.param(
            seen(exit_code=0, signals={300: signal.SIGKILL}), [], None,
            id="a small process that is no worker",
        ),
        pytest.param(
            seen(exit_code=0, signals={300: signal.SIGKILL}, last_seen={300: last_seen(MB, 3)}), [],
            (300, signal.SIGKILL, None, [], 3.0),
            id="a large process that is no worker",
        ),
        pytest.param(
            seen(exit_code=0, oom_kills=kills(1)), [child(OPEN)], (CHILD, None, "0", [0], 5.0),
            id="a worker that ended unseen while the kernel killed one",
        ),
        pytest.param(
            seen(exit_code=0, oom_kills=kills(1, is_of_host=True)), [child(OPEN)], None,
            id="a worker that ended unseen while the kernel killed any process of the machine",
        ),
        pytest.param(
            seen(exit_code=139), [], (None, signal.SIGSEGV, None, [], 5.0),
            id="a child of a shell, by the exit code",
        ),
        pytest.param(
            seen(signal=signal.SIGKILL),
            [run(OPEN, id="a"), run(OPEN, id="b", start=2.0), run(id="c", start=3.0, end=4.0)],
            (PROGRAM, signal.SIGKILL, "b", [0], 5.0),
            id="the newest run of the program that is open",
        ),
        pytest.param(
            seen(exit_code=1),
            [run(failed(0, 4.8, "RuntimeError", error_message="std::bad_alloc"),
                 failed(1, 4.7, "MemoryError", parent=0),
                 error="RuntimeError", error_message="std::bad_alloc", **ERROR)],
            (PROGRAM, None, "a", [0, 1], 4.7),
            id="one want of memory that two exceptions report",
        ),
        pytest.param(
            seen(exit_code=1),
            [run(failed(0, 4.8), failed(1, 4.8, parent=0), error="ValueError", **ERROR)],
            (PROGRAM, None, "a", [0, 1], 4.8),
            id="two steps that one exception has ended at the same moment",
        ),
        pytest.param(
            seen(exit_code=1),
            [run(failed(0, 2.0), failed(1, 4.8), error="ValueError", **ERROR)],
            (PROGRAM, None, "a", [1], 4.8),
            id="an exception like an earlier one that the program has survived",
        ),
    ],
)  # fmt: skip
def test_the_process_that_ended_first_by_itself_is_found(
    observation: Observation, runs: list[RecordedRun], expected: tuple[Any, ...] | None
) -> None:
    found = find_victim(observation, recording(*runs))
    if expected is None:
        assert found is None
        return
    pid, number, of_run, steps, time = expected
    (its_run,) = [each for each in runs if each.id == of_run] or [None]
    its_steps = tuple(its_run.steps[index] for index in steps) if its_run is not None else ()
    assert found == Victim(pid, number, its_run, its_steps, pytest.approx(time))


@pytest.mark.parametrize(
    ("last", "mark", "expected"),
    [
        (None, 7, 7),
        (None, None, None),
        (LastSeen(0, 10, 10, (("a", 8), ("b", 2))), None, None),
        (LastSeen(0, 10, 10, (("a", 8), ("b", 2))), 11, 13),
        (LastSeen(0, 10, 10, (("a", 8), ("b", 2))), 5, 10),
        (LastSeen(0, 10, 10, ()), 5, 15),
    ],
)
def test_growth_of_the_largest_process_is_added_to_the_last_reading(
    last: LastSeen | None, mark: int | None, expected: int | None
) -> None:
    assert with_mark(last, mark) == expected
