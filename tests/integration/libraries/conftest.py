"""Programs that quantize with a real library under ``opentelemetry-instrument``."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from otel_quant.schema import semconv
from tests.fixtures.otlp_messages import Span
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import PROGRAMS as INSTALLED
from tests.fixtures.programs import clean_environment, run
from tests.fixtures.written_weights import assert_described

PROGRAMS = Path(__file__).parent / "programs"


class Program:
    """Runs programs in a folder of its own, and gives access to what they sent."""

    def __init__(self, cwd: Path, otlp: OtlpReceiver, node: pytest.Item | None = None) -> None:
        self.cwd = cwd
        self.otlp = otlp
        self.node = node
        self.stderr = ""

    def __call__(self, program: str, *arguments: str, **environ: str) -> str:
        """Runs one of the programs to its end, which has to be a good one."""
        instrument = INSTALLED / "opentelemetry-instrument"
        command = [instrument, sys.executable, PROGRAMS / program, *arguments]
        environment = clean_environment({**self.otlp.environment(), **environ})
        done = run(command, self.cwd, environment, 900)
        self.stderr = done.stderr
        assert done.returncode == 0, done.stderr
        assert "is skipped; the program goes on" not in done.stderr, done.stderr
        return done.stdout

    def check_written(self, root: Span, *untold: str, uncompared: Collection[str] = ()) -> None:
        """Compares what the steps of each way have of its weights with what its model's tensors are, as the program has noted.

        Steps of some names may leave it out, as one that ends before it is known. Ways that have written no
        quantized weight, or in another run, are named.
        """
        lines = (self.cwd / "written.jsonl").read_text().splitlines()
        noted: dict[str, list[dict[str, Any]]] = dict(map(json.loads, lines))
        ways = {span.name: span for span in self.otlp.children(root) if self._below(span)}
        compared = {way.partition(": ")[0] for way, weights in noted.items() if weights}
        assert ways.keys() - compared == {*uncompared}
        self.count_compared(len(compared))
        for name, weights in noted.items():
            way, _, only = name.partition(": ")
            if way in uncompared:
                continue
            steps = [each for each in self._below(ways[way]) if only in ("", each.name)]
            assert steps, name
            # Another configuration, by its hash, is of another part.
            last = steps[-1].attributes.get(semconv.CONFIG_HASH)
            for step in (
                each for each in steps if each.attributes.get(semconv.CONFIG_HASH) == last
            ):
                assert_described(step, weights, is_told=step.name not in untold)

    def count_compared(self, ways: int) -> None:
        """Has the report of the tests say how many ways were compared with what they have written."""
        if self.node is not None:
            self.node.user_properties.append(("compared", ways))

    def _below(self, span: Span) -> list[Span]:
        return [each for child in self.otlp.children(span) for each in (child, *self._below(child))]

    def progress(self) -> list[str]:
        """Returns the samples and layers that the steps of the last program began, in words."""
        return (self.cwd / "progress.txt").read_text().splitlines()


def each(step: str, unit: str, total: int) -> list[str]:
    """Returns the words for every one of a step's samples or layers."""
    return [f"{step}: {unit} {number} of {total}" for number in range(1, total + 1)]


@pytest.fixture
def program(tmp_path: Path, otlp: OtlpReceiver, request: pytest.FixtureRequest) -> Program:
    """Runs programs in this test's folder."""
    return Program(tmp_path, otlp, request.node)


_SEEN = {
    "nothing": "",
    "dead": r"1 of 4 experts of layer 1 saw no token: 3",
    "nan": r"the first value that is not finite is at first, sample 17(, then at \d other layers)?",
    "late": r"in the last tenth of the samples the range of 10 of 10 layers grew, that of \S+ [34]\d.\d times as wide: more samples would change it",
}
_SEEN_OF_ONNX = {
    **_SEEN,
    "dead": "2 of 6 layers saw no token: rows, branch",
    "nan": _SEEN["nan"].replace("first,", "x,"),
    "late": _SEEN["late"].replace("10 of 10", "6 of 6"),
}
_SEEN_OF_LLM = {
    "nothing": "",
    "dead": "2 of 4 experts of layer 1 saw no token: 2, 3",
    "nan": r"the first value that is not finite is at model.layers.0.self_attn.q_proj, sample 17, then at \d+ other layers",
    "late": _SEEN["late"].replace("10 of 10", r"\d+ of \d+").replace(r"[34]\d", r"\d\d"),
}
_SEEN_BY = {"seen.py": _SEEN, "seen_onnx.py": _SEEN_OF_ONNX, "seen_llm.py": _SEEN_OF_LLM}


def check_seen(program: Program, *way: str, script: str = "seen.py") -> None:
    """Whether what is planted in a calibration is found, and nothing else."""
    found = json.loads(program(script, *way).splitlines()[-1])
    expected = _SEEN_BY[script]
    texts = {planted: "; ".join(those) for planted, those in found.items()}
    for planted, text in texts.items():
        assert re.fullmatch(expected[planted], text), texts
