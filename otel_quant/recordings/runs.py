"""Finds recordings and profiles below folders, and reads each as one row.

No curve and no step is read of a run that has ended: its end event has the attributes of its steps and
models, and the manifest the summary of the launcher's curve.

What a list can show of them has names: an attribute name of the spans, without ``quant.``, as
``calibration.method``. What stands in :data:`LISTED` and in :data:`otel_quant.schema.catalog.QUANTITIES` is made of
several of these.
"""

from __future__ import annotations

import gc
import hashlib
import math
import operator
import os
import re
import signal
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from otel_quant.base.machine import processors
from otel_quant.format import event_file
from otel_quant.recordings import summary
from otel_quant.recordings.model import Recording, shown
from otel_quant.recordings.profile_reader import HEADER
from otel_quant.recordings.reader import local, read, reason_of
from otel_quant.schema import catalog, semconv
from otel_quant.schema.dataclass import dataclass
from otel_quant.schema.events import present
from otel_quant.schema.units import BY_UNIT, UNITS, digits_text, moment_text

if TYPE_CHECKING:
    from otel_quant.schema.readings import AttributeValue

Value: TypeAlias = "AttributeValue"

Row: TypeAlias = "dict[str, Value]"
"""What is known of one run, by name. Bytes, seconds; times as seconds since the epoch."""

MODEL: Final = "model"
METHOD: Final = semconv.CALIBRATION_METHOD.removeprefix(semconv.PREFIX)
LIBRARY: Final = semconv.LIBRARY_NAME.removeprefix(semconv.PREFIX)
CONFIG: Final = semconv.CONFIG_NAME.removeprefix(semconv.PREFIX)
STATUS: Final = "status"
MODEL_SIZE: Final = "model.size"
ACTIVATION_SIZE: Final = "model.activation_size"
WHEN: Final = "when"
RUN_ID: Final = semconv.short(semconv.RUN_ID)
PATH: Final = "path"
TIME: Final = "time"  # The unit of a moment


@dataclass(frozen=True, slots=True)
class Field:
    """A column of the list."""

    name: str  # Its name in filters and in JSON
    heading: str  # Its heading
    unit: str  # UCUM unit, or :data:`TIME`; empty for a text
    brief: str  # What it is


LISTED: Final = (
    Field(MODEL, "MODEL", "", "name of the float model's file, its folder's name for `model.onnx`; for a model of torch its own name, or its class"),
    Field(METHOD, "METHOD", "", "calibration method"),
    Field(CONFIG, "CONFIG", "", "name of the configuration"),
    Field(STATUS, "STATUS", "", "`ended`, `failed`, `killed`, `lost` or `running`"),
    Field(MODEL_SIZE, "SIZE", "By", "size of the float model, external data included"),
    Field(ACTIVATION_SIZE, "ACTIVATIONS", "By", "outputs of all nodes of the float model, for one sample"),
    *(
        Field(name, heading, summary.BY_NAME[name].unit, summary.BY_NAME[name].brief)
        for name, heading in ((summary.DURATION, "TIME"), (summary.MEMORY_PEAK, "PEAK"), (summary.DISK_WRITE, "WRITTEN"))
    ),
    Field(WHEN, "WHEN", TIME, "when it began, in UTC"),
    Field(PATH, "PATH", "", "the recording or the profile"),
)  # fmt: skip
"""The columns of the list, in order: texts first."""

NAMES: Final = tuple(field.name for field in LISTED)

FAILED: Final = "failed"
"""Runs of processes within it that did not end well, where the program did; shown beside the status."""

AUDIT: Final = "model.quantized.audit.problem_count"
"""Problems that an audit of the model that was written found, shown beside the status too."""

LEAST: Final = f"{summary.MEMORY_PEAK}_is_least"
"""Whether the peak may have been higher; no column of the list."""

