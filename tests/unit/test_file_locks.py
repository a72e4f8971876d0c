"""Locks of files, and who counts as alive where there are none."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from otel_quant.base import file_locks
from otel_quant.base.file_locks import try_lock
from otel_quant.export.recording.held_file import HeldFile, is_held


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such locks")
@pytest.mark.parametrize(
    ("first", "second", "is_locked"),
    [(False, False, False), (False, True, False), (True, False, False), (True, True, True)],
    ids=["twice", "a look at a file that is written", "a writer after a look", "two looks"],
)
def test_a_lock_excludes_others_and_a_look_excludes_writers(
    tmp_path: Path, first: bool, second: bool, is_locked: bool
) -> None:
    files = [os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT) for _ in range(2)]
    assert try_lock(files[0], shared=first) is True
    assert try_lock(files[1], shared=second) is is_locked
    os.close(files[0])
    assert try_lock(files[1], shared=second) is True
    os.close(files[1])
    assert try_lock(files[1]) is None


def test_without_locks_a_file_is_held_while_it_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_locks, "EXIST", False)
    file = HeldFile(tmp_path / "file")
    assert is_held(file.path)
    for age, expected in ((60, True), (120, False)):
        os.utime(file.path, (time.time() - age,) * 2)
        assert is_held(file.path) is expected
    file.close()
    assert not is_held(tmp_path / "missing")
