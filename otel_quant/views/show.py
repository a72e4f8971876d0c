"""Recordings and profiles as a document: how they ended, their steps, what made them, their models."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, Final, TypeAlias

from otel_quant.diagnosis.growth import median
from otel_quant.recordings import summary
from otel_quant.recordings.continued import earlier_runs
from otel_quant.recordings.model import (
    LastReading,
    RecordedRun,
    RecordedStep,
    Recording,
    number,
    path_text,
    steps_in,
)
from otel_quant.recordings.profile_reader import COLUMNS as PROFILE_COLUMNS
from otel_quant.recordings.profile_reader import OF_RUN, PEAKS
from otel_quant.schema import semconv
from otel_quant.schema.events import present
from otel_quant.schema.figures import MODEL_FIGURES, ModelFigure
from otel_quant.schema.readings import OWN_MEMORY, UNITS, LayerAccuracy, worst_first
from otel_quant.schema.units import counted, cut, duration_text, share_text, size
from otel_quant.views import document as doc
from otel_quant.views import ranks as job
from otel_quant.views import steps
from otel_quant.views.answer import BAD_STATES, brief, outcome, sentences
from otel_quant.views.endings import ending_parts
from otel_quant.views.gpu_devices import device_table
from otel_quant.views.text import cell_text, listed, phrase, plain, precision_text


def document(recordings: Mapping[str, Recording], most_steps: int | None = None) -> doc.Document:
    """Returns recordings as a document, with so many steps of each run at most."""
    parts = {name: _parts(name, each, most_steps) for name, each in recordings.items()}
    return doc.Document(
        chain(job.parts_of_job([*recordings.values()]), _titled(parts)), ", ".join(recordings),
        "Quantization runs",
        any(each.state in BAD_STATES for each in recordings.values()),
        sheet=lambda: _sheet(recordings), data=lambda: list(_data(recordings)),
        brief=lambda: _brief(recordings),
    )  # fmt: skip


def _brief(recordings: Mapping[str, Recording]) -> doc.Brief:
    """Returns the answer of a recording; of several that of their job, or the first sentence of each, failed ones first."""
    if len(recordings) == 1:
        return brief(*recordings.values())
    parts = job.parts_of_job([*recordings.values()])
    of_job = [line for part in parts if isinstance(part, doc.Lines) for line in part.lines]
    in_order = sorted(recordings.items(), key=lambda it: it[1].state not in BAD_STATES)
    each = [f"{name}: {brief(recording).verdict}" for name, recording in in_order]
    verdict, *others = of_job or each
    return doc.Brief(verdict, others, next=[] if of_job else [("compare", *recordings)])


def devices(recordings: Mapping[str, Recording]) -> doc.Document:
    """Returns what the steps of recordings used of each GPU."""
    tables = {name: device_table(each, each.runs) for name, each in recordings.items()}
    none = doc.Lines(("No GPU was seen.",))
    parts = {name: iter([each if each.rows else none]) for name, each in tables.items()}
    first, *others = tables.values()
    sheet = None if others else lambda: first
    return doc.Document(tuple(_titled(parts)), ", ".join(recordings), "GPUs", sheet=sheet)


def _titled(parts: Mapping[str, Iterator[doc.Part]]) -> Iterator[doc.Part]:
    """Yields parts, below their titles if there are several."""
    for title, own in parts.items():
        yield from [doc.Section(title, own)] if len(parts) > 1 else own


def _parts(name: str, recording: Recording, most_steps: int | None) -> Iterator[doc.Part]:
    """Yields the answer first, then the steps of each run, then what made it."""
    subject = steps.subject_of(recording)
    yield doc.Lines([f"{outcome(recording, subject)}.", *sentences(recording, subject)])
    yield from ending_parts(recording)
    yield from doc.Lines.of(recording.problems)
    runs = _titled_runs(name, recording)
    if len(steps.by_process(recording)) > 1:
        yield from _parts_of_several(recording, most_steps)
    else:
        of_runs = {title: _run_parts(recording, run, most_steps) for title, run in runs.items()}
        yield from _titled(of_runs)
    yield from accuracy_tables(recording)
    yield from model_parts(recording)


def _parts_of_several(recording: Recording, most_steps: int | None) -> Iterator[doc.Part]:
    """Yields the ranks, if any, one table of the steps of all processes, and a line for each of them."""
    yield from job.rank_tables(job.ranks_in(recording))
    yield from _step_tables(recording, recording.runs, most_steps)
    facts: list[tuple[str, doc.Cell]] = []
    seen: set[str] = set()
    for run in recording.runs[:_MOST_PROCESSES]:
        peak = summary.peak_of_run(recording, run)
        memory = phrase(", memory peak {}", peak, lambda it: "≥ " * it.is_least + size(it.value))
        command = str(run.attributes.get(semconv.PROCESS_COMMAND_LINE, ""))
        # Of workers of `multiprocessing`, and of those that are as the first, nobody asks for it.
        shown = command if command not in seen and steps.OF_WORKERS not in command else ""
        seen.add(command)
        text = cut(f"{run.words.cell}{memory}{phrase(': {}', shown)}", _LONGEST_FACT)
        facts.append((steps.process_name(recording, run), text))
    if more := recording.runs[_MOST_PROCESSES:]:
        facts.append(("and", f"{len(more):,} more"))
    with_steps = next((run for run in recording.runs if run.steps), recording.runs[0])
    shared = dict(_facts(recording, with_steps))
    yield doc.Facts([*facts, *_picked(shared, *_SHARED).items()])


_MOST_PROCESSES: Final = 64
_SHARED: Final = ("memory limit", "libraries", "calibration", "host", "Python")
"""Facts that the processes of a program are likely to have in common."""


def _titled_runs(name: str, recording: Recording) -> dict[str, RecordedRun]:
    """Returns the runs of a recording by a name that no two of them share."""
    if not recording.path.is_dir():
        return {name: recording.runs[0]}
    found: dict[str, RecordedRun] = {}
    for run in recording.runs:
        rank = "" if run.rank is None else f", rank {run.rank}"
        title = f"{recording.place}: process {run.process}{rank}"
        found[title if title not in found else f"{title}, run {run.id}"] = run
    return found


def block_parts(recording: Recording) -> Iterator[doc.Part]:
    """Yields the parts of a block that was measured."""
    yield doc.Lines(list(sentences(recording, steps.subject_of(recording), is_below=False)))
    yield from _run_parts(recording, recording.runs[0])
    yield from model_parts(recording)


def _run_parts(
    recording: Recording, run: RecordedRun, most_steps: int | None = None
) -> Iterator[doc.Part]:
    """Yields the parts of one run."""
    yield from _step_tables(recording, [run], most_steps)
    if facts := list(_facts(recording, run)):
        yield doc.Facts(facts)
    if run.end is not None and _is_truncated(recording, run):
        yield doc.Lines(
            ("truncated: all checkpoints are complete, but the text after them is not",)
        )


def _step_tables(
    recording: Recording, runs: Sequence[RecordedRun], most_steps: int | None
) -> Iterator[doc.Table]:
    """Yields the steps, and what libraries did in them."""
    tables = (steps.step_table(recording, runs, most_steps), steps.library_table(recording, runs))
    yield from (table for table in tables if table.rows)


def _is_truncated(recording: Recording, run: RecordedRun) -> bool:
    """Whether a run has no end, or the file that it stands in."""
    return run.end is None or (bool(recording.problems) and not recording.path.is_dir())


# --- what made a run, and how it went -----------------------------------------------------

_LIMITS: Final = {"cgroup": " (of the control group)", "physical": " (physical memory)"}

_LONGEST_FACT: Final = 300
_LONGEST_NOTE: Final = 600

OWN_PART: Final = f"about {OWN_MEMORY // 10**6} MB and 0.2 to 0.5 s of CPU time of each recorded process, which its figures include"
"""What recording takes itself."""

_TEXTS: Final[Mapping[str, Mapping[str, str]]] = {
    "GPUs": {"gpus": "{}"},
    "libraries": {"libraries": "{}"},
    "calibration": {"calibration_method": "{}", "calibration_samples": "{} samples (batches)", "calibration_items": "{} items"},
    "command": {"command": "{}"},
    "host": {"host": "{}", "system": "{}"},
    "Python": {"python": "{}", "otel_quant": "otel-quant {}"},
}  # fmt: skip
"""Name -> keys whose values are shown there, each with its text."""


def _run_data(recording: Recording, run: RecordedRun) -> dict[str, Any]:
    """Returns what is known of a run, by the keys of a profile."""
    of_run = {semconv.RUN_ID: run.id, semconv.RUN_RANK: run.rank}
    known = {**recording.origin, **run.attributes, **of_run}
    found = {key: _in_profile(key, known.get(name)) for key, name in OF_RUN.items()}
    limit, peak = summary.limit(recording, run), summary.peak_of_run(recording, run)
    data = {key: value for key, value in found.items() if value not in (None, "")}
    data |= present(_calibration(run))
    for name, bare, of in (("memory_limit", "limit", limit), ("tree_peak_memory", "peak", peak)):
        if of:
            sizes = {f"{name}_mb": _mebibytes(of.value), f"memory_{bare}_bytes": of.value}
            data |= present(sizes | {f"{name}_source": of.source})
    if peak and limit:
        data["memory_limit_share"] = round(peak.value / limit.value, 4)
    if run.end is not None:
        data["ended"] = f"with {run.error}" if run.error else "without an exception"
    return data


def _in_profile(key: str, value: Any) -> Any:
    """Returns an attribute as a profile has it."""
    if isinstance(value, int | float) and key.endswith("_mb"):
        return _mebibytes(value)
    return list(value) if isinstance(value, tuple) else value


def _calibration(run: RecordedRun) -> dict[str, int | None]:
    """Returns the samples of all steps that count some, and the items where each of them knows its own."""
    items: list[Any] = [
        step.attributes.get(semconv.CALIBRATION_ITEM_COUNT) for step in run.steps if step.samples
    ]
    is_known = items and all(isinstance(each, int) for each in items)
    return {
        "calibration_samples": sum(step.samples or 0 for step in run.steps) or None,
        "calibration_items": sum(items) if is_known else None,
    }


def _facts(recording: Recording, run: RecordedRun) -> Iterator[tuple[str, str]]:
    peak, limit = summary.peak_of_run(recording, run), summary.limit(recording, run)
    data = _run_data(recording, run)
    if peak is not None and len(recording.runs) > 1:  # of one, it stands above
        yield "memory peak", "at least " * peak.is_least + size(peak.value)
    if limit is not None:
        yield "memory limit", f"{size(limit.value)}{_LIMITS.get(limit.source or '', '')}"
    if isinstance(gpu_share := data.get("gpu_memory_limit_share"), int | float):
        of = "of the memory of the fullest GPU, by all programs"
        yield "GPU memory peak", f"{share_text(gpu_share)} {of}"
    if run.last is not None and run.end is None and recording.ending is None:
        read = number(run.last.attributes, f"{semconv.READING_PREFIX}memory")
        age = _age(recording, run.last)
        ago = f"{age / _DAY:.0f} days" if age >= 2 * _DAY else duration_text(age)
        yield "last reading", f"{ago} ago{'' if read is None else f': memory {size(read)}'}"
    for name, forms in _TEXTS.items():
        values = [form.format(listed(data[key])) for key, form in forms.items() if key in data]
        if values:
            yield name, cut(", ".join(values), _LONGEST_FACT)
    if run is recording.runs[0] and recording.path.is_dir():
        yield "recorder", OWN_PART


# --- layers -------------------------------------------------------------------------------

_MOST_LAYERS: Final = 10
_MOST_TABLES: Final = 20


def accuracy_tables(recording: Recording) -> list[doc.Table]:
    """Returns the worst layers of each step whose library has computed how well it has quantized them."""
    by_measure: dict[tuple[str, str, int], list[LayerAccuracy]] = {}
    for at, place in enumerate(steps_in(recording)):
        for layer in place.step.layers:
            by_measure.setdefault((layer.measure, path_text(place.path), at), []).append(layer)
    tables = [
        _worst_layers(layers, step, f"accuracy-{at}-{number}")
        for number, ((_, step, at), layers) in enumerate(by_measure.items())
    ]
    if left_out := len(tables[_MOST_TABLES:]):
        last = tables[_MOST_TABLES - 1]
        more = f"{counted(left_out, 'later table')} left out."
        tables[_MOST_TABLES - 1] = last._replace(note=f"{last.note} {more}")
    return tables[:_MOST_TABLES]


def _worst_layers(layers: Sequence[LayerAccuracy], step: str, name: str) -> doc.Table:
    first, finite = layers[0], [each.value for each in layers if each.value is not None]
    facts = [f"{first.better.capitalize()} values are better."] if first.better else []
    facts += [f"Median: {cell_text(_accuracy(median(finite)))}."] if finite else []

    is_bar = first.better == "lower" and min(finite, default=-1) >= 0
    heading = cut(first.measure, _LONGEST_NAME) + phrase(" ({})", first.unit)
    columns = (
        doc.Column[LayerAccuracy]("Layer", None, lambda each: cut(each.layer, _LONGEST_NAME)),
        doc.Column[LayerAccuracy](heading, "", lambda each: _accuracy(each.value), is_bar=is_bar),
    )
    title = f"{'Worst layers' if first.better else 'Layers'} of {step}, by {first.measure}"
    table = doc.Table.of(columns, worst_first(layers), id=name, title=title, note=" ".join(facts))
    return table.first(_MOST_LAYERS, "layer")


def _accuracy(value: float | None) -> doc.Cell:
    if value is None:
        return "not finite"
    is_nearly_1 = 0.99 < value < 1  # of a cosine what it lacks counts
    return doc.UnitCell(value, "", digits=6) if is_nearly_1 else value


# --- models -------------------------------------------------------------------------------


_ROLES: Final = {"float": "Before (float)", "quantized": "After (quantized)"}
_LONGEST_NAME: Final = 120

Model: TypeAlias = Mapping[str, Any]


def model_parts(recording: Recording, *, with_layers: bool = False) -> Iterator[doc.Part]:
    """Yields the last model of each role side by side, and notes on them; nothing if none was costed."""
    every = [model for run in recording.runs for model in run.models]
    if not every:
        return
    last = {model.get("role") or model.get("path") or "model": model for model in every}
    models = _picked(last, *_ROLES, *last)
    yield _comparison(models)
    notes = list(chain.from_iterable(map(_notes, models, models.values())))
    if earlier := len(every) - len(models):
        notes.append(f"{counted(earlier, 'earlier model')} left out: the last of each role counts.")
    yield from doc.Lines.of(notes)
    if with_layers:
        yield from filter(attrgetter("rows"), map(_layers, models, models.values()))


def _comparison(models: Mapping[str, Model]) -> doc.Table:
    figures = [model["figures"] for model in models.values()]
    columns: list[doc.Column[Any]] = [doc.Column("Model", value=partial(_heading, figures))]
    columns += [
        doc.Column(_ROLES.get(role, cut(role, _LONGEST_NAME)), "", partial(_model_figure, each))
        for role, each in zip(models, figures, strict=True)
    ]
    if models.keys() >= _ROLES.keys():
        before, after, *_ = figures
        columns.append(doc.Column("Change", "", partial(_change, before, after), spare=1))
    shown = [
        figure
        for figure in MODEL_FIGURES
        if figure.heading and figure.name != _RUN  # which stands behind what is stored
        if any(number(each, figure.name) is not None for each in figures)
    ]
    return doc.Table.of(columns, shown, id="models", caption="Models", is_sortable=False)


_ASKED: Final = "integer_mac_share"
_RUN: Final = "expected_integer_mac_share"


def _heading(models: Sequence[Model], figure: ModelFigure) -> str:
    behind = any(_run(each, figure) for each in models)
    return f"{figure.heading[0].upper()}{figure.heading[1:]}{' (expected to run)' * behind}"


def _model_figure(figures: Model, figure: ModelFigure) -> doc.Cell:
    unit = "M" if figure.unit.startswith("{") else figure.unit
    return doc.UnitCell(number(figures, figure.name), unit, after=_run(figures, figure))


def _run(figures: Model, figure: ModelFigure) -> str:
    """Returns the share that is expected to run in integers, behind that which asks for them."""
    share = number(figures, _RUN)
    return "" if share is None or figure.name != _ASKED else f" ({100 * share:.1f} %)"


def _change(first: Model, second: Model, figure: ModelFigure) -> str:
    before, after = number(first, figure.name), number(second, figure.name)
    if not before or after is None or max(before, after) > 1e300:  # a profile may have any
        return ""
    ratio = f"{after / before:.3g}"
    return f"x {ratio}" if ratio != "1" else "the same" if before == after else "nearly the same"


def _types(figures: Mapping[str, Any], prefix: str) -> dict[str, float]:
    """Returns the shares of a model's MACs by type, the largest first."""
    found = {
        # Names of attributes have no blanks.
        name.removeprefix(prefix).replace("weight_only", "weight-only").replace("_", " "): share
        for name in figures
        if name.startswith(prefix) and (share := number(figures, name)) is not None
    }
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def _text(key: str) -> Callable[[Model], doc.Cell]:
    return lambda node: cut(str(node[key]), _LONGEST_NAME) if node.get(key) else None


