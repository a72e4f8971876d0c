"""What memory a quantization will need, before it is started.

>>> from otel_quant.estimate import estimate, methods, read
>>> model = read("model.onnx", dims={"batch": 1})
>>> for method in methods(["onnxruntime:MinMax"]):
...     found = estimate(model, method, samples=512)
...     print(found.peak, found.fits(16 << 30))
"""

from __future__ import annotations

from otel_quant.estimate.arithmetic import estimate, extrapolated
from otel_quant.estimate.methods import METHODS, Library, Method, UnknownMethodError, methods
from otel_quant.estimate.model import EstimatedModel, read
from otel_quant.estimate.results import Answer, Estimate, Figure, Layer

__all__ = [
    "METHODS",
    "Answer",
    "Estimate",
    "EstimatedModel",
    "Figure",
    "Layer",
    "Library",
    "Method",
    "UnknownMethodError",
    "estimate",
    "extrapolated",
    "methods",
    "read",
]
