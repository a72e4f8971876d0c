"""Kernel files: each reading opens them again, counts the bytes and closes them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_quant.capture.probes.kernel_files import SELF, bytes_read, read_process
from otel_quant.capture.probes.readers import Probes
from otel_quant.capture.recorder.recorder import Recorder
from otel_quant.capture.recorder.run_info import new_run_info

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"?")
        process.stdin.flush()
        # Until it has called exec, its files describe Python; it replies after that.
        assert process.stdout.read(1) == b"?"
        yield process


def open_files() -> dict[str, int]:
    """Returns the descriptors of files about processes, by their path."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue  # the descriptor that os.listdir used
        if path.startswith("/proc/") and path.endswith(("/status", "/io", "/stat")):
            found[path] = int(number)
    return found


def written(pid: int = SELF) -> int:
    words = read_process(pid, "io").split()
    return int(words[words.index(b"wchar:") + 1])


def test_each_read_returns_current_figures(tmp_path: Path) -> None:
    before = written()
    (tmp_path / "file").write_bytes(b"x" * 5000)
    assert written() == before + 5000


def test_bytes_read_are_counted() -> None:
    for name in ("status", "status", "io"):
        before = bytes_read()
        length = len(read_process(SELF, name))
        assert bytes_read() == before + length > before


def test_reading_an_exited_process_raises(child: subprocess.Popen[bytes]) -> None:
    for name in ("status", "io", "stat"):
        assert read_process(child.pid, name)
    child.communicate()
    for name in ("status", "io", "stat"):
        with pytest.raises(FileNotFoundError):
            read_process(child.pid, name)


def test_no_file_is_left_open_between_readings(child: subprocess.Popen[bytes]) -> None:
    recorder = Recorder(new_run_info({}), Probes(), (), sample_interval=0)
    step = recorder.open("Calibration")
    assert open_files() == {}
    recorder.close(step)
    recorder.end()
    assert open_files() == {}
