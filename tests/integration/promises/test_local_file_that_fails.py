"""A local file that cannot be written: logged once, and the run goes on."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fixtures.instrumented import Workshop
from tests.fixtures.otlp_receiver import OtlpReceiver

BODY = """
for number in range(FIRST, 60):
    with step(f"step {number}"):
        pass
print("done")
sys.exit(5)
"""
PRELUDE = """
import os, resource, sys
from otel_quant import step
FIRST = 0
"""


def records_of(path: Path) -> list[str]:
    content: dict[str, Any] = yaml.safe_load(path.read_text())
    return [record["step"] for record in content["memory_usage"]]


def expected_records() -> list[str]:
    return ["Start", *(f"step {n} {end}" for n in range(60) for end in ("Start", "End")), "End"]


def assert_records_are_missing(path: Path) -> None:
    """Some records found no room; those that did are there, in order."""
    written = records_of(path)
    assert 10 < len(written) < len(expected_records())
    # A record that is shorter than one before it may have room when that had none.
    assert written == [name for name in expected_records() if name in written]


def assert_run_went_on(otlp: OtlpReceiver) -> None:
    """All 60 steps reached the endpoint."""
    assert otlp.span("quantization").attributes["quant.run.steps"] == 60
    assert len(otlp.spans) == 61


def run(workshop: Workshop, otlp: OtlpReceiver, before: str, profile: str) -> str:
    """Runs 60 steps; returns what was said on standard error."""
    finished = workshop.script(PRELUDE + before + BODY).run(
        {**otlp.environment("http/protobuf"), "OTEL_QUANT_PROFILE": profile}
    )
    assert (finished.returncode, finished.stdout) == (5, "done\n")
    assert_run_went_on(otlp)
    return finished.stderr


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8k", "none", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk(workshop: Workshop, otlp: OtlpReceiver, small_disk: Path) -> None:
    said = run(workshop, otlp, "", str(small_disk / "profile.yaml"))
    assert said.count("\n") == 1
    assert "sink quark_yaml failed and is skipped" in said
    assert "No space left on device" in said
    assert str(small_disk / "profile.yaml") in said
    assert_records_are_missing(small_disk / "profile.yaml")


def test_a_limit_on_the_size_of_files(workshop: Workshop, otlp: OtlpReceiver) -> None:
    said = run(
        workshop, otlp, "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))", "profile.yaml"
    )
    assert said.count("\n") == 1
    assert "File too large" in said
    assert_records_are_missing(workshop.folder / "profile.yaml")


def test_a_disk_that_has_room_again(workshop: Workshop, otlp: OtlpReceiver) -> None:
    said = run(
        workshop,
        otlp,
        """
with step("step 0"):
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.stat("profile.yaml").st_size, -1))
with step("step 1"):
    resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
