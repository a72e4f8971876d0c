"""A program is watched from outside: its memory, its processes, and how it has ended."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from otel_quant.format.curve import RecordedCurve, read_curve, short_name
from otel_quant.format.series import TOTALS
from otel_quant.launcher.ending import ending_in
from otel_quant.launcher.observer import INTERVAL, Observer
from otel_quant.recordings.model import Ending
from otel_quant.views.curves import grid_of

ENERGY = {"gpu.energy", "cpu.energy"}
"""Totals that few machines have."""


MB = 1_000_000
CLOSE = 0.02

PYTHON = f"{Path(sys.executable).name} -c"
HOLDS = "import time; x = bytearray({}); time.sleep({})\n"
DIES = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n"


class Program:
    """The launcher's own needs a process without other threads, which take the signal of its end."""

    def __init__(self, command: list[str], environ: Mapping[str, str]) -> None:
        self.pid = os.posix_spawn(command[0], command, environ)

    def wait(self) -> tuple[int, int]:
        _, status, usage = os.wait4(self.pid, 0)
        return os.waitstatus_to_exitcode(status), usage.ru_maxrss


def finished(observer: Observer, folder: Path, ended: tuple[int, int | None]) -> Ending:
    return ending_in(folder, time.time_ns(), observer.observe(ended))


def watched(folder: Path, code: str, interval: float = INTERVAL) -> tuple[Ending, RecordedCurve]:
    folder.mkdir(exist_ok=True)
    # A program begins with the mark of what starts it: that of the tests that ran before may be above its own.
    Path("/proc/self/clear_refs").write_text("5")
    program = Program([sys.executable, "-c", code], os.environ)
    observer = Observer(folder, program.pid, interval)
    observer.start()
    ending = finished(observer, folder, program.wait())
    return ending, read_curve(folder / "curve.launcher.jsonl")


def highest(curve: RecordedCurve, name: str = "memory") -> float:
    return max(
        bucket.levels[name].highest
        for bucket in curve.curve.buckets.values()
        if name in bucket.levels
    )


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> float:
    """RSS of a Python program that holds nothing, in bytes."""
    _, curve = watched(tmp_path_factory.mktemp("empty"), HOLDS.format(0, 0.5))
    return highest(curve)


def test_memory_at_a_kill_is_exact_even_if_it_grew_after_the_last_reading(
    tmp_path: Path, empty: float
) -> None:
    ending, curve = watched(tmp_path, HOLDS.format(300 * MB, 0.5) + "y = bytearray(10**9)\n" + DIES)
    assert (ending.signal, ending.exit_code) == ("SIGKILL", None)
    assert ending.memory == pytest.approx(empty + 1300 * MB, rel=CLOSE)
    assert highest(curve) == ending.memory


def test_the_peak_of_the_last_second_is_kept_beside_the_last_value(
    tmp_path: Path, empty: float
) -> None:
    code = HOLDS.format(300 * MB, 1) + "del x; time.sleep(0.2)\n" + DIES
    program = Program([sys.executable, "-c", code], os.environ)
    observer = Observer(tmp_path, program.pid)
    observer.start()
    last = observer.observe(program.wait()).last_seen[program.pid]
    assert last.memory == pytest.approx(empty, rel=0.5)
    assert last.highest == pytest.approx(empty + 300 * MB, rel=CLOSE)


def test_memory_of_an_ended_child_is_not_counted_as_the_programs(
    tmp_path: Path, empty: float
) -> None:
    child = HOLDS.format(400 * MB, 0.5)
    code = f"import subprocess, sys, time; subprocess.run([sys.executable, '-c', {child!r}]); time.sleep(2)\n"
    ending, _ = watched(tmp_path, code + DIES)
    assert ending.signal == "SIGKILL"
    assert ending.memory == pytest.approx(empty, rel=0.5)


def test_a_peak_between_two_readings_is_in_the_curve(tmp_path: Path, empty: float) -> None:
    code = "import time; time.sleep(0.2); x = bytearray(400_000_000); del x; time.sleep(1)"
    ending, curve = watched(tmp_path, code, interval=0.6)
    assert highest(curve) == pytest.approx(empty + 400 * MB, rel=CLOSE)
    assert (ending.exit_code, ending.signal, ending.memory) == (0, None, None)


def test_a_peak_before_a_late_first_reading_is_in_the_curve(tmp_path: Path, empty: float) -> None:
    gone, code = (
        tmp_path / "gone",
        "x = bytearray(400_000_000); del x; open({!r}, 'w'); import time; time.sleep(9)",
    )
    program = Program([sys.executable, "-c", code.format(str(gone))], os.environ)
    observer = Observer(tmp_path, program.pid)
    while not gone.exists():
        time.sleep(0.01)
    observer.start()
    time.sleep(0.5)
    os.kill(program.pid, signal.SIGKILL)
    finished(observer, tmp_path, program.wait())
    assert highest(read_curve(tmp_path / "curve.launcher.jsonl")) == pytest.approx(
        empty + 400 * MB, rel=CLOSE
    )


