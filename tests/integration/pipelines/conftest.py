"""A folder with the programs of a pipeline, and the blocks of docs/pipelines.md, which run there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import PROGRAMS, clean_environment, run

PAGE = Path(__file__).parents[3] / "docs" / "pipelines.md"

PROGRAM = """
import otel_quant

with otel_quant.step("{name}"):
    pass
"""


def blocks(heading: str) -> list[str]:
    """Returns the blocks of code below a heading of the page."""
    _, _, text = PAGE.read_text().partition(f"\n## {heading}\n")
    own, _, _ = text.partition("\n## ")
    return re.findall(r"```\w+\n(.*?)```", own, re.DOTALL)


@dataclass(frozen=True)
class Pipeline:
    """Two programs, `quantize.py` and `evaluate.py`, and what they sent."""

    folder: Path
    otlp: OtlpReceiver

    def run(self, *command: str, **variables: str) -> None:
        """Runs a command that ends well, with the programs of this environment first on PATH."""
        environment = clean_environment({**self.otlp.environment("http/protobuf"), **variables})
        environment["PATH"] = f"{PROGRAMS}:{environment['PATH']}"
        done = run(list(command), self.folder, environment, 300)
        assert done.returncode == 0, done.stdout + done.stderr

    def check_one_trace(self, root: str | None = None) -> str:
        """Checks that both programs are in one trace, below one span; returns the trace and the span as TRACEPARENT has them."""
        wanted = ["Calibration", "Evaluation"]
        assert self.otlp.wait_for(lambda it: {*wanted} <= {each.name for each in it.spans})
        runs = self.otlp.spans_named("quantization")
        assert [[each.name for each in self.otlp.children(one)] for one in runs] == [[name] for name in wanted]  # fmt: skip
        assert len({(each.trace_id, each.parent_id) for each in runs}) == 1
        if root is not None:
            assert self.otlp.wait_for(lambda it: root in it.span_names())
            assert self.otlp.span(root).span_id == runs[0].parent_id
        return f"{runs[0].trace_id}-{runs[0].parent_id}"


@pytest.fixture
def pipeline(tmp_path: Path, otlp: OtlpReceiver) -> Pipeline:
    """A folder with both programs."""
    for name, step in (("quantize", "Calibration"), ("evaluate", "Evaluation")):
        (tmp_path / f"{name}.py").write_text(PROGRAM.format(name=step))
    (tmp_path / "pipeline.sh").write_text("python quantize.py && python evaluate.py")
    (tmp_path / "Makefile").write_text("quantized:\n\tpython quantize.py\n\tpython evaluate.py\n")
    return Pipeline(tmp_path, otlp)
