"""What ``otel-quant fix`` has found, rewritten and measured, as immutable records, and their JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from otel_quant.cost.graph import obstacles
from otel_quant.inference.results import InferenceResult

SCHEMA: Final = 1  # Version of the JSON: raised when a key changes its meaning or goes away

KINDS: Final = tuple(obstacles.REWRITES)
"""The kinds of rewrites that a user may ask for, in the order in which they are applied."""


def sidecar(path: str | Path) -> Path:
    """Returns the file beside a model with arguments that its InferenceSession is to have."""
    return Path(path).with_suffix(".session.json")


State = Literal["planned", "written", "left out", "offered"]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """All rewrites of one kind."""

    kind: str
    title: str  # What it writes
    nodes: tuple[str, ...]  # Those that it changes
    integers_without: int  # Contractions that are expected to run in integers with all but this one
    state: State = "planned"
    # How what the model computes differs then; empty: but for rounding it does not
    differs: str = ""
    # Time with all rewrites divided by time with all but this one
    ratio: float | None = None
    sqnr_gain: float | None = None  # dB that this one adds to the SQNR to the float model
    why: str = ""  # Why it is left out or only offered


@dataclass(frozen=True, slots=True)
class Proven:
    """What was measured of one file beside the inference."""

    path: str
    bytes: int  # With its external data
    integers: int | None = None  # Contractions that ran in integers, by the profiler
    contractions: int | None = None  # All that ran
    # To the float model, in dB; None where it is the same or not known
    sqnr_float: float | None = None
    sqnr_input: float | None = None  # To the file that was to be fixed
    max_abs: float | None = None  # Largest difference from its outputs
    checker: str = ""  # What onnx.checker does not accept; empty if it accepts the file


@dataclass(frozen=True, slots=True)
class FixResult:
    """What became of one model."""

    model: str
    provider: str  # What the fixed file is for
    contractions: int  # Quantized ones of the model
    integers_before: int  # Those expected to run in integers as it is
    integers_after: int  # And with the rewrites that are planned or written
    rewrites: tuple[Rewrite, ...] = ()
    obstacles: tuple[str, ...] = ()  # What is still in the way of others
    output: str | None = None  # The fixed file; None if none was written
    disabled_optimizers: tuple[str, ...] = ()  # What its session is to be without
    # Entries that its session's configuration is to have
    session_config: Mapping[str, str] = field(default_factory=dict)
    why: str = ""  # Why none was written
    float_model: str | None = None
    # The input file, the fixed one, and the float model: times, kernels, findings
    measured: InferenceResult | None = None
    proven: tuple[Proven, ...] = ()  # Of the same files

    def to_json(self) -> str:
        """Returns the JSON."""
        measured = None if self.measured is None else json.loads(self.measured.to_json())
        plain = {"schema": SCHEMA, **asdict(replace(self, measured=None)), "measured": measured}
        return json.dumps(plain, ensure_ascii=False) + "\n"

    def of_state(self, *states: State) -> Sequence[Rewrite]:
        """Returns the rewrites that are in one of some states."""
        return [each for each in self.rewrites if each.state in states]
