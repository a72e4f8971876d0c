"""A fork waits for the sample that is being taken: in the child the frames that it looks at would be gone. How the GIL is asked for."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from otel_quant.capture.sampler import Sampler
from tests.fixtures.programs import child


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="the thread ends before a fork there")
def test_a_fork_is_not_in_the_middle_of_a_sample_and_the_child_takes_its_own() -> None:
    begun, forks, under_way = threading.Event(), threading.Event(), [False]

    def take() -> None:
        under_way[0] = True
        begun.set()
        forks.wait(0.3)  # never set: it is a long sample
        under_way[0] = False

    def seen() -> None:
        assert not under_way[0]
        again = threading.Event()
        own = Sampler(again.set, 0.001)
        own.start()
        assert again.wait(10)
        own.stop()

    sampler = Sampler(take, 0.001)
    sampler.start()
    for _ in range(3):
        begun.clear()
        assert begun.wait(10)
        assert os.waitpid(child(seen), 0)[1] == 0
    sampler.stop()


@pytest.mark.parametrize("program", [0.003, None])
def test_how_long_threads_keep_the_gil_is_the_programs_again_afterwards(
    program: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = sys.getswitchinterval()
    within: list[float] = []

    def sleep(seconds: float) -> None:
        assert 0 <= seconds <= usual
        within.append(sys.getswitchinterval())
        if program is not None:
            sys.setswitchinterval(program)

    monkeypatch.setattr("time.sleep", sleep)
    try:
        Sampler(lambda: None, 1).see_anywhere()
        assert within[0] < usual
        assert sys.getswitchinterval() == pytest.approx(program or usual)
    finally:
        sys.setswitchinterval(usual)
