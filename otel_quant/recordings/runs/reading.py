"""Finds recordings and profiles below folders, and reads each as one row.

No curve and no step is read of a run that has ended: its end event has the attributes of its steps and
models, and the manifest the summary of the launcher's curve.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from otel_quant.base.machine import processors
from otel_quant.export.recording import layout
from otel_quant.export.recording.event_file import NewerSchemaError, load_manifest
from otel_quant.recordings import summary
from otel_quant.recordings.model import Recording
from otel_quant.recordings.profile_reader import HEADER
from otel_quant.recordings.reader import read
from otel_quant.recordings.runs import fields
from otel_quant.recordings.runs.fields import Row, Value
from otel_quant.schema import semconv

if TYPE_CHECKING:
    from otel_quant.schema.records import AttributeValue

_HEADER: Final = HEADER.encode()
_YAML: Final = (".yaml", ".yml")
_PROFILE: Final = Path(layout.PROFILE).stem


class Unreadable(NamedTuple):
    """What could not be read, or a part of it."""

    path: str  # The recording, the profile or the folder
    problem: str  # What is wrong


def find(tops: Sequence[str]) -> Iterator[str | Unreadable]:
    """Yields the recordings and profiles below folders, each once.

    A profile in a recording is the recording's. Links to folders are not followed.
    """
    seen: set[str] = set()
    for top in tops:
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
            yield Unreadable(folder, error.strerror or str(error))
            continue
        if _is_recording(folder, {entry.name for entry in entries}):
            yield folder
            continue
        for entry in entries:
            if entry.name.endswith(_YAML) and entry.is_file() and _is_profile(entry):
                yield entry.path
        folders += [
            entry.path for entry in reversed(entries) if entry.is_dir(follow_symlinks=False)
        ]


def _is_recording(folder: str, names: set[str]) -> bool:
    if any(map(layout.is_of_process, names)):
        return True
    if layout.MANIFEST not in names:
        return False
    try:
        made = load_manifest(Path(folder))
    except NewerSchemaError:
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

_FEW: Final = 500
"""Runs that one process reads sooner than others are started."""

_CHUNK: Final = 100

_IGNORE_INTERRUPT: Final = (signal.SIGINT, signal.SIG_IGN)
"""Ctrl-C reaches every process; the first ends the others."""

_MODEL_FILE: Final = ".onnx"
_SAYS_NOTHING: Final = "model"
"""Name of a file that exporters give every model: the folder has the model's name."""

_FLOAT: Final = "model.float."


def read_all(tops: Sequence[str], names: Collection[str]) -> tuple[list[Row], list[Unreadable]]:
    """Reads all recordings and profiles below folders; with what could not be read of them."""
    found = list(find(tops))
    rows: list[Row] = []
    unreadable = [each for each in found if isinstance(each, Unreadable)]
    wanted = tuple(dict.fromkeys((*fields.NAMES, fields.FAILED, *names)))
    read_one = partial(_row_at, names=wanted, in_brief=fields.is_brief(wanted))
    gc.disable()  # nothing that is read has a cycle
    try:
        for row, problems in _each(read_one, [each for each in found if isinstance(each, str)]):
            if row is not None:
                rows.append(row)
            unreadable += problems
    finally:
        gc.enable()
    return rows, unreadable


_Read: TypeAlias = "tuple[Row | None, list[Unreadable]]"


def _each(read_one: partial[_Read], paths: Sequence[str]) -> Iterator[_Read]:
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


def _row_at(path: str, names: Sequence[str], in_brief: bool) -> _Read:
    try:
        recording = read(Path(path), in_brief=in_brief)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return None, [Unreadable(path, reason.removeprefix(f"{path}: ") or type(error).__name__)]
    # That a profile has no end is its status.
    problems = recording.problems if recording.path.is_dir() else ()
    return row_of(recording, names), [Unreadable(path, each) for each in problems]


def row_of(recording: Recording, names: Iterable[str]) -> Row:
    """Returns the row of a recording."""
    attributes: dict[str, AttributeValue] = {}
    for run in reversed(recording.runs):
        for step in reversed(run.steps):
            attributes.update(step.attributes)
    attributes.update(recording.origin)
    for run in reversed(recording.runs):  # of several the first counts
        attributes.update((semconv.CUSTOM_PREFIX + key, each) for key, each in run.custom.items())
        attributes.update(run.attributes)

    def value_of(name: str) -> Value | None:
        known = summary.value(recording, name) if name in summary.BY_NAME else None
        return attributes.get(fields.attribute_of(name)) if known is None else known

    failed = sum(run.is_broken for run in recording.runs)
    made = {
        fields.MODEL: _model_name(attributes.get(semconv.INPUT_PATH))
        or attributes.get(semconv.MODEL_NAME),
        fields.MODEL_SIZE: value_of(f"{_FLOAT}size"),
        fields.ACTIVATION_SIZE: _difference(
            value_of(f"{_FLOAT}memory"), value_of(f"{_FLOAT}weight_bytes")
        ),
        fields.STATUS: recording.state,
        fields.FAILED: failed if failed and recording.state == "ended" else None,
        fields.WHEN: recording.began_ns / 1e9 or None,
        fields.PATH: os.fspath(recording.path),
    }
    row = {name: made[name] if name in made else value_of(name) for name in names}
    return {name: value for name, value in row.items() if value is not None}


def _model_name(path: AttributeValue | None) -> str | None:
    if not path:
        return None
    whole = PurePath(str(path))
    name = whole.name.removesuffix(_MODEL_FILE)
    return name if name != _SAYS_NOTHING else whole.parent.name or name


def _difference(whole: Value | None, part: Value | None) -> float | None:
    if not isinstance(whole, int | float) or not isinstance(part, int | float):
        return None
    return whole - part
