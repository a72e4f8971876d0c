"""A program that forks has no thread of ours meanwhile: from 3.12 on CPython would warn it of each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fixtures.programs import run_script

FORKS = """
import os, sys, threading, time

def fork():
    if os.fork() == 0:
        os._exit(0)
    os.wait()

if "early" in sys.argv:
    from otel_quant.capture.early_stacks import EARLY_STACKS
    EARLY_STACKS.begin()
    fork()
    time.sleep(0.6)
    fork()
else:
    import otel_quant
    with otel_quant.step("forking"):
        time.sleep(0.1)
        fork()
        fork()
        names = [each.name for each in threading.enumerate()]
        assert names == ["MainThread", "otel-quant-sampler"], names
"""

OWN_THREAD = """
import os, threading, time

threading.Thread(target=time.sleep, args=(0.5,)).start()
with step("forking"):
    if os.fork() == 0:
        os._exit(0)
    os.wait()
"""


@pytest.mark.parametrize("argument", ["early", "step"])
def test_a_fork_is_not_warned_of_our_threads(tmp_path: Path, argument: str) -> None:
    options = {"PYTHONWARNINGS": "error", "OTEL_QUANT_PROFILE": "profile.yaml"}
    assert run_script(tmp_path, FORKS, argument, **options) == ("", "")


def test_a_warning_of_the_programs_own_threads_names_its_line(tmp_path: Path) -> None:
    def warned(begun: str) -> str:
        said = run_script(tmp_path, f"{begun}\n{OWN_THREAD}")[1]
        return re.sub(r"pid=\d+", "", said)

    plainly = "from contextlib import nullcontext as step"
    assert warned("from otel_quant import step") == warned(plainly)
