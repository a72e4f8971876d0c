"""Operators of onnxruntime's own domain, and of AMD Quark's."""

from __future__ import annotations

from typing import Final

from otel_quant.cost.shapes.rule import SAME, ShapeRule

TABLE: Final[dict[str, ShapeRule]] = {"com.microsoft:Gelu": SAME}
