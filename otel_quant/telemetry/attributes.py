"""Attributes of steps, runs, checkpoints and models. Steps and runs use the same keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, Final, TypeAlias

from otel_quant.records import (
    AttributeValue,
    CostedModel,
    Peaks,
    Reading,
    RunInfo,
    StepInfo,
)
from otel_quant.resources import Figure, Number, Part, Resource
from otel_quant.telemetry import semconv
from otel_quant.telemetry.catalog import attribute_name

_Row: TypeAlias = tuple[Figure, tuple[tuple[Part, str], ...]]
"""A figure, and the attribute of each of its parts."""

_DIGITS: Final = 6
"""Decimals that are kept of seconds and of other fractions."""


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


class FigureAttributes:
    """The figures of resources as attributes. Their names are made once: they are many.

    Args:
        resources: What is measured.
    """

    def __init__(self, resources: Sequence[Resource]) -> None:
        self._rows = tuple(
            (resource.name, _rows(semconv.PREFIX, resource.figures)) for resource in resources
        )
        self._with_devices = tuple(resource for resource in resources if resource.device_figures)
        self._of_checkpoints = tuple(
            (resource.name, semconv.CHECKPOINT_PREFIX + figure.checkpoint, figure)
            for resource in resources
            for figure in resource.figures
            if figure.checkpoint
        )

    def between(
        self, start: Reading, end: Reading, peaks: Peaks, memory_limit: int | None
    ) -> dict[str, AttributeValue]:
        """Returns what was used between two readings.

        Args:
            start: Reading at the start.
            end: Reading at the end.
            peaks: Highest figures between the two.
            memory_limit: Bytes that the process may use.

        Returns:
            Attributes; a figure that either reading lacks is absent.
        """
        seconds = (end.clock_ns - start.clock_ns) / 1e9
        found: dict[str, AttributeValue] = {}
        for name, rows in self._rows:
            first, last = start.resources.get(name), end.resources.get(name)
            _add(found, rows, first, last, peaks.figures, seconds)
        for resource in self._with_devices:
            before, after = (
                {device.index: device for device in reading.resources.get(resource.name, ())}
                for reading in (start, end)
            )
            highest = peaks.devices.get(resource.name, {})
            for index in sorted(before.keys() | after.keys()):
                rows = _rows(f"{semconv.PREFIX}{resource.name}.{index}.", resource.device_figures)
                devices = before.get(index), after.get(index)
                _add(found, rows, *devices, highest.get(index, {}), seconds)
        for name, source in peaks.sources.items():
            found[f"{semconv.PREFIX}{name}.peak_source"] = source
        memory = peaks.figures.get("memory")
        if memory is not None and memory_limit:
            found[semconv.MEMORY_PEAK_RATIO] = round(memory / memory_limit, _DIGITS)
        return found

    def at_checkpoint(self, reading: Reading, baseline: Reading) -> dict[str, AttributeValue]:
        """Returns what was in use at a checkpoint, and what had been used since the run began.

        Args:
            reading: The reading at the checkpoint.
            baseline: The run's first.
        """
        found: dict[str, AttributeValue] = {}
        for resource, name, figure in self._of_checkpoints:
            now = reading.resources.get(resource)
            if now is not None:
                value = figure.since(baseline.resources.get(resource), now)
                if value is not None:
                    found[name] = value
        return found


def cost_of(cost: CostedModel) -> dict[str, AttributeValue]:
    """Returns the totals of a costed model."""
    return {f"quant.model.{cost.role}.{name}": value for name, value in cost.figures.items()}


def cost_identity_of(cost: CostedModel) -> dict[str, AttributeValue]:
    """Returns the attributes that identify a model."""
    return _present({semconv.MODEL_ROLE: cost.role, semconv.MODEL_PATH: cost.path})


def custom_of(values: Mapping[str, object]) -> dict[str, AttributeValue]:
    """Returns the values of custom metrics that an attribute can hold."""
    return _present(
        {
            semconv.CUSTOM_PREFIX + _encodable(name): custom_value(value)
            for name, value in values.items()
        }
    )


def custom_value(value: object) -> str | bool | int | float | None:
    """Returns what OpenTelemetry can send of the value of a custom metric; None for nothing.

    An integer of more than 64 bits would make an exporter fail with all that is sent with it.

    Args:
        value: Any object.
    """
    if isinstance(value, str):
        return _encodable(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, Integral) and abs(int(value)) < 1 << 63:
        return int(value)
    if isinstance(value, Real):
        try:
            return float(value)
        except OverflowError:
            return None
    return None


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _rows(stem: str, figures: Sequence[Figure]) -> tuple[_Row, ...]:
    return tuple(
        (figure, tuple((part, attribute_name(stem, figure, part)) for part in figure.parts))
        for figure in figures
        if figure.parts
    )


def _add(
    found: dict[str, AttributeValue],
    rows: tuple[_Row, ...],
    first: Any,
    last: Any,
    peaks: Mapping[str, Number],
    seconds: float,
) -> None:
    for figure, names in rows:
        parts = figure.between(first, last, peaks.get(figure.name), seconds)
        for part, name in names:
            value = parts[part]
            if value is not None:
                found[name] = round(value, _DIGITS) if isinstance(value, float) else value


def _present(attributes: Mapping[str, Any]) -> dict[str, AttributeValue]:
    return dict(_items_present(attributes))


def _items_present(attributes: Mapping[str, Any]) -> Iterator[tuple[str, AttributeValue]]:
    return ((key, value) for key, value in attributes.items() if value is not None)
