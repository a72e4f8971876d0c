"""How long the garbage collector ran, where, and on what was there before: of the process's own collections."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator

import pytest

from otel_quant.capture.garbage import Collections
from otel_quant.schema.code_lines import Place


@pytest.fixture
def collections() -> Iterator[Collections]:
    found = Collections()
    found.watch(lambda frame: [Place("x.py", frame.f_code.co_name, 1, "")] if frame else [])
    found.watch(lambda _: ())  # the newest run's
    found.watch(lambda frame: [Place("x.py", frame.f_code.co_name, 1, "")] if frame else [])
    assert gc.callbacks.count(found) == 1
    gc.freeze()  # what other tests have left is not looked at
    yield found
    gc.unfreeze()
    if found in gc.callbacks:
        gc.callbacks.remove(found)


def test_full_collections_are_counted_with_their_time_and_the_last_line(
    collections: Collections,
) -> None:
    kept = [[each] for each in range(200_000)]
    gc.collect()
    before = collections.taken
    gc.collect()
    gc.collect()
    found = collections.since(before, 1e9)
    assert (found.full, found.line) == (2, f"{_own_name()} (x.py:1)")
    assert found.share == pytest.approx(2 * found.mean)
    assert found.mean > 0.0005
    assert found.is_old
    del kept


def _own_name() -> str:
    return test_full_collections_are_counted_with_their_time_and_the_last_line.__name__


def test_what_a_step_makes_was_not_there_before(collections: Collections) -> None:
    gc.collect()
    before = collections.taken
    kept = [[each] for each in range(2_000_000)]
    gc.collect()
    assert not collections.since(before, 1e9).is_old
    del kept


def test_nothing_is_known_once_the_program_has_removed_it(collections: Collections) -> None:
    gc.callbacks.remove(collections)
    assert math.isnan(collections.since(collections.taken, 1e9).share)
    assert not collections.since(collections.taken, 1e9).is_old
