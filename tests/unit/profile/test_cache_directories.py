"""The growth of a cache directory is seen where a step leaves it, not only once a second."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_quant.profile import cache_directories as cache_dirs
from otel_quant.profile.cache_directories import CacheDirs

MIB = 1024 * 1024


def test_what_is_there_at_a_checkpoint_counts_even_if_it_does_not_last(tmp_path: Path) -> None:
    cache = CacheDirs(interval=3600)
    (tmp_path / "before").write_bytes(b"x" * MIB)
    cache.watch(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"x" * 3 * MIB)
    cache.look_again()
    (tmp_path / "model.onnx").unlink()

    assert cache.finish() == 3.0


def test_without_a_checkpoint_between_it_is_not_seen(tmp_path: Path) -> None:
    cache = CacheDirs(interval=3600)
    cache.watch(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"x" * MIB)
    (tmp_path / "model.onnx").unlink()

    assert cache.finish() is None


def test_looking_where_nothing_is_watched_does_nothing() -> None:
    cache = CacheDirs()
    cache.look_again()
    assert cache.finish() is None


def looking(monkeypatch: pytest.MonkeyPatch, seconds: list[float]) -> Callable[[], int]:
    """Has each look take so many seconds; returns what counts the looks so far."""
    original, looks = cache_dirs.size_of, 0

    def size_of(path: Path) -> int | None:
        nonlocal looks
        time.sleep(seconds[looks] if looks < len(seconds) else 0)
        looks += 1
        return original(path)

    monkeypatch.setattr(cache_dirs, "size_of", size_of)
    return lambda: looks


def test_one_look_that_lost_the_processor_keeps_no_checkpoint_from_looking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = CacheDirs(interval=3600)
    cache.watch(tmp_path)
    looking(monkeypatch, [0.2])
    cache.look_again()
    (tmp_path / "model.onnx").write_bytes(b"x" * MIB)
    cache.look_again()
    (tmp_path / "model.onnx").unlink()

    assert cache.finish() == 1.0


def test_a_directory_that_takes_long_is_not_looked_at_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = CacheDirs(interval=3600)
    cache.watch(tmp_path)
    looks = looking(monkeypatch, [0.2] * 20)
    for _ in range(20):
        cache.look_again()

    assert looks() == 2
    cache.finish()


def test_a_signal_handler_in_the_middle_of_a_look_may_close_a_step(tmp_path: Path) -> None:
    cache = CacheDirs(interval=3600)
    cache.watch(tmp_path)

    def interrupted() -> None:
        with cache._lock:
            (tmp_path / "model.onnx").write_bytes(b"x" * MIB)
            cache.look_again()

    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    (tmp_path / "model.onnx").unlink()
    assert cache.finish() == 1.0


def test_a_forked_child_does_not_look_with_its_parents_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = CacheDirs(interval=3600)
    cache.watch(tmp_path)
    looks = looking(monkeypatch, [])
    own = os.getpid()
    monkeypatch.setattr(cache_dirs.os, "getpid", lambda: own + 1)
    cache.look_again()
    monkeypatch.undo()
    assert looks() == 0
    cache.finish()
