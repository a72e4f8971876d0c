"""Where the time and the memory of steps went, by line of code: tables, and the formats of other tools."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count, product
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from otel_quant.diagnosis.spots import top_spot
from otel_quant.recordings.model import StepPath, name_text, path_text
from otel_quant.recordings.reader import SeenStack, by_call, by_line, of_step, stacks_in
from otel_quant.schema.code_lines import NOTHING, UNSEEN, Amounts, Place, total_of
from otel_quant.schema.units import cut, duration_text, share_text, size
from otel_quant.views.document import ONE, Column, Flame, Lines, Part, Table
from otel_quant.views.text import printable, share_of

if TYPE_CHECKING:
    from otel_quant.recordings.side_by_side import Sample, Side

Measure = Literal["time", "memory"]

_PlacedStacks: TypeAlias = Sequence[tuple[SeenStack, int]]
"""Stacks of a run, each with its row in a tree."""


class _Measured(NamedTuple):
    """How a measure is shown."""

    words: str
    in_a_sentence: str
    of: Callable[[Amounts], int]  # Nanoseconds, or bytes of growth
    text: Callable[[int], str]
    unit: str  # As speedscope has it
    per_count: int  # How much one is of what flamegraph.pl counts


_MEASURES: Final[Mapping[Measure, _Measured]] = {
    "time": _Measured("time", "time", lambda seen: seen.time, lambda nanoseconds: duration_text(nanoseconds / 1e9), "nanoseconds", 1000),
    "memory": _Measured("memory growth", "growth of memory", lambda seen: seen.grown, size, "bytes", 1),
}  # fmt: skip

_MOST: Final = 10  # Lines of a table
_LONGEST: Final = 90


class _LineRow(NamedTuple):
    place: Place
    seen: Amounts
    time_share: float | None  # Of all lines


_COLUMNS: Final[tuple[Column[_LineRow], ...]] = (
    Column("line", value=lambda each: each.place.text, longest=_LONGEST),
    Column("time", "s", lambda each: each.seen.time / 1e9, "time_seconds", "s", 2),
    Column("share", "1", lambda each: each.time_share, "time_share", "%", 1),
    Column("on CPU", "s", lambda each: each.seen.cpu / 1e9, "cpu_seconds", "s", 2, spare=2),
    Column("waiting for CPU", "s", lambda each: each.seen.waiting / 1e9, "waiting_seconds", "s", 2, spare=1),
    Column("grown", "By", lambda each: each.seen.grown, "grown_bytes", "MB", 1),
    Column("released", "By", lambda each: each.seen.released, "released_bytes", "MB", 1, spare=3),
)  # fmt: skip


def answer(stacks: Sequence[SeenStack], measure: Measure) -> str:
    """Returns which line has the most, one sentence without its full stop."""
    whole = total_of(each.seen for each in stacks)
    shown = _MEASURES[measure if whole.grown > 0 else "time"]
    unseen = total_of(each.seen for each in stacks if each.lines[0] == UNSEEN).time / 1e9
    known = [each for each in stacks if each.lines[0] != UNSEEN] or stacks
    every = [(each.lines, each.seen) for each in known]
    top = top_spot(every, shown.of, lambda lines: lines[-1])
    assert top is not None  # there are stacks
    own, total = shown.of(top[1]), shown.of(whole)
    share = share_text(own / total if total else 0.0)
    what, text = shown.in_a_sentence, shown.text
    rest = f"; of {duration_text(unseen)} no line was seen" if unseen else ""
    return f"{share} of the {what} was seen at {top[0].words}: {text(own)} of {text(total)}{rest}"


def parts(stacks: Sequence[SeenStack], measure: Measure) -> list[Part]:
    """Returns the lines of the program, and the lines of all code, with the most time or memory growth."""
    calls = table(by_call(stacks), measure, _MOST)
    title = f"Calls of the program with the most {_MEASURES[measure].words}"
    calls = calls._replace(title=title, note=f"With all that they call. {calls.note}".rstrip())
    return [Lines([f"{answer(stacks, measure)}."]), calls, _lines(stacks, measure)]


def page_parts(stacks: Sequence[SeenStack], seconds: float = 0.0) -> list[Part]:
    """Returns what a page has: the lines drawn, of a run of so many seconds, and those with the most time and memory growth."""
    return [flame(stacks, seconds), *parts(stacks, "time"), _lines(stacks, "memory")]


def _lines(stacks: Sequence[SeenStack], measure: Measure) -> Table:
    title = f"Lines with the most {_MEASURES[measure].words} of their own"
    return table(by_line(stacks), measure, _MOST)._replace(title=title)


def flame(stacks: Sequence[SeenStack], seconds: float = 0.0) -> Flame:
    """Returns the stacks of steps as a page draws them, the steps outermost; what was not seen of a run is the root's own."""
    tree = Tree(stacks)
    rows = [[above, place, 0, 0] for above, place in tree.rows]
    own = [(row, each.seen) for each, row in zip(stacks, tree.row_of, strict=True)]
    unseen = round(seconds * 1e9) - total_of(seen for _, seen in own).time
    own.append((0, Amounts(max(0, unseen))))
    for row, seen in own:
        rows[row][2] += seen.time // 1000
        rows[row][3] += seen.grown
    return Flame("Lines of code by step", list(tree.places), rows)


