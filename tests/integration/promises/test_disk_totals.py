"""What was read and written, against what the scripts really did.

The files lie in the checkout's own file system, or in the one of the temporary folder:
a tmpfs has no storage behind it, and there is nothing to measure.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import EXPORTERS_ARE_READY, Workshop

pytestmark = pytest.mark.alone

MB = 1_000_000
SIZE = 100 * MB
TOLERANCE = 0.02 * SIZE

PRELUDE = """
import os, signal, subprocess, sys, time
import otel_quant

def write(name, megabytes=100):
    with open(name, "wb") as file:
        for _ in range(megabytes):
            file.write(os.urandom(1000) * 1000)
        file.flush()
        os.fsync(file.fileno())

WRITE = "import os\\n" + '''
with open("%s", "wb") as file:
    for _ in range(100):
        file.write(os.urandom(1000) * 1000)
    file.flush()
    os.fsync(file.fileno())
'''
LINGER = "print(flush=True); import sys; sys.stdin.read()"
"""


def on_disk(folder: Path) -> bool:
    mounts = {part.mountpoint: part.fstype for part in psutil.disk_partitions(all=True)}
    point = folder.resolve()
    while str(point) not in mounts and point != point.parent:
        point = point.parent
    return mounts.get(str(point)) not in ("tmpfs", "ramfs", "overlay", None)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Workshop]:
    """A folder for scripts that is on storage."""
    if on_disk(tmp_path):
        yield Workshop(tmp_path)
        return
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".test-") as folder:
        if not on_disk(Path(folder)):
            pytest.skip("no file system here has storage behind it")
        yield Workshop(Path(folder))


Run = Callable[..., dict[str, dict[str, int]]]


@pytest.fixture
def run(disk: Workshop, otlp: OtlpReceiver) -> Run:
    """Runs a script; returns the disk figures of each step and of the run, by name and short key."""

    def run(body: str, **variables: str) -> dict[str, dict[str, int]]:
        environment = {**otlp.environment("http/protobuf"), **variables}
        finished = disk.script(PRELUDE + EXPORTERS_ARE_READY + body).run(environment)
        assert (finished.returncode, finished.stderr) == (0, "")
        prefix = "quant.disk."
        return {
            span.name: {
                key.removeprefix(prefix): value
                for key, value in span.attributes.items()
                if key.startswith(prefix)
            }
            for span in otlp.by_start()
        }

    return run


COUNTED = """
exporters_are_ready()
with otel_quant.step("outer"):
    with otel_quant.step("inner"):
        write("a")
with otel_quant.step("idle"):
    pass
with otel_quant.step("subprocess"):
    subprocess.run([sys.executable, "-S", "-c", WRITE % "a"], check=True, env={})
with otel_quant.step("fork"):
    pid = os.fork()
    if pid == 0:
        write("b")
        os._exit(0)
    os.waitpid(pid, 0)
with otel_quant.step("after"):
    pass
"""
ONCE = """
with otel_quant.step("writes"):
    child = subprocess.Popen([sys.executable, "-S", "-c", WRITE % "a" + LINGER],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={})
    child.stdout.read(1)
with otel_quant.step("exits"):
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
with otel_quant.step("is a zombie"):
    pass
with otel_quant.step("is waited for"):
    child.wait()
"""
UNREAPED = """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
with otel_quant.step("writes"):
    child = subprocess.Popen([sys.executable, "-S", "-c", WRITE % "a" + LINGER],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={})
    child.stdout.read(1)
with otel_quant.step("vanishes"):
    child.stdin.close()
    child.wait()
with otel_quant.step("after"):
    write("b", 50)
"""


@pytest.mark.parametrize(
    ("script", "written"),
    [
        (
            COUNTED,
            {"outer": 1, "inner": 1, "idle": 0, "subprocess": 1, "fork": 1, "after": 0, "quantization": 3},
        ),
        (ONCE, {"writes": 1, "exits": 0, "is a zombie": 0, "is waited for": 0, "quantization": 1}),
        (UNREAPED, {"writes": 1, "vanishes": 0, "after": 0.5, "quantization": 1.5}),
    ],
    ids=["a step and its children", "a child as a zombie and when it is gone", "an unreaped child"],
)  # fmt: skip
def test_what_a_step_and_its_children_write_is_counted_once(
    run: Run, script: str, written: dict[str, float]
) -> None:
    steps = run(script, OTEL_QUANT_SAMPLE_INTERVAL="5")
    for name, share in written.items():
        expected = pytest.approx(share * SIZE, abs=max(share, 1) * TOLERANCE)
        assert steps[name]["write"] == expected, name
        assert steps[name]["write"] >= 0
    if script is COUNTED:
        assert steps["idle"] == {"read": 0, "write": 0, "read_chars": 0, "write_chars": 0}
        for name in ("outer", "inner"):
            assert steps[name]["write_chars"] == pytest.approx(SIZE, abs=TOLERANCE)


def test_what_a_step_reads_is_counted_with_and_without_the_page_cache(run: Run) -> None:
    steps = run(
        """
write("a")
with open("a", "rb") as file:
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
def read():
    with open("a", "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass
with otel_quant.step("from storage"):
    read()
with otel_quant.step("from the cache"):
    read()
"""
    )
    assert steps["from storage"]["read"] == pytest.approx(SIZE, abs=TOLERANCE)
    assert steps["from the cache"]["read"] < TOLERANCE
    for name in ("from storage", "from the cache"):
        assert steps[name]["read_chars"] == pytest.approx(SIZE, abs=TOLERANCE)


def test_our_reads_of_proc_are_not_counted_as_the_programs(run: Run) -> None:
    steps = run(
        """
exporters_are_ready()
with otel_quant.step("outer"):
    for _ in range(300):
        with otel_quant.step("inner"):
            pass
""",
        OTEL_QUANT_SAMPLE_INTERVAL="1",
    )
    # 600 readings are some 900 kB of /proc; what remains is the exporters' own reading.
    assert steps["outer"]["read_chars"] < 200_000
