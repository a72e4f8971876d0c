"""Which forecasts are worth a warning, and what it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from otel_quant.schema.records import GrowthForecast, Limits, RunProgress, StepProgress

_MB: Final = 1_000_000


class NewWarnings:
    """Finds the warnings of a run, each once."""

    def __init__(self) -> None:
        self._known: set[tuple[int, str | None]] = set()

    def clear(self) -> None:
        """Begins with another run."""
        self._known.clear()

    def of(self, progress: RunProgress) -> Iterator[tuple[StepProgress, GrowthForecast]]:
        """Yields the warnings that have not been yielded before, each with its step."""
        for step in progress.steps:
            for growth in step.forecast.growths if step.forecast is not None else ():
                key = (step.info.index, growth.device)
                if growth.is_warning and key not in self._known:
                    self._known.add(key)
                    yield step, growth


def sentence(step: StepProgress, growth: GrowthForecast, limits: Limits) -> str:
    """Returns a warning in words."""
    what, limit = f"memory of GPU {growth.device}", "it has"
    if growth.device is None:
        what, limit = "memory", f"the limit ({limits.memory_source}) is"
    return (
        f"{step.info.label}, sample {step.samples} of {step.expected_samples}: {what} grows by "
        f"{growth.per_sample / _MB:,.1f} MB with each sample and would be "
        f"{growth.at_end / _MB:,.0f} MB after the last one (estimated); {limit} "
        f"{growth.limit / _MB:,.0f} MB. Fewer or smaller samples, or a calibration method that keeps "
        "less, would help"
    )