class Tree:
    """Stacks as rows, each below its caller's row; the first is the root."""

    def __init__(self, stacks: Iterable[SeenStack]) -> None:
        self.places: dict[tuple[str, str], int] = {("the run", ""): 0}  # Text and library
        self.rows: list[tuple[int, int]] = [(-1, 0)]  # Row of the caller, and place
        self.row_of: list[int] = []  # The row of each stack's innermost line
        self.row_of_step: dict[StepPath, int] = {}
        self._known: dict[tuple[int, int], int] = {}
        for each in stacks:
            row = 0
            path = _path_of(each)
            for depth in range(1, len(path) + 1):
                row = self._below(row, name_text(path[:depth]), "")
                self.row_of_step[path[:depth]] = row
            for line in each.lines:
                row = self._below(row, line.text, line.library)
            self.row_of.append(row)

    def _below(self, above: int, text: str, library: str) -> int:
        """Returns the row of a line that another one calls."""
        place = self.places.setdefault((text, library), len(self.places))
        row = self._known.setdefault((above, place), len(self.rows))
        if row == len(self.rows):
            self.rows.append((above, place))
        return row

    def totals(self, own: Iterable[tuple[int, float]]) -> list[float]:
        """Returns what was seen at each row and below it, from rows with amounts of their own."""
        totals = [0.0] * len(self.rows)
        for row, amount in own:
            totals[row] += amount
        for row in range(len(self.rows) - 1, 0, -1):  # a caller's row is before those below it
            totals[self.rows[row][0]] += totals[row]
        return totals


def links_of(stacks: Sequence[SeenStack]) -> dict[StepPath, str]:
    """Returns where on a page the lines of each step are, for a page with :func:`flame` of the same stacks."""
    return {path: f"#lines-{row}" for path, row in Tree(stacks).row_of_step.items()}


def table(lines: Mapping[Place, Amounts], measure: Measure, most: int | None = None) -> Table:
    """Returns lines as a table, those with the most first."""
    whole, of = total_of(lines.values()).time, _MEASURES[measure].of
    order = sorted(lines.items(), key=lambda line: of(line[1]), reverse=True)
    rows = [_LineRow(*line, share_of(line[1].time, whole)) for line in order]
    return Table.of(_COLUMNS, rows).first(most or len(rows), "line")


# --- two sides of a comparison ----------------------------------------------------------------

# Times are without waits for a processor. The sampler sees a line about 20 times a second: what is less than three times the root
# of the number of samples, less than a hundredth of the total, or differs within a side as well, is noise.

_TELLING: Final = 0.1  # Part of a step's difference that a line makes at least where it is shown
_INTERVAL: Final = 0.05  # Seconds between two samples
_SMALL: Final = 0.01
_MOST_LINES: Final = 5
_LONGEST_NAME: Final = 80
_LONGEST_LINE: Final = 120


