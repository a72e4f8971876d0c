"""Tables of a report beside the steps: models before and after, processes side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from statistics import median
from typing import Any, Final, NamedTuple, TypeAlias

from otel_quant.recordings import summary
from otel_quant.recordings.model import STATES, WORST_FIRST, RecordedRun, Recording, State, number
from otel_quant.schema.figures import MODEL_FIGURES
from otel_quant.schema.units import counted, cut, duration_text, share_text
from otel_quant.views.document import (
    ONE,
    Cell,
    Column,
    Lines,
    Part,
    Quantity,
    Row,
    Section,
    Shares,
    Table,
)
from otel_quant.views.steps import by_process, process_name
from otel_quant.views.text import listed, precision_text

_LONGEST_NAME: Final = 120

# --- models -------------------------------------------------------------------------------

_ROLES: Final = {"float": "Before (float)", "quantized": "After (quantized)"}
_MIXES: Final = {"precision.": "as stored", "expected_precision.": "as expected to run"}
_LONGEST_FACT: Final = 300
_MOST_LAYERS: Final = 6

Model: TypeAlias = Mapping[str, Any]


def models_of(recording: Recording) -> Iterator[Section]:
    """Yields what is known of the models; nothing if none was costed."""
    parts = list(model_parts(recording))
    if parts:
        last = _last_models(recording).items()
        layers = [table for role, model in last for table in _layers(role, model)]
        yield Section("Models", (*parts, Section("", layers, layout="pairs")))


def model_parts(recording: Recording) -> Iterator[Part]:
    """Yields the models side by side, and notes on them."""
    models = _last_models(recording)
    if not models:
        return
    yield _comparison(models)
    for role, model in models.items():
        yield from _mixes(role, model)
    notes = [line for role, model in models.items() for line in _notes(role, model)]
    if (left_out := sum(len(run.models) for run in recording.runs) - len(models)) > 0:
        notes.append(
            f"{counted(left_out, 'earlier model')} left out: the last of each role counts."
        )
    if notes:
        yield Lines(notes)


def _last_models(recording: Recording) -> dict[str, Model]:
    """Returns the last model of each role, which counts, as on the run's span."""
    every = (model for run in recording.runs for model in run.models)
    last = {str(model.get("role") or model.get("path") or "model"): model for model in every}
    return {role: last[role] for role in (*_ROLES, *last) if role in last}


def _figures(model: Model) -> Mapping[str, Any]:
    figures = model.get("figures")
    return figures if isinstance(figures, Mapping) else {}


def _comparison(models: Mapping[str, Model]) -> Table:
    has_both = models.keys() >= _ROLES.keys()
    columns = [Column[Any]("Model")]
    columns += [Column(_ROLES.get(role, cut(role, _LONGEST_NAME)), "") for role in models]
    columns += [Column("Change", "")] if has_both else []
    rows = []
    for figure in MODEL_FIGURES:
        values = [number(_figures(model), figure.name) for model in models.values()]
        if figure.heading and any(value is not None for value in values):
            unit = "M" if figure.unit.startswith("{") else figure.unit
            cells: list[Cell] = [f"{figure.heading[0].upper()}{figure.heading[1:]}"]
            cells += [Quantity(value, unit) for value in values]
            rows.append([*cells, *([_change(*values[:2])] if has_both else [])])
    return Table(columns, rows, id="models", caption="Models", is_sortable=False)


def _change(before: float | None, after: float | None) -> str:
    if not before or after is None or max(before, after) > 1e300:  # a profile may say anything
        return ""
    if before == after:
        return "the same"
    ratio = f"{after / before:.3g}"
    return "nearly the same" if ratio == "1" else f"x {ratio}"


def _types(figures: Mapping[str, Any], prefix: str) -> dict[str, float]:
    """Returns the shares of a model's MACs by type, the largest first."""

    def shown(name: str) -> str:
        words = name.removeprefix(prefix).replace("_", " ")  # names of attributes have no blanks
        return cut(words.replace("weight only", "weight-only"), 20)

    found = {
        shown(str(name)): share
        for name in figures
        if str(name).startswith(prefix) and (share := number(figures, name)) is not None
    }
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def _mixes(role: str, model: Model) -> Iterator[Shares]:
    mixes = {words: _types(_figures(model), prefix) for prefix, words in _MIXES.items()}
    words = list(mixes)
    if mixes[words[0]] == mixes[words[1]]:
        mixes = {" and ".join(words): mixes[words[0]]}
    for name, types in mixes.items():
        if types:
            yield Shares(f"MACs of the {role} model by type, {name}", list(types.items()))


def _text(key: str) -> Callable[[Model], Cell]:
    return lambda node: cut(str(node.get(key, "")), _LONGEST_NAME)


