"""A program that the kernel ends at a limit, or a full disk: every output names the cause with its evidence."""

from __future__ import annotations

import html
import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.fixtures.control_groups import ControlGroup
from tests.fixtures.disks import small_disk
from tests.fixtures.programs import Launched, launcher

PROGRAM: Final = """
import mmap, os, shutil, signal, sys, time
import otel_quant

def cpu():
    while True:
        pass

def memory(held=[]):
    while True:  # ends before the launcher may have looked
        held.append(bytes(50_000_000))

def leak(held=[]):
    began = time.monotonic()
    while (lasted := time.monotonic() - began) < 6:
        while len(held) < 20 * lasted:  # as fast on a busy machine
            held.append(bytearray(5_000_000))
        time.sleep(0.05)

def file():
    with open("out", "wb", buffering=0) as out:
        while True:
            out.write(bytes(100_000))

def file_of_c():
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # as programs have it that are not Python
    file()

def mapped():
    with open("out", "w+b") as out:
        out.truncate(1 << 30)
        memory = mmap.mmap(out.fileno(), 0)
        while True:
            memory.write(bytes(4096))

def wait_for_the_launcher():
    manifest = os.environ["OTEL_QUANT_RECORD"] + "/manifest.json"
    while not os.path.exists(manifest) or not os.path.getsize(manifest):
        time.sleep(0.01)  # the launcher makes it beside the program's start

def filled():
    wait_for_the_launcher()
    try:
        file()
    except OSError:
        pass
    for number in range(20):  # nothing of these is on the disk
        with otel_quant.step("Inference"):
            pass

def removed():
    wait_for_the_launcher()
    shutil.rmtree(os.environ["OTEL_QUANT_RECORD"])
    os.kill(os.getpid(), signal.SIGKILL)

with otel_quant.step("Calibration"):
    globals()[sys.argv[1]]()
"""

# What the shell does before, what the program does, and the lines printed about the end.
ENDS: Final[dict[str, tuple[str, str, int, str, str, str]]] = {
    "the last limit of CPU time": (
        "ulimit -t 2; exec", "cpu", -signal.SIGKILL,
        "was killed by SIGKILL", "limit of CPU time",
        " s, the limit is 2 s (RLIMIT_CPU, ulimit -t)",
    ),
    "the first limit of CPU time": (
        "ulimit -S -t 2; exec", "cpu", -signal.SIGXCPU,
        "was killed by SIGXCPU", "limit of CPU time",
        " s, the limit is 2 s (RLIMIT_CPU, ulimit -t)",
    ),
    "of a shell's child": (
        "ulimit -t 3;", "cpu; exit $?", 128 + signal.SIGKILL,
        "failed with exit code 137", "limit of CPU time",
        # The value is from the last reading, or from the end if the shell is late to ask for it.
        ", the limit is 3 s (RLIMIT_CPU, ulimit -t)",
    ),
    "addresses": (
        "ulimit -v 1500000; exec", "memory", 1,
        "failed with exit code 1", "limit of the address space",
        " % of the limit of 1.54 GB (RLIMIT_AS, ulimit -v)",
    ),
    "the size of a file, as Python has it": (
        "ulimit -f 2000; exec", "file", 1, "failed with exit code 1", "limit of the size of a file",
        "no file may be larger than {blocks} MB (RLIMIT_FSIZE, ulimit -f)",
    ),
    "the size of a file, as the kernel has it": (
        "ulimit -f 2000; exec", "file_of_c", -signal.SIGXFSZ, "was killed by SIGXFSZ", "limit of the size of a file",
        "no file may be larger than {blocks} MB (RLIMIT_FSIZE, ulimit -f)",
    ),
}  # fmt: skip


@pytest.fixture
def program(launched: Launched) -> Path:
    path = launched.folder / "program.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture
def full(launched: Launched) -> Iterator[Path]:
    """A small disk."""
    with small_disk(launched.folder, "4m") as folder:
        yield folder


def told_everywhere(launched: Launched, recording: Path, printed: str) -> list[str]:
    """Returns the texts of the terminal, `show` and the report."""
    shown = launched.otel_quant("show", str(recording)).stdout
    report = launched.otel_quant("report", str(recording), "-o", "-").stdout
    return [printed, shown, html.unescape(report).replace("\N{NO-BREAK SPACE}", " ")]


@pytest.mark.parametrize("end", ENDS)
def test_a_limit_enforced_by_the_kernel_is_named_with_its_evidence(
    launched: Launched, program: Path, end: str
) -> None:
    before, does, code, how, cause, evidence = ENDS[end]
    # Blocks of ulimit -f are 512 bytes or, in bash, 1024.
    blocks = subprocess.run(
        ["sh", "-c", "ulimit -f 2000; grep 'Max file size' /proc/self/limits"],
        capture_output=True, text=True, check=True,
    ).stdout.split()[3]  # fmt: skip
    evidence = evidence.format(blocks=f"{int(blocks) / 1e6:.2f}")
    done = launched.run(["sh", "-c", f"{before} python {program} {does}"])
    assert done.returncode == code
    for text in told_everywhere(launched, launched.recording, done.stderr):
        assert re.search(f" {how} after .* in Calibration(, at .*)?: {cause}", text)
        assert evidence in text


