"""The failure of a program: the one that ended it, in the process where it began."""

from __future__ import annotations

import re
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.fixtures.programs import Launched

HANDLED = """
import otel_quant, sys
try:
    with otel_quant.step("Probe optional kernel"): raise RuntimeError("not available, handled")
except RuntimeError: pass
with otel_quant.step("Calibration"): pass
if len(sys.argv) > 1: sys.exit(3)
raise ValueError("the real reason")
"""

PROCESSES = """
import contextlib, multiprocessing, os, sys, time
from concurrent.futures import ProcessPoolExecutor
import otel_quant

def handled(number):
    try:
        with otel_quant.step("Probe"): raise RuntimeError("handled")
    except RuntimeError: pass
    raise KeyError(number)

def inside(number):
    with otel_quant.step("Calibration"): raise ValueError("bad shard")

def chained(number):
    with otel_quant.step("Calibration"):
        try: {}[number]
        except KeyError as error: raise ValueError("bad shard") from error

def killed(number):
    with otel_quant.step("Calibration"): time.sleep(.3); os.kill(os.getpid(), 9)

def left(number):
    with otel_quant.step("Calibration"): time.sleep(.3); os._exit(3)

def device():
    raise ValueError("no such device")

if __name__ == "__main__":
    start, work, how, *alone = sys.argv[1:]
    with contextlib.nullcontext() if alone else otel_quant.step("Load"): pass
    context, work = multiprocessing.get_context(start), globals()[work]
    if how == "pool":
        with context.Pool(2) as pool: pool.map(work, [5])
    if how == "executor":
        with ProcessPoolExecutor(1, mp_context=context) as pool: list(pool.map(work, [5]))
    if how == "initializer":
        with ProcessPoolExecutor(1, mp_context=context, initializer=device) as pool: list(pool.map(work, [5]))
    process = context.Process(target=work, args=(5,))
    process.start()
    process.join()
    if how == "exits": sys.exit(bool(process.exitcode))
    with otel_quant.step("Export"): raise OSError("another reason")
"""

INSIDE = "In Calibration, worker n failed with ValueError: bad shard, at inside (q.py:13)."
CHAINED = "In Calibration, worker n failed with ValueError: bad shard; because of KeyError: 5, raised at chained (q.py:17)."


def first_lines(launched: Launched, script: str, *arguments: str) -> tuple[str, str, str]:
    """Runs a script; returns the first lines of what is shown, without times and ids of processes."""
    (launched.folder / "q.py").write_text(script)
    launched.run(["python", "q.py", *arguments], "--out", "made")
    shown = launched.otel_quant("show", "made").stdout
    known = re.sub(r"after \S+ m?s", "after x", re.sub(r"worker \d+", "worker n", shown))
    first, second, third, *_ = known.splitlines()
    return first, second, third


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            [],
            [
                "q.py failed with exit code 1 after x.",
                "ValueError: the real reason, at <module> (q.py:8).",
            ],
        ),
        (["x"], ["q.py failed with exit code 3 after x."]),
    ],
)
def test_a_step_whose_exception_was_caught_is_not_where_a_program_failed(
    launched: Launched, arguments: list[str], expected: list[str]
) -> None:
    *lines, after = first_lines(launched, HANDLED, *arguments)[: len(expected) + 1]
    assert lines == expected
    assert re.search(r" passed before the first step|^Memory peaked at ", after)


