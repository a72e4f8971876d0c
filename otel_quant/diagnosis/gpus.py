"""What a step's GPUs have done, and whether its thread was where a program waits for them or copies to them.

A thread that waits for a GPU runs on a processor all the time: CUDA asks the device again and again.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from otel_quant.diagnosis.growth import Growth
from otel_quant.schema.readings import GpuReading, GpuWork
from otel_quant.schema.units import counted

WAIT: Final = "wait"
COPY: Final = "copy"
EITHER: Final = "either"
"""Kinds of calls: one that waits for what the GPU computes, one that copies, and one that does both."""

_COMPUTES, _IS_FULL = 0.8, 0.9
_MOST: Final = 0.5
_WAITED: Final = 0.4
_SMALL: Final = 0.2
"""Share of multiprocessors and of the memory's bandwidth that small kernels use at most."""

_LAUNCHES: Final = 0.1
"""Share of the time in which kernels run at least that Python starts one after the other: on an H200 they take a fifth."""

_COPIES: Final = 0.4e9
"""Bytes a second that are copied at least: to start kernels takes up to 0.18 GB a second of the link."""

_TALKS: Final = 30e6
_TOUCHED: Final = 0.05
"""Bytes a second over the link, or share of the time with kernels, of a GPU that the program does ask for something."""

_IDLE: Final = 0.05


_NO_WORK: Final = GpuWork(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
_UNKNOWN: Final = GpuWork()


@dataclass(slots=True)
class _Device:
    """What samples show of one GPU in a step."""

    limit: float = math.nan  # Bytes
    growth: Growth = field(default_factory=Growth)  # The program's memory, by calibration samples
    sums: GpuWork = _NO_WORK
    count: int = 0  # How many readings were added up
    is_own: bool = False  # Whether the program has memory on it
    is_shared: bool = False  # Whether others may have some

    @property
    def mean(self) -> GpuWork:
        return GpuWork(*(each / self.count for each in self.sums)) if self.count else _UNKNOWN


class GpuEvidence(NamedTuple):
    """What is known of a step's GPUs: of the busiest one that the program has memory on. NaN for what is not known."""

    work: GpuWork = _UNKNOWN
    is_shared: bool = True
    waits: float = 0.0  # Shares of the time at calls of each kind
    copies: float = 0.0
    either: float = 0.0
    others: str = ""  # That all other GPUs did nothing, for a sentence
    per_sample: float = math.nan  # Bytes by which memory on one grows with each sample, if it does
    limit: float = math.nan  # Bytes of memory that this one has

    @property
    def is_asked(self) -> bool:
        """Whether the program asks it for something: what its thread calls has to do with it."""
        return self.work.busy >= _TOUCHED or self.work.pcie >= _TALKS

    @property
    def at_calls(self) -> float:
        """Share of the time in which the thread waited for it or copied, on a processor or not."""
        return self.waits + self.copies + self.either if self.is_asked else 0.0

    @property
    def computes(self) -> bool:
        """Whether it computes, and the thread waits for it, or could not be faster."""
        work = self.work
        has_power = math.isnan(work.sm) and work.power >= _MOST
        is_busy = work.busy >= _COMPUTES and (work.sm >= _MOST or work.dram >= _MOST or has_power)
        is_full = work.busy >= _IS_FULL and not has_power and not self.is_shared
        return is_busy and (self.at_calls >= _WAITED or is_full)

    @property
    def is_copied_to(self) -> bool:
        """Whether copies take most of the time, or half of what the link can take."""
        work, copies = self.work, self.copies + self.either
        takes_time = copies >= _MOST and work.pcie >= _COPIES and work.busy < _MOST
        return takes_time or (self.at_calls >= _MOST and work.pcie >= _MOST * work.link)

    @property
    def is_launched_on(self) -> bool:
        """Whether it runs small kernels, while the thread neither waits nor copies."""
        work = self.work
        is_small = work.sm < _SMALL and work.dram < _SMALL
        return (
            is_small and work.busy >= _LAUNCHES and self.at_calls < _WAITED and not self.is_shared
        )

    @property
    def is_fetched_from(self) -> bool:
        """Whether the thread waits for it, and it computes for less than half of that time."""
        waits = self.waits + (self.either if self.work.pcie < _COPIES else 0.0)
        is_short = self.work.busy < _MOST and self.work.busy <= _MOST * waits
        return waits >= _WAITED and is_short and self.is_asked

    @property
    def text(self) -> str:
        """What it did, in words."""
        work = self.work
        parts = ((work.sm, "its multiprocessors {:.0f} %"), (work.dram, "its memory {:.0f} %"))
        known = [form.format(100 * share) for share, form in parts if not math.isnan(share)]
        if math.isnan(work.sm) and not math.isnan(work.power):
            known.append(f"at {100 * work.power:.0f} % of its power")
        beside = f" ({', '.join(known)})" if known else ""
        return f"the GPU computed {100 * work.busy:.0f} % of the time{beside}{self.others}"


class GpusOfStep:
    """What samples show of the GPUs in a step."""

    def __init__(self) -> None:
        self._devices: dict[int, _Device] = {}
        self._calls: Counter[str] = Counter()  # Nanoseconds, by kind of call

    def add(self, gpus: Sequence[GpuReading], samples: int | None) -> None:
        """Adds a reading, and how many calibration samples the step has begun."""
        for gpu in gpus:
            device = self._devices.setdefault(gpu.index, _Device())
            device.is_own |= bool(gpu.own)
            device.is_shared |= gpu.is_shared
            device.limit = gpu.limit or math.nan
            if samples and gpu.own:
                device.growth.add(samples, gpu.own)
            if gpu.work is not None:
                device.count += 1
                device.sums = GpuWork(*map(operator.add, device.sums, gpu.work))

    def add_call(self, kind: str, nanoseconds: int) -> None:
        """Adds time at calls of a kind."""
        self._calls[kind] += nanoseconds

    def evidence(self, nanoseconds: int) -> GpuEvidence:
        """Returns what they show, of so much time of the step's thread."""
        known = [each for each in self._devices.values() if each.count]
        busiest = max((each for each in known if each.is_own), key=_busy, default=None)
        if busiest is None:
            return GpuEvidence()
        others = [each for each in known if each is not busiest]
        is_alone = bool(others) and busiest.mean.busy > _SMALL
        is_alone = is_alone and all(each.mean.busy <= _IDLE for each in others)
        waits, copies, either = (self._calls[kind] / nanoseconds for kind in (WAIT, COPY, EITHER))
        found = GpuEvidence(busiest.mean, busiest.is_shared, waits, copies, either)
        if is_alone:
            were = "was" if len(others) == 1 else "were"
            found = found._replace(others=f", {counted(len(others), 'other GPU')} {were} idle")
        for each in known:
            line = each.growth.line() if each.is_own else None
            if line is not None and not line.per_sample <= found.per_sample:
                found = found._replace(per_sample=line.per_sample, limit=each.limit)
        return found


def _busy(device: _Device) -> float:
    return device.mean.busy
