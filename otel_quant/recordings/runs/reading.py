"""Reads many runs, each as one row."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path, PurePath
from typing import Final

from otel_quant.recordings.comparison.figures import MEMORY_PEAK, MEMORY_SEEN, figures_of
from otel_quant.recordings.model import Recording
from otel_quant.recordings.reader import read
from otel_quant.recordings.runs import fields
from otel_quant.recordings.runs.fields import Row, Value
from otel_quant.recordings.runs.finding import Unreadable, find
from otel_quant.schema import semconv
from otel_quant.schema.records import AttributeValue

_FEW: Final = 500
"""Runs that one process reads sooner than others are started."""

_CHUNK: Final = 100

_IGNORE_INTERRUPT: Final = (signal.SIGINT, signal.SIG_IGN)
"""Ctrl-C reaches every process; the first ends the others."""

_ANY: Final = (
    OSError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError,
)  # fmt: skip
"""What a file may raise in whose place something else lies."""

_MODEL_FILE: Final = ".onnx"
_SAYS_NOTHING: Final = "model"
"""Name of a file that exporters give every model: the folder has the model's name."""

_FLOAT: Final = "model.float."


def read_all(tops: Sequence[str], names: Collection[str]) -> tuple[list[Row], list[Unreadable]]:
    """Reads all recordings and profiles below folders."""
    found = list(find(tops))
    unreadable = [each for each in found if isinstance(each, Unreadable)]
    paths = [each for each in found if isinstance(each, str)]
    wanted = tuple(dict.fromkeys((*fields.NAMES, *names)))
    rows: list[Row] = []
    for outcome in _each(partial_read(wanted), paths):
        if isinstance(outcome, Unreadable):
            unreadable.append(outcome)
        else:
            rows.append(outcome)
    return rows, unreadable


def partial_read(names: Sequence[str]) -> partial[Row | Unreadable]:
    """Returns what reads the row of one path with these names."""
    return partial(_row_at, names=names, in_brief=fields.is_brief(names))


def _each(read_one: partial[Row | Unreadable], paths: Sequence[str]) -> Iterator[Row | Unreadable]:
    workers = min(_processors(), len(paths) // _FEW)
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


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _row_at(path: str, names: Sequence[str], in_brief: bool) -> Row | Unreadable:
    try:
        return row_of(read(Path(path), in_brief=in_brief), names)
    except _ANY as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return Unreadable(path, said.removeprefix(f"{path}: ") or type(error).__name__)


def row_of(recording: Recording, names: Iterable[str]) -> Row:
    """Returns the row of a recording."""
    attributes: dict[str, AttributeValue] = {}
    for run in reversed(recording.runs):
        for step in reversed(run.steps):
            attributes.update(step.attributes)
    attributes.update(recording.origin)
    for run in reversed(recording.runs):  # of several the first counts
        for model in run.models:
            known = model.get("figures", {}).items()
            attributes.update(
                (f"quant.model.{model.get('role')}.{key}", each) for key, each in known
            )
        attributes.update((semconv.CUSTOM_PREFIX + key, each) for key, each in run.custom.items())
        attributes.update(run.attributes)
    figures = figures_of(recording)

    def value_of(name: str) -> Value | None:
        return figures.get(name, attributes.get(fields.attribute_of(name)))

    made = {
        fields.MODEL: _model_name(recording, attributes),
        fields.MODEL_SIZE: value_of(f"{_FLOAT}size"),
        fields.ACTIVATION_SIZE: _difference(
            value_of(f"{_FLOAT}memory"), value_of(f"{_FLOAT}weight_bytes")
        ),
        fields.STATUS: recording.state,
        fields.WHEN: recording.began_ns / 1e9 or None,
        fields.PATH: os.fspath(recording.path),
        # Quark's own file has the peak of the process without its children, or none.
        MEMORY_PEAK: figures.get(
            MEMORY_PEAK, attributes.get(semconv.MEMORY_PROCESS_PEAK, figures.get(MEMORY_SEEN))
        ),
    }
    row = {name: made[name] if name in made else value_of(name) for name in names}
    return {name: value for name, value in row.items() if value is not None}


def _model_name(recording: Recording, attributes: Mapping[str, AttributeValue]) -> str | None:
    path = attributes.get(semconv.INPUT_PATH)
    costed = (
        model.get("path")
        for run in recording.runs
        for model in run.models
        if model.get("role") == "float"
    )
    if not path and (path := next(costed, None)) is None:
        return None
    whole = PurePath(str(path))
    name = whole.name.removesuffix(_MODEL_FILE)
    return name if name != _SAYS_NOTHING else whole.parent.name or name


def _difference(whole: Value | None, part: Value | None) -> float | None:
    if not isinstance(whole, int | float) or not isinstance(part, int | float):
        return None
    return whole - part
