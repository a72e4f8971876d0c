"""What is around a program: counters of the kernel, limits, and what its own processes know."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from otel_quant.capture.probes.limits import oom_counters, oom_kills
from otel_quant.launcher import surroundings
from otel_quant.launcher.surroundings import Surroundings, cache_growth, last_words_ns

V2_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNT = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"


@pytest.mark.parametrize(
    ("group", "mount", "counter", "text"),
    [
        (
            "0::/job.scope\n",
            V2_MOUNT,
            "sys/fs/cgroup/job.scope/memory.events",
            "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 1\n",
        ),
        (
            "4:memory:/job\n",
            V1_MOUNT,
            "sys/fs/cgroup/memory/job/memory.oom_control",
            "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        ),
    ],
    ids=["version 2", "version 1"],
)
def test_the_kernels_counter_is_read_in_the_processes_own_group(
    tmp_path: Path, group: str, mount: str, counter: str, text: str
) -> None:
    files = {"proc/77/cgroup": group, "proc/self/mountinfo": mount, counter: text}
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert oom_counters(77, tmp_path) == [tmp_path / counter]
    assert oom_kills(tmp_path / counter) == 2


def test_a_kernel_without_the_counter_and_a_group_that_is_gone_have_none(tmp_path: Path) -> None:
    old = tmp_path / "memory.oom_control"
    old.write_text("oom_kill_disable 0\nunder_oom 0\n")  # before Linux 4.13
    assert (oom_kills(old), oom_kills(tmp_path / "gone")) == (None, None)


def test_only_kills_since_the_program_began_count_in_whichever_of_its_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters = [tmp_path / name for name in ("a", "b", "c")]
    own, childs, late = counters
    of = {1: [own], 2: [childs], 3: [late]}
    monkeypatch.setattr(surroundings, "oom_counters", lambda pid: of[pid])

    def count(path: Path, kills: int) -> None:
        path.write_text(f"oom_kill {kills}\n")

    around = Surroundings()
    assert around.oom_kills() is None
    count(own, 30)
    count(childs, 5)
    around.look(1, [2, 3])
    assert around.oom_kills() == (0, childs)
    count(own, 31)
    count(childs, 7)
    around.look(1, [2])  # what has been counted before stays what it is compared with
    assert around.oom_kills() == (2, childs)
    childs.unlink()  # the group is gone
    assert around.oom_kills() == (1, own)


def test_a_process_wrote_last_when_the_newest_of_its_files_was_written(tmp_path: Path) -> None:
    times = {"state.7.json": 30, "state.7-1.json": 50, "state.7-2.json": 40, "state.8.json": 20}
    for name, seconds in times.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (seconds, seconds))
    assert last_words_ns(tmp_path) == {7: 50_000_000_000, 8: 20_000_000_000}


def test_the_limit_of_the_address_space_is_that_of_the_program(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30)),
    ) as program:
        around = Surroundings()
        around.look(program.pid)
        assert around.address_space == 2 << 30
        program.communicate(b"\n")


def test_growth_of_cache_directories_is_what_the_processes_say(tmp_path: Path) -> None:
    assert cache_growth(tmp_path) is None
    (tmp_path / "state.1.json").write_text(json.dumps({"attributes": {"quant.cache.disk.peak": 5}}))
    (tmp_path / "state.2.json").write_text(json.dumps({"attributes": {"quant.cache.disk.peak": 9}}))
    (tmp_path / "state.3.json").write_text('{"attributes": {"quant.cac')
    (tmp_path / "state.4.json").write_text('{"attributes": {}}')
    assert cache_growth(tmp_path) == 9
