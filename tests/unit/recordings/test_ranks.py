"""Ranks of a job on two nodes: which failed first, which kept the others waiting, and when neither is known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from otel_quant.diagnosis.stack_trees import Stacks
from otel_quant.format.event_file import as_json, stacks_as_lists
from otel_quant.recordings.model import Ending, RecordedRun, RecordedStep, Recording
from otel_quant.recordings.ranks import FirstFailed, first_failed, ranks_of, straggler
from otel_quant.recordings.reader import read
from otel_quant.schema import semconv
from otel_quant.schema.code_lines import BEFORE, Amounts, Place, Spot
from otel_quant.views.ranks import job_sentences
from otel_quant.views.show import document
from otel_quant.views.writers import terminal_text, written
from tests.fixtures.commands import Commands
from tests.fixtures.recorded import BEGAN_NS, RecordedFolder

WORK, READ, MORE = (Place("/q/q.py", name, line, "") for name, line in (("work", 5), ("read", 9), ("read", 10)))  # fmt: skip
REDUCE = Place("torch/distributed/distributed_c10d.py", "all_reduce", 3030, "torch")
ADAM = Place("torch/optim/adam.py", "step", 7, "torch")
GLOO = (
    "RuntimeError",
    "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:561] Connection closed by peer [10.0.0.2]:1",
)
LATE = (
    "RuntimeError",
    "[/x/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 8000ms for recv operation to complete",
)
STORE = "torch.distributed.DistNetworkError", "failed to recv, got 0 bytes"
NCCL = (
    "torch.distributed.DistBackendError",
    "NCCL error: ncclRemoteError: A call failed possibly due to a remote process exiting",
)
RESET = "ConnectionResetError", "[Errno 104] Connection reset by peer"


class Seen(NamedTuple):
    """Where a rank was, in seconds."""

    ran: float = 5.0  # In `work`
    waited: float = 1.0  # For a processor there
    in_collectives: float = 4.0
    reading: float = 0.0  # Blocked, at two lines of one function
    other: float = 0.0  # On a processor, in another function


def node(folder: Path, ranks: dict[int, dict[str, Any]], **more: Any) -> Recording:
    """Returns a node's recording, with what is known of each of its ranks."""
    folder.mkdir(parents=True, exist_ok=True)
    attributes = {semconv.RUN_JOB: more.pop("job", "slurm 7"), semconv.HOST_NAME: more.pop("host", folder.name)}  # fmt: skip
    runs = []
    for rank, known in ranks.items():
        fields = {"end": 10.0, "state": "ended", **known}
        seen, line = fields.pop("seen", Seen()), fields.pop("line", None)
        steps = (RecordedStep(index=0, name="Calibration", kind="Calibration", start=1.0, state="lost", line=line),)  # fmt: skip
        pid = 100 + rank
        run = RecordedRun(
            id=f"{pid:016x}", process=str(pid), pid=pid, parent_pid=1, rank=rank, world_size=4, start=0.5,
            attributes=attributes, steps=steps if line else (), **fields,
        )  # fmt: skip
        runs.append(run)
        stacks = Stacks()
        for lines, time, cpu, waiting in (
            ((WORK,), seen.ran + seen.waited, seen.ran, seen.waited),
            ((WORK, REDUCE), seen.in_collectives, 0, 0),
            ((READ,), seen.reading * 0.6, 0, 0),
            ((MORE,), seen.reading * 0.4, 0, 0),
            ((WORK, ADAM), seen.other, seen.other, 0),
        ):
            amounts = (round(each * 1e9) for each in (time, cpu, waiting))
            stacks.add(0 if line else BEFORE, lines, Amounts(*amounts))
        text = as_json({"schema": 1, "run": run.id, **stacks_as_lists(stacks.steps)})
        (folder / f"stacks.{pid}.{run.id}.json").write_text(text)
    known = {"state": "ended", "duration": 10.0, "began_ns": 0, "boot": folder.name, **more}
    return Recording(path=folder, runs=tuple(runs), origin=attributes, **known)