def _layers(role: str, model: Model) -> doc.Table:
    columns = (
        doc.Column[Model]("Layer", None, _text("name")),
        doc.Column[Model]("Operator", None, _text("op_type")),
        doc.Column[Model]("Asks for", None, _text("precision")),
        doc.Column[Model]("Expected to run in", None, _text("expected_precision")),
        doc.Column[Model]("MACs", "M", lambda node: number(node, "macs")),
        doc.Column[Model](
            "Memory", "By", lambda node: number(node, "memory_bytes"), title="estimated"
        ),
    )
    caption = f"Heaviest layers, {role} model"
    nodes = model.get("heaviest", ())
    return doc.Table.of(columns, nodes, id=f"layers-{role}", caption=caption, known_only=True)


_MORE: Final = {
    "input_shapes": "for inputs of {}",
    "assumed": "assumed {}",
    "uncosted_ops": "without known costs {}",
    "audit.answer": "audit: {}",
}


def _notes(role: str, model: Model) -> Iterator[str]:
    figures = model["figures"]
    words = (phrase(form, figures.get(key), listed) for key, form in _MORE.items())
    mixes = ("stored.", "precision.", "expected_precision.")
    stored, asked, expected = (_types(figures, each) for each in mixes)
    reasons = [listed(each) for each in (figures.get("in_float"),) if each]
    runtime = str(figures.get("runtime") or "")
    types = precision_text(stored, asked, expected, runtime, reasons) if runtime else ""
    facts = filter(None, (model.get("path"), types, *words))
    if text := "; ".join(cut(each, _LONGEST_NOTE) for each in facts):
        yield f"{role.capitalize()} model: {text}."
    if error := model.get("error"):
        yield f"The {role} model could not be costed: {cut(error, _LONGEST_FACT)}"


