"""Cache directories are measured from the moment they are made, at checkpoints and in between."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
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


def test_the_largest_growth_of_one_directory_counts_and_not_their_sum(tmp_path: Path) -> None:
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


def test_nothing_is_measured_and_no_thread_runs_without_a_watched_directory() -> None:
    cache = CacheDirectories()
    before = threading.active_count()
    assert (cache(), cache.sample(), threading.active_count()) == (None, None, before)


def test_between_checkpoints_a_thread_measures(tmp_path: Path) -> None:
    cache = CacheDirectories()
    cache.watch(tmp_path)
    assert cache.sample() is None  # it has not measured yet
    (tmp_path / "model.onnx").write_bytes(b"x" * MIB)
    deadline = time.monotonic() + 60
    while cache.sample() != MIB:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    cache.forget()


def test_the_thread_ends_when_no_more_samples_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_directories, "_UNUSED", 0.01)
    cache = CacheDirectories()
    cache.watch(tmp_path)
    cache.sample()
    assert cache._thread is not None
    cache._thread.join(60)
    assert not cache._thread.is_alive()


def test_a_new_run_watches_what_exists_and_does_not_have_the_old_runs_peak(tmp_path: Path) -> None:
    cache = CacheDirectories()
    for name in ("gone", "kept"):
        (tmp_path / name).mkdir()
        cache.watch(tmp_path / name)
    (tmp_path / "gone" / "file").write_bytes(b"x" * 2 * MIB)
    cache._measure()
    (tmp_path / "gone" / "file").unlink()
    (tmp_path / "gone").rmdir()
    (tmp_path / "kept" / "file").write_bytes(b"x" * MIB)
    cache._pause_ends = 0.0

    assert cache.for_new_run().sample() is None
    assert cache() == MIB
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


def slow_measurements(monkeypatch: pytest.MonkeyPatch, seconds: list[float]) -> Callable[[], int]:
    """Makes each measurement take so many seconds; returns a function that counts them."""
    original, count = cache_directories.size_of, 0

    def size_of(path: Path) -> int | None:
        nonlocal count
        time.sleep(seconds[count] if count < len(seconds) else 0)
        count += 1
        return original(path)

    monkeypatch.setattr(cache_directories, "size_of", size_of)
    return lambda: count


def test_one_slow_measurement_does_not_skip_the_next_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = CacheDirectories()
    cache.watch(tmp_path)
    slow_measurements(monkeypatch, [0.2])
    cache()
    (tmp_path / "model.onnx").write_bytes(b"x" * MIB)

    assert cache() == MIB


def test_a_large_directory_is_not_measured_at_every_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = CacheDirectories()
    cache.watch(tmp_path)
    count = slow_measurements(monkeypatch, [0.2] * 20)
    for _ in range(20):
        cache()

    assert count() == 2


def test_a_signal_handler_may_close_a_step_during_a_measurement(tmp_path: Path) -> None:
    cache = CacheDirectories()
    cache.watch(tmp_path)
    found: list[int | None] = []

    def interrupted() -> None:
        with cache._lock:
            (tmp_path / "model.onnx").write_bytes(b"x" * MIB)
            found.append(cache())

    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(60)
    assert found == [MIB]


def test_a_forked_child_watches_none_of_its_parents_directories(tmp_path: Path) -> None:
    cache_directories.CACHE_DIRECTORIES.watch(tmp_path)

    def in_the_child() -> None:
        assert cache_directories.CACHE_DIRECTORIES() is None
        cache_directories.CACHE_DIRECTORIES.watch(tmp_path)
        assert cache_directories.CACHE_DIRECTORIES() == 0

    try:
        locked, forked = threading.Event(), threading.Event()

        def measure() -> None:
            with cache_directories.CACHE_DIRECTORIES._lock:
                locked.set()
                forked.wait(60)

        thread = threading.Thread(target=measure)
        thread.start()
        locked.wait(60)
        pid = child(in_the_child)
        forked.set()
        thread.join()
        assert os.waitpid(pid, 0)[1] == 0
        assert cache_directories.CACHE_DIRECTORIES() == 0  # in the parent
    finally:
        cache_directories.CACHE_DIRECTORIES.forget()
