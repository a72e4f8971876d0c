"""A comparison as a document, with what a gate finds in it."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain, product, takewhile
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple

from otel_quant.recordings import side_by_side, summary
from otel_quant.recordings.compared_runs import CONFIGURATION, ComparedRun, common_time
from otel_quant.recordings.gate import GateVerdict
from otel_quant.recordings.gpus import shows_all_programs
from otel_quant.recordings.model import (
    RecordedStep,
    Recording,
    StepPath,
    known,
    name_text,
    path_text,
    steps_in,
)
from otel_quant.schema import semconv
from otel_quant.schema.catalog import QUANTITIES
from otel_quant.schema.figures import PREFIX
from otel_quant.schema.units import WITHIN, change_text, counted, cut, joined
from otel_quant.views import document as doc
from otel_quant.views.gate import SEEN, check_lines, fact_text, outcome_text, spread_text
from otel_quant.views.stacks import flame_of, lines_of
from otel_quant.views.steps import split_shares
from otel_quant.views.text import number_text, phrase

_MOST_ROWS: Final = 40
_MOST_NOTES: Final = 20
_MOST_CHECKS: Final = 40
_MOST_NAMED: Final = 6
_MOSTLY: Final = 0.9  # Part of a step's difference from which on a step within it tells it
_LONGEST_NAME: Final = 80

_FIRST_STEPS: Final = "of a recording with more than 10,000 steps the first 10,000 are compared"
_COLOURS: Final = "Red took more in {}, blue less, grey no more than noise; times are without waits for a processor."
_NOISE: Final = "~"  # Stands for a difference that is not more than noise
_NOISE_MEANS: Final = "not significant, or explained by CPU contention"
_RUNS_ALONE: Final = (
    "The total is from the first step to the exit: a run without `otel-quant run` has no more."
)


def document(
    comparison: side_by_side.Comparison, verdict: GateVerdict | None, *, with_curves: bool = False
) -> doc.Document:
    """Returns a comparison as a document; ``with_curves`` for a page, which has the verdict as title."""
    names = [side.called for side in comparison.sides]
    title = f"{joined(names)} side by side"
    if len(names) == 2:
        title = next(_headlines(comparison), title)
    is_bad = any(run.why for side in comparison.sides[1:] for run in side.runs)
    if verdict is not None:
        title = outcome_text(verdict).capitalize()
        is_bad |= verdict.outcome != "within"
    return doc.Document(
        _parts(comparison, verdict, with_curves), title, "Runs side by side", is_bad,
        sheet=lambda: doc.Table.of([*_sheet_columns(comparison.sides)], _every_figure(comparison)),
        data=lambda: _data(comparison, verdict),
    )  # fmt: skip


def _parts(
    comparison: side_by_side.Comparison, verdict: GateVerdict | None, with_curves: bool
) -> Iterator[doc.Part]:
    """Yields the answer first, the curves, then what differs, the most important first."""
    yield from _answer(comparison, verdict, is_page=with_curves)
    yield from doc.Lines.of(_settings(comparison))
    if with_curves:
        yield doc.Section("Over time", _curves(comparison))
        base, *others = comparison.sides
        for side in others:
            if graph := flame_of((base, side)):
                yield doc.Section(graph.title, (graph, doc.Lines((_COLOURS.format(side.called),))))
    yield _figures(comparison)
    yield from doc.Lines.of(_points(comparison), _MOST_NOTES, is_list=True)
    yield from _lines(comparison)
    names = [side.heading for side in comparison.sides]
    differs = [
        (fact.name, *_apart([fact_text(fact, at) for at in range(len(names))]))
        for fact in comparison.differences
    ]
    if differs:
        columns = [doc.Column[Any](name) for name in ("DIFFERS", *names)]
        yield doc.Table(columns, differs, "differs", caption="What differs in what made the runs")
    runs = [
        ("" if number else side.called, f"{run.name}{phrase(' ({})', run.why)}")
        for side in comparison.sides
        for number, run in enumerate(side.runs)
        if side.called != run.name
    ]
    if runs:
        yield doc.Facts(runs, caption="Runs")


def _apart(texts: Sequence[str]) -> Iterator[str]:
    """Yields texts without the words that all of them begin with, where these are many."""
    words = [text.split(" ") for text in texts]
    alike = sum(1 for _ in takewhile(lambda each: len({*each}) == 1, zip(*words, strict=False)))
    known = " ".join(words[0][:alike])
    yield from (f"…{text[len(known) :]}" if len(known) > _ALIKE else text for text in texts)


_ALIKE: Final = 16  # Characters that texts begin with alike, from which on they are left out


def _answer(
    comparison: side_by_side.Comparison, verdict: GateVerdict | None, *, is_page: bool
) -> Iterator[doc.Part]:
    """Yields the verdict with the checks that led to it, then a sentence for each side."""
    headlines = [f"{line}." for line in _headlines(comparison)]
    if verdict is None:
        # Of two sides it is the title of the page.
        yield from doc.Lines.of([] if is_page and len(headlines) == 1 else headlines)
        return
    if not is_page:
        yield doc.Lines((outcome_text(verdict),))
    found = [check for check in verdict.checks if check.outcome != "within"]
    lines = dict.fromkeys(check_lines(comparison, found))
    yield from doc.Lines.of(lines, _MOST_CHECKS, is_bad=True)
    yield from doc.Lines.of(headlines)


# --- the answer ---------------------------------------------------------------------------

_HEADLINED: Final = {
    summary.MEMORY_PEAK: "memory",
    summary.GPU_TREE_PEAK: "GPU memory",
    summary.GPU_PEAK: "GPU memory of all programs",
    summary.DURATION: "time",
    summary.CPU_TIME: "CPU time",
}
_KINDS: Final = {"unclear": "{} cannot be told apart", "equal": "{} equal"}
"""Kinds of differences that are not clear, in the order in which a sentence has them, with its words."""

_EQUAL: Final = 0.001
"""Part of a figure below which a difference is none for a person: a byte more of 480 kB."""

_NOT_KNOWN: Final = side_by_side.Difference(0.0, None, None, is_clear=False)


def _kind(found: side_by_side.Difference | None) -> str:
    """Returns whether a difference is ``clear``, ``unclear``, ``equal`` or ``unknown``."""
    if found is None:
        return "unknown"
    if not found.change or (found.ratio is not None and abs(found.ratio - 1) < _EQUAL):
        return "equal"
    return "clear" if found.is_clear else "unclear"


def _difference(row: side_by_side.StepSides, name: str, at: int) -> side_by_side.Difference:
    """Returns how a figure differs on a side but the base, which the number counts from 0."""
    figure = row.figures.get(name)
    return (figure and figure.differences[at]) or _NOT_KNOWN


def _headlines(comparison: side_by_side.Comparison) -> Iterator[str]:
    """Yields for each side but the base a sentence on the figures that matter most."""
    base, *others = comparison.sides
    for at, side in enumerate(others):
        named = [name for name in _HEADLINED if name not in _hidden(comparison)]
        every = {name: _difference(comparison.rows[0], name, at) for name in named}
        kinds = {name: _kind(each) for name, each in every.items() if each.ratio is not None}
        if kinds.get(summary.CPU_TIME) != "clear" or kinds.get(summary.DURATION) == "clear":
            kinds.pop(summary.CPU_TIME, None)  # of the two one tells enough
        why = next(filter(None, (run.why for run in side.runs)), "")
        clear = [name for name, kind in kinds.items() if kind == "clear"]
        texts = [_needs(comparison, at, clear, "" if why else base.called)] if clear else []
        for kind, form in _KINDS.items():
            if words := [_HEADLINED[name] for name, its in kinds.items() if its == kind]:
                texts.append(form.format(joined(words)))
        if texts:
            is_plain = clear and not why
            texts[0] = f"{'needs' if is_plain else f'against {base.called}:'} {texts[0]}"
        if texts or why:
            yield f"{side.called} {'; '.join(filter(None, (why, *texts)))}"


def _needs(comparison: side_by_side.Comparison, at: int, names: Sequence[str], base: str) -> str:
    """Returns how much more or less of what a side needs, and in which step: ``twice the time of first, in Load``."""
    ratios = {name: _difference(comparison.rows[0], name, at).ratio or 0 for name in names}
    texts = [change_text(ratio, _HEADLINED[name]) for name, ratio in ratios.items()]
    is_of = [" times the " in text or text.startswith("twice") for text in texts]
    # Behind all of them where they have one form, else behind the first
    last = -1 if len({*is_of}) == 1 else 0
    texts[last] += phrase(" of {}" if is_of[last] else " than {}", base)
    where = [_place_of(comparison, name, at) for name in names]
    if len({*where}) > 1:
        texts = [f"{text}{phrase(' ({})', of)}" for text, of in zip(texts, where, strict=True)]
        return joined(texts)
    each = {1: "", 2: "both "}.get(len(texts), "all ")
    return f"{joined(texts)}{phrase(f', {each}{{}}', where[0])}"


def _place_of(comparison: side_by_side.Comparison, name: str, at: int) -> str:
    """Returns in which step most of a difference is; empty where no step has more than half of it."""
    where = _where_most(comparison, name, at)
    if where is None:
        return ""
    part = _difference(where, name, at).change / _difference(comparison.rows[0], name, at).change
    mostly = "" if part >= _MOSTLY else "mostly "
    return f"{mostly}in {cut(name_text(where.path), _LONGEST_NAME)}" if part > 1 / 2 else ""


def _settings(comparison: side_by_side.Comparison) -> Iterator[str]:
    """Yields which sides are of another program than the base, and in which settings of the configuration one differs."""
    base, *others = comparison.sides
    for at, side in enumerate(others, 1):
        if comparison.unrelated[at - 1]:
            yield f"No step of {side.called} is in {base.called}: these are runs of different programs."
        unlike = {fact.name: fact for fact in comparison.differences if fact.is_unlike(at)}
        # Hashes of two libraries are of different things.
        if CONFIGURATION in unlike and "library" not in unlike:
            shown = "; ".join(
                f"{fact.name} {fact_text(fact, at)}, not {fact_text(fact, 0)}"
                for fact in unlike.values()
                if fact.is_setting
            )
            hashes = chain.from_iterable(unlike[CONFIGURATION].values)
            if len({str(each).rpartition("-")[0] for each in hashes}) > 1:
                said = f": {shown}" if shown else "; no setting with an attribute differs"
                yield f"The hashes of two versions of otel-quant are not compared{said}."
                continue
            shown = shown or "in settings without an attribute of their own"
            yield f"{side.called} has another configuration than {base.called}: {shown}."


def _where_most(
    comparison: side_by_side.Comparison, name: str, at: int
) -> side_by_side.StepSides | None:
    """Returns the step that differs most in the direction of the total, of a peak the one that has it: the innermost."""
    total, *steps = (_difference(row, name, at) for row in comparison.rows)
    is_sum = summary.BY_NAME[name].over_steps == "sum"
    found = [
        (abs(each.change) if is_sum else _highest(row, name, at), row)
        for row, each in zip(comparison.rows[1:], steps, strict=True)
        if each.is_clear and each.change * total.change > 0
    ]
    if not found:
        return None
    most, outer = max(found, key=itemgetter(0))
    within = (
        (len(row.path), weight, row)
        for weight, row in found
        if weight >= most * (_HALF if is_sum else _SAME)
        and row.path[: len(outer.path)] == outer.path
    )
    return max(within, key=itemgetter(0, 1))[2]


_HALF: Final = 0.5
_SAME: Final = 0.99  # Part of a step's difference, or peak, from which on a step within it has it


def _highest(row: side_by_side.StepSides, name: str, at: int) -> float:
    """Returns the higher value of the base and of another side."""
    samples = _samples(row, name)
    return max(each.median for each in (samples[0], samples[at + 1]) if each)


# --- the figures that differ --------------------------------------------------------------


class _Placed(NamedTuple):
    """A figure of a step, or of the total."""

    row: side_by_side.StepSides
    figure: side_by_side.FigureRow
    name: str  # The figure's
    unit: str  # The figure's

    @property
    def group(self) -> str:
        """Where it is shown: ``table``, or in the note ``of steps``, ``unclear`` or ``equal``."""
        kinds = set(map(_kind, self.figure.differences))
        if "clear" in kinds or (not self.row.path and "unknown" in kinds):
            return "table"
        if self.row.path:
            return "nowhere" if kinds == {"unknown"} else "of steps"
        return "unclear" if "unclear" in kinds else "equal"


def _every_figure(comparison: side_by_side.Comparison) -> list[_Placed]:
    every = ((row, *each) for row in comparison.rows for each in row.figures.items())
    return [_Placed(row, each, name, each.figure.unit) for row, name, each in every]


def _figures(comparison: side_by_side.Comparison) -> doc.Table | doc.Lines:
    """Returns the figures that differ, the total's first, then the most important; and a note of the others."""
    groups: dict[str, list[_Placed]] = defaultdict(list)
    hidden = _hidden(comparison)
    for each in filter(_is_telling, _every_figure(comparison)):
        if each.name not in hidden:
            groups[each.group].append(each)
    if all(each.name in summary.WAITS for each in groups["table"]):  # the machine's part of nothing
        groups["unclear"] += groups.pop("table", [])
    told = set(_told_within(comparison))
    shown = [each for each in groups["table"] if (each.row.path, each.name) not in told]
    shown.sort(key=lambda each: -_weight(comparison, each.figure))
    shown.sort(key=lambda each: (bool(each.row.path), each.name not in _HEADLINED))
    runs = [run for side in comparison.sides for run in side.runs]
    notes = {
        f"{_NOISE}: {_NOISE_MEANS}": any(
            "unclear" in map(_kind, each.figure.differences) for each in shown
        ),
        _RUNS_ALONE: len({summary.is_of_program(run.recording) for run in runs}) == 2,
        _FIRST_STEPS: any(run.has_more_steps for run in runs),
        f"{_NOISE_MEANS}, in total: {_names_text(groups['unclear'])}": groups["unclear"],
        f"equal, within 0.1 %, in total: {_names_text(groups['equal'])}": groups["equal"],
        f"equal or not significantly different: {counted(len(groups['of steps']), 'figure')} of steps":
            groups["of steps"],
    }  # fmt: skip
    texts = [text for text, holds in notes.items() if holds]
    if not shown:
        return doc.Lines(texts)
    columns = [doc.Column[Any]("STEP"), doc.Column[Any]("FIGURE"), *_side_columns(comparison)]
    rows = [(_path_text(row.path), name, *_cells(figure)) for row, figure, name, _ in shown]
    found = (known(each.p for each in filter(None, at.figure.differences)) for at in shown)
    tests = [" ".join(map("p={:.3f}".format, each)) for each in found]
    if any(tests):  # with a run on each side nothing is tested
        columns.append(doc.Column[Any]("NOTE"))
        rows = [(*row, test) for row, test in zip(rows, tests, strict=True)]
    table = doc.Table(columns, rows, id="figures", caption="What differs", is_sortable=False)
    table = table.first(_MOST_ROWS, "smaller difference")
    return table._replace(note="\n".join(filter(None, (*texts, table.note))))


