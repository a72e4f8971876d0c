"""What the steps of a run say of the run: its libraries and its calibration."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from otel_quant.schema import semconv
from otel_quant.schema.events import Event


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What is known of a run by its steps so far."""

    # Each library with its version, in the order of their first steps: ``amd-quark 0.13``
    libraries: tuple[str, ...] = ()
    calibration_method: str | None = None  # Method of the first calibration that names one
    # Calibration samples that the steps have consumed, all together; None if none were counted
    calibration_samples: int | None = None
    calibration_items: int | None = 0  # Items in these samples; None if one of them did not tell

    def with_step(self, event: Event) -> RunFacts:
        """Returns what is known with a step that has begun or ended."""
        facts, step, samples, items = self, event.step, event.samples, event.items
        if step is not None and step.library is not None:
            library = " ".join(filter(None, (step.library, step.library_version)))
            if library not in facts.libraries:
                facts = dataclasses.replace(facts, libraries=(*facts.libraries, library))
        method = event.attributes.get(semconv.CALIBRATION_METHOD)
        if method is not None and facts.calibration_method is None:
            facts = dataclasses.replace(facts, calibration_method=str(method))
        if samples:
            total = (facts.calibration_samples or 0) + samples
            all_items = facts.calibration_items
            all_items = None if items is None or all_items is None else all_items + items
            facts = dataclasses.replace(
                facts, calibration_samples=total, calibration_items=all_items
            )
        return facts
