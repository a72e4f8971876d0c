"""What the calibration of a recorded run really took, from which other runs are estimated."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Final

from otel_quant.cost import estimate as estimates
from otel_quant.recordings import summary
from otel_quant.recordings.model import PlacedStep, Recording, steps_in
from otel_quant.schema import semconv
from otel_quant.schema.readings import OWN_MEMORY

_MUCH: Final = 0.1  # Part of what a method keeps of a sample from which on the program kept more


def calibrated(recording: Recording, model: estimates.EstimatedModel) -> estimates.RealRun:
    """Returns what the calibration of a model took, of several the one with most samples; else raises ValueError."""
    counting = sorted(steps_in(recording), key=lambda it: it.step.samples or 0)
    known = [(it, method) for it in counting if (method := estimates.method_of(it.step.attributes))]
    if not known or not (samples := known[-1][0].step.samples):
        raise ValueError("no calibration by onnxruntime or Quark whose samples were counted")
    each, method = known[-1]
    _check(recording, each, samples, model)
    most, highest = summary.peak(recording), 0
    if most and most.step and most.path[: len(each.path)] != each.path:
        highest = round(most.value) - OWN_MEMORY
    peak = round(summary.steps_of(recording)(each).value(each.step, summary.MEMORY_PEAK) or 0)
    if not peak:
        raise ValueError("its peak of memory is not known")
    few, more = (estimates.estimate(model, method, count) for count in (2, 3))
    kept = estimates.while_reading(method, more) - estimates.while_reading(method, few)
    reading = replace(each, end=each.step.progress[-1][0]) if each.step.progress else each
    grown = summary.growing(recording, reading)
    own = grown / samples - kept
    is_cut, own = each.step.state != "ended", round(own) if own > _MUCH * kept else 0
    seconds = () if is_cut else _seconds(recording, each, method.kept is None)
    return estimates.RealRun(method, samples, peak - OWN_MEMORY, 0, own, highest, is_cut, seconds)


def _check(
    recording: Recording, each: PlacedStep, samples: int, model: estimates.EstimatedModel
) -> None:
    """Refuses a run of another model, or of other batches."""
    weights = summary.value(recording, "model.float.weight_bytes")
    if weights not in (None, own := model.cost.weight_bytes):
        raise ValueError(f"another model, of {weights:,.0f} bytes of weights instead of {own:,}")
    items = each.step.attributes.get(semconv.CALIBRATION_ITEM_COUNT)
    batch = next((tensor.shape[0] for tensor in model.inputs if tensor.shape), None)
    if isinstance(items, int) and batch and -(-items // batch) != samples:
        why = f"its {samples:,} samples had {items:,} items, not {batch:,} each"
        raise ValueError(f"{why}; expected --input or --dim with the length of its batches")


def _seconds(recording: Recording, each: PlacedStep, sorts_at_the_end: bool) -> tuple[float, ...]:
    """Returns the seconds that do not depend on the samples, and the least, mean and most of a sample."""
    points = each.step.progress
    pairs = [(one, other) for one, other in pairwise(points) if other[1] > one[1]]
    paces = sorted((late - at) / (more - few) for (at, few), (late, more) in pairs)
    if len(paces) < 2:
        return ()
    of_all = (each.end if sorts_at_the_end else points[-1][0]) - each.step.start
    mean, few = of_all / points[-1][1], len(paces) // 10
    usual = (points[-1][0] - points[0][0]) / (points[-1][1] - points[0][1]) / mean
    least, most = min(mean, paces[few] / usual), max(mean, paces[-1 - few] / usual)
    return recording.duration - of_all, least, mean, most
