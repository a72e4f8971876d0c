"""`llama-quantize` is a step whose layers are the tensors that it prints; its output and its end are its own.

A script prints its lines here, as of llama.cpp's build 11434: to compile it takes an hour.
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

LINES = """#!/bin/sh
say() { printf "$@" >&2; }
say "main: quantizing '%s' to '%s' as %s using 2 threads\\n" "$1" "$2" "$3"
i=0
for name in token_embd.weight blk.0.attn_norm.weight blk.0.attn_q.weight output.weight; do
  i=$((i + 1))
  say "[%4d/%4d] %-36s - [%s], type = %6s, " $i 4 $name "   64,    64,     1,     1" f32
  case $name in
    *norm*) say "size = %8.3f MiB\\n" 0.016 ;;
    *_q*) say "converting to q6_K .. "; eval "$4"; say "size = %8.2f MiB -> %8.2f MiB\\n" 1 .25 ;;
    *) say "converting to q4_K .. "; say "size = %8.2f MiB -> %8.2f MiB\\n" 1 .15 ;;
  esac
done
printf "\\nmain: quantize time = %8.2f ms\\n" 12
"""
KNOWN = "until grep -qs layers otel-quant-*/state*; do sleep .1; done"
"""What waits until the recording has the layers."""

ALL = {
    semconv.CONFIG_NAME: "Q4_K_M", semconv.WEIGHT_TYPE: "Q4_K, Q6_K",
    semconv.INPUT_PATH: "in.gguf", semconv.OUTPUT_PATH: "out.gguf",
}  # fmt: skip


def script(folder: Path, name: str, more: str = "") -> list[str]:
    """Returns the command of a script that does something more at the third of four tensors."""
    (folder / name).write_text(LINES)
    (folder / name).chmod(0o755)
    return [f"./{name}", "in.gguf", "out.gguf", "Q4_K_M", more]


def step_of(launched: Launched) -> tuple[str, Counts, dict[str, Any]]:
    [step] = read(launched.recording).runs[0].steps
    known = {name: step.attributes[name] for name in ALL if name in step.attributes}
    return step.state, step.counts, known


@pytest.mark.parametrize(
    ("more", "state", "layers", "code"),
    [
        ("sleep .1", "ended", 4, 0),
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
    assert (found, str(counts)) == (state, f"layer {layers} of 4")
    if code >= 0:
        bare = launched.run_bare(program)
        assert (ours.stdout, ours.stderr) == (bare.stdout, bare.stderr)
        assert known == ALL


def test_another_program_that_prints_such_lines_has_no_step(launched: Launched) -> None:
    launched.run(script(launched.folder, "convert"), "--quiet", "--no-report")
    assert all(not run.steps for run in read(launched.recording).runs)


def test_one_that_does_not_exist_is_told_as_ever(launched: Launched) -> None:
    ours = launched.run(["./llama-quantize", "in.gguf"])
    assert ours.returncode == 127
    assert "no such program" in ours.stderr
