"""Runs a program that is no Python as a step, whose layers are those that it prints to standard error.

That is passed on as it comes, signals are too, and this ends as the program does: ``otel-quant run`` starts it in its place.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.recorder.ongoing import OpenStep
from otel_quant.capture.runtime import RUNTIME
from otel_quant.capture.scope import Activation
from otel_quant.launcher.program import end_as
from otel_quant.schema import semconv
from otel_quant.schema.readings import Count, ProfileStep

_LAYER: Final = re.compile(r"\[ *(\d+)/ *(\d+)\] ")
_TYPE: Final = re.compile(r"converting to (\S+) \.\.")
_FILES: Final = re.compile(r"\S+: quantizing '(.+)' to '(.+)' as (\S+).*")
"""Lines of llama.cpp: ``[  12/ 291] blk.0.attn_q.weight - [..], type = f16, converting to q4_K .. size = ..``."""


def _note(step: OpenStep, line: str) -> None:
    """Notes what a line, or the beginning of one, shows of a step."""
    if (layer := _LAYER.match(line)) and int(layer[1]) > step.counts.get("layer", Count()).done:
        if "layer" not in step.counts:
            step.recorder.expect(step, "layer", int(layer[2]))
        step.recorder.count(step, "layer")
    if kind := _TYPE.search(line):
        known = str(step.attributes.get(semconv.WEIGHT_TYPE, kind[1].upper())).split(", ")
        step.attributes[semconv.WEIGHT_TYPE] = ", ".join(sorted({*known, kind[1].upper()}))
    if files := _FILES.fullmatch(line):
        step.attributes[semconv.CONFIG_NAME] = files[3]
        if RUNTIME.settings.paths:
            step.attributes |= {semconv.INPUT_PATH: files[1], semconv.OUTPUT_PATH: files[2]}


def main() -> int:
    """Runs the command that the arguments are; returns its exit code, or ends as it did."""
    command = sys.orig_argv = sys.argv[1:]
    step, line = None, ""
    with FAULTS.kept_in("progress of a program"):
        step = RUNTIME.recorder.open(
            ProfileStep.MODEL_QUANTIZATION, library="llama.cpp", function="llama-quantize"
        )
    reading, writing = os.pipe()
    program = subprocess.Popen(command, stderr=writing)  # noqa: S603 - what the user asks for
    os.close(writing)
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, lambda number, _: program.send_signal(number))
    while chunk := os.read(reading, 1 << 16):
        sys.stderr.buffer.write(chunk)
        sys.stderr.buffer.flush()
        with FAULTS.kept_in("progress of a program"):
            *whole, line = (line + chunk.decode(errors="replace")).split("\n")
            for text in (*whole, line):
                if step is not None:
                    _note(step, text)
    code = program.wait()
    if code >= 0:  # else the open step tells where a signal ended it
        failure = subprocess.CalledProcessError(code, command[0]) if code else None
        Activation(step).finish(failure)
    return end_as(code)


if __name__ == "__main__":
    sys.exit(main())
