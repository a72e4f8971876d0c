"""A curve of bounded size: figures over the time of a run, in buckets of equal length.

A level (memory in use) keeps in each bucket its lowest, highest and last value and when the highest
was read. So the highest value of the run and its time stay exact, however often neighbouring
buckets are merged. A total (bytes written) only rises: its last value is enough.

Its file: JSON lines, bounded in size, complete up to a second before a kill.

The first line, and each line that adds a column, is a mapping; every other line is a list: one
bucket, in the order of the columns. A bucket that is still filling is appended again every
:data:`FLUSH_EVERY` seconds, and the last line of a bucket counts. When the file has grown to
:data:`LARGEST`, the curve is halved until its buckets fit into half of that, and the file is replaced
whole.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Final, TypeAlias

from otel_quant.base.files import HeldFile, open_regular
from otel_quant.base.kernel_files import read_proc
from otel_quant.format.event_file import NewerSchemaError, refuse_newer
from otel_quant.format.fields import CURVE, LeftOut, is_bucket
from otel_quant.schema.dataclass import dataclass, field

SCHEMA: Final = 1  # Version of the format
LARGEST: Final = 290_000  # Bytes at which the file is written anew
FLUSH_EVERY: Final = 1.0  # Seconds between two writes: what a kill can lose
Number: TypeAlias = int | float

Cells: TypeAlias = list[Number | None]
"""One bucket as numbers: its position, then the parts of each series."""

PARTS: Final = ("min", "max", "last", "at")
"""The parts of a level in a bucket. ``at`` is when the highest value was read, in milliseconds since
the curve began."""


@dataclass(slots=True)
class Level:
    """A level within one bucket."""

    lowest: Number  # Lowest value
    highest: Number  # Highest value
    last: Number  # Last value
    at: int  # When the highest was read, in milliseconds since the curve began

    def merge(self, later: Level) -> None:
        """Adds newer values."""
        if later.highest > self.highest:
            self.highest, self.at = later.highest, later.at
        self.lowest = min(self.lowest, later.lowest)
        self.last = later.last


@dataclass(slots=True)
class Bucket:
    """The figures of one stretch of time."""

    position: int  # Number of the bucket; it begins at ``position`` times the length of a bucket
    levels: dict[str, Level] = field(default_factory=dict)  # Its levels, by name
    totals: dict[str, Number] = field(default_factory=dict)  # The last value of each total, by name

    def merge(self, later: Bucket) -> None:
        """Adds the figures of a later bucket."""
        for name, level in later.levels.items():
            known = self.levels.get(name)
            if known is None:
                self.levels[name] = level
            else:
                known.merge(level)
        self.totals |= later.totals


class Curve:
    """Buckets of equal length, oldest first; a bucket without a reading is left out."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.buckets: dict[int, Bucket] = {}

    def summary(self) -> dict[str, Number]:
        """Returns the highest value of each level and the last of each total, by name."""
        found: dict[str, Number] = {}
        for bucket in self.buckets.values():
            for name, level in bucket.levels.items():
                found[name] = max(level.highest, found.get(name, level.highest))
            found |= bucket.totals
        return found

    def add(self, at: int, levels: Mapping[str, Number], totals: Mapping[str, Number]) -> Bucket:
        """Adds a reading; returns the bucket that it is in."""
        read = {name: Level(value, value, value, at) for name, value in levels.items()}
        return self._take(Bucket(at // self.length, read, dict(totals)))

    def halve(self) -> None:
        """Merges every two neighbouring buckets: half as many, each twice as long."""
        self.length *= 2
        buckets, self.buckets = self.buckets, {}
        for bucket in buckets.values():
            bucket.position //= 2
            self._take(bucket)

    def _take(self, newer: Bucket) -> Bucket:
        bucket = self.buckets.setdefault(newer.position, newer)
        if bucket is not newer:
            bucket.merge(newer)
        return bucket


def columns_of(levels: Iterable[str], totals: Iterable[str]) -> list[str]:
    """Returns the names of a bucket's cells."""
    return ["position", *(f"{name}.{part}" for name in levels for part in PARTS), *totals]


def cells_of(bucket: Bucket, levels: Iterable[str], totals: Iterable[str]) -> Cells:
    """Returns a bucket as numbers, in the order of :func:`columns_of`; None for a missing one."""
    cells: Cells = [bucket.position]
    for name in levels:
        it = bucket.levels.get(name)
        cells += (None,) * 4 if it is None else (it.lowest, it.highest, it.last, it.at)
    cells += map(bucket.totals.get, totals)
    return cells


def reader_of(columns: Sequence[str]) -> Callable[[Sequence[Any]], Bucket]:
    """Returns a function that reads what :func:`cells_of` has written."""
    names = [name.removesuffix(".at") for name in columns if name.endswith(".at")]
    first_total = 1 + len(PARTS) * len(names)
    totals = columns[first_total:]
    if list(columns) != columns_of(names, totals):
        raise ValueError(f"columns {', '.join(columns)}; expected position, levels, totals")

    def read(cells: Sequence[Any]) -> Bucket:
        if len(cells) != len(columns):
            raise TypeError(f"{len(cells)} figures; expected {len(columns)}")
        bucket = Bucket(int(cells[0]))
        for number, name in enumerate(names):
            level = cells[1 + len(PARTS) * number :][: len(PARTS)]
            if None not in level:
                bucket.levels[name] = Level(*level)
        found = zip(totals, cells[first_total:], strict=True)
        bucket.totals = {name: total for name, total in found if total is not None}
        return bucket

    return read


class CurveFile:
    """Writes a curve while it grows. One thread at a time may use it."""

    def __init__(self, path: Path, began_ns: int, clock_ns: int, interval: float) -> None:
        self._began_ns, self._clock_ns = began_ns, clock_ns
        self._curve = Curve(max(1, round(interval * 1000)))
        self._levels: tuple[str, ...] = ()
        self._totals: tuple[str, ...] = ()
        self._changed: dict[int, Bucket] = {}
        self._has_new_columns = True
        self._written_ns = clock_ns
        self._file = HeldFile(path)
        self._size = 0
        self._is_outdated = False  # what is on disk has buckets of another length, or more levels

    def add(
        self, clock_ns: int, levels: Mapping[str, Number], totals: Mapping[str, Number]
    ) -> None:
        """Adds a reading, and writes what is due."""
        if not levels.keys() <= set(self._levels) or not totals.keys() <= set(self._totals):
            self._levels = tuple(dict.fromkeys((*self._levels, *levels)))
            self._totals = tuple(dict.fromkeys((*self._totals, *totals)))
            self._has_new_columns = True
        bucket = self._curve.add(self.at(clock_ns), levels, totals)
        self._changed[bucket.position] = bucket
        if clock_ns - self._written_ns >= FLUSH_EVERY * 1e9:
            self._written_ns = clock_ns
            self.flush()

    def at(self, clock_ns: int) -> int:
        """Returns a moment of the monotonic clock in milliseconds since the curve began."""
        return max(0, clock_ns - self._clock_ns) // 1_000_000

    def drop(self, level: str) -> None:
        """Takes a level out; the next write makes the file anew without it."""
        self._levels = tuple(name for name in self._levels if name != level)
        for bucket in self._curve.buckets.values():
            bucket.levels.pop(level, None)
        self._is_outdated = True

    def flush(self) -> None:
        """Writes every bucket that has changed."""
        text = self._head() if self._has_new_columns else ""
        text += self._rows(self._changed)
        if not text:
            return
        data = text.encode()
        if self._is_outdated or self._size + len(data) > LARGEST:
            self._write_anew()
        else:
            self._file.append(data)
            self._size += len(data)
        self._has_new_columns = False
        self._changed.clear()

    def summary(self) -> dict[str, Number]:
        """Returns the highest value of each level and the last of each total, by name."""
        return self._curve.summary()

    def close(self) -> None:
        """Writes what is left and closes the file."""
        try:
            self.flush()
        finally:
            self._file.close()

    def forget(self) -> None:
        """In a forked child: closes its copy."""
        self._file.forget()

    def _write_anew(self) -> None:
        data = (self._head() + self._rows(self._curve.buckets)).encode()
        while len(data) > LARGEST // 2 and len(self._curve.buckets) > 1:
            self._curve.halve()
            self._is_outdated = True
            data = (self._head() + self._rows(self._curve.buckets)).encode()
        self._file.replace(data)
        self._size, self._is_outdated = len(data), False

    def _head(self) -> str:
        head = {
            "schema": SCHEMA, "time": self._began_ns, "clock": self._clock_ns,
            "length": self._curve.length, "columns": columns_of(self._levels, self._totals),
        }  # fmt: skip
        return json.dumps(head, separators=(",", ":")) + "\n"

    def _rows(self, buckets: Mapping[int, Bucket]) -> str:
        return "".join(
            json.dumps(cells_of(bucket, self._levels, self._totals), separators=(",", ":")) + "\n"
            for bucket in buckets.values()
        )


@dataclass(frozen=True, slots=True)
class RecordedCurve:
    """A curve that was read from its file."""

    began_ns: int  # Wall clock when it began, in nanoseconds since the epoch
    clock_ns: int  # Monotonic clock at the same moment, in nanoseconds
    curve: Curve  # Its buckets


def read_curve(path: Path, left_out: LeftOut | None = None) -> RecordedCurve:
    """Reads a curve. A last line that a kill has cut short is left out."""
    left_out = LeftOut() if left_out is None else left_out
    with open_regular(path) as file:
        lines = file.read().split(b"\n")
    del lines[-1]  # after the last line feed: nothing, or a line that was cut
    found: RecordedCurve | None = None
    for line in lines:
        try:
            cells = json.loads(line)
            refuse_newer(path, cells)
            head = CURVE.take(cells, left_out)
            if head is not None:
                bucket_of = reader_of(head["columns"])
                found = found or RecordedCurve(head["time"], head["clock"], Curve(head["length"]))
            elif found is not None and is_bucket(cells):
                bucket = bucket_of(cells)
                found.curve.buckets[bucket.position] = bucket
            else:
                left_out["line"] += 1
        except (IndexError, TypeError, ValueError, RecursionError) as error:
            if isinstance(error, NewerSchemaError):
                raise
            left_out["line"] += 1
    if found is None:
        raise ValueError("it has no columns; expected them in its first line")
    return found


# --- the largest processes ----------------------------------------------------------------

MOST: Final = 5
"""Child processes with a series in a curve: each makes the file larger for the rest of the recording."""

_LONGEST_NAME: Final = 60
_INTERPRETERS: Final = ("python", "bash", "sh", "dash")
_UNNAMED: Final = ("process", 0)
SMALLEST_SHARE: Final = 0.05  # Part of the memory of all that a process must have to count as large


class LargestProcesses:
    """Names the largest processes, and gives the program and its :data:`MOST` largest children a series.

    The program's begins with its first child, before any other: until then it would repeat the total
    in as much room. A child gets one if it was among the largest at two looks in a row, so that
    none that lives a moment, or is a copy of its parent until it calls `exec`, takes the place of
    another; with as many already, in place of the one whose highest memory is the lowest.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._known: dict[int, tuple[str, int]] = {}  # names, and the RSS that each had then
        self._series: dict[int, str] = {}
        self._peaks: dict[int, int] = {}  # of those with a series
        self._seen: frozenset[int] = frozenset()

    def look(self, processes: Mapping[int, int]) -> Iterator[str]:
        """Finds the largest and their names; a program that calls ``exec`` changes its name.

        Yields the series that end for a larger process.
        """
        least = sum(processes.values()) * SMALLEST_SHARE
        largest = heapq.nlargest(MOST + 1, processes, key=processes.__getitem__)
        for pid in {*largest, self._pid}:
            self._find_name(pid, processes.get(pid, 0))
        large = frozenset(pid for pid in largest if processes[pid] >= least) - {self._pid}
        new = (large & self._seen) - self._series.keys()
        for pid in sorted(new, key=lambda pid: -processes[pid]):
            children = self._series.keys() - {self._pid}
            if len(children) == MOST:
                smallest = min(children, key=self._peaks.__getitem__)
                if self._peaks[smallest] >= processes[pid]:
                    break
                yield self._series.pop(smallest)
            self._series[pid] = self._name(pid)
            self._peaks[pid] = processes[pid]
        self._seen = large
        self._known = {pid: known for pid, known in self._known.items() if pid in processes}

    def meet(self, processes: Mapping[int, int]) -> None:
        """Names processes as they become large: one may be dead before the next look."""
        least = sum(processes.values()) * SMALLEST_SHARE
        for pid, rss in processes.items():
            # With twice the memory it may have called `exec` since it was named.
            if rss >= max(least, 2 * self._known.get(pid, _UNNAMED)[1]):
                self._find_name(pid, rss)

    def series(self, processes: Mapping[int, int]) -> dict[str, int]:
        """Returns RSS in bytes by name of series."""
        if len(processes) > 1 and self._pid not in self._series:
            self._series = {self._pid: self._name(self._pid), **self._series}
        shown = {pid: processes[pid] for pid in self._series if pid in processes}
        self._peaks |= {pid: max(rss, self._peaks.get(pid, 0)) for pid, rss in shown.items()}
        return {self._series[pid]: rss for pid, rss in shown.items()}

    def named(self, processes: Mapping[int, int]) -> tuple[tuple[str, int], ...]:
        """Returns name and RSS in bytes of the largest, largest first."""
        largest = heapq.nlargest(MOST, processes, key=processes.__getitem__)
        return tuple((self._name(pid), processes[pid]) for pid in largest)

    def _find_name(self, pid: int, rss: int) -> None:
        name = name_of(pid)
        if name is not None:
            self._known[pid] = name, rss

    def _name(self, pid: int) -> str:
        return f"{self._known.get(pid, _UNNAMED)[0]} ({pid})"


def name_of(pid: int) -> str | None:
    """Returns a process's name as a person would write it: ``python3 train.py``."""
    try:
        words = read_proc(f"/proc/{pid}/cmdline").decode(errors="replace").split("\0")
    except OSError:
        return None
    return short_name(words)


def short_name(words: Sequence[str]) -> str | None:
    """Returns the name of a process with this command line; None for an empty one."""
    program = PurePath(words[0]).name
    if not program:
        return None
    script = _script(words[1:]) if program.startswith(_INTERPRETERS) else None
    return f"{program} {script}"[:_LONGEST_NAME] if script else program[:_LONGEST_NAME]


def _script(arguments: Sequence[str]) -> str | None:
    """Returns the script or module that an interpreter runs; what follows `-c` is not shown."""
    for position, argument in enumerate(arguments):
        if position and arguments[position - 1] in ("-W", "-X"):
            continue  # the value of an option
        if argument == "-m":
            return " ".join(arguments[position : position + 2])
        if argument == "-c":
            return argument
        if argument and not argument.startswith("-"):
            return PurePath(argument).name
    return None
