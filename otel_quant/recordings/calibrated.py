"""What the calibration of a recorded run really took, from which other runs are estimated."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from otel_quant.cost.estimate import (
    EstimatedModel,
    Method,
    RealRun,
    estimate,
    method_of,
    while_reading,
)
from otel_quant.recordings import summary
from otel_quant.recordings.model import PlacedStep, Recording, steps_in
from otel_quant.schema import semconv
from otel_quant.schema.readings import OWN_MEMORY

_MUCH: Final = 0.1  # Part of what a method keeps of a sample from which on the program kept more


def calibrated(recording: Recording, model: EstimatedModel) -> RealRun:
    """Returns what the calibration of a model took, of several the one with most samples; else raises ValueError."""
    known = [(it, method_of(it.step.attributes)) for it in steps_in(recording) if it.step.samples]
    each, method = max(
        known, key=lambda it: (it[1] is not None, it[0].step.samples), default=(None, None)
    )
    if each is None or method is None:
        raise ValueError("no calibration by onnxruntime or Quark whose samples were counted")
    _check(recording, each, model)
    within = summary.steps_of(recording)(each).value(each.step, summary.MEMORY_PEAK) or 0
    most = summary.peak(recording)
    is_outside = most and most.step and most.path[: len(each.path)] != each.path
    return RealRun(
        "the recorded calibration",
        method,
        each.step.samples or 0,
        round(within) - OWN_MEMORY,
        kept=_kept(recording, each, model, method),
        highest=round(most.value) - OWN_MEMORY if most and is_outside else 0,
        is_cut=each.step.state != "ended",
        seconds=_seconds(recording, each, method),
    )


def _check(recording: Recording, each: PlacedStep, model: EstimatedModel) -> None:
    """Refuses a run of another model, or of other batches."""
    weights = summary.value(recording, "model.float.weight_bytes")
    if weights not in (None, own := model.cost.weight_bytes):
        raise ValueError(f"another model, of {weights:,.0f} bytes of weights instead of {own:,}")
    items, samples = each.step.attributes.get(semconv.CALIBRATION_ITEM_COUNT), each.step.samples
    batch = next((tensor.shape[0] for tensor in model.inputs if tensor.shape), None)
    if isinstance(items, int) and samples and batch and -(-items // batch) != samples:
        why = f"its {samples:,} samples had {items:,} items, not {batch:,} each"
        raise ValueError(f"{why}; expected --input or --dim with the length of its batches")


def _kept(recording: Recording, each: PlacedStep, model: EstimatedModel, method: Method) -> int:
    """Returns how many bytes of each sample the program has kept: what grew, without what the method keeps."""
    grown = summary.growing(recording, each)
    few, more = (while_reading(method, estimate(model, method, samples)) for samples in (2, 3))
    found = (grown.per_sample or 0 if grown else 0) - (more - few)
    return round(found) if found > _MUCH * (more - few) else 0


def _seconds(recording: Recording, each: PlacedStep, method: Method) -> tuple[float, ...]:
    """Returns the seconds that do not depend on the samples, and the least, mean and most of a sample."""
    points = each.step.progress
    pairs = [(one, other) for one, other in pairwise(points) if other[1] > one[1]]
    paces = sorted((late - at) / (more - few) for (at, few), (late, more) in pairs)
    if len(paces) < 2 or each.step.state != "ended":
        return ()
    # A method that keeps all samples goes through all of them once more after the last one.
    end = each.end if method.kept is None else points[-1][0]
    mean = (end - each.step.start) / points[-1][1]
    usual = (points[-1][0] - points[0][0]) / (points[-1][1] - points[0][1]) / mean
    few = len(paces) // 10
    rest = recording.duration - (end - each.step.start)
    return rest, min(mean, paces[few] / usual), mean, max(mean, paces[-1 - few] / usual)
