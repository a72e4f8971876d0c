"""Chooses the nodes to leave in float: each time those that give most for what they cost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from otel_quant.inference.advise.quantized_parts import QuantizedParts

Target = Literal["latency", "accuracy", "size"]

_WORTH: Final = 0.01
"""Part of the time from which a node is left in float for its own time."""

_LEAST: Final = 0.001
"""Part of the noise, the time or the bytes below which a difference is none."""


class Figures(NamedTuple):
    """What a model with some nodes in float is expected to have."""

    noise: float  # Power by that of the signal
    micros: float
    bytes: int


class Limit(NamedTuple):
    """What one of the figures may be at most."""

    figure: Literal["noise", "micros", "bytes"]
    value: float


@dataclass(slots=True)
class Costs:
    """What is known of each part."""

    noise: Mapping[str, float]  # Of results and, by their nodes, of weights
    rest: float  # Noise that comes from none of them
    micros: Mapping[str, float]  # Time of each node as it is
    float_micros: Mapping[str, float]  # And in the float model
    conversions: Mapping[str, float]  # Microseconds to convert a result
    bytes: int  # Of the file


class Choice:
    """The nodes of one model that may be left in float."""

    def __init__(self, parts: QuantizedParts, costs: Costs) -> None:
        self._parts, self.costs = parts, costs
        self._moves = sorted(parts.moves(), key=sorted)
        self.before = self.figures(())

    def figures(self, left: Collection[str]) -> Figures:
        """Returns what the model is expected to have with some nodes in float."""
        parts, costs = self._parts, self.costs
        kept = parts.quantized(left)
        noisy = {parts.sources[each] for each in kept} | (parts.growth.keys() - set(left))
        noise = costs.rest + sum(costs.noise.get(each, 0.0) for each in noisy)
        those = [each for each in parts.nodes if each.name in left]
        read = {result for each in those for result in each.reads}
        made = {result for each in those for result in each.makes}
        converted = [*(read & kept), *(made & kept)]
        micros = sum(costs.micros.values()) + sum(
            costs.conversions.get(it, 0.0) for it in converted
        )
        micros += sum(costs.float_micros.get(it, 0.0) - costs.micros.get(it, 0.0) for it in left)
        return Figures(noise, micros, costs.bytes + sum(parts.growth[each] for each in left))

    def nodes(self, target: Target, limit: Limit | None) -> frozenset[str]:
        """Returns the nodes to leave in float so that the target comes closest within the limit."""
        left: frozenset[str] = frozenset()
        if target == "latency":
            least = _WORTH * self.before.micros
            left = self._grown(left, lambda now, then: now.micros - then.micros - least, None)
        if limit is None:
            return left
        figure = "micros" if limit.figure == "noise" else limit.figure
        figure = "bytes" if target == "size" else figure

        def worth(now: Figures, then: Figures) -> float:
            is_over = limit.figure != "noise" and getattr(then, limit.figure) > limit.value
            gain = now.noise - then.noise
            cost, least = (getattr(each, figure) for each in (then, self.before))
            is_little = gain < _LEAST * self.before.noise
            return (
                0.0
                if is_over or is_little
                else gain / max(cost - getattr(now, figure), _LEAST * least)
            )

        return self._grown(left, worth, limit)

    def _grown(
        self, left: frozenset[str], worth: Callable[[Figures, Figures], float], limit: Limit | None
    ) -> frozenset[str]:
        """Adds the nodes of the greatest worth, until noise is within the limit or nothing is worth it."""
        now = self.figures(left)
        while not (limit and limit.figure == "noise" and now.noise <= limit.value):
            further = [left | move for move in self._moves if not move <= left]
            best = max(further, key=lambda each: worth(now, self.figures(each)), default=left)
            then = self.figures(best)
            if best == left or worth(now, then) <= 0:
                break
            left, now = best, then
        return left