@pytest.mark.parametrize(
    ("arguments", "who"),
    [
        ("fork handled exits", "worker n failed with KeyError: 5, at handled (q.py:10)."),
        ("spawn inside exits", INSIDE),
        ("fork inside pool", INSIDE),
        ("fork inside executor", INSIDE),
        ("fork handled executor", "KeyError: 5, at handled (q.py:10)."),
        ("fork killed executor", "In Calibration, worker n was killed by SIGKILL."),
        (
            "spawn inside initializer",
            "worker n failed with ValueError: no such device, at device (q.py:27).",
        ),
        ("fork chained pool", CHAINED),
        ("spawn inside exits alone", INSIDE),  # the program itself has no step
        ("fork killed exits alone", "In Calibration, worker n was killed by SIGKILL."),
        ("fork left exits alone", "In Calibration, worker n died."),
    ],
)
def test_the_failure_of_a_worker_stands_before_the_programs(
    launched: Launched, arguments: str, who: str
) -> None:
    first, second, _ = first_lines(launched, PROCESSES, *arguments.split())
    assert first == "q.py failed with exit code 1 after x."
    assert second == who


EXITS = """
import otel_quant, sys
try:
    with otel_quant.step("Export"): raise ValueError("opset 9 is too old")
except ValueError: pass
if len(sys.argv) > 1:
    with otel_quant.step("Again"): pass
sys.exit(2)
"""


@pytest.mark.parametrize("arguments", [[], ["again"]])
def test_an_exception_that_was_handled_is_told_where_no_step_came_after_it(
    launched: Launched, arguments: list[str]
) -> None:
    first, second, _ = first_lines(launched, EXITS, *arguments)
    assert first == "q.py failed with exit code 2 after x."
    told = second.startswith("Before that, Export raised ValueError: opset 9 is too old, ")
    assert told == (not arguments)


def test_a_failure_that_the_program_may_have_survived_is_not_the_reason(launched: Launched) -> None:
    first, second, third = first_lines(launched, PROCESSES, "fork", "inside", "raises")
    assert (first, second) == (
        "q.py failed with exit code 1 after x in Export.",
        "OSError: another reason, at <module> (q.py:43).",
    )
    assert third.startswith("Before that, worker n failed with ValueError: bad shard, ")


RANKS = """
import os, otel_quant, torch, torch.distributed
torch.distributed.init_process_group("gloo")
if os.environ["RANK"] == "1":
    import no_such_library
torch.distributed.barrier()
"""

NO_GUARD = """
import torch
from torch.utils.data import DataLoader, TensorDataset
import otel_quant
with otel_quant.step("Calibration"):
    next(iter(DataLoader(TensorDataset(torch.randn(8, 4)), num_workers=1, multiprocessing_context="spawn")))
"""


@pytest.mark.slow
def test_the_error_of_a_rank_stands_before_its_launchers(launched: Launched) -> None:
    pytest.importorskip("torch")
    (launched.folder / "q.py").write_text(RANKS)
    launched.run(
        ["python", "-m", "torch.distributed.run", "--nproc-per-node", "2", "q.py"], "--out", "made"
    )
    shown = launched.otel_quant("show", "made").stdout
    expected = "rank 1 failed with ModuleNotFoundError: No module named 'no_such_library', at <module> (q.py:5)."
    assert shown.splitlines()[1] == expected


NODES = """
import datetime, os, otel_quant, torch, torch.distributed
torch.distributed.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
with otel_quant.step("Calibration"):
    torch.distributed.barrier()
    if os.environ["RANK"] == "3":
        os.kill(os.getpid(), 9)
    torch.distributed.barrier()
"""


@pytest.mark.slow
def test_of_two_nodes_of_torchrun_the_rank_that_failed_first_is_named(launched: Launched) -> None:
    pytest.importorskip("torch")
    (launched.folder / "q.py").write_text(NODES)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    torchrun = ["python", "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2"]
    address = ["--master-addr", "127.0.0.1", "--master-port", port]

    def run(node: str) -> None:
        program = [*torchrun, *address, "--node-rank", node, "q.py"]
        launched.run(program, "--out", f"job/{node}")

    with ThreadPoolExecutor() as nodes:
        list(nodes.map(run, "01"))
    first, second, *_ = launched.otel_quant("show", "job").stdout.splitlines()
    assert re.sub(r"[\d.]+ s", "n s", first) == "A job of 4 ranks on 2 nodes has failed after n s."
    assert second.startswith("Rank 3 (1) failed first: it was killed by SIGKILL, in Calibration")
    shown = launched.otel_quant("show", "job/0").stdout
    assert shown.splitlines()[1].endswith(
        " failed because of another rank. Not recorded here: 2 ranks, of another node or without a step."
    )


