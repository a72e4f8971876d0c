"""What ``otel-quant advise`` has found and measured, as immutable records, and their JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Final

from otel_quant.inference.results import InferenceResult, ModelResult

SCHEMA: Final = 1  # Version of the JSON: raised when a key changes its meaning or goes away


@dataclass(frozen=True, slots=True)
class AdvisedNode:
    """A node that may be left in float, or an input of the model."""

    name: str
    op_type: str  # Empty of an input
    is_left: bool  # Whether it is to be left in float
    noise: float | None = None  # Part of the outputs' noise that quantizing its result makes
    weights_noise: float | None = None  # And that of its weights
    seconds: float | None = None  # Its time in a run as it is
    float_seconds: float | None = None  # And in the float model
    growth: int | None = None  # Bytes that its weights take more in float; None where it cannot be


@dataclass(frozen=True, slots=True)
class AdviceResult:
    """Which nodes of a model to leave in float, and what that gives."""

    float_model: str
    model: str
    target: str
    budget: str
    nodes: tuple[AdvisedNode, ...]  # What makes most noise first
    left: tuple[str, ...]  # Those to leave in float, in the order of the file
    option: tuple[str, ...] = ()  # Lines for the script
    # Optimizers of onnxruntime that would quantize them again on loading
    disabled_optimizers: tuple[str, ...] = ()
    # Entries of the session's configuration without which its sums saturate on this processor
    session_config: Mapping[str, str] = field(default_factory=dict)
    # ``float``, ``quantized``, ``forecast`` and, if that was asked for, ``rerun``
    measured: InferenceResult | None = None
    why: str = ""  # Why there are none, or the budget is not met

    def to_json(self) -> str:
        """Returns the JSON."""
        measured = None if self.measured is None else json.loads(self.measured.to_json())
        plain = {"schema": SCHEMA, **asdict(replace(self, measured=None)), "measured": measured}
        return json.dumps(plain, ensure_ascii=False) + "\n"

    @property
    def models(self) -> dict[str, ModelResult]:
        """What was measured of each file."""
        return {} if self.measured is None else {it.path: it for it in self.measured.models}