_SIZES: Final = ("size", "weight_bytes")


def _costs(run: RecordedRun) -> Iterator[dict[str, Any]]:
    """Yields models by the keys of a profile, with the ratio of sizes to the float model's."""
    before: dict[str, Any] = {}
    for model in run.models:
        cost = _picked(model, "role", "path") | model["figures"] | _picked(model, "error")
        if cost.get("role") == "float":
            before = cost
        for key in _SIZES if cost.get("role") == "quantized" else ():
            then, now = before.get(key), cost.get(key)
            # A profile may have any value.
            if isinstance(now, int) and isinstance(then, int) and 0 < then < 1 << 64 > now:
                cost[f"{key}_ratio"] = round(now / then, 4)
        yield cost


_DAY: Final = 86_400.0


def _age(recording: Recording, last: LastReading) -> float:
    """Returns how old a reading is, in seconds."""
    return max(0.0, time.time() - recording.began_ns / 1e9 - last.time)


# --- for programs -------------------------------------------------------------------------

_OF_LAST_READING: Final = {
    key: f"{semconv.READING_PREFIX}{name}"
    for key, name in (
        *((key, figure.checkpoint) for key, figure in PROFILE_COLUMNS.items()),
        *zip(PEAKS, ("memory_peak", "gpu_memory_peak"), strict=True),
    )
    if name
} | {"memory_limit_mb": semconv.READING_MEMORY_LIMIT}
"""Attributes of a last reading, by the keys of the file that stands beside a profile."""


