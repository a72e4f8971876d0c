"""Quantizes a model for real, with few samples, and reads how much memory and time that took.

The quantization runs in a process of its own, whose program this module is too: it reads a request
as JSON from standard input, and writes to standard output the largest resident memory of its process,
how much that grows when the model's preparation is imported, which loads torch, and how long its
samples and all else took; what the library prints goes to standard error.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from otel_quant.cost.estimate import EstimatedModel, Method, RealRun

SAMPLES: Final = 3
"""Samples of a probe: from the second run on a session has all its memory; how long they take differs."""


class ProbeError(Exception):
    """A probe failed."""


def probe(model: EstimatedModel, method: Method, samples: int) -> RealRun:
    """Quantizes a model in a child process, with random inputs."""
    inputs = [(tensor.name, tensor.dtype, tensor.shape) for tensor in model.inputs]
    path = str(Path(model.cost.path).absolute())
    request = path, method.library.name, method.name, samples, inputs
    places = (str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH"))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "otel_quant.cost.estimate.probe"], input=json.dumps(request),
        capture_output=True, text=True, errors="replace",
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places))}, check=False,
    )  # fmt: skip
    if done.returncode < 0:
        raise ProbeError(
            f"{method.title}: the probe was killed by signal {-done.returncode}; if the system had "
            "no memory left, the model does not fit with even these few samples"
        )
    if done.returncode:
        printed = done.stderr.strip().splitlines() or ["no error was printed"]
        raise ProbeError(f"{method.title}: the probe failed: {printed[-1]}")
    peak, torch, *seconds = json.loads(done.stdout)
    return RealRun(method, samples, peak, torch, seconds=tuple(seconds))


def _run(path: str, library: str, name: str, count: int, inputs: list[Any]) -> list[float]:
    """Quantizes a model; returns bytes of its peak and of torch, and seconds as a run has them."""
    import numpy as np
    from onnxruntime import InferenceSession
    from onnxruntime.quantization import QuantFormat, QuantType
    from onnxruntime.quantization.calibrate import CalibraterBase, CalibrationDataReader

    quantize, method = _found(library, name)
    collecting, running = list[float](), list[float]()
    kinds: list[Any] = [CalibraterBase]
    for kind in kinds:
        kinds += kind.__subclasses__()
        if "collect_data" in vars(kind):
            kind.collect_data = _timed(kind.collect_data, collecting)
    InferenceSession.run = _timed(InferenceSession.run, running)
    random = np.random.default_rng(0)

    def values(dtype: str, shape: list[int]) -> Any:
        if dtype.startswith("float"):
            return random.standard_normal(shape, dtype=np.float32).astype(dtype)
        return np.ones(shape, dtype)  # a token, and a mask that leaves something

    class Samples(CalibrationDataReader):
        left = count

        def __len__(self) -> int:
            return count

        def get_next(self) -> dict[str, Any] | None:
            self.left -= 1
            if self.left < 0:
                return None
            return {name: values(dtype, shape) for name, dtype, shape in inputs}

    began = time.perf_counter()
    quantize(
        path, "quantized.onnx", Samples(), calibrate_method=method,
        quant_format=QuantFormat.QDQ, activation_type=QuantType.QInt8, weight_type=QuantType.QInt8,
    )  # fmt: skip
    seconds, of_all = time.perf_counter() - began, max(collecting)  # others are within that call
    peak, before = _memory("VmHWM:"), _memory("VmRSS:")
    with suppress(ImportError):  # what quant_pre_process imports; sympy may be missing
        importlib.import_module("onnxruntime.tools.symbolic_shape_infer")
    torch = max(0, _memory("VmRSS:") - before)
    own = sorted(running[-count:])  # a library may run the model before
    # What else is done with a sample is taken to differ as its runs do.
    each = (of_all * it / sum(own) for it in (own[0], sum(own) / len(own), own[-1]))
    return [peak, torch, seconds - of_all, *each]


def _timed(method: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    """Returns a method that adds how long it took."""

    def timed(*given: Any, **named: Any) -> Any:
        began = time.perf_counter()
        result = method(*given, **named)
        seconds.append(time.perf_counter() - began)
        return result

    return timed


def _memory(name: str) -> int:
    for line in Path("/proc/self/status").read_text("utf-8").splitlines():
        if line.startswith(name):
            return int(line.split()[1]) << 10
    raise OSError(f"/proc/self/status has no {name[:-1]}; a probe needs Linux")


def _found(library: str, name: str) -> tuple[Callable[..., None], Any]:
    """Returns a library's function, and the member of an enumeration that names the method."""
    from onnxruntime.quantization import CalibrationMethod, quantize_static

    if library == "onnxruntime":
        return quantize_static, CalibrationMethod[name]
    from quark.onnx import quantize_static as quantize_with_quark
    from quark.onnx.calibration.methods import LayerWiseMethod, PowerOfTwoMethod

    kinds = (CalibrationMethod, PowerOfTwoMethod, LayerWiseMethod)
    return quantize_with_quark, next(kind[name] for kind in kinds if name in kind.__members__)


if __name__ == "__main__":
    answer = os.dup(1)
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # Quark writes notes into the working directory
        found = _run(*json.load(sys.stdin))
    os.write(answer, json.dumps(found).encode())
