"""What ended a program of which Python keeps nothing, in processes that end so."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import atexit, sys, threading
from otel_quant.capture.exits import LAST_ERRORS
LAST_ERRORS.watch()
LAST_ERRORS.watch_threads()
atexit.register(lambda: print(repr(LAST_ERRORS.error), LAST_ERRORS.thread))
kept = []
def caught(text):
    try: sys.exit(text)
    except SystemExit as error: kept.append(error)
def fail(): raise ValueError("bad image")
def in_thread(call):
    thread = threading.Thread(target=call, name="producer")
    thread.start()
    thread.join()
"""


@pytest.mark.parametrize(
    ("end", "code", "told"),
    [
        ("sys.exit('no model')", 1, "SystemExit('no model') None"),
        ("caught('caught'); sys.exit('no model')", 1, "SystemExit('no model') None"),
        ("caught('caught'); del kept[:]", 0, "None None"),
        ("caught('caught'); sys.exit(3)", 3, "None None"),
        ("caught('caught'); fail()", 1, "None None"),
        ("in_thread(lambda: sys.exit('the thread'))", 0, "None None"),
        (
            "in_thread(fail)",
            0,
            "None producer died of ValueError: bad image, at fail (<string>:11)",
        ),
        ("sys.exit()", 0, "None None"),
    ],
)
def test_only_a_text_that_ended_the_program_and_a_thread_that_died_are_known(
    end: str, code: int, told: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", f"{PROGRAM}{end}"], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout.strip()) == (code, told)
    assert ended.stderr.endswith("no model\n") == ("no model" in told)
    assert ("Exception in thread producer" in ended.stderr) == ("died" in told)
