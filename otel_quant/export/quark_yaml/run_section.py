"""The sections ``run`` and ``run_end`` of the local file: what made the run, and how it went.

Quark's file has neither, and what reads Quark's file ignores them. ``run`` stands before the
records, so that the file of a killed run has it too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from otel_quant.schema import semconv
from otel_quant.schema.events import Event
from otel_quant.schema.records import Peaks, Reading
from otel_quant.version import VERSION

_MIB: Final = 1 << 20
_SHARE_DIGITS: Final = 4


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


def at_start(event: Event) -> dict[str, object]:
    """Returns the section ``run``."""
    run, first = event.run, event.reading
    assert first is not None
    origin = run.origin
    return _present(
        {
            "id": run.id,
            "rank": run.rank,
            "command": origin.command or None if origin else None,
            "host": origin.host if origin else None,
            "system": origin.system if origin else None,
            "python": origin.python if origin else None,
            "otel_quant": VERSION,
            "memory_limit_mb": _mebibytes(run.limits.memory),
            "memory_limit_source": run.limits.memory_source,
            "gpus": [gpu.name or gpu.id for gpu in first.gpus] or None,
        }
    )


def of_facts(facts: RunFacts) -> dict[str, object]:
    """Returns what the steps say of the run, for either section."""
    return _present(
        {
            "libraries": list(facts.libraries) or None,
            "calibration_method": facts.calibration_method,
            "calibration_samples": facts.calibration_samples,
        }
    )


def at_end(event: Event, facts: RunFacts) -> dict[str, object]:
    """Returns the section ``run_end``."""
    peaks, limit = event.peaks, event.run.limits.memory
    assert peaks is not None
    assert event.baseline is not None
    memory = peaks.figures.get("memory")
    return {
        "ended": f"with {event.error}" if event.error else "without an exception",
        **of_facts(facts),
        **_present(
            {
                # Not before the end: a later step may turn out not to tell.
                "calibration_items": facts.calibration_items or None,
                "tree_peak_memory_mb": _mebibytes(memory),
                "tree_peak_memory_source": peaks.sources.get("memory"),
                "memory_limit_share": round(memory / limit, _SHARE_DIGITS)
                if memory is not None and limit
                else None,
                "gpu_memory_limit_share": _highest_gpu_share(peaks, event.baseline),
            }
        ),
    }


def _highest_gpu_share(peaks: Peaks, first: Reading) -> float | None:
    """Returns how much of its memory the fullest GPU has used."""
    shares = [
        used / gpu.limit
        for gpu in first.gpus
        if gpu.limit and (used := peaks.devices.get("gpu", {}).get(gpu.index, {}).get("memory"))
    ]
    return round(max(shares), _SHARE_DIGITS) if shares else None


def _mebibytes(size: float | None) -> float | None:
    return None if size is None else round(size / _MIB, 2)


def _present(values: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in values.items() if value is not None}
