"""Peaks of memory, compared with the values that the processes know themselves.

A peak is marked as the kernel's if it is certainly the highest: in a step without child
processes. Sizes are large against what an interpreter uses by the way, so 2 % is a strict bound.
Most scripts switch the sampler off: what is shown then is the kernel's own figure.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import EXPORTERS_ARE_READY, Ran

MIB = 1 << 20
SIZE = 500 * MIB
TOLERANCE = 0.02 * SIZE

# What the scripts have in common: memory in use, and ways to use some for a moment.
PRELUDE = """
import json, mmap, os, subprocess, sys, time
import otel_quant
from otel_quant.capture.runtime import RUNTIME

MIB = 1 << 20

def wait_for_a_sample():
    # The second from now has begun after now. How long it takes is the sampler's affair:
    # it pauses for long after it has waited for the GIL.
    # The marks of children are read five times a second, and when memory has fallen.
    for _ in range(2):
        latest, until = RUNTIME.recorder.latest, time.monotonic() + 60
        while (
            RUNTIME.recorder.latest is latest or RUNTIME.recorder.latest.memory.is_brief
        ) and time.monotonic() < until:
            time.sleep(0.005)

def status(key):
    for line in open("/proc/self/status"):
        if line.startswith(key):
            return int(line.split()[1]) * 1024

def spike(mib):
    block = mmap.mmap(-1, mib * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x8000)
    block.close()  # 0x8000 is MAP_POPULATE: the kernel hands all of it out at once

CHILD = '''
import mmap, sys
def mark():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
def spike(mib):
    block = mmap.mmap(-1, mib << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x8000)
    block.close()
for line in sys.stdin:
    spike(int(line))
    print(mark(), flush=True)
'''

class Child:
    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env={})
    def spike(self, mib):
        print(mib, file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())
    def end(self):
        self.process.stdin.close()
        self.process.wait()
"""


Run = Callable[..., tuple[dict[str, dict[str, object]], dict[str, int]]]


@pytest.fixture
def run(ran: Ran, otlp: OtlpReceiver) -> Run:
    """Runs a script without a sampler unless one is asked for.

    Returns each step's attributes by its name, and the facts that the script printed.
    """

    def run(
        body: str, interval: int = 0, **variables: str
    ) -> tuple[dict[str, dict[str, object]], dict[str, int]]:
        variables["OTEL_QUANT_SAMPLE_INTERVAL"] = str(interval)
        facts = json.loads(ran(PRELUDE + EXPORTERS_ARE_READY + body, **variables) or "{}")
        return {span.name: span.attributes for span in otlp.by_start()}, facts

    return run


def peak_of(step: dict[str, object]) -> int:
    peak = step[semconv.MEMORY_PEAK]
    assert isinstance(peak, int)
    return peak


def rise_of(step: dict[str, object]) -> int:
    start = step[semconv.MEMORY_START]
    assert isinstance(start, int)
    return peak_of(step) - start


def test_memory_freed_before_the_next_checkpoint_is_in_the_peak_without_a_reset(run: Run) -> None:
    steps, facts = run(
        """
with otel_quant.step("outer"):
    with otel_quant.step("inner"):
        spike(500)
with otel_quant.step("idle"):
    pass
print(json.dumps({"mark": status("VmHWM")}))
"""
    )
    for name in ("outer", "inner", "quantization"):
        assert rise_of(steps[name]) == pytest.approx(SIZE, abs=TOLERANCE), name
        assert steps[name][semconv.MEMORY_PEAK_SOURCE] == "kernel"
    assert rise_of(steps["idle"]) < TOLERANCE
    assert facts["mark"] > SIZE
    process_peak = steps["quantization"][semconv.MEMORY_PROCESS_PEAK]
    assert process_peak == peak_of(steps["quantization"])


def test_the_sampler_finds_a_peak_below_an_earlier_kernel_peak(run: Run) -> None:
    steps, _ = run(
        """
