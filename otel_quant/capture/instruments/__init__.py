"""Instrumentors: what makes a quantization library report its steps.

A library is a table (:class:`~otel_quant.capture.instruments.shared.library.Library`) in a file of
its own, or in the ``__init__`` of a folder where it needs wrappers of its own. ``hqq.py`` is
the one to copy; :data:`LIBRARIES` lists them. ``shared`` is what they have in common, and
``processes`` hooks the functions of Python that start child processes.
"""

from __future__ import annotations

from typing import Final

from otel_quant.capture.instruments.auto_round import AUTO_ROUND
from otel_quant.capture.instruments.hqq import HQQ
from otel_quant.capture.instruments.llmcompressor import LLMCOMPRESSOR
from otel_quant.capture.instruments.neural_compressor import NEURAL_COMPRESSOR
from otel_quant.capture.instruments.nncf import NNCF
from otel_quant.capture.instruments.onnxruntime import ONNXRUNTIME
from otel_quant.capture.instruments.optimum_onnx import OPTIMUM_ONNX
from otel_quant.capture.instruments.quanto import QUANTO
from otel_quant.capture.instruments.quark import QUARK
from otel_quant.capture.instruments.shared.library import Library
from otel_quant.capture.instruments.torch import TORCH
from otel_quant.capture.instruments.torchao import TORCHAO
from otel_quant.capture.instruments.transformers import TRANSFORMERS

LIBRARIES: Final[tuple[Library, ...]] = (
    QUARK, ONNXRUNTIME, TORCH, TORCHAO, TRANSFORMERS, OPTIMUM_ONNX, NNCF, QUANTO, HQQ,
    NEURAL_COMPRESSOR, LLMCOMPRESSOR, AUTO_ROUND,
)  # fmt: skip
"""Every library that otel-quant knows."""
