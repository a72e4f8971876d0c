"""What ``otel-quant advise`` has found and measured, as immutable records, and their JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

SCHEMA: Final = 1  # Version of the JSON: raised when a key changes its meaning or goes away


@dataclass(frozen=True, slots=True)
class AdvisedLayer:
    """A node that may be left in float, or the input of the model."""

    node: str
    op_type: str
    is_left: bool  # Whether it is to be left in float
    noise: float | None  # Part of the outputs' noise that the quantization of its result makes
    weights_noise: float | None  # And that of its weights
    own: float | None  # SQNR of the quantization of its result alone, in dB
    weights: float | None  # And of its weights
    float_micros: float | None  # Its time in the float model
    micros: float | None  # Its time as it is
    growth: int  # Bytes that its weights take more in float


@dataclass(frozen=True, slots=True)
class AdvisedFile:
    """What was measured of a file beside the others."""

    role: str  # ``quantized``, ``forecast``, ``rerun`` or ``float``
    path: str  # Empty of the forecast, which is not kept
    bytes: int
    median: float  # Seconds of a run
    cpu: float | None  # Seconds of CPU time of a run
    ratio: float | None  # Its time by that of the quantized file
    is_apart: bool | None  # Whether rounds tell the two apart
    sqnr: float | None  # To the float model, in dB


@dataclass(frozen=True, slots=True)
class AdviceResult:
    """Which nodes of a model to leave in float, and what that gives."""

    float_model: str
    model: str
    target: str
    budget: str
    nodes: tuple[str, ...] = ()  # To leave in float, in the order of the file
    tool: str = ""  # What has made the model; empty if that is not known
    option: tuple[str, ...] = ()  # Lines for its script
    # Optimizers of onnxruntime that would quantize the nodes again on loading
    disabled_optimizers: tuple[str, ...] = ()
    layers: tuple[AdvisedLayer, ...] = ()  # What makes most noise first
    files: tuple[AdvisedFile, ...] = ()
    expected_sqnr: float | None = None  # By the noise of the parts alone, in dB
    why: str = ""  # Why no node is to be left in float, or the budget is not met

    def to_json(self) -> str:
        """Returns the JSON."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, ensure_ascii=False) + "\n"

    def file(self, role: str) -> AdvisedFile | None:
        """Returns the file that has a role."""
        return next((each for each in self.files if each.role == role), None)
