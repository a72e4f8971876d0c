"""A recording as a document: the answer first, the evidence, its models and processes, what made it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from operator import attrgetter
from typing import Final, NamedTuple

from otel_quant.diagnosis.growth import median
from otel_quant.format.event_file import BENCH, INFERENCE
from otel_quant.recordings import model, summary
from otel_quant.recordings.compared_runs import FACTS
from otel_quant.recordings.gpus import highest_on
from otel_quant.recordings.reader import stacks_in, unseen_in
from otel_quant.schema import semconv
from otel_quant.schema.catalog import GROUPS
from otel_quant.schema.readings import LayerSeen
from otel_quant.schema.units import cut, duration_text, moment_text, share_text
from otel_quant.views import document as doc
from otel_quant.views import steps
from otel_quant.views.answer import BAD_STATES, outcome, sentences, whose
from otel_quant.views.charts import Chart
from otel_quant.views.curves import OF_PROGRAM, bands_of, charts_of
from otel_quant.views.endings import ending_parts
from otel_quant.views.gpu_devices import device_table
from otel_quant.views.html import page_text
from otel_quant.views.ranks import rank_tables, ranks_in
from otel_quant.views.show import OWN_PART, accuracy_tables, model_parts
from otel_quant.views.stacks import links_of, page_parts
from otel_quant.views.text import listed, phrase

_MOST_PROBLEMS = 20


def render(recording: model.Recording) -> str:
    """Returns the report of a recording as a page."""
    return page_text(document(recording))


def document(recording: model.Recording) -> doc.Document:
    """Returns the report of a recording."""
    subject = steps.subject_of(recording)
    return doc.Document(
        tuple(_parts(recording, subject)),
        title=outcome(recording, subject),
        over=f"Quantization run {moment_text(recording.began_ns // 10**9)} UTC",
        is_bad=recording.state in BAD_STATES,
    )


def _parts(recording: model.Recording, subject: steps.ShownProcess) -> Iterator[doc.Part]:
    charts = charts_of(recording, subject)
    stacks = [*stacks_in(recording), *unseen_in(recording)]
    processes, process_tables = _processes_of(recording)
    lines = doc.Lines([*sentences(recording, subject), *processes])
    meters = doc.Meters(tuple(_meters(recording, charts)))
    yield doc.Section("Summary", (lines, meters), layout="answer")
    if recording.problems:
        yield doc.Lines(("Parts of this recording could not be read:",))
        yield doc.Lines(recording.problems, is_bad=True).first(_MOST_PROBLEMS)
    ending = list(ending_parts(recording))
    runs: Sequence[model.RecordedRun] = recording.runs
    caption = "Steps"
    if len(model.steps_in(recording)) > steps.MOST_STEPS and subject.why:
        runs, caption = subject.runs, f"Steps of {subject.name}, {subject.why}"
    links = links_of(stacks)
    table = steps.step_table(recording, runs, caption=caption, more=steps.RATES, links=links)
    tables = {
        "Steps": table,
        "Quantization": steps.library_table(recording, runs),
        "GPUs": device_table(recording, subject.runs),
    }
    sections = (
        doc.Section("Post-mortem", ending, id="post-mortem", layout="post-mortem"),
        doc.Section("Over time", list(_curves(recording, subject, charts))),
        *(doc.Section(title, [each] if each.rows else []) for title, each in tables.items()),
        doc.Section("Accuracy of layers", accuracy_tables(recording)),
        doc.Section("Calibration", list(_calibrations(recording))),
        doc.Section("Python lines", page_parts(stacks, recording.duration) if stacks else []),
        doc.Section("Processes", [*rank_tables(ranks_in(recording)), *process_tables]),
        doc.Section("Models", list(model_parts(recording, with_layers=True))),
    )
    yield from (section for section in sections if section.parts)
    if any((recording.path / name).exists() for name in (INFERENCE, BENCH)):
        from otel_quant.views.inference import recorded_sections  # seldom needed, takes 10 ms

        yield from recorded_sections(recording.path)
    yield _origin(recording, subject)


def _curves(
    recording: model.Recording, subject: steps.ShownProcess, charts: list[Chart]
) -> Iterator[doc.Part]:
    if not charts:
        yield doc.Lines(("No curve was recorded.",))
        return
    if subject.why:
        yield doc.Lines((f"The bands are the steps of {subject.name}.",))
    until = max(recording.duration, *(max(chart.times, default=0.0) for chart in charts))
    yield doc.Charts(charts, bands_of(subject.steps), until)


def _meters(
    recording: model.Recording, charts: Sequence[Chart]
) -> Iterator[tuple[str, float, float | None]]:
    peak = summary.peak(recording)
    if peak is not None:
        yield f"Memory peak{whose(recording, peak)}", peak.value, steps.memory_limit(recording)
    for chart in charts:
        if chart.id.startswith("gpu-") and chart.mark is not None:
            index = chart.id.removeprefix("gpu-")
            is_own = chart.series[0].label == OF_PROGRAM
            own = highest_on(recording, int(index)) if is_own else None
            name = f"GPU {index} peak{'' if is_own else ', all programs'}"
            yield name, max(model.known((chart.mark.value, own))), chart.limit


_LONGEST_NAME: Final = 120

# --- calibration --------------------------------------------------------------------------

_MOST_OBSERVED: Final = 20

_OBSERVED: Final = (
    doc.Column[LayerSeen]("Layer", None, lambda each: cut(each.layer, _LONGEST_NAME)),
    doc.Column[LayerSeen]("Samples", "", attrgetter("samples")),
    doc.Column[LayerSeen]("Tokens", "", attrgetter("tokens")),
    doc.Column[LayerSeen]("Finite", None, attrgetter("is_finite")),
    doc.Column[LayerSeen]("Not finite from sample", "", attrgetter("sample")),
    doc.Column[LayerSeen]("Growth", "x", attrgetter("growth"), title="times by which its range grew in the last tenth of the samples"),
    doc.Column[LayerSeen]("Last growth", "", attrgetter("settled"), title="the sample after which its range grew by 1 % at most"),
)  # fmt: skip


def _calibrations(recording: model.Recording) -> Iterator[doc.Table]:
    """Yields what reached the layers of each step that has calibrated, the worst first."""
    for run in recording.runs:
        layers = defaultdict[int, list[LayerSeen]](list)
        for kind, event in run.events:
            if kind == "layer.observed":
                known = event.get("attributes", {})
                seen = LayerSeen(*(known.get(name) for name in semconv.OF_LAYER_SEEN))
                layers[event["index"]].append(seen)
        for step in run.steps:
            if step.index in layers:
                title = (
                    f"What reached the layers of {cut(step.name, _LONGEST_NAME)}, the worst first"
                )
                rows = sorted(layers[step.index], key=_doubt)
                name = f"calibration-{run.process}-{step.index}"
                table = doc.Table.of(_OBSERVED, rows, known_only=True, id=name, title=title)
                yield table.first(_MOST_OBSERVED, "layer")


def _doubt(layer: LayerSeen) -> tuple[bool, float, float]:
    """Sorts layers: those that are not finite first, then by few tokens, then by growth."""
    few = layer.samples if layer.tokens is None else layer.tokens
    return layer.is_finite, few, -(layer.growth or 0.0)


# --- processes ----------------------------------------------------------------------------

_MOST_PROCESSES: Final = 128
_MOST_STEPS: Final = 60
_FEWEST: Final = 3  # Processes beside each other that have a median


class _Process(NamedTuple):
    """One process with all its runs."""

    name: str  # In words
    runs: Sequence[model.RecordedRun]
    start: float  # When the first began
    end: float  # When the last ended, or the end of what is known
    peak: float | None  # Highest memory of its tree, in bytes
    depth: int = 0  # Recorded processes above it
    ratio: float = 0.0  # Its time to the median of those beside it; 0 if there are none

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def worst(self) -> model.RecordedRun:
        return min(self.runs, key=lambda run: model.WORST_FIRST.index(run.state))


_COLUMNS: Final = (
    doc.Column[_Process]("Process", None, lambda each: each.name),
    doc.Column[_Process]("State", None, lambda each: each.worst.words.cell),
    doc.Column[_Process]("Start", "s", lambda each: each.start, shown_in="s"),
    doc.Column[_Process]("Time", "s", lambda each: each.seconds, shown_in="s"),
    doc.Column[_Process]("Time to median", "1", lambda each: each.ratio - 1 if each.ratio else None, shown_in="%", is_signed=True, title="longer or shorter than the median of those that the same process has started"),
    doc.Column[_Process]("Memory peak", "By", lambda each: each.peak, shown_in=doc.ONE, title="of the process and its children"),
    doc.Column[_Process]("Steps", "", lambda each: sum(len(run.steps) for run in each.runs)),
)  # fmt: skip

_COMMAND: Final = doc.Column[_Process]("Command", None, lambda each: _command(each.runs[0]))
_COLUMNS_OF_UNLIKE: Final = (_COLUMNS[0], _COMMAND, *_COLUMNS[1:4], *_COLUMNS[5:])


def _command(run: model.RecordedRun) -> str:
    return cut(str(run.attributes.get(semconv.PROCESS_COMMAND_LINE, "")), _LONGEST_NAME)


def _processes_of(recording: model.Recording) -> tuple[list[str], list[doc.Table]]:
    """Returns a sentence on several processes, and their tables; nothing for a single one.

    A process that has started others waits for them: only those are compared that one has started.
    """
    families = _families(recording)
    # An id may recur: of processes that name each other as parent none is the first
    left = dict(families)
    processes = [each for above in families for each in _in_order(left, above)]
    if len(processes) < 2:
        return [], []
    shared = chain.from_iterable(map(_common_steps, filter(_is_beside, families.values())))
    common = sorted(shared, key=lambda each: -each.longest)
    caption = "The same step in processes beside each other"
    imbalance = doc.Table.of(_IMBALANCE, common, id="imbalance", caption=caption)
    # Ranks have one command, stages of a script one each
    is_alike = len({_command(each.runs[0]) for each in processes}) == 1
    below = ": below each those that it has started" if len(families) > 1 else ""
    table = doc.Table.of(
        _COLUMNS if is_alike else _COLUMNS_OF_UNLIKE, processes,
        row=lambda each, cells: doc.Row(cells, each.depth, state=each.worst.state),
        id="processes", caption=f"Processes{below}, slowest first",
    )  # fmt: skip
    tables = [imbalance.first(_MOST_STEPS, "shorter step")] if common else []
    tables.append(table.first(_MOST_PROCESSES, "process", "processes"))
    return [_sentence(len(processes), common)], tables


def _sentence(number: int, common: Sequence[_CommonStep]) -> str:
    """Returns how many processes there are, and which took longest in the longest step of those beside each other."""
    text = f"{number:,} processes"
    if common:
        longest, *_ = common
        slowest = max(longest.seconds, key=longest.seconds.__getitem__)
        text += f": {slowest} took longest in {cut(longest.name, _LONGEST_NAME)}, {duration_text(longest.longest)}"
        more = share_text(longest.longest / longest.typical - 1) if longest.typical else ""
        text += phrase(", {} more than the median", more)
    return f"{text}."


def _families(recording: model.Recording) -> dict[int | None, list[_Process]]:
    """Returns the processes that one has started, by its id, slowest first; processes that none here started come first."""
    every = steps.by_process(recording)
    pids = {runs[0].pid for runs in every.values()}
    families: dict[int | None, list[_Process]] = {None: []}
    for runs in every.values():
        above = runs[0].parent_pid if runs[0].parent_pid in pids else None
        name = steps.process_name(recording, runs[0])
        peaks = (summary.peak_of_run(recording, run) for run in runs)
        highest = max((peak.value for peak in peaks if peak is not None), default=None)
        end = steps.end_of(runs, recording.duration)
        families.setdefault(above, []).append(_Process(name, runs, runs[0].start, end, highest))
    for above, family in families.items():
        is_compared = len(family) >= _FEWEST and _is_beside(family)
        typical = median(each.seconds for each in family) if is_compared else 0.0
        family.sort(key=lambda each: -each.seconds)
        families[above] = [it._replace(ratio=typical and it.seconds / typical) for it in family]
    return families


def _is_beside(family: Sequence[_Process]) -> bool:
    """Whether processes ran at the same time; stages of a script do not, and are no siblings."""
    in_order = sorted(family, key=attrgetter("start"))
    return any(one.end > after.start for one, after in pairwise(in_order))


def _in_order(
    families: dict[int | None, list[_Process]], above: int | None, depth: int = 0
) -> Iterator[_Process]:
    """Yields each process before the ones that it has started, and takes them out."""
    for each in families.pop(above, ()):
        yield each._replace(depth=depth)
        yield from _in_order(families, each.runs[0].pid, depth + 1)


class _CommonStep(NamedTuple):
    """A step as the processes took it: steps of one process with the same name are one."""

    name: str
    seconds: dict[str, float]  # By process
    longest: float
    typical: float | None  # The median; None of two


_IMBALANCE: Final = (
    doc.Column[_CommonStep]("Step", None, lambda each: cut(each.name, _LONGEST_NAME)),
    doc.Column[_CommonStep]("Processes", "", lambda each: len(each.seconds)),
    doc.Column[_CommonStep]("Shortest", "s", lambda each: min(each.seconds.values()), shown_in="s"),
    doc.Column[_CommonStep]("Median", "s", lambda each: each.typical, shown_in="s"),
    doc.Column[_CommonStep]("Longest", "s", lambda each: each.longest, shown_in="s"),
    doc.Column[_CommonStep]("Slowest", None, lambda each: max(each.seconds, key=each.seconds.__getitem__)),
    doc.Column[_CommonStep]("Imbalance", "1", lambda each: each.longest / each.typical - 1 if each.typical else None, shown_in="%", is_signed=True, title="by how much the longest is longer than the median"),
)  # fmt: skip


def _common_steps(processes: Sequence[_Process]) -> Iterator[_CommonStep]:
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for process in processes:
        for step in chain.from_iterable(run.steps for run in process.runs):
            end = step.end if step.end is not None else process.end
            seconds = found[step.name]
            seconds[process.name] = seconds[process.name] + end - step.start
    for name, seconds in found.items():
        if len(seconds) > 1:
            typical = median(seconds.values()) if len(seconds) >= _FEWEST else None
            yield _CommonStep(name, seconds, max(seconds.values()), typical)


# --- what made it -------------------------------------------------------------------------

_LONGEST: Final = 1_000

_FACTS: Final = {fact.attribute: (fact.name, fact.unit) for fact in FACTS} | {
    semconv.GPU_MEMORY_LIMIT: ("memory of all GPUs", "By"),
    semconv.LIBRARIES: ("libraries", ""),
}
"""Names for people, as a comparison has them, with their units; any other attribute is shown by its own."""


def _origin(recording: model.Recording, subject: steps.ShownProcess) -> doc.Section:
    """Returns what made a recording, in groups; empty ones are left out."""
    facts = dict(recording.origin)
    for run in subject.runs:
        facts = {name: value for name, value in run.attributes.items() if name in _FACTS} | facts
    named = [name for name in _FACTS if name in facts]  # in the order of the table
    left = {name: facts[name] for name in (*named, *facts)}
    shown = []
    for title, beginnings in GROUPS:
        names = [name for name in left if name.startswith(beginnings)]
        if rows := [_fact(name, left.pop(name)) for name in names]:
            shown.append(doc.Facts(rows, title))
    own = [("recorder", OWN_PART)] if recording.path.is_dir() else []
    shown.append(doc.Facts([("folder or file", recording.place), *own], "Recording"))
    return doc.Section("What made this run", (doc.Section("", shown, layout="facts"),))


def _fact(name: str, value: object) -> tuple[str, doc.Cell]:
    known, unit = _FACTS.get(name, (name, ""))
    if isinstance(value, bool):
        return known, value
    if unit and isinstance(value, int | float):
        return known, doc.UnitCell(value, unit)
    return known, cut(listed(value), _LONGEST)
