"""The growth of a cache directory is seen where a step leaves it, not only once a second."""

from __future__ import annotations

from pathlib import Path

from otel_quant.probes.cache_dirs import CacheDirs

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
