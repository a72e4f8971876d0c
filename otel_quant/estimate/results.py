"""What an estimate says, as immutable records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Answer: TypeAlias = Literal["yes", "no", "perhaps"]
"""Whether a quantization fits into a limit."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One part of an estimate.

    Attributes:
        name: What the memory holds.
        bytes: How much.
        computed_from: The arithmetic, or what was assumed or measured, in words.
    """

    name: str
    bytes: int
    computed_from: str


@dataclass(frozen=True, slots=True)
class Layer:
    """The layer with the largest estimate.

    Attributes:
        name: Its node.
        bytes: The estimate.
        computed_from: The arithmetic in words.
    """

    name: str
    bytes: int
    computed_from: str


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a quantization with one method needs.

    Attributes:
        library: ``onnxruntime`` or ``quark``.
        method: The calibration method, as the library names it.
        samples: Calibration samples.
        memory: The parts of the process's largest resident memory; they add up to ``peak``.
        disk: The parts of what lies in temporary folders at most.
        lowest: Bytes that the peak is expected to have at least.
        highest: Bytes that it is expected to have at most; None where sizes of tensors are not
            known, so that there is no such bound.
        probed: Samples of the real run from which it was extrapolated; 0 for none.
    """

    library: str
    method: str
    samples: int
    memory: tuple[Figure, ...]
    disk: tuple[Figure, ...]
    lowest: int
    highest: int | None
    probed: int = 0

    @property
    def peak(self) -> int:
        """Largest resident memory of the process, in bytes."""
        return sum(figure.bytes for figure in self.memory)

    @property
    def disk_bytes(self) -> int:
        """Bytes in temporary folders at most."""
        return sum(figure.bytes for figure in self.disk)

    def fits(self, limit: int) -> Answer:
        """Says whether it fits into a number of bytes.

        Args:
            limit: Bytes.

        Returns:
            ``yes`` if even the highest peak does, ``no`` if not even the lowest does.
        """
        if self.lowest > limit:
            return "no"
        return "yes" if self.highest is not None and self.highest <= limit else "perhaps"
