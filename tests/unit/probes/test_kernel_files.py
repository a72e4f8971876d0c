"""Kernel files that are kept open: fresh at each reading, few, and in nobody's way."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_quant.probes import kernel_files
from otel_quant.probes.kernel_files import SELF, bytes_read, close_all, read_process, retain
from otel_quant.probes.readers import Probes
from otel_quant.profile.columns import Columns
from otel_quant.recording.recorder import Recorder, new_run_info

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


@pytest.fixture(autouse=True)
def _nothing_open() -> Iterator[None]:
    close_all()
    yield
    close_all()


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"?")
        process.stdin.flush()
        # Its files tell another name until it is itself: then it answers.
        assert process.stdout.read(1) == b"?"
        yield process


def open_files() -> dict[str, int]:
    """Returns the descriptors of files about processes, by their path."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue  # the one that listed the folder
        if path.startswith("/proc/") and path.endswith(("/status", "/io", "/stat")):
            found[path] = int(number)
    return found


def written(pid: int = SELF) -> int:
    words = read_process(pid, "io").split()
    return int(words[words.index(b"wchar:") + 1])


def test_what_is_read_is_of_that_moment_and_the_file_is_opened_once(tmp_path: Path) -> None:
    before = written()
    opened = open_files()
    assert opened.keys() == {f"/proc/{os.getpid()}/io"}
    (tmp_path / "file").write_bytes(b"x" * 5000)
    assert written() == before + 5000
    assert open_files() == opened


def test_what_is_read_is_counted() -> None:
    for name in ("status", "status", "io"):
        before = bytes_read()
        length = len(read_process(SELF, name))
        assert bytes_read() == before + length > before


@pytest.mark.parametrize("name", ["status", "io", "stat"])
def test_a_descriptor_that_the_program_closed_is_not_missed(
    name: str, child: subprocess.Popen[bytes]
) -> None:
    first = read_process(child.pid, name)
    (descriptor,) = open_files().values()
    os.close(descriptor)
    assert read_process(child.pid, name).split()[:2] == first.split()[:2]


@pytest.mark.parametrize("name", ["status", "io", "stat"])
def test_a_descriptor_that_the_program_has_used_again_is_left_alone(
    name: str, child: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    first = read_process(child.pid, name)
    (descriptor,) = open_files().values()
    (tmp_path / "theirs").write_text("not the kernel's\n")
    theirs = os.open(tmp_path / "theirs", os.O_RDONLY)
    os.dup2(theirs, descriptor)
    os.close(theirs)
    for _ in range(2):
        assert read_process(child.pid, name).split()[:2] == first.split()[:2]
    close_all()
    assert os.read(descriptor, 100) == b"not the kernel's\n"  # from its beginning, and open
    os.close(descriptor)


def test_what_the_program_put_in_its_place_is_not_closed_at_the_end(tmp_path: Path) -> None:
    read_process(SELF, "io")
    (descriptor,) = open_files().values()
    with (tmp_path / "theirs").open("w") as theirs:
        os.dup2(theirs.fileno(), descriptor)
    close_all()
    os.write(descriptor, b"written\n")
    os.close(descriptor)
    assert (tmp_path / "theirs").read_text() == "written\n"


def test_nothing_is_taken_out_of_a_pipe_that_has_the_number_by_now() -> None:
    read_process(SELF, "io")
    (descriptor,) = open_files().values()
    reading, writing = os.pipe()
    os.dup2(reading, descriptor)
    os.write(writing, b"rchar: theirs")
    assert written() > 0
    assert os.read(reading, 100) == b"rchar: theirs"
    for number in (reading, writing, descriptor):
        os.close(number)


def test_a_process_that_has_gone_is_not_taken_for_another(
    child: subprocess.Popen[bytes],
) -> None:
    for name in ("status", "io", "stat"):
        read_process(child.pid, name)
    child.communicate()
    for name in ("status", "io", "stat"):
        with pytest.raises(FileNotFoundError):
            read_process(child.pid, name)
    assert open_files() == {}


def test_the_files_of_processes_that_are_of_no_interest_are_closed(
    child: subprocess.Popen[bytes],
) -> None:
    for pid in (SELF, child.pid):
        read_process(pid, "io")
    retain([child.pid])
    assert len(open_files()) == 2
    retain([])
    assert open_files().keys() == {f"/proc/{os.getpid()}/io"}


def test_no_more_are_kept_than_a_program_can_spare(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_files, "MOST_KEPT", 2)
    read_process(SELF, "status")
    for _ in range(2):
        for name in ("io", "stat"):
            assert read_process(child.pid, name)
    assert open_files().keys() == {f"/proc/{os.getpid()}/status", f"/proc/{child.pid}/io"}


def test_a_forked_child_reads_its_own_and_keeps_none_of_its_parents() -> None:
    read_process(SELF, "status")
    pid = os.fork()
    if pid == 0:
        inherited = len(open_files())
        own = b"\nPid:\t%d\n" % os.getpid() in read_process(SELF, "status")
        os._exit(inherited * 2 + (not own))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(open_files()) == 1


def test_a_run_that_has_ended_leaves_none_open() -> None:
    recorder = Recorder(new_run_info({}), Probes(), (), Columns(), sample_interval=0)
    recorder.close(recorder.open("Calibration"))
    assert open_files().keys() == {f"/proc/{os.getpid()}/{name}" for name in ("status", "io")}
    recorder.end()
    assert open_files() == {}
