"""`llama-quantize` is a step whose layers are the tensors that it prints; its output and its end are its own.

What the program of llama.cpp's build 11434 prints is in `llama_quantize.txt`, which a script prints again: to compile it
takes 6 minutes of CPU.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from otel_quant.recordings.reader import read
from otel_quant.schema import semconv
from otel_quant.schema.readings import Counts
from tests.fixtures.programs import Launched

PRINTED = Path(__file__).with_name("llama_quantize.txt").read_text()
AT_THE_THIRD = PRINTED.index(" size", PRINTED.index("[   3/  21]"))
LINES = f"""#!/bin/sh
head -c {AT_THE_THIRD} printed >&2; eval "$1"; tail -c +{AT_THE_THIRD + 1} printed >&2
printf "\\nllama_quantize: quantize time =   268.29 ms\\n"
"""
REFUSED = "llama_model_quantize: failed to quantize: this quantization requires an imatrix!"
KNOWN = "until grep -qs layers otel-quant-*/state*; do sleep .1; done"
"""What waits until the recording has the layers."""

ALL = {
    semconv.CONFIG_NAME: "Q4_K_M", semconv.WEIGHT_TYPE: "Q4_K, Q6_K",
    semconv.INPUT_PATH: "f.gguf", semconv.OUTPUT_PATH: "o.gguf",
}  # fmt: skip


def script(folder: Path, name: str, more: str = "", printed: str = PRINTED) -> list[str]:
    """Returns the command of a script that does something more in the third of 21 tensors."""
    (folder / "printed").write_text(printed)
    (folder / name).write_text(LINES)
    (folder / name).chmod(0o755)
    return [f"./{name}", more]


def step_of(launched: Launched) -> tuple[str, Counts, dict[str, Any]]:
    [step] = read(launched.recording).runs[0].steps
    known = {name: step.attributes[name] for name in ALL if name in step.attributes}
    return step.state, step.counts, known


@pytest.mark.parametrize(
    ("more", "state", "layers", "code"),
    [
        ("sleep .1", "ended", 21, 0),
        ("exit 3", "failed", 3, 3),
        (f"{KNOWN}; kill -9 $$", "killed", 3, -signal.SIGKILL),
        # As the launcher passes it on
        (f"{KNOWN}; kill -15 $PPID; sleep 9", "killed", 3, -signal.SIGTERM),
    ],
)
def test_the_tensors_that_it_prints_are_the_layers_of_a_step(
    launched: Launched, more: str, state: str, layers: int, code: int
) -> None:
    program = script(launched.folder, "llama-quantize", more)
    ours = launched.run(program, "--quiet", "--no-report")
    assert ours.returncode == code
    found, counts, known = step_of(launched)
    assert (found, str(counts)) == (state, f"layer {layers} of 21")
    if code >= 0:
        bare = launched.run_bare(program)
        assert (ours.stdout, ours.stderr) == (bare.stdout, bare.stderr)
        assert known == ALL


def test_the_failure_that_it_prints_is_why_it_failed(launched: Launched) -> None:
    program = script(launched.folder, "llama-quantize", f"printf '\\n{REFUSED}\\n' >&2; exit 1")
    launched.run(program, "--quiet", "--no-report")
    [step] = read(launched.recording).runs[0].steps
    assert step.error_message == REFUSED.partition(": ")[2]


@pytest.mark.parametrize("name", ["llama-quantize", "convert"])
def test_what_quantizes_nothing_and_another_program_have_no_step(
    launched: Launched, name: str
) -> None:
    dry = PRINTED.replace(
        "quantizing 'f.gguf' to 'o.gguf'", "calculating quantization size for 'f.gguf'"
    )
    printed = {"llama-quantize": dry, "convert": PRINTED}[name]
    launched.run(script(launched.folder, name, printed=printed), "--quiet", "--no-report")
    assert all(not run.steps for run in read(launched.recording).runs)


def test_one_that_does_not_exist_is_told_as_ever(launched: Launched) -> None:
    ours = launched.run(["./llama-quantize", "in.gguf"])
    assert ours.returncode == 127
    assert "no such program" in ours.stderr