def _told_within(comparison: side_by_side.Comparison) -> Iterator[tuple[StepPath, str]]:
    """Yields steps and figures of which a step within makes nearly all of the differences."""
    by_path = {row.path: row.figures for row in comparison.rows[1:]}
    for each in _every_figure(comparison):
        for outer in (each.row.path[:depth] for depth in range(1, len(each.row.path))):
            around = by_path.get(outer, {}).get(each.name)
            if around is not None and all(
                a is None or (b and b.is_clear and a.change * b.change >= _MOSTLY * a.change**2)
                for a, b in zip(around.differences, each.figure.differences, strict=True)
            ):
                yield outer, each.name


def _hidden(comparison: side_by_side.Comparison) -> Collection[str]:
    """Returns the figures that are not shown: of all programs on GPUs, unless others have much there or no more is known."""
    is_known = all(_samples(comparison.rows[0], summary.GPU_TREE_PEAK))
    runs = [run.recording for side in comparison.sides for run in side.runs]
    return {summary.GPU_PEAK} if is_known and not any(map(shows_all_programs, runs)) else ()


def _names_text(figures: Sequence[_Placed]) -> str:
    """Returns the names of figures, the main ones first and with their values."""
    texts = []
    for each in sorted(figures, key=lambda each: each.name not in _HEADLINED):
        samples = filter(None, each.figure.samples)
        values = dict.fromkeys(number_text(sample.median, each.unit) for sample in samples)
        shown = phrase(" ({})", each.name in _HEADLINED and values, ", ".join)
        texts.append(f"{each.name}{shown}")
    more = phrase(" and {} more", texts[_MOST_NAMED:], len)
    return f"{', '.join(texts[:_MOST_NAMED])}{more}"