_ATTRIBUTES: Final = {
    attribute.name.replace("<role>", role): attribute.unit
    for attribute in catalog.ATTRIBUTES
    for role in ("float", "quantized")
}
_UNITS: Final = {
    **{name.removeprefix(semconv.PREFIX): unit for name, unit in _ATTRIBUTES.items()},
    **_ATTRIBUTES, **{figure.name: figure.unit for figure in summary.BY_NAME.values()},
    **{field.name: field.unit for field in LISTED}, FAILED: "", LEAST: "",
}  # fmt: skip
_OF_RUN: Final = {attribute.name for attribute in catalog.attributes_on("run")}
_BRIEF: Final = {*NAMES, FAILED, LEAST, *summary.BY_NAME} - {
    summary.SAMPLE_RATE,
    summary.MEMORY_SEEN,
}

_BY_UNIT: Final[Mapping[str, Callable[[float], str]]] = {
    **BY_UNIT, TIME: partial(moment_text, to="minutes"),
}  # fmt: skip


def name_of(text: str) -> str:
    """Returns the name that a user means: ``quant.`` may stand before it, and it may be a former one."""
    name = semconv.short(text.strip())
    return semconv.short(catalog.FORMER.get(semconv.PREFIX + name, name))


def attribute_of(name: str) -> str:
    """Returns the attribute that a name is, if it is one."""
    return name if name in _ATTRIBUTES else semconv.PREFIX + name


def unit_of(name: str) -> str:
    """Returns the unit of a name's values; empty for texts, numbers of things and unknown names."""
    return _UNITS.get(name, "")


def is_brief(names: Iterable[str]) -> bool:
    """Returns whether runs have all of these names without their steps."""
    return all(
        name in _BRIEF or attribute_of(name) in _OF_RUN or name.startswith(("model.", "custom."))
        for name in names
    )


def is_least(row: Row) -> bool:
    """Returns whether the true peak of a run may be higher: nothing has seen its end, or has looked in between."""
    return row[STATUS] in ("killed", "lost", "running") or LEAST in row


def text_of(value: Value | None, unit: str) -> str:
    """Returns a value as a person reads it; an empty text for none."""
    if value is None:
        return ""
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) or not math.isfinite(value):
        return str(value)
    in_words = _BY_UNIT.get(unit, "{:,}".format if isinstance(value, int) else digits_text)
    return in_words(value)


# --- conditions: ``calibration.method=MinMax``, ``memory.peak > 12 GiB`` --------------------

_CONDITION: Final = re.compile(r"\s*(.+?)\s*(!=|<=|>=|=|<|>)\s*(.*?)\s*", re.DOTALL)
_QUANTITY: Final = re.compile(r"([-+]?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)\s*([A-Za-z%]*)")

_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


class ConditionError(ValueError):
    """A condition that cannot be understood, or cannot hold of what it is about."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition."""

    text: str  # As it was written
    name: str  # What it is about
    comparison: str  # ``=``, ``!=``, ``<``, ``<=``, ``>`` or ``>=``
    value: str  # What is compared with, as it was written
    number: float | None  # The same as a number, in the unit of the name; None if it is none

    def holds(self, row: Row) -> bool:
        """Returns whether a run fulfils it; one that lacks the value fulfils only ``!=``."""
        found = row.get(self.name)
        if found is None:
            return self.comparison == "!="
        if type(found) in (int, float):
            if self.number is None:
                raise ConditionError(
                    f"{self.text}: {self.value!r} is no number; {self.name} is one, such as {text_of(found, unit_of(self.name))}"
                )
            return _COMPARISONS[self.comparison](found, self.number)
        if self.comparison not in ("=", "!="):
            raise ConditionError(
                f"{self.text}: {self.name} is a text, such as {text_of(found, '')}; expected {self.name}=... or {self.name}!=..."
            )
        text = text_of(found, "")
        texts = found if isinstance(found, tuple) else (text, *text.split(", "))
        return (self.value in texts) == (self.comparison == "=")


def parse(text: str) -> Condition:
    """Reads a condition."""
    parts = _CONDITION.fullmatch(text)
    if parts is None:
        raise ConditionError(
            f"--where {text}: is no condition; expected NAME=VALUE, with =, !=, <, <=, > or >=: "
            "calibration.method=MinMax, 'memory.peak>12 GiB'"
        )
    name, comparison, value = name_of(parts[1]), parts[2], parts[3]
    where = f"--where {text}"
    return Condition(where, name, comparison, value, _number(where, name, value))


