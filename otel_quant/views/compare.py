"""A comparison as a document, with what a gate finds in it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from operator import itemgetter
from typing import Any, Final

from otel_quant.recordings.compared_runs import CONFIGURATION, ComparedRun, common_time
from otel_quant.recordings.gate import Check, GateVerdict
from otel_quant.recordings.model import StepPath, name_text, path_text
from otel_quant.recordings.side_by_side import Comparison, FigureRow, Side, StepSides
from otel_quant.recordings.summary import (
    CPU_TIME,
    DURATION,
    GPU_PEAK,
    MEMORY_PEAK,
    MEMORY_SEEN,
    PROCESS_PEAK,
    WAITS,
    is_of_program,
)
from otel_quant.schema.catalog import QUANTITIES
from otel_quant.schema.figures import PREFIX
from otel_quant.schema.units import counted, cut, share_text
from otel_quant.views.document import (
    Cell,
    Charts,
    Column,
    Document,
    Facts,
    Lines,
    Part,
    Quantity,
    Section,
    Table,
)
from otel_quant.views.gate import SEEN, check_lines, fact_text, outcome_text, spread_text
from otel_quant.views.stacks import flame_of, lines_of
from otel_quant.views.text import number_text

_MOST_ROWS: Final = 40
_MOST_NOTES: Final = 20
_MOST_CHECKS: Final = 40
_MOST_NAMED: Final = 6
_MOSTLY: Final = 0.9
"""Part of a step's difference from which on a step within it tells it."""

_LONGEST_NAME: Final = 80

_FIRST_STEPS: Final = "of a recording with more than 10,000 steps the first 10,000 are compared"
_COLOURS: Final = "Red took more in {}, blue less, grey no more than noise; times are without waits for a processor."
_NOISE: Final = "~"
"""Stands for a difference that is not more than noise."""

_NOISE_MEANS: Final = "not significant, or explained by CPU contention"
_RUNS_ALONE: Final = (
    "The total is from the first step to the exit: a run without `otel-quant run` has no more."
)


def document(
    comparison: Comparison, verdict: GateVerdict | None, *, with_curves: bool = False
) -> Document:
    """Returns a comparison as a document; ``with_curves`` for a page, which has the verdict as title."""
    names = [side.name for side in comparison.sides]
    title = f"{', '.join(names[:-1])} and {names[-1]} side by side"
    if len(names) == 2:
        title = next(_headlines(comparison), title)
    if verdict is not None:
        title = outcome_text(verdict).capitalize()
    return Document(
        _parts(comparison, verdict, with_curves),
        title=title,
        over="Runs side by side",
        is_bad=(verdict is not None and verdict.outcome != "within")
        or any(run.why for side in comparison.sides[1:] for run in side.runs),
        sheet=lambda: _sheet(comparison),
        data=lambda: _data(comparison, verdict),
    )


def _parts(
    comparison: Comparison, verdict: GateVerdict | None, with_curves: bool
) -> Iterator[Part]:
    """Yields the answer first, the curves, then what differs, the most important first."""
    if verdict is not None:
        if not with_curves:
            yield Lines((outcome_text(verdict),))
        found = [check for check in verdict.checks if check.outcome != "within"]
        if lines := list(dict.fromkeys(check_lines(comparison, found))):
            yield Lines(lines, is_bad=True).first(_MOST_CHECKS)
    headlines = [f"{line}." for line in _headlines(comparison)]
    # Of two sides without limits, it is the title of the page.
    if headlines and not (with_curves and verdict is None and len(headlines) == 1):
        yield Lines(headlines)
    if settings := list(_settings(comparison)):
        yield Lines(settings)
    if with_curves:
        yield Section("Over time", _curves(comparison))
        for side in comparison.sides[1:]:
            graph = flame_of((comparison.sides[0], side))
            if graph is not None:
                yield Section(graph.title, (graph, Lines((_COLOURS.format(side.name),))))
    yield _figures(comparison)
    notes = ((row, ", ".join(_notes(comparison, row))) for row in comparison.rows[1:])
    if points := [f"{_step_name(row)}: {text}" for row, text in notes if text]:
        yield Lines(points, is_list=True).first(_MOST_NOTES)
    yield from _lines(comparison)
    if comparison.differences:
        yield Table(
            (Column("DIFFERS"), *(Column(side.name.upper()) for side in comparison.sides)),
            [
                (fact.name, *(fact_text(fact, at) for at in range(len(comparison.sides))))
                for fact in comparison.differences
            ],
            id="differs",
            caption="What differs in what made the runs",
        )
    yield Facts(
        [
            (side.name if not number else "", f"{run.name} ({run.why})" if run.why else run.name)
            for side in comparison.sides
            for number, run in enumerate(side.runs)
        ],
        caption="Runs",
    )