def _mebibytes(value: float | None) -> float | None:
    """Returns bytes in MiB, with the digits that a profile has."""
    return None if value is None else round(value / (1 << 20), 2)


def _picked(values: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: values[key] for key in keys if key in values}


def _data(recordings: Mapping[str, Recording]) -> Iterator[dict[str, Any]]:
    for name, recording in recordings.items():
        whole = _recording_data(recording)
        runs = _titled_runs(name, recording)
        for title, run in runs.items():
            yield {
                "file": title, "truncated": _is_truncated(recording, run),
                "run": _run_data(recording, run), "steps": _rows(steps.ShownRun(recording, run)),
                "summary": run.summary, "onnx_model_cost": list(_costs(run)),
                **present({"last_reading": _last_reading(recording, run)}), "state": run.state,
                "recording": whole,
            }  # fmt: skip
        if not runs:
            yield {"file": name, "recording": whole}


def _recording_data(recording: Recording) -> dict[str, Any]:
    before = earlier_runs(recording)
    whole = sum(each.duration for each in (recording, *before)) if before else None
    peak, limit = summary.value(recording, summary.MEMORY_PEAK), steps.memory_limit(recording)
    ranks = doc.records(job.COLUMNS, job.ranks_in(recording))
    ending = recording.ending and dataclasses.asdict(recording.ending)
    if ending and any(run.steps for run in recording.runs):  # of which the launcher does not know
        ending["why_no_step"] = None
    return present({
        "path": recording.place,
        "state": recording.state,
        **dict.fromkeys(("duration_secs", "duration_seconds"), recording.duration),
        "continues": [each.place for each in before] or None, "duration_in_all_seconds": whole,
        "memory_peak": peak, "memory_limit": limit,
        "memory_peak_bytes": peak, "memory_limit_bytes": limit,
        "problems": list(recording.problems),
        "ranks": [{key: plain(it) for key, it in each.items()} for each in ranks] or None,
        "ending": ending,
    })  # fmt: skip


