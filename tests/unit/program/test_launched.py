"""A program that otel-quant run has started is instrumented before the first library that it imports."""

from __future__ import annotations

import _imp
import importlib
import sys

import pytest

from otel_quant.program import launched


def test_libraries_are_instrumented_without_the_lock_with_which_python_calls_finders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Another thread, which loads a module that is wanted here, may wait for it.
    finder, held = launched._FirstImport(), []
    finder.names = {"no_such_library"}
    monkeypatch.setattr(launched, "_instrument_libraries", lambda: held.append(_imp.lock_held()))
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_library")
    assert held == [False]
    assert not _imp.lock_held()
    assert finder not in sys.meta_path
