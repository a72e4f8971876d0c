"""Peaks of a process tree on a busy machine, where the kernel's mark of the parent does not help.

The parent's mark is higher than anything that follows, and a child then holds memory for half a
second: how much, its own mark says. On some machines, when they are busy, a sample now and then takes 17 ms
of CPU time; to have that on every machine, a part of the samples compute for so long before they read.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import Workshop

pytestmark = pytest.mark.alone

RUNS = 3
BUSY_LOOPS = 4
COSTLY = "0.2"
"""Part of the samples that take 17 ms."""

SCRIPT = """
import mmap, random, subprocess, sys, time
import otel_quant
from otel_quant.capture.probes.readers import Probes

def sample(probes, plain=Probes.sample, **options):
    if random.random() < float(sys.argv[1]):
        until = time.thread_time() + 0.017
        while time.thread_time() < until:
            pass
    return plain(probes, **options)

Probes.sample = sample

CHILD = '''
import time
block = bytearray(b"x") * (361 << 20)
time.sleep(0.5)
for line in open("/proc/self/status"):
    if line.startswith("VmHWM"):
        print(int(line.split()[1]) * 1024)
'''

def rss():
    for line in open("/proc/self/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024

print(flush=True)
sys.stdin.readline()
with otel_quant.step("high"):
    mmap.mmap(-1, 700 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x8000).close()
time.sleep(float(sys.argv[2]))
with otel_quant.step("low"):
    child = subprocess.run(
        [sys.executable, "-S", "-c", CHILD], stdout=subprocess.PIPE, check=True, env={})
    print(int(child.stdout) + rss())
"""


@contextmanager
def busy_machine() -> Iterator[None]:
    """Four processes that compute all the time."""
    with ExitStack() as stack:
        for _ in range(BUSY_LOOPS):
            loop = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
            stack.callback(loop.wait)
            stack.callback(loop.kill)
        yield


def test_the_memory_of_a_child_of_half_a_second_is_in_the_peak(
    workshop: Workshop, otlp: OtlpReceiver
) -> None:
    # The child begins at another moment of the sampler's pause each time.
    script, waits = workshop.script(SCRIPT), [str(0.5 + 0.037 * number) for number in range(RUNS)]
    ready = [script.start(otlp.environment("http/protobuf"), COSTLY, wait) for wait in waits]
    for process in ready:
        assert process.stdout is not None
        process.stdout.readline()
    with busy_machine():  # not while they start, which would take minutes
        for process in ready:
            otlp.clear()
            held, errors = process.communicate("\n", timeout=180)
            assert (process.returncode, errors) == (0, "")
            attributes = otlp.span("low").attributes
            error = abs(attributes["quant.memory.peak"] - int(held)) / int(held)
            assert error < 0.25
            assert error < 0.05 or attributes["quant.memory.peak_source"] == "sampled"
