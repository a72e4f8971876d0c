"""What a resource declares, once: how it is read, and the figures that every signal shows of it.

A probe's file ends with its :class:`Resource`; `otel_quant/probes/registry.py` lists them.
Attributes of spans and log records, metrics, columns of the local file and the documentation are
made from that list, so nothing else has to be touched for a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Number: TypeAlias = int | float

Part: TypeAlias = Literal["start", "end", "delta", "peak", "rate"]
"""What a step has of a figure: its value when the step began and ended, the difference, the
highest value in between, and the difference for each second."""

Instrument: TypeAlias = Literal[
    "histogram", "counter", "gauge", "observable_gauge", "observable_up_down_counter",
    "observable_counter",
]  # fmt: skip

Probe: TypeAlias = Callable[[Collection[int]], Any]
"""Reads a resource, given the process ids of this process's descendants, parents first. Returns
what the figures are taken from; None or an empty tuple for what cannot be measured. May raise."""

LEVEL: tuple[Part, ...] = ("start", "end", "delta", "peak")
"""The parts of a figure that goes up and down."""

TOTAL: tuple[Part, ...] = ("delta",)
"""The part of a figure that only rises: what the step has added to it."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: Name of the instrument.
        instrument: Kind of instrument.
        unit: UCUM unit.
        brief: What is measured.
        attributes: Keys of the points' attributes. For a metric of steps those that a step has
            of itself (name, library, error) are added.
        buckets: Explicit bucket boundaries in ``unit``, for histograms.
    """

    name: str
    instrument: Instrument
    unit: str
    brief: str
    attributes: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Series:
    """A metric that shows a figure.

    Attributes:
        metric: The metric. Figures may share one, and then differ in ``labels``.
        part: Which part of the figure a step's metric takes.
        labels: Attributes of the points, by key.
    """

    metric: Metric
    part: Part = "delta"
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Column:
    """The key of a figure in the local file.

    Attributes:
        key: As it stands at each checkpoint: ``network_received_mb``.
        definition: What it is, in its unit, for the comment that closes the file.
        scale: What the figure is divided by: bytes are shown in MiB.
        in_quark: Whether Quark's own profile has the key. It is then written by the class of
            :mod:`otel_quant.profile.metrics` that has its name, in strict mode too; any other
            column is left out there.
    """

    key: str
    definition: str = ""
    scale: int = 1 << 20
    in_quark: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """One number that can be taken from what a probe returns.

    Attributes:
        name: Its attributes on spans are named by it: ``memory`` has ``quant.memory.start``,
            ``.end``, ``.delta``, ``.peak`` and a rate ``quant.memory_rate``. What has no part but
            the difference is named by itself: ``disk.read`` is ``quant.disk.read``.
        unit: UCUM unit.
        brief: What it is, without a full stop: "RSS of the process tree".
        of: Takes it from what the probe returned; None if it is not there.
        parts: What spans have of it; none for a figure that spans do not have.
        example: A value as it is seen.
        checkpoint: Attribute of checkpoint records, below ``quant.checkpoint.``; empty for none.
            A figure that only rises is given from the run's beginning on.
        steps: Metrics that are recorded when a step ends.
        live: Metric that shows the figure while a run goes on.
        column: Column of the local file; None for none.
    """

    name: str
    unit: str
    brief: str
    of: Callable[[Any], Number | None]
    parts: tuple[Part, ...]
    example: str
    checkpoint: str = ""
    steps: tuple[Series, ...] = ()
    live: Series | None = None
    column: Column | None = None

    @property
    def is_total(self) -> bool:
        """Whether it only rises, so that only differences of it say anything."""
        return "end" not in self.parts and "delta" in self.parts

    def value(self, record: Any) -> Number | None:
        """Returns the figure of what a probe returned; None if it was not measured.

        Args:
            record: What the probe returned; None or empty where it measured nothing.
        """
        return None if record is None or record == () else self.of(record)

    def between(
        self, first: Any, last: Any, peak: Number | None, seconds: float
    ) -> dict[Part, Number | None]:
        """Returns every part of the figure between two readings; None where it is not known.

        Args:
            first: What the probe returned at the start.
            last: What it returned at the end.
            peak: Highest value in between.
            seconds: Time between the two.
        """
        before, after = self.value(first), self.value(last)
        delta = None if before is None or after is None else after - before
        rate = None if delta is None or seconds <= 0 else delta / seconds
        return {"start": before, "end": after, "delta": delta, "peak": peak, "rate": rate}

    def since(self, first: Any, record: Any) -> Number | None:
        """Returns the figure, from the run's beginning on if it only rises.

        Args:
            first: What the probe returned when the run began.
            record: What it returned now.
        """
        value = self.value(record)
        if value is None or not self.is_total:
            return value
        before = self.value(first)
        return None if before is None else value - before


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource.

    Attributes:
        name: What its readings are called: ``disk``.
        probe: Makes the probe of a run.
        figures: What is shown of it.
        device_figures: What is shown of each of its devices, where a reading is a tuple of
            devices with an ``index`` and an ``id``: ``memory`` is ``quant.gpu.0.memory.start``.
        is_sampled: Whether it is read between checkpoints too, for peaks.
        reads_proc: Whether its probe reads ``/proc``. Such probes take turns, so that the disk
            probe can tell what we have read there from what the program has.
    """

    name: str
    probe: Callable[[], Probe]
    figures: tuple[Figure, ...]
    device_figures: tuple[Figure, ...] = ()
    is_sampled: bool = False
    reads_proc: bool = True
