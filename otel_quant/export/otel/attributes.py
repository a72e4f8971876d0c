"""Attributes of steps, runs, checkpoints and models. Steps and runs use the same keys."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from numbers import Integral, Real
from operator import is_
from typing import Any, Final, TypeAlias

from otel_quant.base.log import LOG
from otel_quant.schema import semconv
from otel_quant.schema.figures import Figure, Number, Part, Resource
from otel_quant.schema.records import (
    AttributeValue,
    CostedModel,
    Peaks,
    Reading,
    RunInfo,
    StepInfo,
    StepRecord,
)
from otel_quant.version import VERSION

_Row: TypeAlias = tuple[Figure, tuple[tuple[Part, str], ...]]
"""A figure, and the attribute of each of its parts."""

_DIGITS: Final = 6
"""Decimals that are kept of seconds and of other fractions."""

MOST_OF_STEP: Final = 64
"""Attributes of a step, the program's and the library's together, that its span shows."""

MOST_CUSTOM: Final = 32
"""Custom metrics that a span or a checkpoint record shows. With the step's attributes and all of
ours they stay below the 128 that the SDK keeps by default; it drops those that were set first,
which are the ones that identify the span."""


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


def run_ids_of(run: RunInfo) -> dict[str, AttributeValue]:
    """Returns what every span and log record of a run has."""
    return _present(
        {semconv.RUN_ID: run.id, semconv.RUN_NAME: run.name or None, semconv.RUN_RANK: run.rank}
    )


def run_identity_of(run: RunInfo) -> dict[str, AttributeValue]:
    """Returns the attributes that identify a run, and its limits."""
    return _present(
        {
            **run_ids_of(run),
            semconv.RUN_WORLD_SIZE: run.world_size,
            semconv.PROCESS_PID: run.pid,
            semconv.MEMORY_LIMIT: run.limits.memory,
            semconv.MEMORY_LIMIT_SOURCE: run.limits.memory_source,
        }
    )


_OF_CI: Final = {
    "pipeline": semconv.CI_PIPELINE,
    "run": semconv.CI_RUN,
    "run_url": semconv.CI_RUN_URL,
    "task": semconv.CI_TASK,
    "task_run": semconv.CI_TASK_RUN,
    "worker": semconv.CI_WORKER,
    "revision": semconv.VCS_REVISION,
    "ref": semconv.VCS_REF,
    "change": semconv.VCS_CHANGE,
    "repository": semconv.VCS_REPOSITORY,
}
"""The names of what :mod:`otel_quant.capture.recorder.origin` reads."""


def origin_of(run: RunInfo, first: Reading) -> dict[str, AttributeValue]:
    """Returns the attributes that say what made a run."""
    origin = run.origin
    if origin is None:
        return {}
    ci = {_OF_CI[field]: value for field, value in origin.ci.items()}
    return _present(
        {
            **ci,
            semconv.PROCESS_COMMAND_LINE: origin.command or None,
            semconv.PYTHON_VERSION: origin.python,
            semconv.HOST_NAME: origin.host,
            semconv.OS_DESCRIPTION: origin.system,
            semconv.CPU_MODEL: origin.cpu_model,
            semconv.CPU_COUNT: origin.cpu_count,
            semconv.CPU_LIMIT: origin.cpu_limit,
            semconv.ADDRESS_SPACE_LIMIT: origin.address_space_limit,
            semconv.FILE_SIZE_LIMIT: origin.file_size_limit,
            semconv.OTEL_QUANT_VERSION: VERSION,
            semconv.GPU_NAMES: tuple(gpu.name for gpu in first.gpus if gpu.name) or None,
            semconv.GPU_DRIVERS: origin.gpu_drivers or None,
            semconv.VCS_REVISION: origin.revision or ci.get(semconv.VCS_REVISION),
            semconv.VCS_REF: origin.ref or ci.get(semconv.VCS_REF),
            semconv.LIBRARIES: origin.libraries or None,
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
    return _present(attributes)


class FigureAttributes:
    """The figures of resources as attributes. Their names are made once: they are many.

    The latest result is kept, because several sinks ask for the figures of the same step.
    """

    def __init__(self, resources: Sequence[Resource]) -> None:
        self._rows = tuple(
            (resource.name, _rows(semconv.PREFIX, resource.figures)) for resource in resources
        )
        self._devices = tuple(
            (resource, stem, _rows(stem, resource.device_figures))
            for resource in resources
            if resource.device_figures
            for stem in (resource.device_stem,)
        )
        # Each replaced as a whole: threads may ask at the same time.
        self._latest: tuple[tuple[object, ...], dict[str, AttributeValue]] = (), {}
        self._latest_checkpoint: tuple[tuple[object, ...], dict[str, AttributeValue]] = (), {}
        self._of_checkpoints = _on_records(resources, semconv.CHECKPOINT_PREFIX)
        self._of_readings = _on_records(
            [resource for resource in resources if resource.is_sampled], semconv.READING_PREFIX
        )

    def between(
        self, start: Reading, end: Reading, peaks: Peaks, memory_limit: int | None
    ) -> dict[str, AttributeValue]:
        """Returns what was used between two readings."""
        asked = start, end, peaks, memory_limit
        known, latest = self._latest
        if _are_same(known, asked):
            return latest
        found = self._between(*asked)
        self._latest = asked, found
        return found

    def _between(
        self, start: Reading, end: Reading, peaks: Peaks, memory_limit: int | None
    ) -> dict[str, AttributeValue]:
        seconds = (end.clock_ns - start.clock_ns) / 1e9
        found: dict[str, AttributeValue] = {}
        for name, rows in self._rows:
            first, last = start.resources.get(name), end.resources.get(name)
            _add(found, rows, first, last, peaks.figures, seconds)
        for name, source in peaks.sources.items():
            found[f"{semconv.PREFIX}{name}.peak_source"] = source
        memory = peaks.figures.get("memory")
        if memory is not None and memory_limit:
            found[semconv.MEMORY_PEAK_RATIO] = round(memory / memory_limit, _DIGITS)
        return found

    def of_devices(
        self, start: Reading, end: Reading, peaks: Peaks
    ) -> Iterator[dict[str, AttributeValue]]:
        """Yields what was used of each device between two readings."""
        seconds = (end.clock_ns - start.clock_ns) / 1e9
        for resource, stem, rows in self._devices:
            first, last = start.resources.get(resource.name), end.resources.get(resource.name)
            for before, after in resource.devices(first, last):
                device = after or before
                found = _present(
                    {
                        semconv.HW_ID: device.id,
                        semconv.HW_NAME: device.name,
                        stem + semconv.DEVICE_INDEX: device.index,
                    }
                )
                highest = peaks.devices.get(resource.name, {}).get(device.index, {})
                _add(found, rows, before, after, highest, seconds)
                yield found

    def at_checkpoint(self, reading: Reading, baseline: Reading) -> dict[str, AttributeValue]:
        """Returns what was in use at a checkpoint, and what had been used since the run began."""
        asked = reading, baseline
        known, latest = self._latest_checkpoint
        if _are_same(known, asked):
            return latest
        found = _since(baseline, reading, self._of_checkpoints)
        self._latest_checkpoint = asked, found
        return found

    def at_reading(self, reading: Reading, baseline: Reading) -> dict[str, AttributeValue]:
        """Returns what was in use at a reading between checkpoints."""
        return _since(baseline, reading, self._of_readings)


def _are_same(some: tuple[object, ...], others: tuple[object, ...]) -> bool:
    """Whether both hold the very same objects: to compare their contents would take longer."""
    return len(some) == len(others) and all(map(is_, some, others))


def progress_of(record: StepRecord) -> dict[str, AttributeValue]:
    """Returns the samples that a step has consumed; none if it counted none."""
    if not record.samples:
        return {}
    progress: dict[str, AttributeValue] = {semconv.CALIBRATION_SAMPLE_COUNT: record.samples}
    if record.items is not None:
        progress[semconv.CALIBRATION_ITEM_COUNT] = record.items
    if record.duration > 0:
        progress[semconv.CALIBRATION_SAMPLE_RATE] = round(record.samples / record.duration, 3)
    return progress


def cost_of(cost: CostedModel) -> dict[str, AttributeValue]:
    """Returns the totals of a costed model."""
    return {f"quant.model.{cost.role}.{name}": value for name, value in cost.figures.items()}


def cost_identity_of(cost: CostedModel) -> dict[str, AttributeValue]:
    """Returns the attributes that identify a model."""
    return _present({semconv.MODEL_ROLE: cost.role, semconv.MODEL_PATH: cost.path})


def custom_of(values: Mapping[str, object]) -> Mapping[str, AttributeValue]:
    """Returns the values of custom metrics that an attribute can hold, as many as are shown."""
    found = _present(
        {
            semconv.CUSTOM_PREFIX + _encodable(name): custom_value(value)
            for name, value in values.items()
        }
    )
    return _first(found, MOST_CUSTOM, "custom metrics")


def custom_value(value: object) -> str | bool | int | float | None:
    """Returns what OpenTelemetry can send of the value of a custom metric; None for nothing.

    An integer of more than 64 bits would make an exporter fail with all that is sent with it.
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