def _path_text(path: StepPath) -> str:
    return cut(path_text(path[-2:]), _LONGEST_NAME)


def _weight(comparison: side_by_side.Comparison, row: side_by_side.FigureRow) -> float:
    """Returns how much a difference matters: that which is clear first, by its share of the total."""
    whole = comparison.rows[0].figures.get(row.figure.name, row)
    total = max(sample.median for sample in filter(None, whole.samples))
    changes = list(filter(None, row.differences))
    largest = max((abs(each.change) for each in changes), default=0.0)
    return (largest / total if total > 0 else 0.0) + any(each.is_clear for each in changes)


def _points(comparison: side_by_side.Comparison) -> Iterator[str]:
    """Yields what has to be known of steps; one point for several of which it is the same."""
    noted = {row.path: ", ".join(_notes(comparison, row)) for row in comparison.rows[1:]}
    by_text: dict[str, list[StepPath]] = {}
    for path, text in noted.items():
        if text and text != noted.get(path[:-1]):  # else it is told of the step around it
            by_text.setdefault(text, []).append(path)
    for text, (first, *others) in by_text.items():
        if not others:
            yield f"{_path_text(first)}: {text}"
            continue
        alike = Counter(
            cut(WITHIN.join(name for name, _ in path[-2:]), _LONGEST_NAME)
            for path in (first, *others)
        )
        texts = ((name, f" ({times:,} times)" * (times > 1)) for name, times in alike.items())
        names = list(map("".join, texts))
        more = phrase(" and {} more", names[_MOST_NAMED:], len)
        yield f"{text}: {', '.join(names[:_MOST_NAMED])}{more}"


