"""Tables of a report beside the steps: models before and after, processes side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from otel_quant.recordings import summary
from otel_quant.recordings.model import STATES, WORST_FIRST, RecordedRun, Recording, State, number
from otel_quant.schema.units import counted, cut, duration_text, share_text
from otel_quant.views.document import (
    ONE,
    Cell,
    Column,
    Lines,
    Quantity,
    Row,
    Section,
    Shares,
    Table,
)
from otel_quant.views.steps import by_process, process_name
from otel_quant.views.text import listed

_ROLES: Final = ("float", "quantized")
_PRECISION: Final = "precision."
_LONGEST_NAME: Final = 120
_MOST_LAYERS: Final = 6


_FIGURES: Final = (
    ("Size of the file", "size", "By"),
    ("Parameters", "params", "M"),
    ("Weights", "weight_bytes", "By"),
    ("MACs", "macs", "M"),
    ("MACs of contractions", "macs_contraction", "M"),
    ("Peak of activations", "peak_activation_bytes", "By"),
    ("Nodes", "nodes", "M"),
    ("QuantizeLinear and DequantizeLinear", "qdq_nodes", "M"),
    ("MACs in int8 or narrower", "integer_mac_share", "1"),
)


def models_of(recording: Recording) -> Iterator[Section]:
    """Yields what is known of the models; nothing if none was costed.

    The last model of each role counts, as on the run's span.
    """
    every = [model for run in recording.runs for model in run.models]
    if not every:
        return
    last = {str(model.get("role")): model for model in every}
    roles = [role for role in (*_ROLES, *last) if role in last]
    models = {role: last[role] for role in dict.fromkeys(roles)}
    mixes = [_mix(role, model) for role, model in models.items()]
    layers = [table for role, model in models.items() for table in _layers(role, model)]
    yield Section(
        "Models",
        (
            _comparison(models),
            *(mix for mix in mixes if mix.rows),
            Lines(tuple(_notes(models, len(every)))),
            Section("", layers, layout="pairs"),
        ),
    )


def _figures(model: Mapping[str, Any]) -> Mapping[str, Any]:
    figures = model.get("figures")
    return figures if isinstance(figures, Mapping) else {}


def _comparison(models: Mapping[str, Mapping[str, Any]]) -> Table:
    has_both = set(_ROLES) <= models.keys()
    headings = {"float": "Before (float)", "quantized": "After (quantized)"}
    columns = [Column[Any]("Model")]
    columns += [Column(headings.get(role, cut(role, _LONGEST_NAME)), "") for role in models]
    columns += [Column("Change", "")] if has_both else []
    rows = []
    for name, key, unit in _FIGURES:
        values = {role: number(_figures(model), key) for role, model in models.items()}
        if any(value is not None for value in values.values()):
            cells: list[Cell] = [name, *(Quantity(value, unit) for value in values.values())]
            cells += [_change(values["float"], values["quantized"])] if has_both else []
            rows.append(cells)
    return Table(columns, rows, id="models", caption="Models", is_sortable=False)


def _change(before: float | None, after: float | None) -> str:
    if not before or after is None:
        return ""
    if before == after:
        return "the same"
    ratio = f"{after / before:.3g}"
    return "nearly the same" if ratio == "1" else f"x {ratio}"


def _mix(role: str, model: Mapping[str, Any]) -> Shares:
    """Returns in which types a model's MACs execute."""
    found = [
        (cut(str(name).removeprefix(_PRECISION), 20), share)
        for name in _figures(model)
        if str(name).startswith(_PRECISION) and (share := number(_figures(model), name)) is not None
    ]
    found.sort(key=lambda pair: -pair[1])
    return Shares(f"MACs of the {role} model by type", found)


