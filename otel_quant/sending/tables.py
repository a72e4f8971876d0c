"""Recordings as four Delta Lake tables, for engines that read more of them than a command can: runs, steps, kernels, layers.

The types of columns follow from the catalog and stay. A run is in a table once: before rows are appended, the ids of the same
time are asked for; by the statistics in the table's log, nothing is read for runs that are newer than all. Of two exports at
the same time the later one asks again: Delta Lake keeps a version for an application, which only one of them can raise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from io import BytesIO
from itertools import chain, product
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from otel_quant.base.fault_boundary import LastResort
from otel_quant.format.event_file import INFERENCE
from otel_quant.format.store import StoreError, reason_in, require
from otel_quant.inference.results import InferenceResult, read_result
from otel_quant.recordings import runs, summary
from otel_quant.recordings.model import Recording, steps_in
from otel_quant.schema import catalog, semconv

if TYPE_CHECKING:
    from arro3.core import Table

Row: TypeAlias = dict[str, Any]

_APPLICATION: Final = "otel-quant"
_OPTIONS: Final = {"allow_http": "true"}  # Where the endpoint that the user names is one
_TRIES: Final = 20  # How often another export may write first
_MERGED_EVERY: Final = 100  # Appends to a table between two merges of its small files
_IDS: Final = "SELECT DISTINCT run_id FROM known WHERE began BETWEEN to_timestamp_micros({}) AND to_timestamp_micros({})"
_BY_UNIT: Final = {"": "string", "By": "int", runs.TIME: "time"}  # Types; of other units ``double``


def _columns(**names: str) -> dict[str, str]:
    """Returns the type of each name, for the names of each type."""
    return {name: kind for kind, every in names.items() for name in every.split()}


def _of_units(every: Sequence[runs.Field | catalog.Quantity]) -> dict[str, str]:
    return {each.name: _BY_UNIT.get(each.unit, "double") for each in every}


def _of_runs() -> Iterator[tuple[str, str]]:
    """Yields the names and types of everything that a list of runs can show without their steps."""
    yield from _of_units((*catalog.QUANTITIES, *runs.LISTED)).items()
    yield from ((runs.FAILED, "int"), (runs.LEAST, "boolean"))
    for each, role in product(catalog.attributes_on("run"), ("float", "quantized")):
        yield semconv.short(each.name.replace("<role>", role)), each.type


_ALL: Final = {"run_id": "string", "began": "time", "month": "string"}
_LEFT_OUT: Final = (runs.WHEN, runs.RUN_ID, summary.SAMPLE_RATE, summary.MEMORY_SEEN)
_RUNS: Final = {name: of for name, of in _of_runs() if "<" not in name and name not in _LEFT_OUT}
NAMES: Final = (runs.RUN_ID, *_RUNS)  # What the rows of :func:`parquet` have of runs
_OF_STEP: Final = "parent name kind state start error"
_TYPES: Final[Mapping[str, Mapping[str, str]]] = {
    "kernels": _ALL | _columns(
        string="model name op_type node layer provider runs_in", double="micros share calls",
        int="number macs weights activations",
    ),
    "layers": _ALL | _columns(string="process layer measure better unit", double="value", int="step number"),
    "steps": _ALL | _columns(string="process name kind state error", double="start", int="step parent")
    | _of_units([each for each in catalog.QUANTITIES if each.is_of_steps]),
    "runs": _ALL | _RUNS,
}  # fmt: skip
"""The columns of each table; the run itself is written last."""


def _run(row: runs.Row) -> Row:
    began: Any = row.get(runs.WHEN, 0)
    month = datetime.fromtimestamp(began, UTC).strftime("%Y-%m")
    return {**row, "run_id": row[runs.RUN_ID], "began": began, "month": month}


def _kernels(recording: Recording) -> Iterator[Row]:
    for model in _inference(recording).models:
        for number, each in enumerate(model.ran.kernels if model.ran is not None else ()):
            yield {**asdict(each), "runs_in": each.runs_in, "model": model.path, "number": number}


def _layers(recording: Recording) -> Iterator[Row]:
    for each in steps_in(recording):
        step = {"process": each.run.process, "step": each.step.index}
        yield from (layer._asdict() | step for layer in each.step.layers)
    for model in _inference(recording).models:
        for number, error in enumerate(model.accuracy.layers if model.accuracy is not None else ()):
            for name in ("own", "all", "weights"):
                known = {"layer": error.name, "value": getattr(error, name), "better": "higher"}
                yield {**known, "number": number, "measure": f"sqnr.{name}", "unit": "dB"}


def _steps(recording: Recording) -> Iterator[Row]:
    summary_of = summary.steps_of(recording)
    for each in steps_in(recording):
        own = {name: getattr(each.step, name) for name in _OF_STEP.split()}
        place = {"process": each.run.process, "step": each.step.index}
        yield {**summary_of(each).values(each.step), **own, **place}


def _inference(recording: Recording) -> InferenceResult:
    """Returns what was measured of the models beside the recording."""
    with suppress(OSError, ValueError):
        return read_result((recording.path / INFERENCE).read_text("utf-8"))
    return InferenceResult((), "", {}, None, 0)


_INNER: Final = {"kernels": _kernels, "layers": _layers, "steps": _steps}


def rows_of(recording: Recording) -> dict[str, list[Row]]:
    """Returns the rows of a recording, by table."""
    place = recording.place if "://" in recording.place else str(recording.path.absolute())
    run = _run(runs.row_of(recording, (*NAMES, runs.WHEN)) | {runs.PATH: place})
    of_all = {name: run[name] for name in _ALL}
    inner = {name: [row | of_all for row in of(recording)] for name, of in _INNER.items()}
    return {**inner, "runs": [run]}


# --- Arrow, Delta Lake, Parquet -----------------------------------------------------------

_MADE: Final[Mapping[str, Callable[[Any], Any]]] = {
    "int": round, "double": float, "boolean": bool, "time": lambda seconds: round(seconds * 1e6),
}  # fmt: skip


def _cell(kind: str, value: Any) -> Any:
    """Returns a value as a column has it; None where it is something else, as a text for a number."""
    with suppress(TypeError, ValueError, OverflowError):
        return None if value is None else _MADE.get(kind, partial(runs.text_of, unit=""))(value)
    return None


def _arrow(table: str, rows: Sequence[Row]) -> Table:
    from arro3.core import Array, DataType, Table

    moment = DataType.timestamp("us", tz="UTC")
    types = {"double": DataType.float64(), "boolean": DataType.bool()}
    types |= dict.fromkeys(("int", "time"), DataType.int64())
    columns: dict[str, Any] = {}
    for name, kind in _TYPES[table].items():
        cells = [_cell(kind, row.get(name)) for row in rows]
        made = Array(cells, types.get(kind, DataType.utf8()))
        columns[name.replace(".", "_")] = made.cast(moment) if kind == "time" else made
    return Table.from_pydict(columns)


def parquet(rows: Sequence[runs.Row]) -> bytes:
    """Returns rows of runs that have :data:`NAMES` as a Parquet file with the columns of the table of runs."""
    require("arro3", "tables")
    from arro3.io import write_parquet

    buffer = BytesIO()
    write_parquet(_arrow("runs", list(map(_run, rows))), buffer)
    return buffer.getvalue()


def add(url: str, recordings: Sequence[Mapping[str, Sequence[Row]]]) -> int:
    """Appends the rows of recordings whose runs the tables at a URL do not have; returns how many runs. Raises :class:`StoreError`."""
    require("deltalake", "tables")
    from deltalake.exceptions import DeltaError

    place = url.rstrip("/").replace("#", "%23" if "://" in url else "#")  # it is of the path
    try:
        for table in _TYPES:
            rows = [row for each in recordings for row in each[table]]
            added = _added(f"{place}/{table}", table, rows)
        return added
    except (DeltaError, OSError) as error:
        raise StoreError(reason_in(error, url)) from None


def _added(place: str, table: str, rows: Sequence[Row]) -> int:
    """Appends rows of runs that a table has none of; returns how many rows."""
    import deltalake as delta
    from deltalake.exceptions import CommitFailedError, DeltaError

    schema = _arrow(table, ()).schema
    times = [round(row["began"] * 1e6) for row in rows]
    for _ in range(_TRIES):
        try:
            known = delta.DeltaTable.create(
                place, schema, "ignore", "month", storage_options=_OPTIONS
            )
        except DeltaError:  # another export has just made it; any other error is raised here
            known = delta.DeltaTable(place, storage_options=_OPTIONS)
        if not rows:
            return 0
        asked = _IDS.format(min(times), max(times))
        with LastResort() as end:  # it raises Exception itself
            batches = delta.QueryBuilder().register("known", known).execute(asked)
            ids = {*chain.from_iterable(each["run_id"].to_pylist() for each in batches)}
        if end.error is not None:
            raise StoreError(reason_in(end.error, place))
        new = [row for row in rows if row["run_id"] not in ids]
        if not new:
            return 0
        version = (known.transaction_version(_APPLICATION) or 0) + 1
        raised = delta.CommitProperties(None, None, [delta.Transaction(_APPLICATION, version)])
        try:
            delta.write_deltalake(
                known,
                _arrow(table, new),
                mode="append",
                schema_mode="merge",
                commit_properties=raised,
            )
        except CommitFailedError:
            continue  # another export was first
        if version % _MERGED_EVERY == 0:
            with suppress(CommitFailedError):  # another one merges them
                known = delta.DeltaTable(place, storage_options=_OPTIONS)
                known.optimize.compact()
                known.vacuum(dry_run=False)
        return len(new)
    why = f"other exports wrote first, {_TRIES} times in a row; export again"
    raise StoreError(reason_in(TimeoutError(why), place))