def _notes(comparison: side_by_side.Comparison, row: side_by_side.StepSides) -> Iterator[str]:
    """Yields what has to be known of a step: which sides have it, and where it did not end well."""
    having = [side.called for side, runs in zip(comparison.sides, row.runs, strict=True) if runs]
    if len(having) < len(comparison.sides):
        yield f"only in {', '.join(having)}"
    for side, runs, states in zip(comparison.sides, row.runs, row.states, strict=True):
        if 0 < runs < len(side.runs):
            yield f"in {runs} of {len(side.runs)} runs of {side.called}"
        for state in sorted(states - {"ended"}):
            yield f"{state} in {side.called}"


def _lines(comparison: side_by_side.Comparison) -> Iterator[doc.Table]:
    """Yields the lines of code of the step that makes a difference of the total, where both sides know theirs."""
    base, *others = comparison.sides
    for (at, side), name in product(enumerate(others), (summary.DURATION, summary.MEMORY_PEAK)):
        change = _difference(comparison.rows[0], name, at)
        where = _where_most(comparison, name, at) if change.is_clear else None
        if where is not None:
            is_time = name == summary.DURATION
            yield from lines_of((base, side), where.path[-1][0], is_time, change.change)


def _side_columns(comparison: side_by_side.Comparison) -> Iterator[doc.Column[Any]]:
    for number, side in enumerate(comparison.sides):
        title = "median ± largest distance of a run from it" if len(side.runs) > 1 else ""
        yield doc.Column(side.heading, "", absent="-", title=title)
        if number:
            yield doc.Column("DIFFERENCE", "")
            yield doc.Column("", "1", shown_in="%", is_signed=True)


