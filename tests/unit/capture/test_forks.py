"""A program that forks has no thread of ours meanwhile: from 3.12 on CPython would warn it of each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from otel_quant.recordings.model import steps_in
from otel_quant.recordings.reader import read, split_of
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


BUSY_CHILD = """
import json, os, sys, time
from pathlib import Path
import otel_quant

with otel_quant.step("before"): pass
if os.fork():
    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
with otel_quant.step("busy"):
    end = time.thread_time() + 1.5  # the second sample may be 0.4 s after the first
    while time.thread_time() < end: pass
"""


def test_a_forked_childs_main_thread_is_seen_on_a_processor(tmp_path: Path) -> None:
    run_script(tmp_path, BUSY_CHILD, OTEL_QUANT_RECORD="made")
    recording = read(tmp_path / "made")
    (step,) = (each.step for each in steps_in(recording) if each.step.name == "busy")
    seen = split_of(recording, step)
    assert seen is not None
    assert seen.cpu > 200_000_000
