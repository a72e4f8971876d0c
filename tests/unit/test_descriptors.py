"""Files of ours under numbers that no file of the program gets."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from otel_quant.base.descriptors import open_apart

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere files have any number")

CLOSES_ALL = """
import os, sys, threading
from otel_quant.base.descriptors import open_apart
sys.setswitchinterval(1e-6)
is_over = False
def read():
    while not is_over:
        try:
            os.close(open_apart("ours", os.O_RDONLY))
        except OSError:
            pass  # the program has closed it
thread = threading.Thread(target=read)
thread.start()
for _ in range(1000):
    os.closerange(3, 60)
    files = [open("theirs") for _ in range(8)]
    [os.fstat(file.fileno()) for file in files]
    [file.close() for file in files]
is_over = True
thread.join()
"""


LAST_NUMBER = """
import os, resource
from otel_quant.base.descriptors import open_apart
for number in range(4, 8):
    os.dup2(0, number)
resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))
try:
    open_apart("ours", os.O_RDONLY)
except OSError as error:
    print(error, os.open("ours", os.O_RDONLY))
"""


def test_a_program_that_closes_all_descriptors_meanwhile_loses_no_file(tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        (tmp_path / name).touch()
    subprocess.run([sys.executable, "-c", CLOSES_ALL], cwd=tmp_path, timeout=60, check=True)


def test_a_file_that_the_program_has_closed_leaves_its_number_unused(tmp_path: Path) -> None:
    ours = open_apart(tmp_path / "ours", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.close(ours)
    theirs = [os.open(tmp_path / "ours", os.O_RDONLY) for _ in range(50)]
    for descriptor in theirs:
        os.close(descriptor)
    assert 700 <= ours < 800
    assert ours not in theirs


def test_a_program_that_is_executed_does_not_get_the_file(tmp_path: Path) -> None:
    descriptor = open_apart(tmp_path, os.O_RDONLY)
    assert not os.get_inheritable(descriptor)
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


def test_a_new_file_takes_one_number_and_has_the_usual_permissions(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    descriptor = open_apart(tmp_path / "new", os.O_WRONLY | os.O_CREAT)
    taken = set(os.listdir("/proc/self/fd")) - before
    (tmp_path / "usual").touch()
    assert os.fstat(descriptor).st_mode == (tmp_path / "usual").stat().st_mode
    os.close(descriptor)
    assert taken == {str(descriptor)}


def test_a_program_that_has_used_its_limit_up_keeps_the_last_number(tmp_path: Path) -> None:
    (tmp_path / "ours").touch()
    found = subprocess.run(
        [sys.executable, "-c", LAST_NUMBER], cwd=tmp_path, capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip
    assert found.stdout == "[Errno 24] Too many open files: 'ours' 3\n"


def test_why_a_file_cannot_be_opened_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        open_apart(tmp_path / "missing", os.O_RDONLY)
    with pytest.raises(FileExistsError, match=tmp_path.name):
        open_apart(tmp_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
