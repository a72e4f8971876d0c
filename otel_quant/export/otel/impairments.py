"""GPUs that something slows down, or whose memory fails: said when it begins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from otel_quant.schema import semconv
from otel_quant.schema.records import GpuActivity, Reading


class Impairments:
    """Compares each reading with the one before."""

    def __init__(self) -> None:
        self._known: dict[str, GpuActivity] = {}

    def new_in(self, reading: Reading) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields what is new: a sentence, and the attributes of its log record.

        Errors of memory from before the first reading of a device are not new.
        """
        for gpu in reading.gpus:
            activity = gpu.activity
            if activity is None:
                continue
            before, self._known[gpu.id] = self._known.get(gpu.id), activity
            reasons = set(activity.slowed_by or ()) - set((before and before.slowed_by) or ())
            errors = activity.memory_errors or 0
            failed = before is not None and errors > (before.memory_errors or 0)
            if not reasons and not failed:
                continue
            texts = [f"slowed down by {', '.join(sorted(reasons))}"] if reasons else []
            texts += [f"{errors} errors of its memory that could not be corrected"] * failed
            attributes = {
                semconv.HW_ID: gpu.id,
                semconv.HW_NAME: gpu.name,
                semconv.GPU_SLOWED_BY: activity.slowed_by or None,
                semconv.GPU_MEMORY_ERRORS: activity.memory_errors,
            }
            present = {name: value for name, value in attributes.items() if value is not None}
            yield f"GPU {gpu.index} ({gpu.id}): {'; '.join(texts)}", present