_NOT_CLEAR: Final[Mapping[str, doc.Cell]] = {"unclear": _NOISE, "equal": doc.UnitCell(0, "")}
"""What stands for a difference that is known, and not clear."""


def _cells(row: side_by_side.FigureRow) -> Iterator[doc.Cell]:
    """Yields of each side the figure, and of all but the base its difference, with its share where it is clear."""
    unit = row.figure.unit
    for number, sample in enumerate(row.samples):
        spread = "" if sample is None else spread_text(row.figure, sample)
        yield None if sample is None else doc.UnitCell(sample.median, unit, after=spread)
        for found in row.differences[number - 1 : number]:
            if found is None or not found.is_clear:
                yield from (_NOT_CLEAR.get(_kind(found)), None)
            else:
                yield doc.UnitCell(found.change, unit, before="+" if found.change > 0 else "")
                yield None if found.ratio is None else found.ratio - 1


_PARTS: Final = {
    name.removeprefix(PREFIX)
    for quantity in QUANTITIES
    if len(quantity.attributes) > 1
    for name in quantity.attributes
}
"""Figures that are added up to another one."""


def _samples(row: side_by_side.StepSides, name: str) -> Sequence[side_by_side.Sample | None]:
    """Returns the values of a figure on each side; None on each for one that no side has."""
    figure = row.figures.get(name)
    return (None,) * len(row.runs) if figure is None else figure.samples


