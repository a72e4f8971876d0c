"""Go's own reader of profiles, and speedscope in a browser, read the lines of a recording."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from pathlib import Path

import pytest

from otel_quant.recordings.reader import SeenStack
from otel_quant.schema.code_lines import Amounts, Place
from otel_quant.views.stacks import collapsed, pprof, speedscope
from scripts.servers import build
from tests.fixtures.browser import Open

MAIN = Place("/a/quantize.py", "main", 12, "")
RUN = Place("onnxruntime/capi/session.py", "Session.run", 395, "onnxruntime")


SEEN = [
    SeenStack(None, (MAIN, RUN), Amounts(4_000_000_000, 1, 1, 5 << 20, 0)),
    SeenStack(None, (MAIN,), Amounts(1_000_000_000, 1, 1, 0, 0)),
]


def test_go_reads_lines_times_growth_and_steps(tmp_path: Path) -> None:
    path = tmp_path / "steps.pb.gz"
    path.write_bytes(pprof(SEEN))
    assert rows(path, "time") == [
        ("4s", "4s", "Session.run onnxruntime/capi/session.py:395"),
        ("1s", "5s", "main /a/quantize.py:12"),
    ]
    assert rows(path, "growth") == [
        ("5MB", "5MB", "Session.run onnxruntime/capi/session.py:395"),
        ("0", "5MB", "main /a/quantize.py:12"),
    ]
    assert "5s (  100%): other steps" in shown(path, "-tags", "-sample_index=time")


@pytest.mark.parametrize(
    ("content", "title", "shown"),
    [
        (
            speedscope(SEEN, "first").encode(),
            "other steps: time (1/2)",
            ["4.00s (80%)", "4.00s (80%)", "Session.run", "5.00s (100%)", "1.00s (20%)", "main"],
        ),
        (
            "".join(collapsed(SEEN, "time")).encode(),
            "",
            ["4,000,000 (80%)", "4,000,000 (80%)", RUN.text, "5,000,000 (100%)", "1,000,000 (20%)", MAIN.text],
        ),
        (pprof(SEEN), "", ["4.00s (80%)", "4.00s (80%)", "Session.run", "5.00s (100%)", "1.00s (20%)", "main"]),
    ],
    ids=["speedscope", "collapsed", "pprof"],
)  # fmt: skip
def test_speedscope_reads_each_format(
    content: bytes,
    title: str,
    shown: list[str],
    binaries: dict[str, str],
    opened: Open,
    tmp_path: Path,
) -> None:
    script = tmp_path / "profile.js"  # as its own command line makes one
    arguments = f"{json.dumps('first')}, {json.dumps(base64.b64encode(content).decode())}"
    script.write_text(f"speedscope.loadFileFromBase64({arguments})")
    page = opened("").page
    index = binaries["node_modules/speedscope/dist/release/index.html"]
    page.goto(f"file://{index}#localProfilePath={script}")
    page.get_by_text("Sandwich").click()
    for row in (shown[0], shown[3]):  # they come after the table's head
        page.get_by_text(row, exact=True).first.wait_for()
    texts = page.locator("body").inner_text()
    assert title in texts
    cells = [cell.strip() for cell in re.split(r"[\t\n]", texts.partition("Symbol Name")[2])]
    assert [cell for cell in cells if cell][: len(shown)] == shown


def rows(path: Path, of: str) -> list[tuple[str, ...]]:
    """Returns what was seen at each line itself, with all that it calls, and the line."""
    text = shown(path, "-top", "-lines", f"-sample_index={of}")
    return re.findall(r"^ *(\S+) +\S+% +\S+% +(\S+) +\S+%  (.+)$", text, re.MULTILINE)


def shown(path: Path, *options: str) -> str:
    command = [build.go(), "tool", "pprof", *options, str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