_LAYER: Final = (
    Column[Model]("Layer", None, _text("name")),
    Column[Model]("Operator", None, _text("op_type")),
    Column[Model]("Stored in", None, _text("precision")),
    Column[Model]("Expected to run in", None, _text("expected_precision")),
)
_LAYERS: Final = {
    "macs": (
        "most MACs",
        Column[Model]("MACs", "", lambda node: number(node, "macs"), shown_in="M", digits=1),
    ),
    "memory_bytes": (
        "largest memory",
        Column[Model](
            "Memory", "By", lambda node: number(node, "memory_bytes"),
            shown_in="MB", digits=2, title="estimated",
        ),
    ),
}  # fmt: skip


def _layers(role: str, model: Model) -> Iterator[Table]:
    nodes = [node for node in model.get("heaviest") or () if isinstance(node, Mapping)]
    for key, (most, column) in _LAYERS.items():
        known = [(value, node) for node in nodes if (value := number(node, key))]
        known.sort(key=lambda pair: -pair[0])
        if known:
            yield Table.of(
                (*_LAYER, column),
                [node for _, node in known[:_MOST_LAYERS]],
                id=f"layers-{role}-{key}",
                caption=f"Layers with the {most}, {role} model",
            )


_SAID: Final = {
    "input_shapes": "for inputs of",
    "assumed": "assumed",
    "uncosted_ops": "without known costs",
}


def _notes(role: str, model: Model) -> Iterator[str]:
    figures = _figures(model)
    said = [cut(str(model["path"]), _LONGEST_NAME)] if model.get("path") else []
    if figures.get("runtime"):
        stored, expected = (_types(figures, prefix) for prefix in _MIXES)
        reasons = [listed(figures.get("in_float", ()))] if figures.get("in_float") else []
        text = precision_text(stored, expected, str(figures["runtime"]), reasons)
        said.append(f"contractions {cut(text, _LONGEST_FACT)}")
    said += [
        f"{words} {cut(listed(figures[key]), _LONGEST_FACT)}"
        for key, words in _SAID.items()
        if figures.get(key)
    ]
    if said:
        yield f"{role.capitalize()} model: {'; '.join(said)}."
    if model.get("error"):
        yield f"The {role} model could not be costed: {cut(str(model['error']), _LONGEST_FACT)}"


# --- processes ----------------------------------------------------------------------------

_MOST_PROCESSES: Final = 128
_MOST_STEPS: Final = 60


class _Process(NamedTuple):
    """One process with all its runs."""

    name: str  # In words
    runs: Sequence[RecordedRun]
    start: float  # When the first began
    end: float  # When the last ended, or the end of what is known
    peak: float | None  # Highest memory of its tree, in bytes
    depth: int = 0  # Recorded processes above it
    ratio: float = 0.0  # Its time to the median of those beside it; 0 if there are none

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def state(self) -> State:
        states = {run.state for run in self.runs}
        return next(state for state in WORST_FIRST if state in states)


_COLUMNS: Final = (
    Column[_Process]("Process", None, lambda each: each.name),
    Column[_Process]("State", None, lambda each: STATES[each.state].cell),
    Column[_Process]("Start", "s", lambda each: each.start, shown_in="s"),
    Column[_Process]("Time", "s", lambda each: each.seconds, shown_in="s"),
    Column[_Process](
        "Time to median", "1", lambda each: each.ratio - 1 if each.ratio else None,
        shown_in="%", is_signed=True, title="longer or shorter than the median of those that the same process has started",
    ),
    Column[_Process](
        "Memory peak", "By", lambda each: each.peak, shown_in=ONE,
        title="of the process and its children",
    ),
    Column[_Process]("Steps", "", lambda each: sum(len(run.steps) for run in each.runs)),
)  # fmt: skip


def processes_of(recording: Recording) -> tuple[str, list[Table]]:
    """Returns a sentence on several processes, and their tables; nothing for a single one.

    A process that has started others waits for them: only those are compared that one has started.
    """
    families = _families(recording)
    processes = [each for family in families.values() for each in family]
    if len(processes) < 2:
        return "", []
    steps = {above: list(_common_steps(recording, family)) for above, family in families.items()}
    tables = []
    if common := sorted(chain(*steps.values()), key=lambda each: -each.longest):
        caption = "The same step in processes beside each other"
        table = Table.of(_IMBALANCE, common, id="imbalance", caption=caption)
        tables.append(table.first(_MOST_STEPS, "shorter step"))
    table = Table.of(
        _COLUMNS,
        _in_order(families),
        row=lambda each, cells: Row(cells, each.depth, state=each.state),
        id="processes",
        caption="Processes, slowest first"
        if len(families) == 1
        else "Processes: below each those that it has started, slowest first",
    )
    tables.append(table.first(_MOST_PROCESSES, "process", "processes"))
    sentence = f"{len(processes):,} processes"
    above, family = next((each for each in families.items() if len(each[1]) > 1), (None, []))
    if family:
        name = next((each.name for each in processes if each.runs[0].pid == above), "")
        who = f"{name} started" if name else "no other one started"
        of = f"of the {len(family):,} that {who}, " if len(family) < len(processes) else ""
        took = duration_text(family[0].seconds)
        sentence += f": {of}{family[0].name} took longest with {took}"
        if steps[above] and family[0].ratio:
            sentence += f", {share_text(family[0].ratio - 1)} more than the median"
    return f"{sentence}.", tables


