"""What ``otel-quant advise`` has found and measured, as immutable records, and their JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

SCHEMA: Final = 1  # Version of the JSON: raised when a key changes its meaning or goes away


@dataclass(frozen=True, slots=True)
class AdvisedNode:
    """A node that may be left in float."""

    name: str
    op_type: str
    is_left: bool  # Whether it is to be left in float
    noise: float | None  # Part of the outputs' noise that the quantization of its result makes
    weights_noise: float | None  # And that of its weights
    seconds: float | None  # Its time in a run as it is
    float_seconds: float | None  # And in the float model
    growth: int | None  # Bytes that its weights take more in float; None where it cannot be


@dataclass(frozen=True, slots=True)
class AdvisedFile:
    """What was measured of a file beside the others."""

    role: str  # ``quantized``, ``forecast``, ``rerun`` or ``float``
    bytes: int
    median: float  # Seconds of a run
    cpu: float | None  # Seconds of CPU time of a run
    ratio: float | None  # Its time by that of the quantized file, on one thread of CPU time
    is_apart: bool | None  # Whether rounds tell the two apart
    sqnr: float | None  # To the float model, in dB


@dataclass(frozen=True, slots=True)
class AdviceResult:
    """Which nodes of a model to leave in float, and what that gives."""

    float_model: str
    model: str
    target: str
    budget: str
    nodes: tuple[AdvisedNode, ...] = ()  # What makes most noise first
    left: tuple[str, ...] = ()  # Those to leave in float, in the order of the file
    option: tuple[str, ...] = ()  # Lines for the script
    # Optimizers of onnxruntime that would quantize them again on loading
    disabled_optimizers: tuple[str, ...] = ()
    files: tuple[AdvisedFile, ...] = ()
    why: str = ""  # Why there are none, or the budget is not met

    def to_json(self) -> str:
        """Returns the JSON."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, ensure_ascii=False) + "\n"

    def file(self, role: str) -> AdvisedFile | None:
        """Returns the file that has a role."""
        return next((each for each in self.files if each.role == role), None)