def _is_telling(each: _Placed) -> bool:
    """Whether a side has more than nothing of a figure, and no other figure tells more."""
    row, figure = each.row, each.figure
    if not any(sample.highest for sample in filter(None, figure.samples)):
        return False
    if each.name in summary.WAITS:  # the machine's part, once, where it can be seen beside the time
        lasted = _samples(row, summary.DURATION)
        return not row.path and any(
            waited.highest > SEEN * seconds.highest
            for name in summary.WAITS
            for waited, seconds in zip(_samples(row, name), lasted, strict=True)
            if waited and seconds
        )
    others = summary.MEMORY_SEEN, summary.PROCESS_PEAK
    if each.name in others and all(_samples(row, summary.MEMORY_PEAK)):
        return False
    if figure.figure.heading or figure.figure.kind == "cost":
        return True
    return each.name not in _PARTS and "clear" in map(_kind, figure.differences)


def _curves(comparison: side_by_side.Comparison) -> Iterator[doc.Part]:
    from otel_quant.views.curves import comparison_bands, comparison_charts

    base, new = comparison.sides[0], comparison.sides[-1]
    runs = _median_run(base), _median_run(new)
    time = common_time(*runs)
    charts = list(comparison_charts((base.called, new.called), runs, time)) if time.until else []
    if not charts:
        yield doc.Lines(("No curve was recorded.",))
        return
    names = f"{base.called} (dashed): {runs[0].name}; {new.called}: {runs[1].name}."
    yield doc.Lines((f"{base.called} is dashed." if base.title else names,))
    yield doc.Charts(charts, comparison_bands(runs[0], 0, time), time.until)


def _median_run(side: side_by_side.Side) -> ComparedRun:
    """Returns the run in the middle by its duration."""
    middle = statistics.median_low(run.recording.duration for run in side.runs)
    return next(run for run in side.runs if run.recording.duration == middle)


# --- for programs -------------------------------------------------------------------------

_SAMPLED: Final = ("median", "lowest", "highest")
_COMPARED: Final = ("change", "ratio", "p", "is_clear")