def _families(recording: Recording) -> dict[int | None, list[_Process]]:
    """Returns the processes that one has started, by its id, slowest first; first those of none here."""
    every = by_process(recording)
    pids = {runs[0].pid for runs in every.values()}
    families: dict[int | None, list[_Process]] = {None: []}
    for runs in every.values():
        above = runs[0].parent_pid if runs[0].parent_pid in pids else None
        families.setdefault(above, []).append(
            _process(recording, runs, is_worker=above is not None)
        )
    for above, family in families.items():
        typical = median(each.seconds for each in family) if len(family) > 1 else 0.0
        ratios = (each.seconds / typical if typical else 0.0 for each in family)
        found = [each._replace(ratio=ratio) for each, ratio in zip(family, ratios, strict=True)]
        families[above] = sorted(found, key=lambda each: -each.seconds)
    return families


def _in_order(families: Mapping[int | None, Sequence[_Process]]) -> Iterator[_Process]:
    """Yields each process before those that it has started; those of a circle, as a file may have it, last."""
    left = dict(families)
    while left:
        waiting = list(reversed(left.pop(None if None in left else next(iter(left)))))
        while waiting:
            each = waiting.pop()
            yield each
            below = left.pop(each.runs[0].pid, ())
            waiting += (child._replace(depth=each.depth + 1) for child in reversed(below))


def _process(recording: Recording, runs: Sequence[RecordedRun], *, is_worker: bool) -> _Process:
    peaks = (summary.peak_of_run(recording, run) for run in runs)
    return _Process(
        # A worker has the rank of the process that has started it.
        f"process {runs[0].process}" if is_worker else process_name(runs[0]),
        runs,
        runs[0].start,
        max(recording.duration if run.end is None else run.end for run in runs),
        max((peak.value for peak in peaks if peak is not None), default=None),
    )


class _Step(NamedTuple):
    """A step as the processes took it: those of one process that have its name are one."""

    name: str
    seconds: dict[str, float]  # By process
    peaks: dict[str, float]  # By process that knows it

    @property
    def slowest(self) -> str:
        return max(self.seconds, key=lambda process: (self.seconds[process], process))

    @property
    def longest(self) -> float:
        return max(self.seconds.values())

    @property
    def typical(self) -> float:
        return median(self.seconds.values())

    @property
    def largest(self) -> str | None:
        return max(self.peaks, key=lambda process: (self.peaks[process], process), default=None)


_IMBALANCE: Final = (
    Column[_Step]("Step", None, lambda each: cut(each.name, _LONGEST_NAME)),
    Column[_Step]("Processes", "", lambda each: len(each.seconds)),
    Column[_Step]("Shortest", "s", lambda each: min(each.seconds.values()), shown_in="s"),
    Column[_Step]("Median", "s", lambda each: each.typical, shown_in="s"),
    Column[_Step]("Longest", "s", lambda each: each.longest, shown_in="s"),
    Column[_Step]("Slowest", None, lambda each: each.slowest),
    Column[_Step](
        "Imbalance", "1", lambda each: each.longest / each.typical - 1 if each.typical else None,
        shown_in="%", is_signed=True, title="by how much the longest is longer than the median",
    ),
    Column[_Step](
        "Memory peak", "By", lambda each: max(each.peaks.values(), default=None), shown_in=ONE,
        title="highest of any process",
    ),
    Column[_Step]("Peak in", None, lambda each: each.largest),
)  # fmt: skip


def _common_steps(recording: Recording, processes: Sequence[_Process]) -> Iterator[_Step]:
    found: dict[str, _Step] = {}
    for process in processes if len(processes) > 1 else ():
        for run in process.runs:
            of_steps = summary.StepSummary(recording, run)
            for step in run.steps:
                each = found.setdefault(step.name, _Step(step.name, {}, {}))
                end = step.end if step.end is not None else process.end
                before = each.seconds.get(process.name, 0.0)
                each.seconds[process.name] = before + end - step.start
                if (peak := of_steps.value(step, summary.MEMORY_PEAK)) is not None:
                    each.peaks[process.name] = max(peak, each.peaks.get(process.name, 0.0))
    yield from (each for each in found.values() if len(each.seconds) > 1)