_HEADLINED: Final = {
    MEMORY_PEAK: "memory",
    GPU_PEAK: "GPU memory",
    DURATION: "time",
    CPU_TIME: "CPU time",
}


def _headlines(comparison: Comparison) -> Iterator[str]:
    """Yields for each side but the base a sentence on the figures that matter most."""
    base, *others = comparison.sides
    for at, side in enumerate(others):
        clear: list[str] = []
        equal: list[str] = []
        unclear: list[str] = []
        for name, words in _HEADLINED.items():
            row = comparison.rows[0].figures.get(name)
            change = row.differences[at] if row is not None else None
            if change is None or change.ratio is None:
                continue
            if not change.is_clear:
                (unclear if change.change else equal).append(words)
                continue
            amount = share_text(abs(change.ratio - 1))
            where = _where_most(comparison, name, at, change.change)
            most = f" (most in {cut(name_text(where.path), _LONGEST_NAME)})" if where else ""
            clear.append(f"{amount} {'more' if change.change > 0 else 'less'} {words}{most}")
        why = next((run.why for run in side.runs if run.why), "")
        texts = [_joined(clear)] if clear else []
        if clear and not why:
            texts = [f"needs {texts[0]} than {base.name}"]
        texts += [f"{_joined(unclear)} cannot be told apart"] if unclear else []
        texts += [f"{_joined(equal)} equal"] if equal else []
        if texts and (why or not clear):
            texts[0] = f"against {base.name}: {texts[0]}"
        if texts or why:
            yield f"{side.name} {'; '.join(filter(None, (why, *texts)))}"


