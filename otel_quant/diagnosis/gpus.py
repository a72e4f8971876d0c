"""What a step's GPUs have done, and whether its thread was where a program waits for them or copies to them.

A thread that waits for a GPU runs on a processor all the time: CUDA asks the device again and again.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from otel_quant.schema.dataclass import dataclass
from otel_quant.schema.readings import GpuReading, GpuWork
from otel_quant.schema.units import counted

WAIT, COPY, EITHER = "wait", "copy", "either"
"""Kinds of calls: one that waits for what the GPU computes, one that copies, and one that does both."""

_COMPUTES, _COUNTED = 0.8, 0.7
"""Utilization of a GPU that computes, and the share of the time that it has counted itself then: its driver rounds up."""

_IS_FULL, _MOST, _WAITED, _FETCHED = 0.9, 0.5, 0.4, 0.3

_FILLED: Final = 0.75
"""Share of its busy time that a GPU uses itself at least of which a part is idle: one with launches of small kernels used 0.68."""

_SMALL: Final = 0.2
"""Share of multiprocessors and of the memory's bandwidth that small kernels use at most."""

_LAUNCHES: Final = 0.1
"""Share of the time in which kernels run at least that Python starts one after the other: on an H200 they take a fifth."""

_COPIES: Final = 0.4e9
"""Bytes a second that are copied at least: to start kernels takes up to 0.18 GB a second of the link."""

_TALKS, _TOUCHED = 30e6, 0.05
"""Bytes a second over the link, or share of the time with kernels, of a GPU that the program does ask for something."""

_UNKNOWN: Final = GpuWork()


class GpuEvidence(NamedTuple):
    """What is known of a step's GPUs: of the busiest one that the program has memory on. NaN for what is not known."""

    work: GpuWork = _UNKNOWN
    is_alone: bool = False  # Whether no other process has memory on it
    waits: float = 0.0  # Shares of the time at calls of each kind
    copies: float = 0.0
    either: float = 0.0
    idle: int = 0  # Other GPUs, if all of them did nothing

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
        """Whether it computes, and the thread waits for it, or it could not compute more."""
        work, is_counted = self.work, not math.isnan(self.work.sm)
        uses = max(work.sm, work.dram) if is_counted else work.power
        is_full = is_counted and work.busy >= _IS_FULL
        is_busy = work.busy >= (_COUNTED if is_counted else _COMPUTES) and uses >= _MOST
        is_filled = is_full or not is_counted or uses >= _FILLED * work.busy
        return is_busy and is_filled and (self.at_calls >= _WAITED or (is_full and self.is_alone))

    @property
    def may_be_waited_for(self) -> bool:
        """Whether this process may wait for it in calls that are not known to wait."""
        return self.work.busy >= _MOST and self.is_alone

    @property
    def is_copied_to(self) -> bool:
        """Whether copies take most of the time, or half of what the link can take."""
        work, copies = self.work, self.copies + self.either
        takes_time = copies >= _MOST and work.pcie >= _COPIES and work.busy < _MOST
        return takes_time or (self.at_calls >= _MOST and work.pcie >= _MOST * work.link)

    @property
    def is_slow(self) -> bool:
        """Whether its link takes more than twice of what is copied: so is memory copied that is not pinned."""
        return self.work.pcie < _MOST * self.work.link

    @property
    def is_launched_on(self) -> bool:
        """Whether it runs small kernels of this program, while the thread neither waits nor copies."""
        is_small = max(self.work.sm, self.work.dram) < _SMALL
        is_free = self.at_calls < _FETCHED and self.is_alone
        return is_small and self.work.busy >= _LAUNCHES and is_free

    @property
    def copied(self) -> float:
        """Share of the time in which the thread waited for copies: in all calls, if they take half of what the link can."""
        is_all = self.work.pcie >= _MOST * self.work.link
        return self.copies + self.either + (self.waits if is_all else 0.0)

    @property
    def waited(self) -> float:
        """Share of the time in which the thread waited for what it computes."""
        return self.waits + (self.either if self.work.pcie < _COPIES else 0.0)

    @property
    def is_fetched_from(self) -> bool:
        """Whether the thread waits for it, and it does not compute for most of that time: to fetch once saves no more.

        Where that helped it computed for 41 % of the wait at most; where it did not, for 66 %.
        """
        is_long = self.waited >= _FETCHED and self.work.busy <= _MOST * self.waited
        return is_long and self.is_asked

    @property
    def text(self) -> str:
        """What it did, in words."""
        work = self.work
        beside = "" if math.isnan(work.power) else f" (at {100 * work.power:.0f} % of its power)"
        if not math.isnan(work.sm):
            memory = f"its memory {100 * work.dram:.0f} %"
            beside = f" (its multiprocessors {100 * work.sm:.0f} %, {memory})"
        return f"the GPU computed {100 * work.busy:.0f} % of the time{beside}{self.others}"

    @property
    def others(self) -> str:
        """That all others did nothing, in words; empty if they did."""
        verb = "was" if self.idle == 1 else "were"
        return f", {counted(self.idle, 'other GPU')} {verb} idle" if self.idle else ""


@dataclass(slots=True)
class _Device:
    """What samples show of one GPU in a step."""

    sums: Sequence[float] = (0.0,) * len(_UNKNOWN)
    count: int = 0  # How many readings were added up
    is_own: bool = False  # Whether the program has memory on it
    is_alone: bool = True  # Whether no other process has some

    @property
    def mean(self) -> GpuWork:
        return GpuWork(*(each / self.count for each in self.sums))


class GpusOfStep:
    """What samples show of the GPUs in a step."""

    def __init__(self) -> None:
        self._devices: dict[int, _Device] = {}
        self._calls: Counter[str] = Counter()  # Nanoseconds, by kind of call

    def add(self, gpus: Sequence[GpuReading]) -> None:
        """Adds a reading."""
        for gpu in gpus:
            device = self._devices.setdefault(gpu.index, _Device())
            device.is_own |= bool(gpu.own)
            device.is_alone &= gpu.is_alone
            if gpu.work is not None:
                device.count += 1
                device.sums = tuple(map(operator.add, device.sums, gpu.work))

    def add_call(self, kind: str, nanoseconds: int) -> None:
        """Adds time at calls of a kind."""
        self._calls[kind] += nanoseconds

    def evidence(self, nanoseconds: int) -> GpuEvidence:
        """Returns what they show, of so much time of the step's thread."""
        known = sorted((each for each in self._devices.values() if each.count), key=_busy)
        own = [each for each in known if each.is_own]
        if not own:
            return GpuEvidence()
        others = [_busy(each) for each in known if each is not own[-1]]
        are_idle = _busy(own[-1]) > _SMALL and max(others, default=1) <= _TOUCHED
        waits, copies, either = (self._calls[kind] / nanoseconds for kind in (WAIT, COPY, EITHER))
        idle = len(others) * are_idle
        return GpuEvidence(own[-1].mean, own[-1].is_alone, waits, copies, either, idle)


def _busy(device: _Device) -> float:
    return device.mean.busy
