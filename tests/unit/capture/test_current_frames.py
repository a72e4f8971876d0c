"""To look at all threads ends, whatever the program's threads and collections do."""

from __future__ import annotations

import gc
import tomllib
from pathlib import Path

import pytest

from otel_quant.capture import gil
from tests.fixtures.programs import run_script

ROOT = Path(__file__).parents[3]

PROGRAM = """
import gc, sys, threading, time
from otel_quant.capture.gil import current_frames

sys.setswitchinterval(1e-6)
gc.set_threshold(1)
gc.callbacks.append(lambda *_: sum(range(30)))  # gives the GIL away
over = time.monotonic() + 1.5

def start_threads():
    while time.monotonic() < over:
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()

starting = [threading.Thread(target=start_threads) for _ in range(3)]
for each in starting:
    each.start()
while time.monotonic() < over:
    assert threading.get_ident() in current_frames()
print(gc.isenabled())
"""
"""With ``sys._current_frames`` itself CPython 3.11.7 hung in three of three runs."""


def test_threads_that_begin_during_a_collection_hang_no_look(tmp_path: Path) -> None:
    assert run_script(tmp_path, PROGRAM)[0] == "True\n"


@pytest.mark.parametrize("hangs", [True, False])
def test_collections_are_on_or_off_after_a_look_as_they_were(
    hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gil, "COLLECTING_HANGS", hangs)
    was_enabled = gc.isenabled()
    try:
        for switch, is_enabled in ((gc.enable, True), (gc.disable, False)):
            switch()
            gil.current_frames()
            assert gc.isenabled() == is_enabled
    finally:
        (gc.enable if was_enabled else gc.disable)()


def test_the_way_around_it_is_needed_while_the_oldest_python_may_hang() -> None:
    """From ">=3.11.9" on ``sys._current_frames`` does."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["requires-python"] == ">=3.11"
