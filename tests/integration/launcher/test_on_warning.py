"""``otel-quant run --on-warning`` with a real program and a real shell."""

from __future__ import annotations

import json
import sys

from tests.fixtures.programs import Launched

PROGRAM = """
import otel_quant
with otel_quant.step("Calibration"):
    raise MemoryError("no more")
"""


def test_a_command_gets_how_the_program_ended_and_changes_nothing_of_it(launched: Launched) -> None:
    (launched.folder / "q.py").write_text(PROGRAM)
    ended = launched.run(
        [sys.executable, "q.py"], "--out", "r", "--on-warning", "cat > told; echo x"
    )
    assert ended.returncode == 1
    told = json.loads((launched.folder / "told").read_text())
    assert (told["kind"], told["state"], told["exit_code"]) == ("end", "failed", 1)
    assert told["recording"] == str(launched.folder / "r")
    assert told["text"].startswith("q.py failed with exit code 1 after ")
    assert "MemoryError: no more, at <module> (q.py:4)." in told["text"]
    assert "x\n" not in ended.stdout
