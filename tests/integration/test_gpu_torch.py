"""The real torch and the GPU probe."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest


def test_the_real_torch_is_left_alone_until_it_starts_cuda() -> None:
    pytest.importorskip("torch")
    code = """
import json, torch
from otel_quant.capture.probes.gpu import with_torch_memory
from otel_quant.schema.records import GpuReading
reading = (GpuReading(0, "GPU-aa", None, 1),)
same = with_torch_memory(reading, "cuda") == reading
print(json.dumps([same, torch.cuda.is_initialized(), torch.cuda._is_in_bad_fork()]))
"""
    process = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert json.loads(process.stdout) == [True, False, False]
