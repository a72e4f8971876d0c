"""Attributes of steps, runs, checkpoints and models. Steps and runs use the same keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from otel_quant.records import (
    AttributeValue,
    CostedModel,
    Peaks,
    Reading,
    RunInfo,
    StepInfo,
)
from otel_quant.resources import Figure, Number, Resource
from otel_quant.telemetry import semconv
from otel_quant.telemetry.catalog import attribute_name

_DIGITS = 6
"""Number of decimals of seconds and other fractions."""


def identity_of(step: StepInfo) -> dict[str, AttributeValue]:
    """Returns the attributes that identify a step."""
    return _present(
        {
            semconv.STEP_NAME: step.label,
            semconv.STEP_KIND: step.kind,
            semconv.STEP_INDEX: step.index,
            semconv.LIBRARY_NAME: step.library,
            semconv.LIBRARY_VERSION: step.library_version,
            semconv.CODE_FUNCTION_NAME: step.function,
        }
    )


def run_identity_of(run: RunInfo) -> dict[str, AttributeValue]:
    """Returns the attributes that identify a run, and its limits."""
    return _present(
        {
            semconv.RUN_ID: run.id,
            semconv.RUN_RANK: run.rank,
            semconv.RUN_WORLD_SIZE: run.world_size,
            semconv.PROCESS_PID: run.pid,
            semconv.MEMORY_LIMIT: run.limits.memory,
            semconv.MEMORY_LIMIT_SOURCE: run.limits.memory_source,
        }
    )


def gpus_of(reading: Reading) -> dict[str, AttributeValue]:
    """Returns the attributes that describe the visible GPUs; none if there are none."""
    if not reading.gpus:
        return {}
    limits = [gpu.limit for gpu in reading.gpus]
    attributes: dict[str, AttributeValue | None] = {
        semconv.GPU_COUNT: len(reading.gpus),
        semconv.GPU_MEMORY_LIMIT: None if None in limits else sum(filter(None, limits)),
    }
    for gpu in reading.gpus:
        prefix = f"{semconv.GPU_DEVICE_PREFIX}{gpu.index}."
        attributes[prefix + "id"] = gpu.id
        attributes[prefix + "name"] = gpu.name
        attributes[prefix + "memory.limit"] = gpu.limit
    return _present(attributes)


def usage_of(
    resources: Sequence[Resource],
    start: Reading,
    end: Reading,
    peaks: Peaks,
    memory_limit: int | None,
) -> dict[str, AttributeValue]:
    """Returns the figures of a step or a run as attributes.

    Args:
        resources: The resources that are measured.
        start: Reading at the start.
        end: Reading at the end.
        peaks: Highest figures between the two.
        memory_limit: Bytes that the process may use.

    Returns:
        Attributes; what could not be measured is absent.
    """
    seconds = (end.clock_ns - start.clock_ns) / 1e9
    found: dict[str, AttributeValue] = {}
    for resource in resources:
        first, last = (reading.resources.get(resource.name) for reading in (start, end))
        for figure in resource.figures:
            peak = peaks.figures.get(figure.name)
            _add(found, semconv.PREFIX, figure, (first, last), peak, seconds)
        if resource.device_figures:
            before = {device.index: device for device in first or ()}
            after = {device.index: device for device in last or ()}
            highest = peaks.devices.get(resource.name, {})
            for index in sorted(before.keys() | after.keys()):
                stem = f"{semconv.PREFIX}{resource.name}.{index}."
                devices = before.get(index), after.get(index)
                for figure in resource.device_figures:
                    peak = highest.get(index, {}).get(figure.name)
                    _add(found, stem, figure, devices, peak, seconds)
    for name, source in peaks.sources.items():
        found[f"{semconv.PREFIX}{name}.peak_source"] = source
    memory = peaks.figures.get("memory")
    if memory is not None and memory_limit:
        found[semconv.MEMORY_PEAK_RATIO] = round(memory / memory_limit, _DIGITS)
    return found


def checkpoint_of(
    resources: Sequence[Resource], reading: Reading, baseline: Reading
) -> dict[str, AttributeValue]:
    """Returns the figures of a checkpoint; totals are counted from the run's beginning."""
    return {
        semconv.CHECKPOINT_PREFIX + figure.checkpoint: value
        for resource in resources
        for figure in resource.figures
        if figure.checkpoint
        if (
            value := figure.since(
                baseline.resources.get(resource.name), reading.resources.get(resource.name)
            )
        )
        is not None
    }


def cost_of(cost: CostedModel) -> dict[str, AttributeValue]:
    """Returns the totals of a costed model."""
    return {f"quant.model.{cost.role}.{name}": value for name, value in cost.figures.items()}


def cost_identity_of(cost: CostedModel) -> dict[str, AttributeValue]:
    """Returns the attributes that identify a model."""
    return _present({semconv.MODEL_ROLE: cost.role, semconv.MODEL_PATH: cost.path})


def custom_of(values: Mapping[str, object]) -> dict[str, AttributeValue]:
    """Returns the values of custom metrics that an attribute can hold."""
    return {
        semconv.CUSTOM_PREFIX + name: value
        for name, value in values.items()
        if isinstance(value, str | bool | int | float)
    }


def _add(
    found: dict[str, AttributeValue],
    stem: str,
    figure: Figure,
    records: tuple[Any, Any],
    peak: Number | None,
    seconds: float,
) -> None:
    if not figure.parts:
        return
    parts = figure.between(*records, peak, seconds)
    for part in figure.parts:
        value = parts[part]
        if value is not None:
            name = attribute_name(stem, figure, part)
            found[name] = round(value, _DIGITS) if isinstance(value, float) else value


def _present(attributes: Mapping[str, Any]) -> dict[str, AttributeValue]:
    return dict(_items_present(attributes))


def _items_present(attributes: Mapping[str, Any]) -> Iterator[tuple[str, AttributeValue]]:
    return ((key, value) for key, value in attributes.items() if value is not None)
