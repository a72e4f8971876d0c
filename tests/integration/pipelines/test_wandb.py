"""`otel-quant run --wandb` logs to the active run of Weights & Biases, offline too."""

from __future__ import annotations

import json
import re

import pytest

from otel_quant.recordings import summary
from otel_quant.recordings.reader import read
from tests.fixtures.programs import PROGRAMS, Launched

pytest.importorskip("wandb")


RUN = [str(PROGRAMS / "otel-quant"), "run", "--out", "made", "--wandb", "--", "python", "q.py"]


def test_the_figures_the_answer_and_the_report_are_in_the_active_run(launched: Launched) -> None:
    (launched.folder / "q.py").write_text(
        "import otel_quant\nwith otel_quant.step('Calibration'):\n    held = bytearray(10**8)"
    )
    variables = {"WANDB_MODE": "offline", "WANDB_RUN_ID": "quantized"}
    launched.run_bare(RUN, variables=variables)
    (folder,) = (launched.folder / "wandb").glob("offline-run-*-quantized")
    assert (folder / "files" / "report.html").read_bytes() == (launched.folder / "made" / "report.html").read_bytes()  # fmt: skip
    recorded, kept = read(launched.folder / "made"), (folder / "run-quantized.wandb").read_bytes()
    for name, value in {
        "otel_quant.memory.peak": summary.value(recorded, summary.MEMORY_PEAK),
        "otel_quant.duration": recorded.duration,
        "otel_quant.status": "ended",
    }.items():
        # A name, and its value in JSON, are beside each other in a record.
        entry = re.escape(name.encode()) + b".{1,6}" + re.escape(json.dumps(value).encode())
        assert re.search(entry, kept, re.DOTALL), name
    assert b"otel_quant.verdict" in kept
