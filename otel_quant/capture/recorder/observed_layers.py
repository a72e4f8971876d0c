"""What reaches the layers of a model while a step calibrates it, as observers of the library see it."""

from __future__ import annotations

import math
import time
from typing import Any, Final

from otel_quant.diagnosis import calibration
from otel_quant.schema.dataclass import dataclass, field
from otel_quant.schema.readings import LayerSeen

_MOVED: Final = 1.01  # Factor by which a range has to grow to be noted
_LAST: Final = 0.9  # Share of the samples before the last tenth
_FEWEST: Final = 10  # Samples that a layer needs for its growth to be known
_PAUSE: Final = 200  # Pause between two looks at an open step, in times of what a look took


@dataclass(eq=False, slots=True)
class ObservedLayer:
    """What was noted of one layer."""

    name: str
    settles: bool = False  # Its range only grows, and is all that its observer keeps
    order: float = math.inf  # Its place among the layers that something has reached
    samples: int = 0
    tokens: int | None = 0
    bad: int | None = None  # The sample since which its range is not finite; 0 if not known
    on_gpu: tuple[Any, Any] | None = None  # The newest range, of a tensor on a GPU
    _last: int = -1  # The sample that reached it last
    # Sample and largest absolute value, as that grew
    _ranges: list[tuple[int, float]] = field(default_factory=list)

    def note_range(self, sample: int, low: float, high: float) -> None:
        """Notes the range of its observer after a sample; 0 if the sample is not known."""
        largest = max(abs(low), abs(high))
        if not math.isfinite(low + high):
            self.bad = sample if self.bad is None else self.bad
        elif sample and (not self._ranges or largest > self._ranges[-1][1] * _MOVED):
            self._ranges.append((sample, largest))

    def note_tokens(self, sample: int, tokens: int | None) -> None:
        """Notes that tokens of a sample have reached it."""
        self.samples += sample != self._last
        self._last = sample
        self.tokens = None if tokens is None or self.tokens is None else self.tokens + tokens

    def seen(self, samples: int) -> LayerSeen:
        """Returns what is known of the layer after a number of samples."""
        before = [largest for sample, largest in self._ranges if sample <= _LAST * samples]
        is_known = self.samples >= _FEWEST and before and before[-1]
        growth = self._ranges[-1][1] / before[-1] if is_known else None
        settled = self._ranges[-1][0] if self.settles and self._ranges else None
        return LayerSeen(
            self.name, self.samples, self.tokens, is_finite=self.bad is None, sample=self.bad or None,
            growth=growth, settled=settled,
        )  # fmt: skip


class ObservedLayers:
    """The observed layers of one step."""

    def __init__(self) -> None:
        self.layers: dict[str, ObservedLayer] = {}
        self.sample = 0  # The current one, from 1; a library may take all samples through one layer after another
        self._reached = self._samples = 0
        self._due = 0.0
        self._found: list[str] = []

    def add(self, name: str, *, settles: bool = False) -> ObservedLayer:
        """Returns the layer of a name, a new one if there is none."""
        if name not in self.layers:
            self.layers[name] = ObservedLayer(name, settles=settles)
        return self.layers[name]

    def reached(self, layer: ObservedLayer, tokens: int | None) -> None:
        """Notes that tokens of the current sample have reached a layer."""
        if not layer.samples:
            layer.order = self._reached = self._reached + 1
        self._samples = max(self._samples, self.sample)
        layer.note_tokens(self.sample, tokens)

    def so_far(self) -> list[str]:
        """Returns the findings so far."""
        if (began := time.monotonic()) >= self._due:
            self._found = calibration.findings(self.seen(), is_over=False)
            self._due = (1 + _PAUSE) * time.monotonic() - _PAUSE * began
        return self._found

    def seen(self) -> list[LayerSeen]:
        """Returns what is known of each layer, in the order in which tokens reached them; nothing before the first did."""
        every = sorted(self.layers.copy().values(), key=lambda it: it.order)
        return [each.seen(self._samples) for each in every if self._reached]

    def end(self) -> list[LayerSeen]:
        """Returns the same, at the end."""
        return self.seen()
