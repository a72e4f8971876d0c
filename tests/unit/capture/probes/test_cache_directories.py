"""Cache directories are measured from the moment they are made, at checkpoints and in between."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from otel_quant.capture.probes import cache_directories
from otel_quant.capture.probes.cache_directories import CacheDirectories
from tests.fixtures.programs import child

MIB = 1024 * 1024


def at_checkpoint(cache: CacheDirectories) -> int | None:
    """Reads after the pause that follows each measurement."""
    time.sleep(max(0.0, cache._pause_ends - time.monotonic()))
    return cache()


def test_a_reading_is_the_growth_since_the_watch_began_and_never_negative(tmp_path: Path) -> None:
    cache = CacheDirectories()
    (tmp_path / "before").write_bytes(b"x" * MIB)
    cache.watch(tmp_path)
    assert at_checkpoint(cache) == 0
    (tmp_path / "deep" / "down").mkdir(parents=True)
    (tmp_path / "deep" / "down" / "model.onnx").write_bytes(b"x" * 3 * MIB)
    cache.watch(tmp_path)  # again: the first watch counts
    assert at_checkpoint(cache) == 3 * MIB
    (tmp_path / "before").unlink()
    (tmp_path / "deep" / "down" / "model.onnx").unlink()
    assert at_checkpoint(cache) == 0


def test_the_growth_is_the_largest_of_one_directory_and_not_the_sum(tmp_path: Path) -> None:
    cache = CacheDirectories()
    for name, size in (("a", 2), ("made later", 3)):
        cache.watch(tmp_path / name)
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"x" * size * MIB)

    assert cache() == 3 * MIB


def test_nothing_is_measured_if_all_directories_were_removed(tmp_path: Path) -> None:
    cache = CacheDirectories()
    (tmp_path / "cache").mkdir()
    cache.watch(tmp_path / "cache")
    assert at_checkpoint(cache) == 0
    (tmp_path / "cache").rmdir()
    assert at_checkpoint(cache) is None


def test_a_new_run_watches_existing_directories_without_the_old_peak(tmp_path: Path) -> None:
    cache = CacheDirectories()
    for name in ("gone", "kept"):
        (tmp_path / name).mkdir()
        cache.watch(tmp_path / name)
    (tmp_path / "gone" / "file").write_bytes(b"x" * 2 * MIB)
    assert cache() == 2 * MIB
    (tmp_path / "gone" / "file").unlink()
    (tmp_path / "gone").rmdir()
    (tmp_path / "kept" / "file").write_bytes(b"x" * MIB)

    assert cache.for_new_run()() == MIB
    assert list(cache._first_sizes) == [tmp_path / "kept"]
    cache.forget()


def test_a_folder_that_is_removed_while_it_is_listed_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "removed").mkdir()
    (tmp_path / "file").write_bytes(b"x" * MIB)
    scandir = os.scandir

    def removed_by_now(path: Path) -> object:
        if path.name == "removed":
            raise FileNotFoundError(path)
        return scandir(path)

    monkeypatch.setattr(cache_directories.os, "scandir", removed_by_now)
    assert cache_directories.size_of(tmp_path) == MIB


def test_a_large_directory_is_not_measured_at_every_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, original, measured = CacheDirectories(), cache_directories.size_of, []

    def size_of(path: Path) -> int | None:
        time.sleep(0.2)
        measured.append(path)
        return original(path)

    cache.watch(tmp_path)
    monkeypatch.setattr(cache_directories, "size_of", size_of)
    for _ in range(20):
        cache()
    assert measured == [tmp_path, tmp_path]  # a single one may have waited for a processor
    cache._pause_ends = 0.0
    cache.sample()
    assert len(measured) == 2, "the sampler has to see memory meanwhile"
    cache()
    assert len(measured) == 3


def test_a_forked_child_watches_none_of_its_parents_directories(tmp_path: Path) -> None:
    cache_directories.CACHE_DIRECTORIES.watch(tmp_path)

    def in_the_child() -> None:
        assert cache_directories.CACHE_DIRECTORIES() is None
        cache_directories.CACHE_DIRECTORIES.watch(tmp_path)
        assert cache_directories.CACHE_DIRECTORIES() == 0

    try:
        assert os.waitpid(child(in_the_child), 0)[1] == 0
        assert cache_directories.CACHE_DIRECTORIES() == 0  # in the parent
    finally:
        cache_directories.CACHE_DIRECTORIES.forget()


def test_the_last_reading_of_a_run_measures_also_within_a_pause(tmp_path: Path) -> None:
    cache = CacheDirectories()
    cache.watch(tmp_path)
    cache()
    cache._pause_ends = time.monotonic() + 60
    (tmp_path / "file").write_bytes(bytes(100))
    assert cache() == 0
    cache.end_pause()
    assert cache() == 100