def job(folder: Path, *ranks: dict[str, Any], **of_b: Any) -> list[Recording]:
    """Returns the recordings of two nodes, with four ranks."""
    of = dict(enumerate(ranks))
    a, b = ({rank: of[rank] for rank in own if rank in of} for own in ((0, 1), (2, 3)))
    return [node(folder / "a", a), node(folder / "b", b, **of_b)]


def failed(error: str, message: str = "", at: float = 9.0, **more: Any) -> dict[str, Any]:
    return {"error": error, "error_message": message, "end": at, "state": "failed", **more}


OK: dict[str, Any] = {}
KILLED = {"error": "SIGKILL", "state": "killed", "end": None, "gone": 9.2}
STUCK = {"end": None, "state": "lost", "line": Spot(READ, READ), "seen": Seen(in_collectives=0.2)}
ENDED = {"end": None, "state": "lost"}
FAILURES: dict[str, tuple[list[dict[str, Any]], list[int], list[int]]] = {
    "killed, seen after the others": ([failed(*GLOO, at=9.0), failed(*STORE), KILLED, ENDED], [2], [0, 1]),
    "an exception": ([failed(*NCCL, at=8.0), failed(*GLOO), ENDED, failed("ValueError", "no scale")], [3], [0, 1]),
    "an exception of a connection of its own": ([failed(*RESET), ENDED, failed(*GLOO, at=8.0), failed(*GLOO)], [0], [2, 3]),
    "two on one machine": ([failed("KeyError", at=8.5), failed("OSError", at=8.0), failed(*GLOO), ENDED], [1], [2]),
    "two on machines with other clocks": ([failed("KeyError", at=8.5), ENDED, failed("OSError", at=3.0), ENDED], [2, 0], []),
    "a hang": ([failed(*LATE), failed(*LATE), STUCK, failed(*GLOO)], [2], [0, 1, 3]),
    "a hang, and one ended before it failed": ([failed(*LATE), ENDED, STUCK, failed(*LATE)], [2], [0, 3]),
    "a hang that NCCL's watchdog ended": (
        [STUCK, *[failed("SIGABRT", state="killed", line=Spot(WORK, REDUCE))] * 3], [0], [1, 2, 3],
    ),
    "an abort of its own": ([failed("SIGABRT", state="killed", line=Spot(WORK, WORK)), failed(*GLOO), ENDED, ENDED], [0], [1]),
    "each lost another": ([failed(*LATE), failed(*LATE), failed(*GLOO, line=Spot(READ, READ)), failed(*LATE)], [], [0, 1, 2, 3]),
    "nobody knows": ([failed(*GLOO), ENDED, ENDED, failed(*GLOO)], [], [0, 3]),
    "not recorded here": ([failed(*GLOO), ENDED], [], [0]),
}  # fmt: skip


def numbers(found: FirstFailed | None) -> tuple[list[int], list[int]] | None:
    if found is None:
        return None
    return [each.number for each in found.ranks], [each.number for each in found.after]


@pytest.mark.parametrize(("ranks", "first", "after"), FAILURES.values(), ids=FAILURES)
def test_the_first_failure_is_known_by_what_others_lost_and_by_a_clock_that_they_share(
    tmp_path: Path, ranks: list[dict[str, Any]], first: list[int], after: list[int]
) -> None:
    recordings = job(tmp_path, *ranks)
    found = ranks_of(recordings if len(ranks) > 2 else recordings[:1])
    assert numbers(first_failed(found)) == (first, after)
    (text,) = job_sentences(found)
    assert ("clocks of nodes differ" in text) == (len(first) > 1)
    where = (
        "not known: Ranks 0, 1 and 3 (a, b); Rank 2 (b), in Calibration, last seen at read (q.py:9)"
    )
    assert (where in text) == (len(after) == 4)
    assert ("Not recorded here: 2 ranks, of another node" in text) == (len(ranks) < 4)
    on_one = ranks_of([replace(each, boot="one") for each in recordings])
    if len(first) > 1:  # of one machine the clock orders them
        for rank in on_one:
            rank.run = replace(rank.run, attributes={**rank.run.attributes, semconv.HOST_NAME: "h"})
        assert numbers(first_failed(on_one)) == (first[:1], after)