def _sheet_columns(sides: Sequence[side_by_side.Side]) -> Iterator[doc.Column[_Placed]]:
    """Yields the columns of CSV, which has a row for each figure of each step."""
    yield doc.Column("step", value=lambda each: path_text(each.row.path))
    yield doc.Column("figure", value=attrgetter("name"))
    yield doc.Column("unit", value=attrgetter("unit"))
    for at, side in enumerate(sides):
        of_side = [("samples", at, key) for key in ("runs", *_SAMPLED)]
        of_side += [("differences", at - 1, key) for key in _COMPARED if at]
        for of, number, key in of_side:
            name = f"{side.name.replace(' ', '_')}_{key}"
            yield doc.Column(name, "", partial(_of_side, of, number, key))


def _of_side(of: str, number: int, key: str, each: _Placed) -> doc.Cell:
    """Returns an attribute of a sample or of a difference of a side; its number of runs is known of none too."""
    found = getattr(each.figure, of)[number]
    if key == "runs":
        return len(found.values) if found else 0
    value: doc.Cell = getattr(found, key, None)
    return ("no", "yes")[value] if isinstance(value, bool) else value


_RUN: Final = (
    doc.Column[ComparedRun]("path", value=attrgetter("name")),
    doc.Column[ComparedRun]("state", value=attrgetter("recording.state")),
    doc.Column[ComparedRun]("problem", value=lambda run: run.why or None),
)
_CHECK: Final = (
    doc.Column[Any]("limit", value=lambda check: check.limit and check.limit.text),
    doc.Column[Any]("figure", value=lambda check: check.limit and check.limit.figure.name),
    doc.Column[Any]("step", value=lambda check: path_text(check.path)),
    doc.Column[Any]("side", value=attrgetter("side.name")),
    doc.Column[Any]("outcome", value=attrgetter("outcome")),
    doc.Column[Any]("base", "", value=lambda check: check.base and check.base.median),
    doc.Column[Any]("new", "", value=lambda check: check.new and check.new.median),
)


def _data(comparison: side_by_side.Comparison, verdict: GateVerdict | None) -> dict[str, Any]:
    """Returns what JSON has."""
    runs = [[run.recording for run in side.runs] for side in comparison.sides]
    steps = [
        [(it, {each.path: each.step for each in steps_in(it)}) for it in side] for side in runs
    ]
    data: dict[str, Any] = {
        "sides": [
            {"name": side.name, "runs": [*doc.records(_RUN, side.runs)]}
            for side in comparison.sides
        ],
        "differs": [
            {"name": fact.name, "values": fact.values, "changes": sorted(fact.changes)}
            for fact in comparison.differences
        ],
        "rows": [
            {
                "step": path_text(row.path),
                "runs": row.runs,
                "figures": {name: _figure_data(each) for name, each in row.figures.items()},
            }
            | {"bounds": [[_bound_of(*run, row.path) for run in side] for side in steps]}
            for row in comparison.rows
        ],
    }
    if verdict is not None:
        checks, texts = doc.records(_CHECK, verdict.checks), check_lines(comparison, verdict.checks)
        found = [{**check, "text": text} for check, text in zip(checks, texts, strict=True)]
        data["gate"] = {"outcome": verdict.outcome, "exit_code": verdict.exit_code, "checks": found}
    return data


def _bound_of(
    recording: Recording, steps: Mapping[StepPath, RecordedStep], path: StepPath
) -> dict[str, Any] | None:
    """Returns what bounds a step in a run, and what its thread did; None if that is not known."""
    step = steps.get(path)
    if step is None or semconv.STEP_BOUND_BY not in step.attributes:
        return None
    by, evidence = map(step.attributes.get, (semconv.STEP_BOUND_BY, semconv.STEP_BOUND_EVIDENCE))
    return {"by": by, "evidence": evidence, **split_shares(recording, step)}


def _figure_data(row: side_by_side.FigureRow) -> dict[str, Any]:
    """Returns a figure of a step, with all of its sides."""
    keys = (*_SAMPLED, "values")
    return {
        "unit": row.figure.unit,
        "is_smaller_better": row.figure.is_smaller_better,
        "sides": [each and {key: getattr(each, key) for key in keys} for each in row.samples],
        "differences": [found and asdict(found) for found in row.differences],
    }
