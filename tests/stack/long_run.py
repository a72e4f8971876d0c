"""A run of some minutes with steps of half a minute, which work a little and write to the disk.

opentelemetry-instrument python long_run.py SECONDS
"""

from __future__ import annotations

import os
import sys
import tempfile
import time

import otel_quant

STEP_SECONDS = 30


def main() -> None:
    seconds = float(sys.argv[1])
    began = time.monotonic()
    model = {"quant.input.path": "models/resnet50.onnx", "quant.calibration.method": "Percentile"}
    with tempfile.NamedTemporaryFile() as file:
        while time.monotonic() - began < seconds:
            with otel_quant.step("Calibration", attributes=model):
                ends = time.monotonic() + STEP_SECONDS
                while time.monotonic() < ends:
                    file.write(os.urandom(1 << 16))
                    file.flush()
                    os.fsync(file.fileno())
                    time.sleep(0.5)


if __name__ == "__main__":
    main()
