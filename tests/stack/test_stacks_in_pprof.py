"""Go's own reader of profiles reads the lines of a recording."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from otel_quant.recordings.stacks import SeenStack
from otel_quant.schema.stacks import Amounts, Place
from otel_quant.views.stacks import pprof

MAIN = Place("/a/quantize.py", "main", 12, "")
RUN = Place("onnxruntime/capi/session.py", "Session.run", 395, "onnxruntime")


def test_go_reads_lines_times_growth_and_steps(tmp_path: Path) -> None:
    path = tmp_path / "steps.pb.gz"
    path.write_bytes(
        pprof(
            [
                SeenStack(None, (MAIN, RUN), Amounts(4_000_000_000, 1, 1, 5 << 20, 0)),
                SeenStack(None, (MAIN,), Amounts(1_000_000_000, 1, 1, 0, 0)),
            ]
        )
    )
    assert rows(path, "time") == [
        ("4s", "4s", "Session.run onnxruntime/capi/session.py:395"),
        ("1s", "5s", "main /a/quantize.py:12"),
    ]
    assert rows(path, "growth") == [
        ("5MB", "5MB", "Session.run onnxruntime/capi/session.py:395"),
        ("0", "5MB", "main /a/quantize.py:12"),
    ]
    assert "5s (  100%): other steps" in shown(path, "-tags", "-sample_index=time")


def rows(path: Path, of: str) -> list[tuple[str, ...]]:
    """Returns what was seen at each line itself, with all that it calls, and the line."""
    text = shown(path, "-top", "-lines", f"-sample_index={of}")
    return re.findall(r"^ *(\S+) +\S+% +\S+% +(\S+) +\S+%  (.+)$", text, re.MULTILINE)


def shown(path: Path, *options: str) -> str:
    command = ["go", "tool", "pprof", *options, str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
