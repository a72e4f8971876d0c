"""Declaration of a resource: how it is read, and which figures of it each signal has.

A probe's file ends with its :class:`Resource`; `otel_quant/capture/probes/registry.py` lists them all.
Attributes of spans and log records, metrics, columns of the local file and the documentation are
made from that list, so a new resource needs no other change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Number: TypeAlias = int | float

Part: TypeAlias = Literal["start", "end", "delta", "peak", "rate"]
"""Part of a figure on a step: its value at the step's start and at its end, the difference, the
highest value in between, and the difference per second."""

Instrument: TypeAlias = Literal[
    "histogram", "counter", "gauge", "observable_gauge", "observable_counter"
]
"""No up-down counter: it has a time at which it began, and Prometheus with
``created-timestamp-zero-ingestion`` writes a value of 0 there, which nobody measured."""

Probe: TypeAlias = Callable[[Collection[int]], Any]
"""Reads a resource, given the process ids of this process's descendants, parents first. Returns
a record from which the figures are taken; None or an empty tuple if the resource cannot be
measured. May raise. If it has a method ``sample``, that is called between checkpoints instead."""

LEVEL: tuple[Part, ...] = ("start", "end", "delta", "peak")
"""The parts of a figure that rises and falls."""

TOTAL: tuple[Part, ...] = ("delta",)
"""The part of a figure that only rises: the amount that the step has added."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric."""

    name: str  # Name of the instrument
    instrument: Instrument  # Kind of instrument
    unit: str  # UCUM unit
    brief: str  # Description of the metric
    # Keys of the points' attributes. A resource leaves them out: they follow from the labels of
    # the series that show its figures.
    attributes: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()  # Explicit bucket boundaries in ``unit``, for histograms


@dataclass(frozen=True, slots=True)
class Series:
    """A metric that shows a figure."""

    metric: Metric  # The metric. Several figures may share one if their ``labels`` differ.
    part: Part = "delta"  # The part of the figure that a step's metric records
    labels: Mapping[str, str] = field(default_factory=dict)  # Attributes of the points, by key


@dataclass(frozen=True, slots=True)
class Column:
    """The key of a figure in the local file."""

    key: str  # The key at each checkpoint, for example ``network_received_mb``
    definition: str = ""  # What it is and in which unit, for the comment at the end of the file
    scale: int = 1 << 20  # Divisor of the figure: bytes are shown in MiB
    # Whether Quark's own profile has the key. If so, the class of that name in
    # :mod:`otel_quant.export.quark_yaml.metrics` writes it, also in strict mode. Strict mode leaves all
    # other columns out.
    in_quark: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a resource."""

    # Stem of its attributes on spans: ``memory`` gives ``quant.memory.start``, ``.end``,
    # ``.delta``, ``.peak`` and the rate ``quant.memory_rate``. A figure with one part only, or of
    # which the difference is what counts, has an attribute of its own name: ``disk.read`` is
    # ``quant.disk.read``.
    name: str
    unit: str  # UCUM unit
    brief: str  # Description without a full stop: "RSS of the process tree"
    # Takes the number from the probe's record; None if the record lacks it
    of: Callable[[Any], Number | None]
    parts: tuple[Part, ...]  # The parts that spans have; empty for a figure that spans do not have
    example: str  # An example value
    # Attribute of checkpoint records, below ``quant.checkpoint.``; empty for none. For a figure
    # that only rises, it is the amount since the run began.
    checkpoint: str = ""
    steps: tuple[Series, ...] = ()  # Metrics that are recorded when a step ends
    live: Series | None = None  # Metric that shows the figure during a run
    column: Column | None = None  # Column of the local file; None for none
    # Whether it only rises, so that only its differences have a meaning
    is_total: bool = field(init=False)

    def __post_init__(self) -> None:
        for series in self.steps:
            if series.part not in self.parts:
                raise ValueError(
                    f"figure {self.name!r}: metric {series.metric.name!r} shows the part "
                    f"{series.part!r}; expected one of {', '.join(self.parts) or 'none'}: add it "
                    "to the figure's parts"
                )
        object.__setattr__(self, "is_total", "end" not in self.parts and "delta" in self.parts)

    def value(self, record: Any) -> Number | None:
        """Returns the figure of a probe's record; None if it was not measured."""
        return None if record is None else self.of(record)

    def between(
        self, first: Any, last: Any, peak: Number | None, seconds: float
    ) -> dict[Part, Number | None]:
        """Returns the parts of the figure between two readings; None for an unknown part."""
        before = None if first is None else self.of(first)
        after = None if last is None else self.of(last)
        delta = None if before is None or after is None else after - before
        if self.parts == TOTAL:
            return {"delta": delta}
        rate = None if delta is None or seconds <= 0 else delta / seconds
        return {"start": before, "end": after, "delta": delta, "peak": peak, "rate": rate}

    def since(self, first: Any, record: Any) -> Number | None:
        """Returns the figure; if it only rises, the amount since the run began."""
        value = self.value(record)
        if value is None or not self.is_total:
            return value
        before = self.value(first)
        return None if before is None else value - before


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource."""

    name: str  # Its name in readings, for example ``disk``
    probe: Callable[[], Probe]  # Makes the probe of a run
    figures: tuple[Figure, ...]  # Its figures
    # The figures of each device, if the probe returns a tuple of devices with an ``index``, an
    # ``id`` and a ``name``. They are on no span, because a host may have many devices and a span
    # keeps a limited number of attributes. They are on metrics by ``hw.id``, and on one log
    # record for each device and step: ``memory`` gives ``quant.gpu.device.memory.start``.
    device_figures: tuple[Figure, ...] = ()
    is_sampled: bool = False  # Whether it is also read between checkpoints, for peaks
    # Whether its probe reads ``/proc``. One thread at a time reads such probes, so that the disk
    # probe can subtract the bytes that we have read there.
    reads_proc: bool = True

    def devices(self, first: Any, last: Any) -> Iterator[tuple[Any, Any]]:
        """Yields each device's records at two readings, in order of their index."""
        if not first and not last:
            return
        before, after = ({device.index: device for device in each or ()} for each in (first, last))
        for index in sorted(before.keys() | after.keys()):
            yield before.get(index), after.get(index)