@pytest.mark.slow
def test_a_script_without_a_main_guard_has_its_workers_error(launched: Launched) -> None:
    pytest.importorskip("torch")
    _, second, _ = first_lines(launched, NO_GUARD)
    assert second.startswith("In Calibration, worker n failed with RuntimeError: An attempt")


def test_an_exception_without_a_message_has_the_line_of_the_program(launched: Launched) -> None:
    script = "import otel_quant, queue\nwith otel_quant.step('Calibration'):\n    queue.Queue().get(timeout=.01)\n"
    second = first_lines(launched, script)[1]
    assert re.sub(r":\d+\), ", "), ", second) == (
        "_queue.Empty: raised at get (queue.py), at <module> (q.py:3)."
    )


WITH_TEXT = """
import multiprocessing, subprocess, sys, otel_quant
def leave(): sys.exit("no such model --token=abcdef123456")
if __name__ == "__main__":
    how = sys.argv[1]
    if how != "without a step":
        with otel_quant.step("Load"): pass
    if how == "child": subprocess.run([sys.executable, "-c", "import otel_quant, sys; sys.exit('the child')"])
    if how in ("fork", "spawn"):
        process = multiprocessing.get_context(how).Process(target=leave)
        process.start()
        process.join()
        sys.exit(process.exitcode)
    leave()
"""


@pytest.mark.parametrize(
    ("how", "who"),
    [("without a step", ""), ("step", ""), ("child", ""), ("fork", "worker n failed with ")],
)
def test_the_text_that_a_program_exits_with_is_its_error(
    launched: Launched, how: str, who: str
) -> None:
    first, second, third = first_lines(launched, WITH_TEXT, how)
    assert first == "q.py failed with exit code 1 after x."
    assert second == f"{who}SystemExit: no such model --token=***, at leave (q.py:3)."
    assert third.startswith("Before that, worker n failed with SystemExit: the child") == (
        how == "child"
    )


THREAD = """
import otel_quant, queue, sys, threading
def produce():
    with otel_quant.step("Shard"):
        if len(sys.argv) > 1: raise ValueError("bad image")
    raise ValueError("bad image")
threading.Thread(target=produce, name="producer").start()
try:
    with otel_quant.step("Calibration"): queue.Queue().get(timeout=.5)
except queue.Empty: pass
"""


@pytest.mark.parametrize("is_in_step", [False, True])
def test_a_thread_that_an_exception_has_ended_is_told_once(
    launched: Launched, is_in_step: bool
) -> None:
    lines = first_lines(launched, THREAD, *["x"] * is_in_step)
    told = [line for line in lines if line.startswith("Thread ")]
    assert lines[0].startswith("q.py finished in ")
    died = "Thread producer died of ValueError: bad image, at produce (q.py:6)."
    assert told == ([] if is_in_step else [died])


AFTERWARDS = """
import os, otel_quant
os.environ["OTEL_QUANT_PROFILE"] = "profile.yaml"
with otel_quant.run():
    with otel_quant.step("Calibration"): pass
raise ValueError("the accuracy is too low")
"""


def test_an_exception_after_the_end_of_the_run_is_told_and_leaves_its_profile(
    launched: Launched,
) -> None:
    first, second, _ = first_lines(launched, AFTERWARDS)
    assert first == "q.py failed with exit code 1 after x."
    assert second == "ValueError: the accuracy is too low, at <module> (q.py:6)."
    assert [path.name for path in launched.folder.glob("*.yaml")] == ["profile.yaml"]
    assert "Calibration End" in (launched.folder / "profile.yaml").read_text()