def test_a_leak_is_reported_as_a_leak(launched: Launched, program: Path) -> None:
    done = launched.run(["python", str(program), "leak"])
    for text in told_everywhere(launched, launched.recording, done.stderr):
        assert re.search(
            r"Memory kept growing in Calibration, by (9|1[01])[\d.]+ MB a second, \d+ MB in all, [\d.]+ % of it "
            r"at leak \(program\.py:\d+\): a leak, or data that is kept\.",
            text,
        )


@pytest.mark.parametrize(
    ("does", "code", "how"),
    [("file", 1, "failed with exit code 1"), ("mapped", -signal.SIGBUS, "was killed by SIGBUS")],
)
def test_a_full_disk_is_reported_with_its_free_space(
    launched: Launched, program: Path, full: Path, does: str, code: int, how: str
) -> None:
    command = [*launcher("--out", "../recorded"), "python", str(program), does]
    done = launched.run_bare(command, folder=str(full))
    assert done.returncode == code
    for text in told_everywhere(launched, launched.folder / "recorded", done.stderr):
        assert re.search(f"program.py {how} after .* in Calibration: disk full", text)
        assert "free at the least that was seen: 0 B of 4.19 MB (the current folder), " in text


def test_a_recording_on_a_full_disk_has_its_reason_and_the_end_of_the_program(
    launched: Launched, program: Path, full: Path
) -> None:
    command = [*launcher("--out", "recorded"), "python", str(program), "filled"]
    done = launched.run_bare(command, folder=str(full))
    assert done.returncode == 0
    for text in told_everywhere(launched, full / "recorded", done.stderr):
        assert "could not write all of its events: No space left on device" in text
    manifest = json.loads((full / "recorded" / "manifest.json").read_text())
    assert manifest["ending"]["exit_code"] == 0


def test_the_end_is_printed_if_the_recording_was_removed(launched: Launched, program: Path) -> None:
    done = launched.run(["python", str(program), "removed"], "--out", "gone")
    assert done.returncode == -signal.SIGKILL
    assert (
        "otel-quant: gone was removed while the program ran: there is no recording" in done.stderr
    )
    assert "the program was killed by SIGKILL\n  evidence: memory was at " in done.stderr
    done = launched.run(["python", str(program), "removed"], "--out", "gone", "--quiet", "--brief")
    answer = json.loads(done.stderr.splitlines()[-1])
    assert answer["verdict"] == "gone was removed while the program ran: there is no recording"
    assert answer["evidence"][0] == "the program was killed by SIGKILL"
    assert answer["is_bad"]
    assert "otel-quant:" not in done.stderr


CALIBRATION: Final = """
import sys
import numpy as np, onnx
from onnx import parser
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, create_calibrator

model = parser.parse_model(
    '<ir_version: 8, opset_import: ["" : 17]> g (float[n, 3, h, w] x) => (float[n, 32, h, w] y)'
    ' <float[16, 3, 3, 3] u, float[32, 16, 3, 3] v> {'
    ' a = Conv <pads = [1, 1, 1, 1]> (x, u) b = Relu (a) c = Conv <pads = [1, 1, 1, 1]> (b, v) y = Relu (c) }'
)
for name, shape in (("u", (16, 3, 3, 3)), ("v", (32, 16, 3, 3))):
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(shape, np.float32), name))
onnx.save(model, "float.onnx")

class Reader(CalibrationDataReader):
    left, kept, leaks = int(sys.argv[2]), [], int(sys.argv[3])

    def get_next(self):
        self.left -= 1
        if self.left < 0:
            return None
        if self.leaks:
            self.kept.append(np.ones(self.leaks * 125_000))
        return {"x": np.ones((1, 3, 192, 192), np.float32)}

method = CalibrationMethod[sys.argv[1]]
calibrator = create_calibrator("float.onnx", [], "augmented.onnx", method)
calibrator.collect_data(Reader())
calibrator.compute_data()
"""


@pytest.mark.slow
def test_the_samples_that_would_fit_do(launched: Launched, group: ControlGroup) -> None:
    (launched.folder / "calibrate.py").write_text(CALIBRATION)
    group.limit(700 << 20)
    killed = launched.run_bare(
        group.within(
            [*launcher("--out", "killed"), *["python", "calibrate.py", "Percentile", "60", "0"]]
        )
    )
    found = re.search(r"Use fewer calibration samples: about (\d+) fit into 734 MB", killed.stderr)
    assert found is not None, killed.stderr
    command = ["python", "calibrate.py", "Percentile", found[1], "0"]
    assert launched.run_bare(group.within(command)).returncode == 0
    assert int(found[1]) > 12  # and not far fewer than would do


@pytest.mark.slow
def test_a_leak_of_the_programs_own_comes_first_and_has_no_number_of_samples(
    launched: Launched,
) -> None:
    (launched.folder / "calibrate.py").write_text(CALIBRATION)
    command = "ulimit -v 1600000; exec python calibrate.py MinMax 300 20"
    failed = launched.run(["sh", "-c", command]).stderr
    assert re.search(
        # The function alone where samples have seen several of its lines, each for 10 ms
        r"- Find what keeps growing at Reader\.get_next \(calibrate\.py(:\d+)?\)(, in ones)?, by 2\d\.\d MB with each sample: "
        r".* `otel-quant stacks \S+ --by memory` names",
        failed,
    ), failed
    assert "a second until the end" not in failed
    assert "calibration samples" not in failed
    assert "smaller batches" not in failed
    assert "address space" not in failed.partition("What would help")[2]
