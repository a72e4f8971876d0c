"""Quantizes a model for real, with few samples, and reads how much memory that took."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from otel_quant.estimate.methods import Method
from otel_quant.estimate.model import EstimatedModel

SAMPLES: Final = 2
"""Samples of a probe: from the second run on, a session has all the memory that it will have."""


class ProbeError(Exception):
    """A probe failed."""


def probe(model: EstimatedModel, method: Method, samples: int) -> int:
    """Quantizes a model in a child process, with random inputs."""
    request = {
        "model": str(Path(model.cost.path).absolute()),
        "library": method.library.name,
        "method": method.name,
        "samples": samples,
        "inputs": [(tensor.name, tensor.dtype, tensor.shape) for tensor in model.inputs],
    }
    folders = [Path(__file__).parents[2]]
    folders += [Path(name) for name in os.environ.get("PYTHONPATH", "").split(os.pathsep) if name]
    # Quark writes notes into the working directory.
    with tempfile.TemporaryDirectory() as working_directory:
        done = subprocess.run(
            [sys.executable, "-m", "otel_quant.estimate.real_run"],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            errors="replace",
            cwd=working_directory,
            env=os.environ
            | {"PYTHONPATH": os.pathsep.join(str(each.absolute()) for each in folders)},
            check=False,
        )
    if done.returncode < 0:
        raise ProbeError(
            f"{method.title}: the probe was killed by signal {-done.returncode}; if the system had "
            "no memory left, the model does not fit with even these few samples"
        )
    if done.returncode or not done.stdout.strip().isdecimal():
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        raise ProbeError(f"{method.title}: the probe failed: {said[-1]}")
    return int(done.stdout)