def test_the_program_and_its_five_largest_children_have_their_own_series(
    tmp_path: Path, empty: float
) -> None:
    children = [
        HOLDS.format(size * MB, 7 if size < 90 else 3) for size in (30, 40, 50, 60, 70, 100, 200)
    ]
    code = f"""
import subprocess, sys, time
time.sleep(1)
for at, child in enumerate({children!r}):
    if at == 5:
        time.sleep(4)
    last = subprocess.Popen([sys.executable, "-c", child])
last.wait()
"""
    _, curve = watched(tmp_path, code)
    assert highest(curve) == pytest.approx(8 * empty + 550 * MB, rel=CLOSE)
    names = dict.fromkeys(
        name
        for bucket in curve.curve.buckets.values()
        for name in bucket.levels
        if name.startswith("process.")
    )
    held = [empty, *(empty + size * MB for size in (50, 60, 70, 100, 200))]
    found = [highest(curve, name) for name in names]
    assert [found[0], *sorted(found[1:])] == pytest.approx(held, abs=5 * MB)
    last = list(curve.curve.buckets.values())[-2]
    assert set(last.totals) - ENERGY == TOTALS - ENERGY
    grid = grid_of({"launcher": curve}, curve.began_ns)
    assert grid is not None
    shown = grid.values(next(iter(names)), "last")  # the program, before its first child too
    assert shown[: len(shown) // 10] == grid.values("memory", "last")[: len(shown) // 10]


@pytest.mark.parametrize("interval", [INTERVAL, 1.1])  # the second looks at names each time
def test_the_memory_of_a_killed_child_of_a_shell_is_known(
    tmp_path: Path, empty: float, interval: float
) -> None:
    code = HOLDS.format(600 * MB, 1.5) + DIES
    program = Program(["/bin/sh", "-c", f'{sys.executable} -c "$CODE"; code=$?; sleep 1; exit $code'],
                      {**os.environ, "CODE": code})  # fmt: skip
    observer = Observer(tmp_path, program.pid, interval)
    observer.start()
    ending = finished(observer, tmp_path, program.wait())
    assert (ending.exit_code, ending.signal, ending.process_signal) == (137, None, "SIGKILL")
    assert ending.memory == pytest.approx(empty + 600 * MB, rel=CLOSE)
    assert [name.partition(" (")[0] for name, _ in ending.processes] == [PYTHON, "sh -c"]
    assert set(observer.summary()) - ENERGY == {"memory", *TOTALS} - ENERGY


def test_the_signal_that_ended_an_unreaped_child_is_known(tmp_path: Path) -> None:
    child = HOLDS.format(200 * MB, 0.5) + DIES
    code = f"""
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {child!r}])
while ") Z " not in pathlib.Path(f"/proc/{{child.pid}}/stat").read_text():
    time.sleep(0.05)
time.sleep(1)
import os; os._exit(1)
"""
    ending, _ = watched(tmp_path, code)
    assert (ending.exit_code, ending.process_signal) == (1, "SIGKILL")


def test_a_program_that_dies_at_once_leaves_a_readable_curve(tmp_path: Path) -> None:
    ending, curve = watched(tmp_path, "import os; os._exit(3)")
    assert (ending.exit_code, ending.signal) == (3, None)
    assert curve.curve.length == 50


def test_an_unwritable_folder_loses_only_the_curve(tmp_path: Path, empty: float) -> None:
    program = Program([sys.executable, "-c", HOLDS.format(100 * MB, 0.3) + DIES], os.environ)
    observer = Observer(tmp_path / "missing", program.pid)
    observer.start()
    ending = finished(observer, tmp_path, program.wait())
    assert (ending.signal, ending.exit_code) == ("SIGKILL", None)
    assert ending.memory == pytest.approx(empty + 100 * MB, rel=CLOSE)


def test_an_ended_process_is_not_an_error(tmp_path: Path) -> None:
    program = Program(["/bin/true"], os.environ)
    ended = program.wait()
    observer = Observer(tmp_path, program.pid)
    observer.start()
    assert finished(observer, tmp_path, ended).exit_code == 0


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/bin/python3 -u /a/train.py --secret x", "python3 train.py"),
        ("python -m torch.distributed.run train.py", "python -m torch.distributed.run"),
        ("python -c password=1", "python -c"),
        ("python -W ignore train.py", "python train.py"),
        ("bash run.sh", "bash run.sh"),
        ("/opt/bin/convert --token x", "convert"),
        ("", None),
    ],
)
def test_a_process_is_named_by_its_script_without_arguments(command: str, name: str | None) -> None:
    assert short_name(command.split(" ")) == name