def _layers(role: str, model: Mapping[str, Any]) -> Iterator[Table]:
    nodes = [node for node in model.get("heaviest") or () if isinstance(node, Mapping)]
    for key, caption, last in _LAYERS:
        known = [node for node in nodes if number(node, key)]
        known.sort(key=lambda node: -(number(node, key) or 0))
        if known:
            yield Table.of(
                (*_LAYER, last),
                known[:_MOST_LAYERS],
                id=f"layers-{role}-{key}",
                caption=f"Layers with the {caption}, {role} model",
            )


def _text(name: str) -> Callable[[Mapping[str, Any]], Cell]:
    return lambda node: cut(str(node.get(name, "")), _LONGEST_NAME)


def _number(name: str) -> Callable[[Mapping[str, Any]], Cell]:
    return lambda node: number(node, name)


_LAYER: Final = (
    Column[Mapping[str, Any]]("Layer", None, _text("name")),
    Column[Mapping[str, Any]]("Operator", None, _text("op_type")),
    Column[Mapping[str, Any]]("Type", None, _text("precision")),
)
_LAYERS: Final = (
    ("macs", "most MACs", Column("MACs", "", _number("macs"), shown_in="M", digits=1)),
    (
        "memory_bytes",
        "largest memory",
        Column("Memory", "By", _number("memory_bytes"), shown_in="MB", digits=2, title="estimated"),
    ),
)


def _notes(models: Mapping[str, Mapping[str, Any]], count: int) -> Iterator[str]:
    for role, model in models.items():
        figures = _figures(model)
        said = [cut(str(model["path"]), _LONGEST_NAME)] if model.get("path") else []
        said += [
            f"{words} {cut(listed(figures[key]), 300)}"
            for key, words in _SAID.items()
            if figures.get(key)
        ]
        if said:
            yield f"{role.capitalize()} model: {'; '.join(said)}."
        if model.get("error"):
            yield f"The {role} model could not be costed: {cut(str(model['error']), 300)}"
    if count > len(models):
        yield f"{counted(count - len(models), 'earlier model')} left out: the last of each role counts."


_SAID: Final[Mapping[str, str]] = {
    "input_shapes": "for inputs of",
    "assumed": "assumed",
    "uncosted_ops": "without known costs",
}


_MOST_PROCESSES: Final = 128
_MOST_STEPS: Final = 60


@dataclass(frozen=True, slots=True)
class _Process:
    """One process with all its runs."""

    name: str  # In words
    runs: Sequence[RecordedRun]  # Its runs
    start: float  # When the first began
    end: float  # When the last ended, or the end of what is known
    peak: float | None  # Highest memory of its tree, in bytes

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def state(self) -> State:
        states = {run.state for run in self.runs}
        return next(state for state in WORST_FIRST if state in states)


def processes_of(recording: Recording) -> tuple[str, list[Table]]:
    """Returns a sentence on several processes, and their tables; nothing for a single one."""
    processes = [
        _Process(
            process_name(runs[0]),
            runs,
            runs[0].start,
            max(recording.duration if run.end is None else run.end for run in runs),
            max(_peaks(recording, runs), default=None),
        )
        for runs in by_process(recording).values()
    ]
    if len(processes) == 1 or not processes:
        return "", []
    processes.sort(key=lambda each: -each.seconds)
    imbalance = list(_imbalance_tables(recording, processes))
    return _sentence(processes, bool(imbalance)), [*imbalance, _process_table(processes)]


def _peaks(recording: Recording, runs: Sequence[RecordedRun]) -> Iterator[float]:
    for run in runs:
        if (peak := summary.peak_of_run(recording, run)) is not None:
            yield peak.value


def _sentence(processes: Sequence[_Process], have_same_steps: bool) -> str:
    slowest, typical = processes[0], median(each.seconds for each in processes)
    text = f"{len(processes):,} processes: {slowest.name} took longest with {duration_text(slowest.seconds)}"
    if typical and have_same_steps:
        text += f", {share_text(slowest.seconds / typical - 1)} more than the median"
    return f"{text}."


