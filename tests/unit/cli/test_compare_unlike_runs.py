"""``otel-quant compare`` with runs that cannot be compared, or in part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from otel_quant.export.recording.event_file import EXPECTED
from tests.unit.cli.compared_runs import GATE, PROFILE, run
from tests.unit.recordings.comparison.recorded_runs import record

pytestmark = pytest.mark.usefixtures("folder_without_limits")


def test_a_base_that_failed_cannot_be_compared(capsys: pytest.CaptureFixture[str]) -> None:
    record(Path("base"), error="RuntimeError")
    record(Path("new"))
    code, _, err = run(capsys, "base", "new", *GATE)
    assert (code, err) == (
        3,
        "otel-quant: not comparable: base: base failed with RuntimeError in Calibration\n",
    )


@pytest.mark.parametrize("is_base", [True, False])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "",
            "{path}: the file is empty; expected the records of a run, which writes the first as "
            "it begins",
        ),
        (None, "{path}: cannot be opened: No such file or directory; " + EXPECTED),
    ],
)
def test_a_file_that_is_empty_or_missing_cannot_be_compared(
    capsys: pytest.CaptureFixture[str], is_base: bool, text: str | None, said: str
) -> None:
    record(Path("good"))
    if text is not None:
        Path("bad.yaml").write_text(text)
    names = ["bad.yaml", "good"] if is_base else ["good", "bad.yaml"]
    code, _, err = run(capsys, *names, *GATE)
    assert (code, err) == (
        3, f"otel-quant: not comparable: {said.format(path='bad.yaml')}\n",
    )  # fmt: skip


def test_profiles_of_quark_are_compared_by_what_they_have(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("a.yaml").write_text(PROFILE)
    Path("b.yaml").write_text(PROFILE.replace("300.0", "345.0"))
    code, out, err = run(capsys, "a.yaml", "b.yaml", "--fail-over", "memory.seen=10%")
    assert (code, err) == (
        1,
        "otel-quant: worse: Calibration: memory.seen 362 MB, base 315 MB (+15.0 %, limit "
        "memory.seen=10%); total: memory.seen 362 MB, base 315 MB (+15.0 %, limit memory.seen=10%)\n",
    )
    total = out.partition("TOTAL")[2].partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in total[2:]] == [
        "duration", "memory.peak",
    ]  # fmt: skip


def test_a_truncated_profile_is_shown_and_not_judged(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.yaml").write_text(PROFILE)
    Path("b.yaml").write_text(PROFILE[: PROFILE.index('- step: "End"')])
    code, out, err = run(capsys, "a.yaml", "b.yaml")
    assert (code, err) == (0, "")
    assert "new   b.yaml (has no end: the file is cut, or its process was killed)\n" in out
    code, _, err = run(capsys, "a.yaml", "b.yaml", "--fail-over", "duration=20%")
    assert (code, err) == (
        3,
        "otel-quant: not comparable: new: b.yaml has no end: the file is cut, or its process was "
        "killed\n",
    )
    Path("b.yaml").write_text(PROFILE[: PROFILE.index("# Metric Definitions")])
    code, _, err = run(capsys, "a.yaml", "b.yaml", "--fail-over", "duration=20%")
    assert (code, err) == (
        3,
        "otel-quant: not comparable: new: b.yaml could not be read whole: the file has no end\n",
    )


SCRIPTS = "script quantize.py in base, export.py in new (--force compares them all the same)"


@pytest.mark.parametrize(
    ("origin", "limit", "said"),
    [
        ({"process.command_line": "python export.py"}, "model.float.size=1%", SCRIPTS),
        ({"process.command_line": "python export.py"}, "memory.peak=10%", SCRIPTS),
        ({"process.command_line": "python export.py"}, "memory.peak <= 12 GiB", ""),
        ({"process.command_line": "python quantize.py --samples 64"}, "memory.peak=10%", ""),
        ({"process.command_line": "python3 /build/quantize.py"}, "memory.peak=10%", ""),
        ({"host.name": "build-8"}, "duration=20%", ""),
        (
            {"host.cpu.model.name": "Xeon"},
            "duration=20%",
            "CPU EPYC in base, Xeon in new (--force compares them all the same)",
        ),
        ({"host.cpu.model.name": "Xeon"}, "memory.peak=10%", ""),
        (
            {"quant.host.cpu_count": 64},
            "memory.peak=10%",
            "CPUs 8 in base, 64 in new (--force compares them all the same)",
        ),
        (
            {"quant.libraries": ["onnxruntime 1.21.0"]},
            "memory.peak=10%",
            "onnxruntime 1.20.1 in base, 1.21.0 in new (--force compares them all the same)",
        ),
        ({"quant.libraries": ["onnxruntime 1.21.0"]}, "disk.write=10%", ""),
        (
            {"quant.memory.limit": 8 << 30},
            "duration=20%",
            "limit of memory 17.2 GB in base, 8.59 GB in new (--force compares them all the same)",
        ),
        ({"quant.memory.limit": (16 << 30) - 4096}, "duration=20%", ""),
    ],
)
def test_unlike_runs_are_compared_only_in_what_the_difference_leaves_alone_unless_forced(
    capsys: pytest.CaptureFixture[str], origin: dict[str, Any], limit: str, said: str
) -> None:
    record(Path("base"), origin={"quant.memory.limit": 16 << 30})
    record(Path("new"), origin={"quant.memory.limit": 16 << 30, **origin})
    code, _, err = run(capsys, "base", "new", "--fail-over", limit)
    expected = f"otel-quant: not comparable: {limit}: {said}\n" if said else ""
    assert (code, err) == (3 if said else 0, expected)
    if said and "model" not in limit:
        assert run(capsys, "base", "new", "--fail-over", limit, "--force")[0] == 0


def test_runs_without_a_common_step_are_of_different_programs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("a.yaml").write_text(PROFILE)
    Path("b.yaml").write_text(PROFILE.replace("Calibration", "Export ONNX"))
    code, _, err = run(capsys, "a.yaml", "b.yaml", "--fail-over", "duration=20%")
    assert (code, err) == (
        3,
        "otel-quant: not comparable: total: duration=20%: no step is in both: these are runs of "
        "different programs\n",
    )