def test_ctrl_c_is_nobodys_failure_and_a_job_that_went_well_has_none(tmp_path: Path) -> None:
    assert first_failed(ranks_of(job(tmp_path, *[failed("KeyboardInterrupt")] * 4))) is None
    assert first_failed(ranks_of(job(tmp_path, OK, OK, OK, OK))) is None


USUAL = Seen(in_collectives=4.0)
STRAGGLERS: dict[str, tuple[list[Seen], list[int], str]] = {
    "a slow reader": ([USUAL, USUAL, Seen(in_collectives=0.1, reading=4.0), USUAL], [2], "read (q.py:9), where it was blocked"),
    "slow work": ([USUAL, Seen(ran=9.0, in_collectives=0), USUAL, USUAL], [1], "work (q.py:5)"),
    "slow work on a busy machine": (
        [USUAL, Seen(ran=8.0, waited=6.0, in_collectives=0), *[Seen(in_collectives=8.0)] * 2],
        [1], "work (q.py:5), and waited 5.00 s longer for a processor",
    ),
    "a slow node": ([USUAL, USUAL, *[Seen(in_collectives=0.1, reading=4.0)] * 2], [2, 3], "read (q.py:9), where it was blocked"),
    "no cause with 80 %": ([USUAL, USUAL, USUAL, Seen(ran=7.0, reading=2.0, in_collectives=0)], [3], ""),
    "equal ranks": ([USUAL, Seen(in_collectives=4.2), USUAL, Seen(in_collectives=3.5)], [], ""),
    "equal ranks on a busy machine": (
        [Seen(waited=2.0, in_collectives=9.0), Seen(waited=11.0, in_collectives=0), *[Seen(ran=5.3, in_collectives=8.0)] * 2], [], "",
    ),
    "ranks that wait for nobody": ([Seen(in_collectives=0), Seen(in_collectives=0, ran=20), USUAL._replace(in_collectives=0), USUAL._replace(in_collectives=0)], [], ""),
    "a wait that is short beside the run": ([*[Seen(ran=50.0)] * 3, Seen(ran=54.0, in_collectives=0)], [], ""),
}  # fmt: skip


@pytest.mark.parametrize(("seen", "expected", "cause"), STRAGGLERS.values(), ids=STRAGGLERS)
def test_the_rank_that_waits_least_kept_the_others_waiting_if_it_was_longer_itself(
    tmp_path: Path, seen: list[Seen], expected: list[int], cause: str
) -> None:
    ranks = ranks_of(job(tmp_path, *({"seen": each} for each in seen)))
    found = straggler(ranks)
    assert sorted(rank.number for rank in found.ranks) == expected if found else not expected
    told = list(job_sentences(ranks))
    assert len(told) == (1 + bool(cause) if expected else 0)
    if cause:
        assert told[-1].endswith(f" longer than they at {cause}.")


def test_ranks_of_one_job_find_each_other_by_its_id(tmp_path: Path) -> None:
    a, b = job(tmp_path, OK, OK, OK, OK)
    assert [(rank.number, rank.node) for rank in ranks_of([b, a])] == [(0, "a"), (1, "a"), (2, "b"), (3, "b")]  # fmt: skip
    same_host = [replace(each, origin={semconv.HOST_NAME: "h"}, runs=tuple(replace(run, attributes={**run.attributes, semconv.HOST_NAME: "h"}) for run in each.runs)) for each in (a, b)]  # fmt: skip
    assert [rank.node for rank in ranks_of(same_host)] == ["a", "a", "b", "b"]
    for others in (
        node(tmp_path / "c", {2: OK, 3: OK}, job="slurm 8"),  # of another job
        node(tmp_path / "d", {1: OK, 2: OK}),  # a rank twice: of another step
        node(tmp_path / "e", {}),
    ):
        assert ranks_of([a, others]) == []
    unknown = [replace(each, runs=tuple(replace(run, attributes={}) for run in each.runs)) for each in (a, b)]  # fmt: skip
    assert ranks_of(unknown) == []  # of older recordings
    assert len(ranks_of(unknown[:1])) == 2