def _process_table(processes: Sequence[_Process]) -> Table:
    typical = median(each.seconds for each in processes)
    ratio = Column[_Process](
        "Time to median", "1", lambda each: each.seconds / typical - 1 if typical else None,
        shown_in="%", is_signed=True, title="longer or shorter than the median process",
    )  # fmt: skip
    return Table.of(
        (*_COLUMNS[:4], ratio, *_COLUMNS[4:]),
        processes,
        row=lambda each, cells: Row(cells, state=each.state),
        id="processes",
        caption="Processes, slowest first",
    ).first(_MOST_PROCESSES, "faster process", "faster processes")


_COLUMNS: Final = (
    Column[_Process]("Process", None, lambda each: each.name),
    Column[_Process]("State", None, lambda each: STATES[each.state].cell),
    Column[_Process]("Start", "s", lambda each: each.start, shown_in="s"),
    Column[_Process]("Time", "s", lambda each: each.seconds, shown_in="s"),
    Column[_Process](
        "Memory peak", "By", lambda each: each.peak, shown_in=ONE,
        title="of the process and its children",
    ),
    Column[_Process]("Steps", "", lambda each: sum(len(run.steps) for run in each.runs)),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Shares:
    """A step as the processes took it: seconds and peak of each that has it."""

    name: str
    seconds: tuple[tuple[float, str], ...]
    peaks: tuple[tuple[float, str], ...]

    @property
    def typical(self) -> float:
        return median(seconds for seconds, _ in self.seconds)

    @property
    def peak(self) -> tuple[float | None, str | None]:
        return max(self.peaks, default=(None, None))


def _imbalance_tables(recording: Recording, processes: Sequence[_Process]) -> Iterator[Table]:
    shares = [each for each in _shares(recording, processes) if len(each.seconds) > 1]
    if shares:
        shares.sort(key=lambda each: -max(each.seconds)[0])
        yield Table.of(
            _IMBALANCE, shares, id="imbalance", caption="The same step in all processes"
        ).first(_MOST_STEPS, "shorter step")


_IMBALANCE: Final = (
    Column[_Shares]("Step", None, lambda each: cut(each.name, _LONGEST_NAME)),
    Column[_Shares]("Processes", "", lambda each: len(each.seconds)),
    Column[_Shares]("Shortest", "s", lambda each: min(each.seconds)[0], shown_in="s"),
    Column[_Shares]("Median", "s", lambda each: each.typical, shown_in="s"),
    Column[_Shares]("Longest", "s", lambda each: max(each.seconds)[0], shown_in="s"),
    Column[_Shares]("Slowest", None, lambda each: max(each.seconds)[1]),
    Column[_Shares](
        "Imbalance", "1",
        lambda each: max(each.seconds)[0] / each.typical - 1 if each.typical else None,
        shown_in="%", is_signed=True, title="by how much the longest is longer than the median",
    ),
    Column[_Shares](
        "Memory peak", "By", lambda each: each.peak[0], shown_in=ONE,
        title="highest of any process",
    ),
    Column[_Shares]("Peak in", None, lambda each: each.peak[1]),
)  # fmt: skip


def _shares(recording: Recording, processes: Sequence[_Process]) -> Iterator[_Shares]:
    """Yields steps by name; those of one process that have the same name are added up."""
    seconds: dict[str, dict[str, float]] = {}
    peaks: dict[str, dict[str, float]] = {}
    for process in processes:
        for run in process.runs:
            of_steps = summary.StepSummary(recording, run)
            for step in run.steps:
                end = step.end if step.end is not None else process.end
                times = seconds.setdefault(step.name, {})
                times[process.name] = times.get(process.name, 0.0) + end - step.start
                peak = of_steps.value(step, summary.MEMORY_PEAK)
                if peak is not None:
                    highest = peaks.setdefault(step.name, {})
                    highest[process.name] = max(peak, highest.get(process.name, 0.0))
    for name, times in seconds.items():
        yield _Shares(
            name,
            tuple((value, process) for process, value in times.items()),
            tuple((value, process) for process, value in peaks.get(name, {}).items()),
        )