def _joined(texts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


def _settings(comparison: Comparison) -> Iterator[str]:
    """Yields for each side of another configuration than the base in which settings it differs."""
    facts = {fact.name: fact for fact in comparison.differences}
    of_all, library = facts.get(CONFIGURATION), facts.get("library")
    base, *others = comparison.sides
    for at, side in enumerate(others, 1):
        # Hashes of two libraries are of different things.
        if of_all is None or not of_all.is_unlike(at) or (library and library.is_unlike(at)):
            continue
        unlike = [fact for fact in facts.values() if fact.is_setting and fact.is_unlike(at)]
        texts = [f"{fact.name} {fact_text(fact, at)}, not {fact_text(fact, 0)}" for fact in unlike]
        shown = "; ".join(texts) or "in settings without an attribute of their own"
        yield f"{side.name} has another configuration than {base.name}: {shown}."


def _where_most(comparison: Comparison, name: str, at: int, total: float) -> StepSides | None:
    """Returns the step that differs most in the direction of the total: the innermost with half of it."""
    found = [
        (abs(change.change), row)
        for row in comparison.rows[1:]
        if name in row.figures
        and (change := row.figures[name].differences[at]) is not None
        and change.is_clear
        and change.change * total > 0
    ]
    if not found:
        return None
    most, outer = max(found, key=itemgetter(0))
    within = (
        (len(row.path), change, row)
        for change, row in found
        if change >= most / 2 and row.path[: len(outer.path)] == outer.path
    )
    return max(within, key=itemgetter(0, 1))[2]


def _figures(comparison: Comparison) -> Table | Lines:
    """Returns the figures that differ, the total's first, then the most important; and a note of the others."""
    shown: list[tuple[StepSides, FigureRow]] = []
    equal: list[FigureRow] = []
    unclear: list[FigureRow] = []
    of_steps, told = 0, set(_told_within(comparison))
    for row in comparison.rows:
        for name, each in row.figures.items():
            if not _is_telling(row, name):
                continue
            changes = [found for found in each.differences if found and found.change]
            is_clear = any(found.is_clear for found in changes)
            if is_clear or (not row.path and None in each.differences):
                if (row.path, name) not in told:
                    shown.append((row, each))
            elif row.path:
                of_steps += any(each.differences)
            else:
                (unclear if changes else equal).append(each)
    shown.sort(key=lambda pair: (bool(pair[0].path), -_weight(comparison, pair[1])))
    notes = []
    if any(
        found and found.change and not found.is_clear
        for _, each in shown
        for found in each.differences
    ):
        notes.append(f"{_NOISE}: {_NOISE_MEANS}")
    if len({is_of_program(run.recording) for side in comparison.sides for run in side.runs}) == 2:
        notes.append(_RUNS_ALONE)
    if any(run.has_more_steps for side in comparison.sides for run in side.runs):
        notes.append(_FIRST_STEPS)
    if unclear:
        notes.append(f"{_NOISE_MEANS}, in total: {_names_text(unclear)}")
    if equal:
        notes.append(f"equal in total: {_names_text(equal)}")
    if of_steps:
        notes.append(
            f"equal or not significantly different: {counted(of_steps, 'figure')} of steps"
        )
    if not shown:
        return Lines(notes)
    rows = [(_step_name(row), each.figure.name, *_cells(each)) for row, each in shown]
    columns = [Column[Any]("STEP"), Column[Any]("FIGURE"), *_columns(comparison)]
    if any(found := [_p_text(each) for _, each in shown]):
        rows = [(*row, p) for row, p in zip(rows, found, strict=True)]
        columns.append(Column("NOTE"))
    table = Table(columns, rows, id="figures", caption="What differs", is_sortable=False)
    table = table.first(_MOST_ROWS, "smaller difference")
    return table._replace(note="\n".join((*notes, *filter(None, (table.note,)))))


def _told_within(comparison: Comparison) -> Iterator[tuple[StepPath, str]]:
    """Yields steps and figures of which a step within makes nearly all of the differences."""
    by_path = {row.path: row.figures for row in comparison.rows[1:]}
    for row in comparison.rows[1:]:
        for name, inner in row.figures.items():
            for outer in (row.path[:depth] for depth in range(1, len(row.path))):
                around = by_path.get(outer, {}).get(name)
                if around is not None and all(
                    a is None or (b and b.is_clear and a.change * b.change >= _MOSTLY * a.change**2)
                    for a, b in zip(around.differences, inner.differences, strict=True)
                ):
                    yield outer, name


def _names_text(rows: Sequence[FigureRow]) -> str:
    """Returns the names of figures, the main ones first and with their values."""
    texts = []
    for each in sorted(rows, key=lambda row: row.figure.name not in _HEADLINED):
        values = (
            number_text(sample.median, each.figure.unit)
            for sample in each.samples
            if sample and each.figure.name in _HEADLINED
        )
        value = ", ".join(dict.fromkeys(values))
        texts.append(f"{each.figure.name} ({value})" if value else each.figure.name)
    more = f" and {len(texts) - _MOST_NAMED} more" if len(texts) > _MOST_NAMED else ""
    return f"{', '.join(texts[:_MOST_NAMED])}{more}"


def _step_name(row: StepSides) -> str:
    return cut(path_text(row.path[-2:]), _LONGEST_NAME)


def _weight(comparison: Comparison, row: FigureRow) -> float:
    """Returns how much a difference matters: that which is clear first, by its share of the total."""
    whole = comparison.rows[0].figures.get(row.figure.name, row)
    total = max((sample.median for sample in whole.samples if sample), default=0.0)
    changes = [each for each in row.differences if each and each.change]
    largest = max((abs(each.change) for each in changes), default=0.0)
    share = largest / total if total > 0 else 0.0
    return share + any(each.is_clear for each in changes)


def _notes(comparison: Comparison, row: StepSides) -> Iterator[str]:
    """Yields what has to be known of a step: which sides have it, and where it did not end well."""
    having = [side.name for side, runs in zip(comparison.sides, row.runs, strict=True) if runs]
    if len(having) < len(comparison.sides):
        yield f"only in {', '.join(having)}"
    for side, runs, states in zip(comparison.sides, row.runs, row.states, strict=True):
        if 0 < runs < len(side.runs):
            yield f"in {runs} of {len(side.runs)} runs of {side.name}"
        for state in sorted(states - {"ended"}):
            yield f"{state} in {side.name}"


def _lines(comparison: Comparison) -> Iterator[Table]:
    """Yields the lines of code of the step that makes a difference of the total, where both sides know theirs."""
    for at, side in enumerate(comparison.sides[1:]):
        for name in (DURATION, MEMORY_PEAK):
            row = comparison.rows[0].figures.get(name)
            change = row.differences[at] if row is not None else None
            if change is not None and change.is_clear:
                where = _where_most(comparison, name, at, change.change)
                if where is not None:
                    of = comparison.sides[0], side
                    yield from lines_of(of, where.path[-1][0], name == DURATION, change.change)


def _columns(comparison: Comparison) -> Iterator[Column[Any]]:
    for number, side in enumerate(comparison.sides):
        title = "median ± largest distance of a run from it" if len(side.runs) > 1 else ""
        yield Column(side.name.upper(), "", absent="-", title=title)
        if number:
            yield Column("DIFFERENCE", "")
            yield Column("", "1", shown_in="%", is_signed=True)


def _cells(row: FigureRow) -> Iterator[Cell]:
    unit = row.figure.unit
    for number, sample in enumerate(row.samples):
        spread = "" if sample is None else spread_text(row.figure, sample)
        yield None if sample is None else Quantity(sample.median, unit, after=spread)
        each = row.differences[number - 1] if number else None
        if each is not None and each.change and each.is_clear:
            yield Quantity(each.change, unit, before="+" if each.change > 0 else "")
            yield None if each.ratio is None else each.ratio - 1
        elif number:
            yield None if each is None else _NOISE if each.change else Quantity(0, "")
            yield None


def _p_text(row: FigureRow) -> str:
    """Returns what the test finds: ``p=0.008``; empty with a run on each side."""
    return " ".join(f"p={each.p:.3f}" for each in row.differences if each and each.p is not None)


_PARTS: Final = {
    name.removeprefix(PREFIX)
    for quantity in QUANTITIES
    if len(quantity.attributes) > 1
    for name in quantity.attributes
}
"""Figures that are added up to another one."""


def _is_telling(row: StepSides, name: str) -> bool:
    """Whether a side has more than nothing of a figure, and no other figure tells more."""
    of, peak = row.figures[name], row.figures.get(MEMORY_PEAK)
    if not any(sample is not None and sample.highest for sample in of.samples):
        return False
    if name in WAITS:  # the machine's part, once
        return not row.path and _is_busy(row)
    if name in (MEMORY_SEEN, PROCESS_PEAK) and peak is not None and all(peak.samples):
        return False
    if of.figure.heading or of.figure.kind == "cost":
        return True
    return name not in _PARTS and any(each is not None and each.is_clear for each in of.differences)


def _is_busy(row: StepSides) -> bool:
    """Whether threads had to wait for a processor for a part of a run's time that can be seen."""
    lasted = row.figures[DURATION].samples if DURATION in row.figures else ()
    return any(
        waited is not None and seconds is not None and waited.highest > SEEN * seconds.highest
        for name in WAITS
        if name in row.figures
        for waited, seconds in zip(row.figures[name].samples, lasted, strict=False)
    )


def _curves(comparison: Comparison) -> Iterator[Part]:
    from otel_quant.views.curves import comparison_bands, comparison_charts

    base, new = comparison.sides[0], comparison.sides[-1]
    runs = _median_run(base), _median_run(new)
    time = common_time(*runs)
    charts = list(comparison_charts((base.name, new.name), runs, time)) if time.until else []
    if not charts:
        yield Lines(("No curve was recorded.",))
        return
    yield Lines((f"{base.name} (dashed): {runs[0].name}; {new.name}: {runs[1].name}.",))
    yield Charts(charts, comparison_bands(runs[0], 0, time), time.until)


def _median_run(side: Side) -> ComparedRun:
    """Returns the run in the middle by its duration."""
    middle = statistics.median_low(run.recording.duration for run in side.runs)
    return next(run for run in side.runs if run.recording.duration == middle)


# --- for programs -------------------------------------------------------------------------


def _data(comparison: Comparison, verdict: GateVerdict | None) -> dict[str, Any]:
    data: dict[str, Any] = {
        "sides": [
            {"name": side.name, "runs": list(map(_run_data, side.runs))}
            for side in comparison.sides
        ],
        "differs": [
            {
                "name": fact.name,
                "values": [list(values) for values in fact.values],
                "changes": sorted(fact.changes),
            }
            for fact in comparison.differences
        ],
        "rows": [
            {
                "step": path_text(row.path),
                "runs": list(row.runs),
                "figures": {name: _figure_data(each) for name, each in row.figures.items()},
            }
            for row in comparison.rows
        ],
    }
    if verdict is not None:
        texts = check_lines(comparison, verdict.checks)
        checks = map(_check_data, verdict.checks, texts)
        data["gate"] = {
            "outcome": verdict.outcome,
            "exit_code": verdict.exit_code,
            "checks": [*checks],
        }
    return data


def _run_data(run: ComparedRun) -> dict[str, Any]:
    return {"path": run.name, "state": run.recording.state, "problem": run.why or None}


def _figure_data(row: FigureRow) -> dict[str, Any]:
    return {
        "unit": row.figure.unit,
        "is_smaller_better": row.figure.is_smaller_better,
        "sides": [
            each
            and {name: getattr(each, name) for name in _SAMPLED} | {"values": list(each.values)}
            for each in row.samples
        ],
        "differences": [found and asdict(found) for found in row.differences],
    }


def _check_data(check: Check, text: str) -> dict[str, Any]:
    return {
        "limit": check.limit and check.limit.text,
        "figure": check.limit and check.limit.figure.name,
        "step": path_text(check.path),
        "side": check.side.name,
        "outcome": check.outcome,
        "base": check.base and check.base.median,
        "new": check.new and check.new.median,
        "text": text,
    }


def _sheet(comparison: Comparison) -> Table:
    """Returns a row for each figure of each step."""
    names = ["step", "figure", "unit"]
    for number, side in enumerate(comparison.sides):
        known = ("runs", *_SAMPLED, *(_COMPARED if number else ()))
        names += [f"{side.name.replace(' ', '_')}_{each}" for each in known]
    rows = [
        (path_text(row.path), each.figure.name, each.figure.unit, *_sheet_cells(each))
        for row in comparison.rows
        for each in row.figures.values()
    ]
    return Table([Column[Any](name) for name in names], rows)


_SAMPLED: Final = ("median", "lowest", "highest")
_COMPARED: Final = ("change", "ratio", "p", "is_clear")


def _sheet_cells(row: FigureRow) -> Iterator[Cell]:
    for number, sample in enumerate(row.samples):
        yield len(sample.values) if sample else 0
        yield from (getattr(sample, name, None) for name in _SAMPLED)
        if number:
            each = row.differences[number - 1]
            yield from (getattr(each, name, None) for name in _COMPARED[:-1])
            yield None if each is None else "yes" if each.is_clear else "no"
