"""How much the cache directories of a run grow."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from otel_quant.probes.cache_dirs import CacheDirs, size_of

MIB = 1024 * 1024


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("not within 30 s")


def test_a_peak_between_two_checkpoints_is_seen(tmp_path: Path) -> None:
    watch = CacheDirs(interval=0.01)
    watch.watch(tmp_path)

    (tmp_path / "model").write_bytes(bytes(2 * MIB))
    wait_for(lambda: watch._peak > 0)
    (tmp_path / "model").unlink()

    assert watch.finish() == 2.0


def test_the_largest_growth_of_any_directory_counts_and_not_their_sum(tmp_path: Path) -> None:
    watch = CacheDirs()
    for name, before, after in (("a", 9, 1), ("b", 0, 3), ("c", 0, 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "before").write_bytes(bytes(before * MIB))
        watch.watch(tmp_path / name)
        (tmp_path / name / "after").write_bytes(bytes(after * MIB))

    assert watch.finish() == 3.0
    assert watch.finish() is None  # the next run starts anew


def test_a_directory_that_shrinks_or_goes_has_not_grown(tmp_path: Path) -> None:
    watch = CacheDirs()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "model").write_bytes(bytes(MIB))
    watch.watch(tmp_path / "a")
    watch.watch(tmp_path / "not there yet")

    shutil.rmtree(tmp_path / "a")

    assert watch.finish() is None


def test_links_are_not_followed_and_folders_are(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c" / "file").write_bytes(bytes(1000))
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    (tmp_path / "a" / "file").symlink_to(tmp_path / "a" / "b" / "c" / "file")

    assert size_of(tmp_path / "a") == 1000
    assert size_of(tmp_path / "a" / "b" / "c" / "file") == 1000
    assert size_of(tmp_path / "none") is None


def test_a_forked_child_starts_without_its_parents_watches(tmp_path: Path) -> None:
    watch = CacheDirs()
    watch.watch(tmp_path)
    (tmp_path / "model").write_bytes(bytes(MIB))
    pid = os.fork()
    if pid == 0:
        os._exit(0 if watch.finish() is None else 1)

    assert os.waitpid(pid, 0)[1] == 0
    assert watch.finish() == 1.0
