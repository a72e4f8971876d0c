"""What other threads and child processes do beside a step's thread is counted by the kernel, and told apart."""

from __future__ import annotations

import hashlib
import math
import os
import select
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from otel_quant.capture.other_tasks import (
    OtherTasks,
    carried_by_connections,
    carried_in,
    throttle_files,
    throttled_in,
)
from otel_quant.diagnosis.tasks import TasksBeside

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs schedstat")


def file_of(thread: threading.Thread) -> str:
    return f"/proc/self/task/{thread.native_id}/schedstat"


def test_a_thread_that_runs_is_beside_one_that_waits_and_not_the_other_way_round() -> None:
    over, tasks = threading.Event(), OtherTasks()

    def compute() -> None:
        while not over.is_set():
            sum(range(10_000))

    busy = threading.Thread(target=compute)
    busy.start()
    own = {0: file_of(threading.main_thread()), 1: file_of(busy)}
    began = time.perf_counter_ns()
    assert list(tasks.look(began, own, ())) == []  # nothing is known of the time before
    time.sleep(0.3)
    named = list(tasks.look(time.perf_counter_ns(), own, ()))
    assert (0, own[1]) in named
    tasks.add_line(0, "compute (x.py:1)")
    now = time.perf_counter_ns()
    waits, runs = (tasks.end(index, own[index], now, now - began) for index in own)
    over.set()
    busy.join()
    assert waits.ran > 5 * runs.ran  # however busy the machine is
    assert waits.line == "compute (x.py:1)"
    assert waits.pinned == len(os.sched_getaffinity(0))
    assert tasks.end(0, own[0], now, 1) == TasksBeside()


def test_connections_have_carried_what_was_sent_and_read_and_not_what_lies_there_unread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("otel_quant.capture.other_tasks._MOST", 4096)
    server = socket.create_server(("127.0.0.1", 0))
    mine = socket.create_connection(server.getsockname())
    its, _ = server.accept()
    with server, mine, its:
        before = carried_by_connections()
        assert before is not None
        its.sendall(bytes(5000))
        assert select.select([mine], [], [], 60)[0]
        unread = carried_by_connections() or 0
        assert len(mine.recv(5000, socket.MSG_WAITALL)) == 5000
        read = carried_by_connections() or 0
        assert read - unread >= 5000  # by one of them received; by the other one maybe acknowledged
        assert read - before >= 5000


def test_what_a_thread_has_run_counts_though_it_has_ended_between_two_looks() -> None:
    tasks, own = OtherTasks(), {0: file_of(threading.main_thread())}
    began = time.perf_counter_ns()
    list(tasks.look(began, own, ()))
    works = threading.Thread(target=lambda: hashlib.pbkdf2_hmac("sha256", b"a", b"b", 200_000))
    works.start()
    works.join()
    now = time.perf_counter_ns()
    assert tasks.end(0, own[0], now, now - began).ran > 0.01  # however busy the machine is


@pytest.mark.parametrize(
    ("made", "has"),
    [("os.pipe()", False), ("socket.socketpair()", False), ("socket.socket()", True)],
)
def test_a_connection_is_neither_a_pipe_nor_within_the_machine(made: str, has: bool) -> None:
    program = f"import os, socket\nfrom otel_quant.capture.other_tasks import carried_by_connections as carried\nkept = {made}\nprint(carried() is not None)"  # fmt: skip
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.split() == [str(has)], run.stderr


def test_a_step_of_which_little_was_looked_at_has_no_tasks_beside_it() -> None:
    tasks, own = OtherTasks(), {0: file_of(threading.main_thread())}
    began = time.perf_counter_ns()
    list(tasks.look(began, own, ()))
    found = tasks.end(0, own[0], began + 4, 10)
    assert math.isnan(found.ran)
    assert not found.is_ready
    assert not tasks.is_due(began + 10, has_begun=True)
    assert tasks.is_due(began + 10**9, has_begun=True)
    assert not tasks.is_due(began + 10**9, has_begun=False)


def test_the_busiest_child_is_named_by_its_command_alone() -> None:
    idle = subprocess.Popen(["sleep", "20"])
    busy = subprocess.Popen(["sh", "-c", "while :; do :; done # secret"])
    try:
        tasks, own = OtherTasks(), {0: file_of(threading.main_thread())}
        began = time.perf_counter_ns()
        list(tasks.look(began, own, (idle.pid, busy.pid)))
        time.sleep(0.3)
        found = tasks.end(0, own[0], time.perf_counter_ns(), 1)
        assert found.child == "sh"
        assert found.children_waited >= 0
    finally:
        for each in (idle, busy):
            each.kill()
            each.wait()


def test_what_a_network_has_carried_is_received_and_sent() -> None:
    line = "  {}: {} 3 0 0 0 0 0 0 {} 4 0 0 0 0 0 0\n"
    text = (
        "Inter-| Receive\n face |bytes\n"
        + line.format("lo", 5, 70)
        + line.format("eth0", 600, 8000)
    )
    assert carried_in(text) == 8675
    assert math.isnan(carried_in(""))


@pytest.mark.parametrize(
    ("line", "folder", "text", "seconds"),
    [
        ("0::/a/b", "sys/fs/cgroup/a", "usage_usec 7\nthrottled_usec 2500000\n", 2.5),
        ("4:cpu,cpuacct:/a/b", "sys/fs/cgroup/cpu,cpuacct/a", "throttled_time 1500000000", 1.5),
        ("4:memory:/a/b", "sys/fs/cgroup/memory/a", "throttled_usec 2500000", None),
        ("0::/a/b", "sys/fs/cgroup/a", "usage_usec 7", None),
    ],
)
def test_the_time_that_a_group_above_is_throttled_for_is_found(
    tmp_path: Path, line: str, folder: str, text: str, seconds: float | None
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"9:name=systemd:/\n{line}\n")
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "cpu.stat").write_text(text)
    assert [throttled_in(each) for each in throttle_files(tmp_path)] == (
        [] if seconds is None else [seconds]
    )
