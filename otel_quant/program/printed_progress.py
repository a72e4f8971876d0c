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
from otel_quant.schema.readings import Count, ProfileStep, Reading

_LAYER: Final = re.compile(r"\[ *(\d+)/ *(\d+)\] ")
_TYPE: Final = re.compile(r"converting to (\S+) \.\.")
_FILES: Final = re.compile(r"\S+: quantizing '(.+)' to '(.+)' as (\S+).*")
_FAILED: Final = re.compile(r"\S+: (failed to .+)")
"""Lines of llama.cpp: ``[  12/ 291] blk.0.attn_q.weight - [..], type = f16, converting to q4_K .. size = ..``."""

_ORIGIN: Final = "progress of a program"  # Of failures


class _Printed:
    """The step of a program, by what it prints: without the line that names its files it quantizes nothing."""

    def __init__(self) -> None:
        self.step: OpenStep | None = None
        self.why = ""  # The first failure that it has printed
        self._began: Reading | None = None
        with FAULTS.kept_in(_ORIGIN):
            self._began = RUNTIME.recorder.reading_now()

    def note(self, line: str) -> None:
        """Notes what a line, or the beginning of one, shows."""
        if failed := _FAILED.fullmatch(line):
            self.why = self.why or failed[1]
        files = _FILES.fullmatch(line)
        if files and self.step is None:
            self.step = RUNTIME.recorder.open(
                ProfileStep.MODEL_QUANTIZATION, library="llama.cpp", function="llama-quantize", began=self._began,
            )  # fmt: skip
        if self.step is None:
            return
        known = self.step.attributes
        if files:
            known[semconv.CONFIG_NAME] = files[3]
            if RUNTIME.settings.paths:
                known |= {semconv.INPUT_PATH: files[1], semconv.OUTPUT_PATH: files[2]}
        layer, counts = _LAYER.match(line), self.step.counts
        if layer and int(layer[1]) > counts.get("layer", Count()).done:
            if "layer" not in counts:
                self.step.recorder.expect(self.step, "layer", int(layer[2]))
            self.step.recorder.count(self.step, "layer")
        if kind := _TYPE.search(line):
            types = str(known.get(semconv.WEIGHT_TYPE, kind[1].upper())).split(", ")
            known[semconv.WEIGHT_TYPE] = ", ".join(sorted({*types, kind[1].upper()}))


def main() -> int:
    """Runs the command that the arguments are; returns its exit code, or ends as it did."""
    command = sys.orig_argv = sys.argv[1:]
    printed, line = _Printed(), ""
    reading, writing = os.pipe()
    program = subprocess.Popen(command, stderr=writing)  # noqa: S603 - what the user asks for
    os.close(writing)
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, lambda number, _: program.send_signal(number))
    while chunk := os.read(reading, 1 << 16):
        sys.stderr.buffer.write(chunk)
        sys.stderr.buffer.flush()
        with FAULTS.kept_in(_ORIGIN):
            *whole, line = (line + chunk.decode(errors="replace")).split("\n")
            for text in (*whole, line):
                printed.note(text)
    code = program.wait()
    if code >= 0:  # else the open step tells where a signal ended it
        failure = RuntimeError(printed.why or f"exit code {code}") if code else None
        Activation(printed.step).finish(failure)
    return end_as(code)


if __name__ == "__main__":
    sys.exit(main())