FIRST = 2
""",
        "profile.yaml",
    )
    assert said.count("\n") == 1
    assert "sink quark_yaml failed and is skipped" in said
    assert f"File too large: '{workshop.folder / 'profile.yaml'}'" in said
    lost = ("step 0 End", "step 1 Start")
    assert records_of(workshop.folder / "profile.yaml") == [
        name for name in expected_records() if name not in lost
    ]
    assert "# Metric Definitions:" in (workshop.folder / "profile.yaml").read_text()


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("script.py/profile.yaml", "Not a directory"),
        ("script.py/missing/profile.yaml", "Not a directory"),
        ("/proc/profile.yaml", "No such file or directory"),
        ("/proc/missing/profile.yaml", "No such file or directory"),
        ("x" * 300 + ".yaml", "File name too long"),
    ],
)
def test_a_path_that_cannot_be_written(
    workshop: Workshop, otlp: OtlpReceiver, path: str, reason: str
) -> None:
    said = run(workshop, otlp, "", path)
    assert said.count("\n") == 1
    assert "sink quark_yaml failed" in said
    assert f"{reason}: '" in said
    assert said.endswith(f"{path}'\n")


@pytest.mark.parametrize("path", ["out/of/run/profile.yaml", "out/"])
def test_folders_that_are_missing_are_made(
    workshop: Workshop, otlp: OtlpReceiver, path: str
) -> None:
    assert run(workshop, otlp, "", path) == ""
    folder = (workshop.folder / path).parent if path.endswith(".yaml") else workshop.folder / path
    assert [records_of(file) for file in folder.iterdir()] == [expected_records()]


def test_a_notebooks_run_makes_its_folder(workshop: Workshop) -> None:
    script = workshop.script(
        PRELUDE
        + "from otel_quant import run\nwith run('out/profile.yaml'):\n    step('a').__enter__()"
    )
    assert script.run({}).returncode == 0
    assert records_of(workshop.folder / "out" / "profile.yaml") == [
        "Start", "a Start", "a End", "End",
    ]  # fmt: skip


def test_a_file_system_that_may_not_be_written_to(
    workshop: Workshop, otlp: OtlpReceiver, small_disk: Path
) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    said = run(workshop, otlp, "", str(small_disk / "profile.yaml"))
    assert said.count("\n") == 1
    assert "Read-only file system" in said
    assert str(small_disk) in said


def test_a_folder_that_may_not_be_written_to(workshop: Workshop, otlp: OtlpReceiver) -> None:
    folder = workshop.folder / "locked"
    folder.mkdir(mode=0o500)
    # root may write anywhere, unless it gives that up: capset(2), version 3, no capability
    powerless = "import ctypes, struct; ctypes.CDLL(None).capset(struct.pack('Ii', 0x20080522, 0), bytes(24))"
    for path in (folder / "profile.yaml", folder / "missing" / "profile.yaml"):
        otlp.clear()
        said = run(workshop, otlp, powerless, str(path))
        assert said.count("\n") == 1
        assert f"Permission denied: {str(path)!r}" in said


def test_a_descriptor_that_the_program_has_closed_and_used_again(
    workshop: Workshop, otlp: OtlpReceiver
) -> None:
    said = run(
        workshop,
        otlp,
        """
with step("step 0"):
    pass
def is_ours(descriptor):
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat("profile.yaml"))
    except OSError:
        return False
(ours,) = filter(is_ours, range(3, 1024))
# Closed and opened in one call: a connection that is just being made may take the number.
mine = os.dup2(os.open("mine.txt", os.O_RDWR | os.O_CREAT), ours)
assert mine == ours
FIRST = 1
""",
        "profile.yaml",
    )
    assert said.count("\n") == 1
    assert "the program has closed this file's descriptor and used its number again" in said
    assert (workshop.folder / "mine.txt").read_text() == ""
    assert records_of(workshop.folder / "profile.yaml") == expected_records()[:3]


def test_a_file_that_was_removed_is_not_written_any_more(
    workshop: Workshop, otlp: OtlpReceiver
) -> None:
    said = run(
        workshop,
        otlp,
        """
with step("step 0"):
    os.remove("profile.yaml")
FIRST = 1
""",
        "profile.yaml",
    )
    assert said.count("\n") == 1
    assert "this file has been removed while its run wrote it" in said
    assert not (workshop.folder / "profile.yaml").exists()


def test_two_runs_that_want_one_path_at_once_write_one_file_each(workshop: Workshop) -> None:
    script = workshop.script(
        PRELUDE
        + """
print(os.getpid(), flush=True)
sys.stdin.readline()
for number in range(60):
    with step(f"step {number}"):
        pass
"""
    )
    variables = {"OTEL_QUANT_PROFILE": "profile.yaml"}
    runs = [script.start(variables) for _ in range(4)]
    for process in runs:
        assert process.stdout is not None
        process.stdout.readline()  # all of them are ready before any of them begins
    for process in runs:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in runs:
        _, said = process.communicate(timeout=60)
        assert (process.returncode, said) == (0, "")
    files = sorted(workshop.folder.glob("profile*.yaml"))
    assert len(files) == 4
    assert workshop.folder / "profile.yaml" in files
    for file in files:
        assert records_of(file) == expected_records()
        assert "# Summary Metrics" in file.read_text()
