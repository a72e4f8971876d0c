"""What reaches the layers of a model while a step calibrates it, as observers of the library tell."""

from __future__ import annotations

import math
import time
from typing import Final

from otel_quant.diagnosis import calibration
from otel_quant.schema.readings import LayerSeen

_MOVED: Final = 1.01  # Times by which a range has to grow to be noted: a hundred notes are for a range of three times
_LAST: Final = 0.9  # Share of the samples before the last tenth
_FEWEST: Final = 10  # Samples of a layer from which on the growth of its range is told
_PAUSE: Final = 200  # What is found while it goes on is looked for again after so many times as long as that took


class ObservedLayer:
    """One layer; `settles` if its range only grows, and is all that its observer keeps."""

    __slots__ = (
        "_last",
        "_ranges",
        "bad",
        "name",
        "not_finite",
        "order",
        "samples",
        "settles",
        "tokens",
    )

    def __init__(self, name: str, *, settles: bool = False) -> None:
        self.name, self.settles = name, settles
        self.order = math.inf  # Position among the layers, as something first reached them
        self.samples = 0
        self.tokens: int | None = 0
        self.bad, self.not_finite = (
            False,
            0,
        )  # Whether its range is not finite, since which sample; 0 if not known
        self._last = -1  # The sample that reached it last
        self._ranges: list[
            tuple[int, float]
        ] = []  # Sample and largest absolute value, as that has grown

    def reached(self, sample: int, tokens: int | None) -> None:
        """Notes that something of a sample has reached it."""
        if sample != self._last:
            self._last = sample
            self.samples += 1
        self.tokens = None if tokens is None or self.tokens is None else self.tokens + tokens

    def ranged(self, sample: int, low: float, high: float) -> None:
        """Notes the range that its observer has after a sample; after 0 if it is not known which."""
        largest = max(abs(low), abs(high))
        if not math.isfinite(low + high):
            if not self.bad:
                self.bad, self.not_finite = True, sample
        elif sample and (not self._ranges or largest > self._ranges[-1][1] * _MOVED):
            self._ranges.append((sample, largest))

    def seen(self, samples: int) -> LayerSeen:
        """Returns what is known after so many samples."""
        growth, ranges = None, self._ranges
        before = [largest for sample, largest in ranges if sample <= _LAST * samples]
        if self.samples >= _FEWEST and before and before[-1]:
            growth = ranges[-1][1] / before[-1]
        settled = ranges[-1][0] if self.settles and ranges else None
        bad = self.not_finite or None
        return LayerSeen(self.name, self.samples, self.tokens, bad, not self.bad, growth, settled)


class ObservedLayers:
    """The layers of one step."""

    def __init__(self) -> None:
        self.layers: dict[str, ObservedLayer] = {}
        self.sample = (
            0  # The sample under way, from 1; a library may go through all of them for each layer
        )
        self._reached = self._samples = 0
        self._due = 0.0
        self._found: list[str] = []

    def add(self, name: str, *, settles: bool = False) -> ObservedLayer:
        """Returns the layer of a name, a new one if there is none."""
        if (layer := self.layers.get(name)) is None:
            layer = self.layers[name] = ObservedLayer(name, settles=settles)
        return layer

    def reached(self, layer: ObservedLayer, tokens: int | None) -> None:
        """Notes that something of the sample under way has reached a layer."""
        if not layer.samples:
            layer.order = self._reached = self._reached + 1
        self._samples = max(self._samples, self.sample)
        layer.reached(self.sample, tokens)

    def so_far(self) -> list[str]:
        """Returns what is wrong so far."""
        began = time.monotonic()
        if began >= self._due:
            self._found = calibration.findings(self._seen(), is_over=False)
            ended = time.monotonic()
            self._due = ended + _PAUSE * (ended - began)
        return self._found

    def end(self) -> list[LayerSeen]:
        """Returns what is known of each at the end; none if nothing has reached them."""
        return self._seen() if self._reached else []

    def _seen(self) -> list[LayerSeen]:
        every = sorted(self.layers.copy().values(), key=lambda it: it.order)
        return [each.seen(self._samples) for each in every]
