"""Attributes of events, made of what was measured. Steps and runs use the same keys.

What there may be many of is not on spans: the SDK keeps 128 attributes of a span and drops those that
were set first, which identify it. Figures by device are on metrics and on a log record for each device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, Final, TypeAlias

from otel_quant.base.log import warn_once
from otel_quant.diagnosis.growth import median
from otel_quant.schema import semconv
from otel_quant.schema.events import present, run_ids_of
from otel_quant.schema.figures import (
    GPU_MEMORY,
    TOTAL,
    TREE_GPU_MEMORY,
    TREE_MEMORY,
    Figure,
    Number,
    Part,
    Resource,
)
from otel_quant.schema.readings import (
    UNITS,
    AttributeValue,
    Counts,
    GrowthForecast,
    LayerAccuracy,
    Peaks,
    Reading,
    RunInfo,
    StepProgress,
    worst_first,
)

_Of: TypeAlias = Callable[[Any], Number | None]  # Takes a figure from a probe's record
_Totals: TypeAlias = tuple[tuple[str, _Of], ...]
_Levels: TypeAlias = tuple[tuple[str, _Of, tuple[tuple[Part, str], ...]], ...]
"""Of figures that only rise, the attribute of their difference. Of others, their name and the attribute of
each of their parts."""

_OnRecords: TypeAlias = tuple[tuple[str, _Totals, _Totals], ...]
"""By resource: attributes of log records that show a level, and those that show what has been added."""

_DIGITS: Final = 6  # Decimals that are kept of seconds and of other fractions

MOST_OF_STEP: Final = 64
"""Attributes of a step, the program's and the library's together, that are kept. With the 32 metrics
of the program that a span shows and all of ours they stay below the 128 that the SDK keeps by default;
it drops those that were set first."""

_PEAK_SOURCES: Final = {
    TREE_MEMORY.name: semconv.MEMORY_PEAK_SOURCE,
    TREE_GPU_MEMORY.name: semconv.GPU_TREE_PEAK_SOURCE,
}

_FORECASTS: Final = {
    "memory": (semconv.FORECAST_MEMORY, semconv.FORECAST_MEMORY_LIMIT),
    "gpu": (semconv.FORECAST_GPU_MEMORY, semconv.FORECAST_GPU_MEMORY_LIMIT),
}


def run_identity_of(run: RunInfo) -> dict[str, AttributeValue]:
    """Returns the attributes that identify a run, and its limits."""
    return present(
        {
            **run_ids_of(run),
            semconv.RUN_WORLD_SIZE: run.world_size,
            semconv.PROCESS_PID: run.pid,
            semconv.MEMORY_LIMIT: run.limits.memory,
            semconv.MEMORY_LIMIT_SOURCE: run.limits.memory_source,
        }
    )


def origin_of(run: RunInfo, first: Reading) -> dict[str, AttributeValue]:
    """Returns the attributes that describe what made a run."""
    names = tuple(gpu.name for gpu in first.gpus if gpu.name)
    return {**run.origin, **({semconv.GPU_NAMES: names} if run.origin and names else {})}


def gpus_of(reading: Reading) -> dict[str, AttributeValue]:
    """Returns the attributes that describe the visible GPUs; none if there are none."""
    if not reading.gpus:
        return {}
    limits = [gpu.limit for gpu in reading.gpus]
    limit = None if None in limits else sum(filter(None, limits))
    known = {
        semconv.GPU_COUNT: len(reading.gpus),
        semconv.GPU_MEMORY_LIMIT: limit,
        semconv.GPU_MEMORY_SOURCE: reading.gpus[0].source,
    }
    return present(known)


class FigureAttributes:
    """The figures of resources as attributes. Their names are made once: they are many."""

    def __init__(self, resources: Sequence[Resource]) -> None:
        self._rows = tuple(
            (resource.name, _rows(semconv.PREFIX, resource.figures)) for resource in resources
        )
        self._devices = tuple(
            (resource, _rows(resource.device_stem, resource.device_figures))
            for resource in resources
            if resource.device_figures
        )
        self._of_checkpoints = _on_records(resources, semconv.CHECKPOINT_PREFIX)
        sampled = (resource for resource in resources if resource.is_sampled)
        self._of_readings = _on_records(sampled, semconv.READING_PREFIX)

    def between(
        self, start: Reading, end: Reading, peaks: Peaks, memory_limit: int | None
    ) -> dict[str, AttributeValue]:
        """Returns what was used between two readings."""
        before, after, highest = start.resources, end.resources, peaks.figures
        found: dict[str, AttributeValue] = {}
        for name, rows in self._rows:
            _add(found, rows, before.get(name), after.get(name), highest)
        for figure, source in peaks.sources.items():
            found[_PEAK_SOURCES[figure]] = source
        memory = highest.get(TREE_MEMORY.name)
        if memory is not None and memory_limit:
            found[semconv.MEMORY_PEAK_RATIO] = round(memory / memory_limit, _DIGITS)
        return found

    def of_devices(
        self, start: Reading, end: Reading, peaks: Peaks, *, is_short: bool = False
    ) -> Iterator[dict[str, AttributeValue]]:
        """Yields what was used of each device between two readings.

        Nothing of one whose memory has not changed in a short step: what it does is read too seldom.
        """
        for resource, rows in self._devices:
            first, last = start.resources, end.resources
            both = resource.devices(first.get(resource.name, ()), last.get(resource.name, ()))
            for before, after in both:
                device = after or before
                highest = peaks.devices.get(resource.name, {}).get(device.index, {})
                is_same = before is not None and device.has_same_memory(before)
                if is_short and is_same and highest.get(GPU_MEMORY.name) == device.used:
                    continue
                index = resource.device_stem + semconv.DEVICE_INDEX
                found = present({
                    semconv.HW_ID: device.id, semconv.HW_NAME: device.name, index: device.index,
                })  # fmt: skip
                _add(found, rows, before, after, highest)
                yield found

    def at_checkpoint(self, reading: Reading, baseline: Reading) -> dict[str, AttributeValue]:
        """Returns what was in use at a checkpoint, and what had been used since the run began."""
        return _since(baseline, reading, self._of_checkpoints)

    def at_reading(self, reading: Reading, baseline: Reading) -> dict[str, AttributeValue]:
        """Returns what was in use at a reading between checkpoints."""
        return _since(baseline, reading, self._of_readings)


def progress_of(counts: Counts, items: int | None, seconds: float) -> dict[str, AttributeValue]:
    """Returns the samples and layers that a step has begun."""
    samples = counts.samples
    rate = round(samples / seconds, 3) if samples and seconds > 0 else None
    of_samples = {semconv.CALIBRATION_ITEM_COUNT: items, semconv.CALIBRATION_SAMPLE_RATE: rate}
    return present({**counts.attributes(), **of_samples})


def accuracy_of(layers: Sequence[LayerAccuracy], count: int) -> dict[str, AttributeValue]:
    """Returns what the values of the layers of a step come to, of several measures of the first; `count` is of all."""
    own = worst_first([each for each in layers if each.measure == layers[0].measure])
    finite = [each.value for each in own if each.value is not None]
    known: dict[str, Any] = {
        semconv.ACCURACY_MEASURE: own[0].measure,
        semconv.ACCURACY_BETTER: own[0].better,
        semconv.ACCURACY_UNIT: own[0].unit,
        semconv.ACCURACY_COUNT: count,
    }
    if finite:
        known |= {semconv.ACCURACY_MINIMUM: min(finite), semconv.ACCURACY_MEDIAN: median(finite)}
    if own[0].better is not None or own[0].value is None:
        known |= {semconv.ACCURACY_WORST: own[0].value, semconv.ACCURACY_WORST_LAYER: own[0].layer}
    return present(known)


def growth_of(growth: GrowthForecast) -> dict[str, AttributeValue]:
    """Returns where memory that grows will be after the last sample or layer."""
    at_end, limit = _FORECASTS[growth.resource]
    return present(
        {
            at_end: growth.at_end,
            UNITS[growth.unit].growth[growth.resource]: growth.per_unit,
            limit: growth.limit,
            semconv.HW_ID: growth.device,
        }
    )


def open_step_of(step: StepProgress) -> dict[str, AttributeValue]:
    """Returns how far an open step is, and of several growths the one that is nearest its limit."""
    info, forecast = step.info, step.forecast
    found = {
        semconv.STEP_NAME: info.label, semconv.STEP_KIND: info.kind, semconv.STEP_INDEX: info.index,
        semconv.LIBRARY_NAME: info.library, **step.counts.attributes(),
        semconv.FORECAST_TIME_LEFT: forecast.time_left, semconv.FORECAST_STALLED: forecast.stalled,
        semconv.CALIBRATION_FINDINGS: step.findings or None,
    }  # fmt: skip
    for growth in sorted(forecast.growths, key=lambda each: each.at_end / each.limit):
        found |= growth_of(growth)
    return present(found)


def kept_of(attributes: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
    """Returns the attributes that a program and a library give a step, as many as are kept."""
    if len(attributes) <= MOST_OF_STEP:
        return attributes
    kept = f"only the first {MOST_OF_STEP} attributes of a step are kept"
    warn_once(f"{kept}; set fewer to choose them")
    return dict(islice(attributes.items(), MOST_OF_STEP))


def _rows(stem: str, figures: Sequence[Figure]) -> tuple[_Totals, _Levels]:
    totals = tuple((f.attribute("delta", stem), f.of) for f in figures if f.parts == TOTAL)
    levels = tuple(
        (f.name, f.of, tuple((part, f.attribute(part, stem)) for part in f.parts))
        for f in figures
        if f.parts and f.parts != TOTAL
    )
    return totals, levels


def _add(
    found: dict[str, AttributeValue], rows: tuple[_Totals, _Levels], first: Any, last: Any,
    peaks: Mapping[str, Number],
) -> None:  # fmt: skip
    """Adds the parts of figures between two records of a probe. It runs at the end of each step."""
    totals, levels = rows
    _add_totals(found, totals, first, last)
    for name, of, parts in levels:
        before = None if first is None else of(first)
        after = None if last is None else of(last)
        delta = None if before is None or after is None else after - before
        values = {"start": before, "end": after, "delta": delta, "peak": peaks.get(name)}
        for part, attribute in parts:
            if (value := values[part]) is not None:
                found[attribute] = value if type(value) is int else round(value, _DIGITS)


def _add_totals(found: dict[str, AttributeValue], totals: _Totals, first: Any, last: Any) -> None:
    if first is None or last is None:
        return
    for attribute, of in totals:
        before, after = of(first), of(last)
        if before is not None and after is not None:  # an estimate may be corrected downwards
            found[attribute] = round(max(before, after) - before, _DIGITS)  # of their type


def _on_records(resources: Iterable[Resource], prefix: str) -> _OnRecords:
    found = []
    for resource in resources:
        shown: tuple[list[tuple[str, _Of]], ...] = [], []
        for figure in filter(attrgetter("checkpoint"), resource.figures):
            shown[figure.is_total].append((prefix + figure.checkpoint, figure.of))
        if any(shown):
            found.append((resource.name, tuple(shown[False]), tuple(shown[True])))
    return tuple(found)


def _since(baseline: Reading, reading: Reading, rows: _OnRecords) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue] = {}
    for resource, levels, totals in rows:
        if (record := reading.resources.get(resource)) is not None:
            for attribute, of in levels:
                if (value := of(record)) is not None:
                    found[attribute] = value
            _add_totals(found, totals, baseline.resources.get(resource), record)
    return found
