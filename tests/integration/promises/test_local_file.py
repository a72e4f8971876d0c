"""The local file: requested in several ways; one line is logged if it cannot be written."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from otel_quant.schema import semconv
from tests.fixtures.disks import small_disk
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import Workshop, run_script, steps_in

SCRIPT = """
import os, resource, sys
from otel_quant import step

def number_of(path):
    for number in range(3, 1024):
        try:
            if os.path.samestat(os.fstat(number), os.stat(path)):
                return number
        except OSError:
            pass

{before}
for number in range(60):
    with step(f"step {{number}}"):
        if number == 0:
            {first}
        if number == 1:
            {second}
print("done")
sys.exit(5)
"""
RECORDS = ["Start", *(f"step {n} {end}" for n in range(60) for end in ("Start", "End")), "End"]
SOME = ["some"]
BEGUN = RECORDS[:2]
CLOSED_AND_USED = "os.dup2(os.open('mine.txt', os.O_RDWR | os.O_CREAT), number_of('profile.yaml'))"


def check(path: Path, expected: list[str] | None) -> None:
    """Checks the records of a file; of `SOME` there are as many as had room, in order."""
    if expected is None:
        assert not os.path.isfile(path)
        return
    written = steps_in(path)
    if expected is SOME:
        # A record that is shorter than one before it may have room when that had none.
        expected = [name for name in RECORDS if name in written]
        assert 10 < len(written) < len(RECORDS)
    assert written == expected


@dataclass(frozen=True)
class Fault:
    """What happens to the file before the steps and in the first two, and the log lines about it."""

    reason: str
    path: str = "profile.yaml"
    before: str = ""
    first: str = "pass"
    second: str = "pass"
    records: list[str] | None = None


# root may write anywhere, unless it gives that up: capset(2), version 3, no capability
POWERLESS = (
    "import ctypes, struct; ctypes.CDLL(None).capset(struct.pack('Ii', 0x20080522, 0), bytes(24))"
)

FAULTS = {
    "files are limited": Fault("File too large: 'HERE/profile.yaml'", before="resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))", records=SOME),
    "there is room again": Fault(
        "File too large: 'HERE/profile.yaml'",
        first="resource.setrlimit(resource.RLIMIT_FSIZE, (os.stat('profile.yaml').st_size, -1))",
        second="resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))",
        records=[name for name in RECORDS if name not in ("step 0 End", "step 1 Start")],
    ),
    "no such folder": Fault("No such file or directory: '/proc/missing/profile.yaml'", "/proc/missing/profile.yaml"),
    "a folder of the program's that is missing": Fault(
        "No such file or directory: 'HERE/gone/p.yaml'", "",
        before="os.environ['QUARK_PROFILING'] = '1'; from otel_quant.quark import GlobalProfiler; GlobalProfiler('gone/p.yaml')",
    ),
    "no right to a folder": Fault("Permission denied: 'HERE/locked/profile.yaml'", "locked/profile.yaml", before=f"os.mkdir('locked', 0o500); {POWERLESS}"),
    "closed": Fault("Bad file descriptor: 'HERE/profile.yaml'", first="os.closerange(3, 2000)", records=BEGUN),
    "closed, its number used again": Fault(
        "the program has closed this file's descriptor and used its number again; it must close only what it has opened: 'HERE/profile.yaml'",
        first=CLOSED_AND_USED, records=BEGUN,
    ),
    "removed": Fault("this file has been removed while its run wrote it: 'HERE/profile.yaml'", first="os.remove('profile.yaml')"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_an_unwritable_file_is_logged_in_one_line_and_the_program_continues(
    tmp_path: Path, fault: Fault
) -> None:
    script = SCRIPT.format(before=fault.before, first=fault.first, second=fault.second)
    output, said = run_script(tmp_path, script, code=5, OTEL_QUANT_PROFILE=fault.path)

    assert output == "done\n"
    assert said.count("\n") == 1
    assert said.startswith(
        "sink quark_yaml failed and is skipped; the program goes on without it: "
    )
    assert said.endswith(fault.reason.replace("HERE", str(tmp_path)) + "\n")
    check(tmp_path / (fault.path or "gone"), fault.records)
    mine = tmp_path / "mine.txt"
    assert not mine.exists() or mine.read_text() == ""
    assert not list(tmp_path.glob(".otel-quant-*"))


def test_all_steps_reach_the_endpoint_if_the_disk_is_full(
    workshop: Workshop, otlp: OtlpReceiver
) -> None:
    script = workshop.script(SCRIPT.format(before="", first="pass", second="pass"))
    with small_disk(workshop.folder, "8k") as disk:
        path = disk / "profile.yaml"
        done = script.run({**otlp.environment("http/protobuf"), "OTEL_QUANT_PROFILE": str(path)})
        check(path, SOME)

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (5, "done\n", 1)
    assert done.stderr.endswith(f"No space left on device: '{path}'\n")
    assert otlp.span("quantization").attributes[semconv.RUN_STEPS] == 60
    assert len(otlp.spans) == 61


NESTED = """
import otel_quant

with otel_quant.step("Model Quantization"):
    with otel_quant.step(otel_quant.ProfileStep.CALIBRATION):
        pass
"""
STEPS = [
    "Start", "Model Quantization Start", "Calibration Start", "Calibration End",
    "Model Quantization End", "End",
]  # fmt: skip


@pytest.mark.parametrize(
    ("sampler", "spans", "variables", "path"),
    [
        ("always_on", 3, {"OTEL_TRACES_EXPORTER": "otlp,quark_yaml"}, "quark_profile.yaml"),
        ("always_off", 0, {"OTEL_QUANT_PROFILE": "new/of/run/p.yaml"}, "new/of/run/p.yaml"),
    ],
)
def test_the_file_is_at_its_path_and_does_not_depend_on_trace_sampling(
    workshop: Workshop,
    otlp: OtlpReceiver,
    sampler: str,
    spans: int,
    variables: dict[str, str],
    path: str,
) -> None:
    environment = {**otlp.environment("http/protobuf"), "OTEL_TRACES_SAMPLER": sampler}
    done = workshop.script(NESTED).run({**environment, **variables})
    assert (done.returncode, done.stderr) == (0, "")
    assert len(otlp.spans) == spans
    assert [record.body for record in otlp.records_of(semconv.CHECKPOINT_EVENT)] == STEPS
    assert steps_in(workshop.folder / path) == STEPS
