"""Costs of the operators of onnxruntime's own domain, and of AMD Quark's."""

from __future__ import annotations

from typing import Final

from otel_quant.cost.rules.formula import CostRule
from otel_quant.cost.rules.simple import TABLE as ONNX

TABLE: Final[dict[str, CostRule]] = {"com.microsoft:Gelu": ONNX["Gelu"]}
