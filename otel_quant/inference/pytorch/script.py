"""Measures the models that a function of the user's script returns."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import Final

from otel_quant.inference.options import Options
from otel_quant.inference.pytorch.measure import measure_models
from otel_quant.inference.results import InferenceResult
from otel_quant.inference.variants import load_variants

_QUIET: Final[Mapping[str, str]] = {"KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "ERROR"}
"""Keeps torch's profiler from writing when it starts and stops. Torch reads it when it is imported."""


def measure_script(reference: str, options: Options) -> InferenceResult:
    """Measures variants of a model.

    What the script, libraries and other programs print goes to standard error: standard output
    is for the result.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    with _output_to_errors():
        variants = load_variants(reference)
        if options.threads is not None:
            import torch

            torch.set_num_threads(options.threads)
        return measure_models(variants.models, variants.inputs, options)


@contextmanager
def _output_to_errors() -> Iterator[None]:
    sys.stdout.flush()
    output = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if sys.platform == "linux":
            ctypes.CDLL(None).fflush(None)  # what C has printed
        os.dup2(output, 1)
        os.close(output)
