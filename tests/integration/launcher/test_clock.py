"""The wall clock is set while a program runs: durations are by the monotonic clock, the launcher's too."""

from __future__ import annotations

import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from otel_quant.recordings.model import steps_in
from otel_quant.recordings.reader import read
from tests.fixtures.programs import Launched

SET_CLOCK = """
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Half a second after a process has asked for the first time, its wall clock is set. */
static double began = -1;
int clock_gettime(clockid_t which, struct timespec *found) {
    struct timespec now;
    int code = syscall(SYS_clock_gettime, which, found);
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    double seconds = now.tv_sec + now.tv_nsec / 1e9;
    if (began < 0) began = seconds;
    if (which == CLOCK_REALTIME && seconds - began > 0.5) found->tv_sec += atol(getenv("SET_BY"));
    return code;
}
"""

STEPS = """
import subprocess, sys, time, otel_quant
with otel_quant.step("First"):
    time.sleep(0.6)
with otel_quant.step("Second"):
    time.sleep(0.2)
if len(sys.argv) == 1:
    subprocess.run([sys.executable, "steps.py", "child"])
"""


@pytest.mark.parametrize("by", [-3600, 3600])
def test_durations_do_not_change_when_the_clock_is_set(launched: Launched, by: int) -> None:
    (launched.folder / "clock.c").write_text(SET_CLOCK)
    (launched.folder / "steps.py").write_text(STEPS)
    compiled = ["gcc", "-shared", "-fPIC", "-o", "clock.so", "clock.c"]
    subprocess.run(compiled, cwd=launched.folder, check=True)
    preload = {"LD_PRELOAD": str(launched.folder / "clock.so"), "SET_BY": str(by)}
    own = {"OTEL_QUANT_RECORD": "own", "OTEL_TRACES_EXPORTER": "none", **preload}
    others = {"OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}
    ended = launched.run(["python", "steps.py"], "--out", "r", variables=preload)
    assert "steps.py finished in " in ended.stderr
    launched.run_bare(
        ["opentelemetry-instrument", "python", "steps.py"], variables={**own, **others}
    )
    for name in ("r", "own"):
        check(launched.folder / name)


def check(folder: Path) -> None:
    recording = read(folder)
    assert 1.6 < recording.duration < 60
    assert read(folder, in_brief=True).duration == recording.duration
    steps = steps_in(recording)
    assert [each.step.name for each in steps] == ["First", "Second"] * 2
    for before, after in pairwise(steps):
        assert 0 <= before.step.start < before.end <= after.step.start < recording.duration
