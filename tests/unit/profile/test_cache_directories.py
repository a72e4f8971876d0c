"""The size of a cache directory is measured at checkpoints, not only once a second."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_quant.profile import cache_directories
from otel_quant.profile.cache_directories import CacheDirectories

MIB = 1024 * 1024


def test_a_file_that_exists_at_a_checkpoint_counts_even_if_it_is_removed_later(
    tmp_path: Path,
) -> None:
    cache = CacheDirectories(interval=3600)
    (tmp_path / "before").write_bytes(b"x" * MIB)
    cache.watch(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"x" * 3 * MIB)
    cache.measure_now()
    (tmp_path / "model.onnx").unlink()

    assert cache.finish() == 3.0


def test_a_file_that_is_removed_before_a_checkpoint_does_not_count(tmp_path: Path) -> None:
    cache = CacheDirectories(interval=3600)
    cache.watch(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"x" * MIB)
    (tmp_path / "model.onnx").unlink()

    assert cache.finish() is None


def test_measuring_without_a_watched_directory_does_nothing() -> None:
    cache = CacheDirectories()
    cache.measure_now()
    assert cache.finish() is None


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
    cache = CacheDirectories(interval=3600)
    cache.watch(tmp_path)
    slow_measurements(monkeypatch, [0.2])
    cache.measure_now()
    (tmp_path / "model.onnx").write_bytes(b"x" * MIB)
    cache.measure_now()
    (tmp_path / "model.onnx").unlink()

    assert cache.finish() == 1.0


def test_a_large_directory_is_not_measured_at_every_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = CacheDirectories(interval=3600)
    cache.watch(tmp_path)
    count = slow_measurements(monkeypatch, [0.2] * 20)
    for _ in range(20):
        cache.measure_now()

    assert count() == 2
    cache.finish()


def test_a_signal_handler_may_close_a_step_during_a_measurement(tmp_path: Path) -> None:
    cache = CacheDirectories(interval=3600)
    cache.watch(tmp_path)

    def interrupted() -> None:
        with cache._lock:
            (tmp_path / "model.onnx").write_bytes(b"x" * MIB)
            cache.measure_now()

    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    (tmp_path / "model.onnx").unlink()
    assert cache.finish() == 1.0


def test_a_forked_child_does_not_use_its_parents_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = CacheDirectories(interval=3600)
    cache.watch(tmp_path)
    count = slow_measurements(monkeypatch, [])
    own = os.getpid()
    monkeypatch.setattr(cache_directories.os, "getpid", lambda: own + 1)
    cache.measure_now()
    monkeypatch.undo()
    assert count() == 0
    cache.finish()