class _LineDifference(NamedTuple):
    """What two sides are compared in."""

    unit: str
    words: str
    of: Callable[[Amounts], float]  # Seconds, or bytes of growth
    noise: Callable[[float], float]  # How much it may be by chance, by the sum of two amounts
    in_flame: float = 1  # What a flame counts in, of the unit
    flag: int = 1  # What a flame has of a row that differs clearly


_TIME: Final = _LineDifference(
    "s", "time of their own", lambda seen: (seen.time - seen.waiting) / 1e9,
    lambda seconds: 3 * math.sqrt(seconds * _INTERVAL), 1e6, 1,
)  # fmt: skip
_GROWTH: Final = _LineDifference(
    "By", "memory growth", lambda seen: seen.grown, lambda _: 1.0, 1, 2
)


def _stacks_of(side: Side) -> list[list[SeenStack]]:
    """Returns the stacks of each run of a side that has some."""
    return [found for run in side.runs if (found := stacks_in(run.recording))]


def _is_clear(kind: _LineDifference, base: Sample, new: Sample, whole: float = 0.0) -> bool:
    """Whether a difference is more than noise."""
    from otel_quant.recordings.side_by_side import difference  # only where sides are compared

    noise = kind.noise(base.median + new.median)
    return difference(base, new, max(noise, _SMALL * whole)).is_clear


def lines_of(sides: tuple[Side, Side], step: str, is_time: bool, change: float) -> Iterator[Table]:
    """Yields the lines that make a tenth of a step's difference or more, if both sides know theirs."""
    from otel_quant.recordings.side_by_side import Sample

    kind = _TIME if is_time else _GROWTH
    sign, word = (1, "more") if change > 0 else (-1, "less")
    known = [[by_line(of_step(run, step)) for run in _stacks_of(side)] for side in sides]
    rows = []
    for place in dict.fromkeys(chain(*chain(*known))) if all(known) else ():
        base, new = (
            Sample(tuple(kind.of(run.get(place, NOTHING)) for run in side)) for side in known
        )
        more = new.median - base.median
        if sign * more >= _TELLING * abs(change) and _is_clear(kind, base, new):
            rows.append((place.text, base.median, new.median, more))
    if rows:
        columns: tuple[Column[Any], ...] = (
            Column("LINE", longest=_LONGEST_LINE),
            *(Column(side.heading, kind.unit, shown_in=ONE, spare=1) for side in sides),
            Column("DIFFERENCE", kind.unit, shown_in=ONE, is_signed=True),
        )
        rows.sort(key=lambda row: -sign * row[-1])
        title = f"Lines of {cut(step, _LONGEST_NAME)} with {word} {kind.words}"
        yield Table(columns, rows[:_MOST_LINES], title=title)


def flame_of(sides: tuple[Side, Side]) -> Flame | None:
    """Returns the lines of two sides in one graph, the means of their runs; None if one of them knows none."""
    base, new = map(_stacks_of, sides)
    if not base or not new:
        return None
    tree = Tree(chain(*base, *new))
    row_of = iter(tree.row_of)
    placed = [[list(zip(run, row_of, strict=False)) for run in side] for side in (base, new)]
    rows = [[above, place, 0, 0, 0, 0, 0] for above, place in tree.rows]
    for column, kind in enumerate((_TIME, _GROWTH), 2):
        for first, side in zip((column + 2, column), placed, strict=True):
            for stack, row in chain.from_iterable(side):
                rows[row][first] += round(kind.of(stack.seen) * kind.in_flame / len(side))
        for counts, is_clear in zip(rows, _clear_rows(tree, kind, placed), strict=True):
            counts[6] |= kind.flag * is_clear
    names = tuple(side.called for side in sides)
    return Flame(f"Lines of code, {' and '.join(names)}", list(tree.places), rows, sides=names)


