"""What an estimate says, as immutable records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Answer: TypeAlias = Literal["yes", "no", "perhaps"]
"""Whether a quantization fits into a limit."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One part of an estimate."""

    name: str  # What the memory holds
    bytes: int  # How much
    computed_from: str  # The arithmetic, or what was assumed or measured, in words


@dataclass(frozen=True, slots=True)
class Layer:
    """The layer with the largest estimate."""

    name: str  # Its node
    bytes: int  # The estimate
    computed_from: str  # The arithmetic in words


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a quantization with one method needs."""

    library: str  # ``onnxruntime`` or ``quark``
    method: str  # The calibration method, as the library names it
    samples: int  # Calibration samples
    # The parts of the process's largest resident memory; they add up to ``peak``
    memory: tuple[Figure, ...]
    disk: tuple[Figure, ...]  # The parts of what lies in temporary folders at most
    lowest: int  # Bytes that the peak is expected to have at least
    # Bytes that it is expected to have at most; None where sizes of tensors are not known, so
    # that there is no such bound
    highest: int | None
    probed: int = 0  # Samples of the real run from which it was extrapolated; 0 for none

    @property
    def peak(self) -> int:
        """Largest resident memory of the process, in bytes."""
        return sum(figure.bytes for figure in self.memory)

    @property
    def disk_bytes(self) -> int:
        """Bytes in temporary folders at most."""
        return sum(figure.bytes for figure in self.disk)

    def fits(self, limit: int) -> Answer:
        """Says whether it fits into a number of bytes."""
        if self.lowest > limit:
            return "no"
        return "yes" if self.highest is not None and self.highest <= limit else "perhaps"