def test_a_rank_is_its_last_start_and_not_its_workers(tmp_path: Path) -> None:
    (recording, _) = job(tmp_path, OK, OK)
    first, second = recording.runs
    again = replace(second, id="a" * 16, pid=7, process="7", start=5.0)
    worker = replace(again, id="b" * 16, pid=8, process="8", parent_pid=7, start=6.0)
    found = ranks_of([replace(recording, runs=(first, second, again, worker))])
    assert [rank.run.pid for rank in found] == [first.pid, 7]


def test_the_job_stands_above_its_nodes_which_do_not_ask_for_the_others(tmp_path: Path) -> None:
    recordings = job(tmp_path, failed(*GLOO, seen=Seen(in_collectives=2.0)), failed(*GLOO), KILLED, ENDED, state="failed")  # fmt: skip
    text = "".join(terminal_text(document({each.path.name: each for each in recordings}), 120))
    assert text.startswith(
        "A job of 4 ranks on 2 nodes has failed after 10.0 s.\n"
        "Rank 2 (b) failed first: it was killed by SIGKILL. Ranks 0 and 1 (a) lost the connection to it.\n"
    )
    (row,) = (line.split() for line in text.splitlines() if line.startswith("   0  a"))
    assert row == ["0", "a", "8.50", "5.00", "2.00", "1.00", "failed:", "RuntimeError"]
    data = json.loads("".join(written(document({"a": job(tmp_path / "again", OK, OK)[0]}), "json")))
    assert data[0]["recording"]["ranks"][1] == {
        "rank": 1, "node": "a", "seconds": 10.0, "running_seconds": 5.0, "collectives_seconds": 4.0,
        "rest_seconds": 1.0, "memory_peak_bytes": None, "gpu_memory_peak_bytes": None, "state": "ok",
    }  # fmt: skip
    assert (text.count("IN COLLECTIVES"), "Not recorded here" in text) == (1, False)


def test_a_folder_with_the_recordings_of_nodes_is_shown_as_the_recordings(
    command: Commands,
) -> None:
    fixtures = Path(__file__).parents[2] / "fixtures" / "recordings_88776fb"
    shown = command.output("show", fixtures)
    assert [line for line in shown.splitlines() if line.endswith(("/good", "/killed", "/ranks"))] == [
        str(fixtures / name) for name in ("good", "killed", "ranks")
    ]  # fmt: skip


def test_a_rank_says_no_more_of_itself_than_was_seen(tmp_path: Path) -> None:
    (recording, _) = job(tmp_path, OK, OK)
    for file in recording.path.iterdir():
        file.unlink()
    ranks = ranks_of([recording])
    assert [rank.seconds for rank in ranks] == [9.5, 9.5]
    assert straggler(ranks) is None


def test_a_rank_that_failed_before_its_first_step_has_what_the_launcher_knows(
    tmp_path: Path,
) -> None:
    folder = RecordedFolder(tmp_path / "r", {semconv.HOST_NAME: "h"}, by_launcher=True)
    process = folder.process(8).begin(
        1, rank=0, world_size=2, attributes={semconv.RUN_JOB: "slurm 7"}
    )
    process.end(8, error="RuntimeError", error_message=GLOO[1])
    of = {
        "name": "python q.py",
        "began": BEGAN_NS,
        "ended": BEGAN_NS + 9 * 10**9,
        "signal": "SIGKILL",
    }
    ranks = [
        {"rank": 1, "world_size": 2, "job": "slurm 7"},
        {"rank": 0, "world_size": 2, "job": "slurm 7"},
    ]
    failed = [{**of, **rank, "pid": 9 + at} for at, rank in enumerate(ranks)]
    folder.ended(Ending(time=10.0, exit_code=1), failed=failed)  # the second is a worker of rank 0
    found = ranks_of([read(folder.path)])
    assert [(rank.number, rank.run.pid) for rank in found] == [(0, 8), (1, 9)]
    assert numbers(first_failed(found)) == ([1], [0])
