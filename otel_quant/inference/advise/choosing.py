"""Chooses the nodes to leave in float: each time those that give most for what they cost."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from otel_quant.inference.advise.quantized_parts import QuantizedParts

Target = Literal["latency", "accuracy", "size"]

_WORTH: Final = 0.01
"""Part of the time from which a node is left in float for its own time."""

_LEAST: Final = 0.001
"""Part of the noise, the time or the bytes below which a difference is none."""


class Figures(NamedTuple):
    """What a model with some nodes in float is expected to have."""

    noise: float  # Power by that of the signal
    seconds: float
    bytes: float


class Limit(NamedTuple):
    """What one of the figures may be at most."""

    figure: str
    value: float


@dataclass(slots=True)
class Choice:
    """The nodes of one model that may be left in float, and what is known of them."""

    parts: QuantizedParts
    noise: Mapping[str, float]  # Of results and, by their nodes, of weights
    rest: float  # Noise that comes from none of them
    seconds: Mapping[str, float]  # Time of each node as it is
    float_seconds: Mapping[str, float]  # And in the float model
    conversions: Mapping[str, float]  # Seconds to convert a result
    bytes: int  # Of the file

    def figures(self, left: Collection[str]) -> Figures:
        """Returns what the model is expected to have with some nodes in float."""
        kept, growth = self.parts.quantized(left), self.parts.growth
        noisy = {self.parts.sources[each] for each in kept} | (growth.keys() - set(left))
        those = [each for each in self.parts.nodes if each.name in left]
        converted = [
            {it for each in those for it in each.reads},
            {it for each in those for it in each.makes},
        ]
        conversions = (self.conversions.get(it, 0.0) for each in converted for it in each & kept)
        gains = (self.float_seconds.get(it, 0.0) - self.seconds.get(it, 0.0) for it in left)
        return Figures(
            self.rest + sum(self.noise.get(each, 0.0) for each in noisy),
            sum((*self.seconds.values(), *gains, *conversions)),
            self.bytes + sum(growth[each] for each in left),
        )

    def nodes(self, target: Target, limit: Limit | None) -> frozenset[str]:
        """Returns the nodes to leave in float so that the target comes closest within the limit."""
        before = now = self.figures(())
        left, moves = frozenset[str](), sorted(self.parts.moves(), key=sorted)
        figure = limit.figure if limit and limit.figure != "noise" else "seconds"
        figure = "bytes" if target == "size" else figure

        def worth(move: frozenset[str]) -> tuple[bool, float]:
            then = self.figures(left | move)
            saved, gain = now.seconds - then.seconds, now.noise - then.noise
            if target == "latency" and saved > _WORTH * before.seconds:
                return True, saved  # before all that only makes less noise
            is_done = limit is None or now.noise <= limit.value
            if limit is not None and limit.figure != "noise":
                is_done = getattr(then, limit.figure) > limit.value
            if is_done or gain < _LEAST * now.noise:
                return False, 0.0
            cost = getattr(then, figure) - getattr(now, figure)
            return False, gain / max(cost, _LEAST * getattr(before, figure))

        while further := [each for each in moves if not each <= left]:
            best = max(further, key=worth)
            if worth(best)[1] <= 0:
                break
            left |= best
            now = self.figures(left)
        return left