def _clear_rows(
    tree: Tree, kind: _LineDifference, sides: Sequence[Sequence[_PlacedStacks]]
) -> Iterator[bool]:
    """Yields of each row whether two sides differ clearly in it, with all that is below it."""
    from otel_quant.recordings.side_by_side import Sample

    totals = [
        zip(*(tree.totals((row, kind.of(at.seen)) for at, row in run) for run in side), strict=True)
        for side in sides
    ]
    samples = [tuple(map(Sample, of_both)) for of_both in zip(*totals, strict=True)]
    whole = max(sample.median for sample in samples[0])
    for base, new in samples:
        yield _is_clear(kind, base, new, whole)


# --- for other tools --------------------------------------------------------------------------


def collapsed(stacks: Sequence[SeenStack], measure: Measure) -> Iterator[str]:
    """Yields a line for each stack, as flamegraph.pl reads it: microseconds, or bytes of growth."""
    shown = _MEASURES[measure]
    for each in stacks:
        if amount := shown.of(each.seen) // shown.per_count:
            names = (_step_name(each), *(line.text for line in each.lines))
            yield f"{';'.join(printable(name.replace(';', ',')) for name in names)} {amount}\n"


def speedscope(stacks: Sequence[SeenStack], name: str) -> str:
    """Returns a file of speedscope: for each step a profile of time, and one of memory growth."""
    frames: dict[Place, int] = {}
    by_step: dict[str, list[SeenStack]] = {}
    for each in stacks:
        by_step.setdefault(_step_name(each), []).append(each)
    each_of = product(by_step.items(), _MEASURES.values())
    profiles = [_profile(own, shown, step, frames) for (step, own), shown in each_of]
    shared = [
        {"name": printable(p.function), "file": printable(p.file), "line": p.line} for p in frames
    ]
    return json.dumps({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": name,
        "exporter": "otel-quant",
        "shared": {"frames": shared},
        "profiles": [each for each in profiles if each["weights"]],
    })  # fmt: skip


def _profile(
    stacks: Sequence[SeenStack], shown: _Measured, step: str, frames: dict[Place, int]
) -> dict[str, Any]:
    """Returns what was seen of one measure; ``frames`` gets the number of each line."""
    known = [(each, amount) for each in stacks if (amount := shown.of(each.seen))]
    return {
        "type": "sampled", "name": f"{step}: {shown.words}", "unit": shown.unit,
        "startValue": 0, "endValue": sum(amount for _, amount in known),
        "samples": [
            [frames.setdefault(line, len(frames)) for line in each.lines] for each, _ in known
        ],
        "weights": [amount for _, amount in known],
    }  # fmt: skip


def pprof(stacks: Sequence[SeenStack]) -> bytes:
    """Returns a profile of `go tool pprof` (protobuf, compressed): time and memory growth, by step.

    The fields are defined in github.com/google/pprof/blob/main/proto/profile.proto.
    """
    texts: dict[str, int] = {"": 0}
    frames: dict[Place, int] = {}

    def text(value: str) -> int:
        return texts.setdefault(printable(value), len(texts))

    found = b""
    for kind, unit in (("time", "nanoseconds"), ("growth", "bytes")):
        found += _message(1, _numbers(text(kind), text(unit)))
    for each in stacks:
        lines = [frames.setdefault(line, len(frames) + 1) for line in reversed(each.lines)]
        own = b"".join(_number(1, line) for line in lines)
        own += _number(2, each.seen.time) + _number(2, each.seen.grown)
        label = _message(3, _numbers(text("step"), text(_step_name(each))))
        found += _message(2, own + label)
    for line, at in frames.items():
        found += _message(4, _number(1, at) + _message(4, _numbers(at, line.line)))
        name = text(line.function)
        # Without a system name: of one that is equal, pprof cuts what is between "<" and ">".
        found += _message(5, _numbers(at, name, 0, text(line.file)))
    found += _number(14, text("time"))  # else tools begin with the last kind
    found += b"".join(_message(6, each.encode()) for each in texts)
    import gzip  # only here

    return gzip.compress(found)


def _numbers(*values: int) -> bytes:
    """Returns the fields 1, 2, .. of a message."""
    return b"".join(map(_number, count(1), values))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def _path_of(stack: SeenStack) -> StepPath:
    return stack.step.path if stack.step is not None else ((stack.where, 1),)


def _step_name(stack: SeenStack) -> str:
    return path_text(_path_of(stack))
