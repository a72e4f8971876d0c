"""Instrumentors: what makes a quantization library report its steps.

A library is a table (:class:`~otel_quant.instruments.library.Library`) in a file of its
own; :data:`LIBRARIES` lists them.
"""

from __future__ import annotations

from typing import Final

from otel_quant.instruments.library import Library
from otel_quant.instruments.onnxruntime import ONNXRUNTIME
from otel_quant.instruments.quark import QUARK
from otel_quant.instruments.torch import TORCH
from otel_quant.instruments.torchao import TORCHAO
from otel_quant.instruments.transformers import TRANSFORMERS

LIBRARIES: Final[tuple[Library, ...]] = (QUARK, ONNXRUNTIME, TORCH, TORCHAO, TRANSFORMERS)
"""Every library that otel-quant knows."""