def shown_of(attributes: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
    """Returns the attributes of a step, as many as its span shows."""
    return _first(attributes, MOST_OF_STEP, "attributes of a step")


def _first(
    attributes: Mapping[str, AttributeValue], most: int, what: str
) -> Mapping[str, AttributeValue]:
    if len(attributes) <= most:
        return attributes
    _say_that_some_are_left_out(what, most)
    return dict(islice(attributes.items(), most))


@functools.cache  # says it once
def _say_that_some_are_left_out(what: str, most: int) -> None:
    LOG.warning(
        "only the first %d %s are on spans and log records; set fewer to choose them", most, what
    )


def _on_records(resources: Sequence[Resource], prefix: str) -> tuple[tuple[str, str, Figure], ...]:
    return tuple(
        (resource.name, prefix + figure.checkpoint, figure)
        for resource in resources
        for figure in resource.figures
        if figure.checkpoint
    )


def _since(
    baseline: Reading, reading: Reading, figures: tuple[tuple[str, str, Figure], ...]
) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue] = {}
    for resource, name, figure in figures:
        now = reading.resources.get(resource)
        if now is not None:
            value = figure.since(baseline.resources.get(resource), now)
            if value is not None:
                found[name] = value
    return found


def _rows(stem: str, figures: Sequence[Figure]) -> tuple[_Row, ...]:
    return tuple(
        (figure, tuple((part, figure.attribute(part, stem)) for part in figure.parts))
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
    unread = first is None and last is None
    for figure, names in rows:
        if unread and figure.name not in peaks:
            continue
        parts = figure.between(first, last, peaks.get(figure.name), seconds)
        for part, name in names:
            value = parts[part]
            if value is not None:
                found[name] = round(value, _DIGITS) if isinstance(value, float) else value


def _present(attributes: Mapping[str, Any]) -> dict[str, AttributeValue]:
    return dict(_items_present(attributes))


def _items_present(attributes: Mapping[str, Any]) -> Iterator[tuple[str, AttributeValue]]:
    return ((key, value) for key, value in attributes.items() if value is not None)
