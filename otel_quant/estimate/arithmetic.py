"""Adds up what a calibration method holds of a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from otel_quant.estimate.methods import Method
from otel_quant.estimate.model import EstimatedModel
from otel_quant.estimate.results import Estimate, Figure
from otel_quant.schema.units import counted, size

_PROBED_BELOW: Final = 0.1
_PROBED_ABOVE: Final = 0.1
"""Shares by which a peak may lie below or above one that was extrapolated from a real run."""


def estimate(model: EstimatedModel, method: Method, samples: int) -> Estimate:
    """Estimates what a quantization needs."""
    library = method.library
    sizes = [
        tensor.bytes
        for tensor in model.activations
        if tensor.bytes is not None and tensor.calibrated(library.quantized, library.removed)
    ]
    return _bounded(
        Estimate(
            library.name,
            method.name,
            samples,
            tuple(figure for figure in _memory(model, method, samples, sizes) if figure.bytes),
            tuple(figure for figure in _disk(model, method, sizes) if figure.bytes),
            lowest=0,
            highest=0,
        ),
        method.below,
        None if model.unsized else method.above,
    )


def _memory(
    model: EstimatedModel, method: Method, samples: int, sizes: Sequence[int]
) -> Iterator[Figure]:
    """Yields the parts of the memory; ``sizes`` are those of the calibrated tensors, in bytes."""
    library, weights = method.library, model.weight_bytes
    kept = samples if method.kept is None else min(method.kept, samples)
    calibrated, largest = sum(sizes), max(sizes, default=0)
    tensors = counted(len(sizes), "calibrated tensor")
    yield Figure("libraries", library.base, f"assumed: as measured with {library.versions}")
    yield Figure(
        "model copies",
        library.model_copies * weights,
        f"{library.model_copies} x {size(weights)} of weights: {library.copies_are}",
    )
    yield Figure(
        "session",
        model.cost.peak_activation_bytes,
        "largest sum of activations that one run holds at once",
    )
    yield Figure(
        "activations kept",
        kept * calibrated,
        f"{counted(kept, 'sample')} x {size(calibrated)} of {tensors}",
    )
    yield Figure(
        "values of one tensor",
        method.tensor_copies * kept * largest,
        f"{method.tensor_copies} copies x {counted(kept, 'sample')} x {size(largest)} of the "
        "largest calibrated tensor",
    )
    yield Figure(
        "histograms",
        method.bins * method.bin_bytes * len(sizes),
        f"{tensors} x {method.bins:,} bins x {method.bin_bytes} B",
    )
    yield Figure(
        "inputs kept",
        samples * model.input_bytes if library.keeps_inputs else 0,
        f"{counted(samples, 'sample')} x {size(model.input_bytes)} of inputs",
    )


def _disk(model: EstimatedModel, method: Method, sizes: Sequence[int]) -> Iterator[Figure]:
    """Yields the parts of the disk space; ``sizes`` as for the memory."""
    library, weights, calibrated = method.library, model.weight_bytes, sum(sizes)
    tensors = counted(len(sizes), "calibrated tensor")
    yield Figure(
        "model files",
        library.disk_copies * weights,
        f"{library.disk_copies} x {size(weights)} of weights: {library.disk_copies_are}",
    )
    yield max(
        Figure(
            "activation cache",
            method.disk_samples * calibrated,
            f"{counted(method.disk_samples, 'sample')} x {size(calibrated)} of {tensors}",
        ),
        Figure(
            "model being prepared",
            library.preparing_copies * weights,
            f"{library.preparing_copies} x {size(weights)} of weights, before the calibration",
        ),
        key=lambda figure: figure.bytes,
    )


def extrapolated(wanted: Estimate, probed: Estimate, measured: int) -> Estimate:
    """Extrapolates from a real run with few samples."""
    further = wanted.samples - probed.samples
    memory = [
        Figure(
            "real run", measured, f"measured: peak of a run of {counted(probed.samples, 'sample')}"
        ),
        Figure(
            "further samples",
            wanted.peak - probed.peak,
            f"what the arithmetic adds for {counted(further, 'more sample')}",
        ),
    ]
    found = replace(
        wanted,
        memory=tuple(figure for figure in memory if figure.bytes),
        probed=probed.samples,
    )
    return _bounded(found, _PROBED_BELOW, None if wanted.highest is None else _PROBED_ABOVE)


def _bounded(found: Estimate, below: float, above: float | None) -> Estimate:
    peak = found.peak
    return replace(
        found,
        lowest=round(peak * (1 - below)),
        highest=None if above is None else round(peak * (1 + above)),
    )