with otel_quant.step("high"):
    spike(700)
with otel_quant.step("low"):
    block = bytearray(b"x") * (500 * MIB)
    wait_for_a_sample()
    del block
""",
        interval=20,
    )
    assert rise_of(steps["low"]) == pytest.approx(SIZE, abs=TOLERANCE)
    assert steps["low"][semconv.MEMORY_PEAK_SOURCE] == "sampled"


def test_a_peak_below_an_earlier_one_that_no_sample_has_seen_is_marked(run: Run) -> None:
    steps, _ = run(
        """
with otel_quant.step("high"):
    block = b"x" * (500 * MIB); del block
with otel_quant.step("low"):
    block = b"x" * (400 * MIB); del block
with otel_quant.step("idle"):
    time.sleep(0.1)
with otel_quant.step("a child's"):
    subprocess.run([sys.executable, "-S", "-c", "b'x' * (300 << 20)"], check=True)
"""
    )
    assert {name: steps[name][semconv.MEMORY_PEAK_SOURCE] for name in steps} == {
        "quantization": "sampled", "high": "kernel", "low": "at_least", "idle": "sampled",
        "a child's": "sampled",
    }  # fmt: skip


OF_A_CHILD = {
    "that runs": """
child = Child()
child.spike(1)
with otel_quant.step("step"):
    mark = child.spike(500)
    rss = status("VmRSS")
with otel_quant.step("after"):  # a mark that was seen before is not this step's
    child.end()
""",
    "that has exited": """
with otel_quant.step("step"):
    child = Child()
    mark = child.spike(500)
    child.end()
    rss = status("VmRSS")
with otel_quant.step("after"):
    pass
""",
    "that was forked and has exited": """
with otel_quant.step("step"):
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        spike(500)
        os.write(writing, str(status("VmHWM")).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    mark, rss = int(os.read(reading, 99)), status("VmRSS")
""",
    "that a reading has seen during its spike": """
with otel_quant.step("step"):
    (spiked, spiking), (seen, seeing), (reading, writing) = (os.pipe() for _ in range(3))
    pid = os.fork()
    if pid == 0:
        block = mmap.mmap(-1, 500 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x8000)
        os.write(spiking, b"x")
        os.read(seen, 1)
        block.close()
        os.write(writing, str(status("VmHWM")).encode())
        os._exit(0)
    grown = bytearray(b"x") * (3 * MIB)  # so that this process holds more than at the start
    os.read(spiked, 1)
    RUNTIME.recorder.reading_now()  # as the gauges take one whenever metrics are collected
    os.write(seeing, b"x")
    os.waitpid(pid, 0)
    mark, rss = int(os.read(reading, 99)), status("VmRSS")
""",
    "below our own mark": """
with otel_quant.step("high"):
    spike(900)
with otel_quant.step("step"):
    child = Child()
    mark = child.spike(500)
    wait_for_a_sample()  # the child still runs, so it can be read
    child.end()
    rss = status("VmRSS")
""",
}


@pytest.mark.parametrize("script", OF_A_CHILD.values(), ids=OF_A_CHILD)
def test_the_spike_of_a_child_is_in_the_peak(run: Run, script: str) -> None:
    is_sampled = "wait_for_a_sample" in script
    steps, facts = run(
        script + 'print(json.dumps({"expected": mark + rss}))', interval=20 if is_sampled else 0
    )
    assert peak_of(steps["step"]) == pytest.approx(facts["expected"], abs=TOLERANCE)
    assert steps["step"][semconv.MEMORY_PEAK_SOURCE] == "sampled"
    assert "after" not in steps or rise_of(steps["after"]) < TOLERANCE


def test_a_peak_with_an_unseen_child_is_not_marked_as_the_kernels(run: Run) -> None:
    steps, facts = run(
        """
with otel_quant.step("alone"):
    block = bytearray(b"x") * (500 * MIB)
    alone = status("VmHWM")
with otel_quant.step("with a child"):
    block += bytearray(b"x") * (100 * MIB)
    child = Child()
    child.spike(300)  # its mark is below ours, and only the highest mark of all children is kept
    child.end()
with otel_quant.step("after"):
    block += bytearray(b"x") * (100 * MIB)
print(json.dumps({"alone": alone, "after": status("VmHWM")}))
"""
    )
    for name in ("alone", "after"):
        assert peak_of(steps[name]) == pytest.approx(facts[name], abs=TOLERANCE)
    assert {name: steps[name][semconv.MEMORY_PEAK_SOURCE] for name in steps} == {
        "quantization": "sampled", "alone": "kernel", "with a child": "sampled", "after": "kernel",
    }  # fmt: skip


@pytest.mark.parametrize("exact", ["false", "true"])
def test_memory_charged_to_a_child_for_exec_is_not_in_the_peak(run: Run, exact: str) -> None:
    steps, facts = run(
        """
import resource
started = []
with otel_quant.step("high"):
    block = bytearray(b"x") * (500 * MIB)
    started = [subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) for _ in range(5)]
    del block