def _last_reading(recording: Recording, run: RecordedRun) -> dict[str, Any] | None:
    """Returns the newest figures of a run that has no end; None without any."""
    last = run.last
    if last is None or run.end is not None:
        return None
    began, read = recording.began_ns / 1e9, partial(number, last.attributes)
    is_open = [step for step in run.steps if step.index in last.open_steps]
    return {
        "schema": 1, "run_id": run.id, "pid": run.pid, "run_started": began + run.start,
        "timestamp": began + last.time, "relative_time_secs": round(last.time - run.start, 6),
        **present({key: _mebibytes(read(name)) for key, name in _OF_LAST_READING.items()}),
        "open_steps": [present({"step": step.name, **dict(_counts(step))}) for step in is_open],
        "age_secs": round(_age(recording, last), 1),
    }  # fmt: skip


def _counts(step: RecordedStep) -> Iterator[tuple[str, int | None]]:
    for unit, (done, total) in step.counts.items():
        yield UNITS[unit].several, done or None
        yield f"expected_{UNITS[unit].several}", total


def _rows(run: steps.ShownRun) -> Iterator[dict[str, Any]]:
    """Yields what programs get of each row: figures as Quark's file has them, sizes in MiB, then each in one unit."""

    def in_mebibytes(each: doc.Column[Any]) -> doc.Column[Any]:
        own: Callable[[Any], Any] = each.value
        return each._replace(value=lambda row: _mebibytes(own(row))) if each.unit == "By" else each

    bare, last = doc.known(steps.BARE, run.rows), doc.known(_LAST, run.rows)
    figures = map(in_mebibytes, steps.columns_of(run))
    return doc.records([_STEP, *doc.of_attributes("depth"), *bare, *figures, *last], run.rows)


_STEP: Final = doc.Column[Any]("step", value=attrgetter("name"))
_LAST: Final = (
    steps.CHILDREN,
    doc.Column[steps.StepTableRow]("error_message", value=steps.message_of),
    doc.Column[steps.StepTableRow]("status", value=steps.status_of),
)


def _sheet(recordings: Mapping[str, Recording]) -> doc.Table:
    """Returns the steps; what is known of a run is on each of its steps."""
    runs = []
    for name, recording in recordings.items():
        for title, run in _titled_runs(name, recording).items():
            texts = {f"run_{key}": listed(it) for key, it in _run_data(recording, run).items()}
            shown = steps.ShownRun(recording, run)
            runs.append((shown, {"file": title, **texts}))
    used = dict.fromkeys(
        chain(*((*next(_rows(shown)), *of_run) for shown, of_run in runs if shown.rows))
    )
    order = dict.fromkeys(("file", "step", "depth", *(column.key for column in steps.COLUMNS)))
    columns = [doc.Column[Any](name) for name in order | used if name in used]
    rows = ((of_run | row).get for shown, of_run in runs for row in _rows(shown))
    return doc.Table(columns, ([get(each.name) for each in columns] for get in rows))
