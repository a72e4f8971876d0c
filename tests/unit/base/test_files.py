"""Files that a run holds open, their locks, and the numbers of their descriptors."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import pytest

from otel_quant.base import files
from otel_quant.base.files import HeldFile, PageFile, is_held, open_apart
from tests.fixtures.programs import child, run_script


def test_a_file_is_locked_by_one_process_while_it_lives(tmp_path: Path) -> None:
    file = HeldFile(tmp_path / "file")
    assert file.is_locked
    assert is_held(file.path)
    assert HeldFile(file.path, is_new=False).is_locked is False
    assert os.waitpid(child(file.forget), 0)[1] == 0  # a forked child lets go of its copy alone
    assert is_held(file.path)
    file.close()
    assert not is_held(file.path)
    assert HeldFile(file.path, is_new=False).is_locked


def test_a_file_without_locks_is_held_while_it_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LOCKS_EXIST", False)  # as on Windows
    file = HeldFile(tmp_path / "file")
    assert is_held(file.path)
    for age, expected in ((60, True), (120, False)):
        os.utime(file.path, (time.time() - age,) * 2)
        assert is_held(file.path) is expected
    file.close()
    assert not is_held(tmp_path / "missing")


def test_a_replaced_file_stays_locked_and_can_be_appended_to(tmp_path: Path) -> None:
    file = HeldFile(tmp_path / "file")
    file.append(b"old\n")
    (tmp_path / ".file.new").write_text("of a process that was killed")
    file.replace(b"new\n")
    file.append(b"more\n")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"file": "new\nmore\n"}
    assert is_held(file.path)


def test_a_page_file_is_overwritten_and_created_again_if_it_was_deleted(tmp_path: Path) -> None:
    file = PageFile(tmp_path / "file")
    file.put("a longer text")
    file.put("1 text")
    assert file.path.read_text() == "1 text       \n"
    file.path.unlink()
    file.put("again")
    assert file.path.read_text().strip() == "again"
    file.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_descriptor_has_a_high_number_and_is_not_inherited(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    ours = open_apart(tmp_path / "new", os.O_WRONLY | os.O_CREAT)
    taken = set(os.listdir("/proc/self/fd")) - before
    (tmp_path / "usual").touch()
    assert os.fstat(ours).st_mode == (tmp_path / "usual").stat().st_mode
    assert not os.get_inheritable(ours)
    assert taken == {str(ours)}
    os.close(ours)  # as a program does that closes what it does not know
    theirs = [os.open(tmp_path / "new", os.O_RDONLY) for _ in range(50)]
    assert 700 <= ours < 1000
    assert ours not in theirs
    for descriptor in theirs:
        os.close(descriptor)


def test_a_small_limit_leaves_half_of_it_to_the_program(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        descriptor = open_apart(tmp_path, os.O_RDONLY)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    os.close(descriptor)
    assert 128 <= descriptor < 192


LAST_NUMBER = """
import os, resource
from otel_quant.base.files import open_apart
for number in range(4, 8):
    os.dup2(0, number)
resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))
try:
    open_apart("ours", os.O_RDONLY)
except OSError as error:
    print(error, os.open("ours", os.O_RDONLY))
"""


def test_a_program_at_its_descriptor_limit_keeps_the_last_number(tmp_path: Path) -> None:
    (tmp_path / "ours").touch()
    assert run_script(tmp_path, LAST_NUMBER)[0] == "[Errno 24] Too many open files 3\n"