with otel_quant.step("low"):
    for process in started:
        process.communicate()
    for _ in range(50):
        subprocess.run(["/bin/true"], check=True)
print(json.dumps({"charged": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024}))
""",
        OTEL_QUANT_EXACT_PEAKS=exact,
    )
    assert facts["charged"] > SIZE, "the kernel did charge the children with our memory"
    assert rise_of(steps["low"]) < TOLERANCE


def test_exact_mode_finds_spikes_of_milliseconds_below_earlier_peaks_also_in_children(
    run: Run,
) -> None:
    steps, facts = run(
        """
exporters_are_ready()
with otel_quant.step("high"):
    spike(500)
with otel_quant.step("outer"):
    spike(100)
    with otel_quant.step("middle"):
        with otel_quant.step("inner"):
            began = time.perf_counter()
            spike(50)
            lasted = time.perf_counter() - began
    with otel_quant.step("quiet"):
        pass
child = Child()
with otel_quant.step("a child's high"):
    child.spike(500)
with otel_quant.step("a child's low"):
    child.spike(100)
child.end()
print(json.dumps({"microseconds": round(lasted * 1e6)}))
""",
        OTEL_QUANT_EXACT_PEAKS="true",
    )
    for name, spike in (("high", 500), ("outer", 100), ("middle", 50), ("inner", 50), ("quiet", 0)):
        expected = pytest.approx(spike * MIB, abs=max(0.02 * spike, 1) * MIB)
        assert rise_of(steps[name]) == expected, (name, facts)
        assert steps[name][semconv.MEMORY_PEAK_SOURCE] == "kernel"
    assert rise_of(steps["a child's low"]) == pytest.approx(100 * MIB, abs=2 * MIB)
    assert steps["a child's low"][semconv.MEMORY_PEAK_SOURCE] == "sampled"


def test_neither_zombies_nor_a_hundred_short_lived_children_raise_the_peak(run: Run) -> None:
    steps, facts = run(
        """
exporters_are_ready()
reading, writing = os.pipe()
for _ in range(50):
    if os.fork() == 0:
        os._exit(0)
os.close(writing)
os.read(reading, 1)  # ends when the last child has
with otel_quant.step("with zombies"):
    with_zombies = status("VmRSS")
with otel_quant.step("with children"):
    for _ in range(100):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    with_children = status("VmRSS")
print(json.dumps({"with zombies": with_zombies, "with children": with_children}))
""",
        interval=5,
    )
    assert peak_of(steps["with zombies"]) == pytest.approx(facts["with zombies"], abs=2 * MIB)
    # One child at a time shares its parent's pages, which count for both.
    assert peak_of(steps["with children"]) < 2 * facts["with children"] + 2 * MIB