def select(rows: Sequence[Row], conditions: Sequence[Condition]) -> list[Row]:
    """Returns the runs of which all conditions hold."""
    for condition in conditions:
        require_name(rows, condition.name, condition.text)
    return [row for row in rows if all(condition.holds(row) for condition in conditions)]


def require_name(rows: Sequence[Row], name: str, text: str) -> None:
    """Makes sure that runs may have a value of a name."""
    if rows and name not in _UNITS and name not in {*chain.from_iterable(rows)}:
        raise ConditionError(
            f"{text}: no run has {name!r}; expected a column of the list (model, status, "
            "memory.peak, ...) or an attribute of docs/telemetry.md without `quant.`"
        )


def _number(text: str, name: str, value: str) -> float | None:
    unit = unit_of(name)
    if unit == TIME:
        return _moment(text, value)
    parts = _QUANTITY.fullmatch(value)
    if parts is None:
        return None
    units = {"": 1.0, **UNITS.get(unit, {})}
    if parts[2] not in units:
        if not unit:
            return None  # a text that begins with a digit
        raise ConditionError(
            f"{text}: {parts[2]!r} is no unit of {name}; expected one of {', '.join(filter(None, units)) or 'none'}"
        )
    return float(parts[1]) * units[parts[2]]


def _moment(text: str, value: Value) -> float:
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        raise ConditionError(
            f"{text}: {value!r} is no date; expected 2026-11-22 or 2026-11-22T06:59, in UTC unless it has an offset"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


# --- pivots -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cell:
    """What the runs of one cell come to."""

    median: float  # Median of their figures
    runs: int  # How many they are


@dataclass(frozen=True, slots=True)
class PivotRow:
    """A row."""

    name: str  # What its runs have in common, as a text; empty for those that have no such value
    # Figures of the model, as many as ``Pivot.beside``; None for what is not known
    beside: tuple[Value | None, ...]
    cells: tuple[Cell | None, ...]  # As many as there are columns; None where there is no run


@dataclass(frozen=True, slots=True)
class Pivot:
    """A table of runs."""

    of_rows: str  # The name whose values are the rows
    of_columns: str  # The name whose values are the columns
    value: str  # The name of the figure in the cells
    beside: tuple[str, ...]  # Names of the figures beside the rows
    columns: tuple[str, ...]  # The values that are the columns, as texts
    rows: tuple[PivotRow, ...]  # The rows
    left_out: int  # Runs that are not in it, because they have not ended well or lack the figure


def pivot(
    runs: Sequence[Row], of_rows: str, of_columns: str, value: str, *, any_status: bool = False
) -> Pivot:
    """Makes a table of runs; runs with several libraries have a row for each."""
    beside = (MODEL_SIZE, ACTIVATION_SIZE) if of_rows == MODEL else ()
    if LIBRARY not in (of_rows, of_columns) and len({run.get(LIBRARY) for run in runs}) > 1:
        beside = (LIBRARY, *beside)
    wanted = (run for run in runs if any_status or run[STATUS] == "ended")
    counted = [run for run in wanted if run.get(value) is not None]
    found: dict[tuple[str, tuple[Value | None, ...]], dict[str, list[float]]] = {}
    for run in counted:
        row = text_of(run.get(of_rows), ""), tuple(map(run.get, beside))
        column = text_of(run.get(of_columns), "")
        found.setdefault(row, {}).setdefault(column, []).append(_figure(run[value], value))
    rows = []
    columns = tuple(sorted({*chain.from_iterable(found.values())}))
    for (name, known), figures in sorted(found.items(), key=lambda item: str(item[0])):
        cells = {column: Cell(statistics.median(of), len(of)) for column, of in figures.items()}
        rows.append(PivotRow(name, known, tuple(map(cells.get, columns))))
    left_out = len(runs) - len(counted)
    return Pivot(of_rows, of_columns, value, beside, columns, tuple(rows), left_out)


def _figure(value: Value, name: str) -> float:
    if isinstance(value, bool | str | tuple):
        raise ConditionError(
            f"--value {name}: {text_of(value, '')!r} is no figure; expected a name such as memory.peak or duration"
        )
    return value


# --- recordings and profiles below folders ------------------------------------------------

_HEADER: Final = HEADER.encode()
_PROFILE: Final = Path(event_file.PROFILE).stem


class Unreadable(NamedTuple):
    """What could not be read, or a part of it."""

    path: str  # The recording, the profile or the folder
    problem: str  # What is wrong


def find(tops: Sequence[str]) -> Iterator[str | Unreadable]:
    """Yields the recordings and profiles below folders or URLs, each once.

    A profile in a recording is the recording's. Links to folders are not followed.
    """
    seen: set[str] = set()
    for top in [os.fspath(local(top)) if "://" in top else top for top in tops]:
        whole = os.fspath(Path(top).resolve(strict=True))
        for each in _below(top) if Path(top).is_dir() else (top,):
            below = each.path if isinstance(each, Unreadable) else each
            key = whole + below.removeprefix(top)
            if key not in seen:
                seen.add(key)
                yield each


def _below(top: str) -> Iterator[str | Unreadable]:
    folders = [top]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as listed:
                entries = sorted(listed, key=lambda entry: entry.name)
        except OSError as error:
            yield Unreadable(folder, reason_of(error))
            continue
        if _is_recording(folder, {entry.name for entry in entries}):
            yield folder
            continue
        for entry in entries:
            if entry.name.endswith((".yaml", ".yml")) and entry.is_file() and _is_profile(entry):
                yield entry.path
        inner = (each for each in reversed(entries) if each.is_dir(follow_symlinks=False))
        folders += [each.path for each in inner]


def _is_recording(folder: str, names: set[str]) -> bool:
    if any(map(event_file.is_of_process, names)):
        return True
    if event_file.MANIFEST not in names:
        return False
    try:
        made = event_file.load_manifest(Path(folder))
    except event_file.NewerSchemaError:
        return True
    return not made or "made_by" in made  # other programs have manifests, too


def _is_profile(entry: os.DirEntry[str]) -> bool:
    if entry.name.startswith(_PROFILE):
        return True
    try:
        with Path(entry.path).open("rb") as file:
            return file.read(len(_HEADER)) == _HEADER
    except OSError:
        return False


# --- rows --------------------------------------------------------------------------------

_FEW: Final = 500  # Runs that one process reads sooner than others are started
_CHUNK: Final = 100

_IGNORE_INTERRUPT: Final = (signal.SIGINT, signal.SIG_IGN)
"""Ctrl-C reaches every process; the first ends the others."""

_FLOAT: Final = "model.float."


def read_all(tops: Sequence[str], names: Collection[str]) -> tuple[list[Row], list[Unreadable]]:
    """Reads all recordings and profiles below folders, or URLs; with what could not be read of them."""
    found = list(find(tops))
    rows: list[Row] = []
    unreadable = [each for each in found if isinstance(each, Unreadable)]
    wanted = tuple(dict.fromkeys((*NAMES, FAILED, AUDIT, LEAST, *names)))
    read_one = partial(_row_at, names=wanted, in_brief=is_brief(wanted))
    gc.disable()  # nothing that is read has a cycle
    try:
        for row, problems in _each(read_one, [each for each in found if isinstance(each, str)]):
            if row is not None:
                rows.append(row | {PATH: shown(str(row[PATH]))})
            unreadable += problems
    finally:
        gc.enable()
    return rows, [Unreadable(shown(path), problem) for path, problem in unreadable]


_Row: TypeAlias = "tuple[Row | None, list[Unreadable]]"


def _each(read_one: partial[_Row], paths: Sequence[str]) -> Iterator[_Row]:
    workers = min(processors(), len(paths) // _FEW)
    if workers > 1:
        try:
            pool = ProcessPoolExecutor(workers, None, signal.signal, _IGNORE_INTERRUPT)
        except (NotImplementedError, OSError):
            pass  # a system without semaphores, or without a place for them: one process reads all
        else:
            with pool:
                yield from pool.map(read_one, paths, chunksize=_CHUNK)
            return
    yield from map(read_one, paths)


def recordings_in(tops: Sequence[str]) -> Iterator[Recording | Unreadable]:
    """Yields all recordings and profiles below folders, or URLs, and what could not be read."""
    for each in find(tops):
        found = each if isinstance(each, Unreadable) else _read(each)
        yield found._replace(path=shown(found.path)) if isinstance(found, Unreadable) else found


def _read(path: str, *, in_brief: bool = False) -> Recording | Unreadable:
    try:
        return read(Path(path), in_brief=in_brief)
    except (OSError, ValueError) as error:
        reason = reason_of(error).removeprefix(f"{path}: ")
        return Unreadable(path, reason or type(error).__name__)


def _row_at(path: str, names: Sequence[str], in_brief: bool) -> _Row:
    recording = _read(path, in_brief=in_brief)
    if isinstance(recording, Unreadable):
        return None, [recording]
    # That a profile has no end is its status.
    problems = recording.problems if recording.path.is_dir() else ()
    return row_of(recording, names), [Unreadable(path, each) for each in problems]


def row_of(recording: Recording, names: Iterable[str]) -> Row:
    """Returns the row of a recording."""
    runs = recording.runs
    sources: list[Mapping[str, Any]] = [recording.origin]
    for run in reversed(runs):  # of several the first counts
        custom = {semconv.CUSTOM_PREFIX + key: each for key, each in run.custom.items()}
        sources += (custom, run.attributes)
    steps = chain.from_iterable(run.steps for run in runs)
    attributes: dict[str, Value] = {}
    # Of steps that differ each text in order, as on the run
    texts: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for step in steps:
        for key, value in step.attributes.items():
            if isinstance(value, str) and key != semconv.INPUT_PATH:  # the first is the run's
                texts[key][value] = None
            attributes.setdefault(key, value)
    for each in ({key: ", ".join(values) for key, values in texts.items()}, *sources):
        attributes.update(each)
    value_of = partial(_value_of, recording, attributes)
    failed = sum(run.is_broken for run in runs) if recording.state == "ended" else 0
    peak = summary.peak(recording)
    # Of Quark's own file: what its copies have in common
    known = repr((recording.began_ns, recording.duration, peak and peak.value)).encode()
    path, name = attributes.get(semconv.INPUT_PATH), attributes.get(semconv.MODEL_NAME)
    made = {
        MODEL: _model_name(path) or name, MODEL_SIZE: value_of(f"{_FLOAT}size"),
        ACTIVATION_SIZE: _difference(
            value_of(f"{_FLOAT}memory"), value_of(f"{_FLOAT}weight_bytes")
        ),
        RUN_ID: attributes.get(semconv.RUN_ID) or hashlib.blake2b(known, digest_size=8).hexdigest(),
        STATUS: recording.state, FAILED: failed or None,
        LEAST: (peak is not None and peak.is_least) or None,
        WHEN: recording.began_ns / 1e9 or None, PATH: os.fspath(recording.path),
    }  # fmt: skip
    return present({each: made[each] if each in made else value_of(each) for each in names})


def _value_of(recording: Recording, attributes: Mapping[str, Value], name: str) -> Value | None:
    """Returns the quantity of a name, else the attribute."""
    quantity = summary.value(recording, name) if name in summary.BY_NAME else None
    return attributes.get(attribute_of(name)) if quantity is None else quantity


def _model_name(path: AttributeValue | None) -> str | None:
    if not path:
        return None
    whole = PurePath(str(path))
    name = whole.name.removesuffix(".onnx")
    # Exporters give every model the same name: the folder has its own.
    return name if name != "model" else whole.parent.name or name


def _difference(whole: Value | None, part: Value | None) -> float | None:
    if not isinstance(whole, int | float) or not isinstance(part, int | float):
        return None
    return whole - part
