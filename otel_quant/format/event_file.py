"""The files of a recording: their names, the events and the state of a process, and the manifest of all.

Processes find their recording without being told: a folder whose processes are alive, or whose first
process has the same parent and a rank, is theirs. A variable with its name would change what the
program's children see. Each file is locked while its process lives, so that a reader can tell a run that
goes on from one that was killed.

``events.<pid>.jsonl``: JSON lines, one ``write`` each, so that a kill loses none.

A line has ``schema``, ``time`` (nanoseconds since the epoch), ``clock`` (monotonic, in nanoseconds),
``kind``, and the names of :mod:`otel_quant.schema.semconv`.

``state.<pid>.json``: the newest figures of a process, written over in place.

``manifest.json``: when a recording began, what made it, and how it ended. Whoever is first makes it, the
launcher or the first process, and completes it at the end. `ended` is in nanoseconds since the epoch; the
launcher alone adds `ending` and `summary` (the highest value of each level of its curve, the last of each total).
"""

from __future__ import annotations

import errno
import itertools
import json
import math
import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

from otel_quant.base.files import PAGE, HeldFile, PageFile, is_held, open_regular, replace_whole
from otel_quant.base.kernel_files import read_proc
from otel_quant.format import series
from otel_quant.schema.code_lines import Node, Place, Spot
from otel_quant.schema.events import Event, present
from otel_quant.schema.readings import UNITS, Counts

SCHEMA: Final = 1  # Version of the format of all files of a recording
MANIFEST: Final = "manifest.json"
PROFILE: Final = "quark_profile.yaml"
LAST_READING: Final = ".last_reading.json"
"""How the names of files end that have the newest reading of a run beside its profile."""

REPORT: Final = "report.html"
OUTPUT: Final = "output.log"
INFERENCE: Final = "inference.json"  # What `otel-quant inference --record` adds
BENCH: Final = "bench.json"  # What `otel-quant bench --record` adds

_FILES: Final = {
    "events": "events.{}.jsonl", "curve": "curve.{}.jsonl", "state": "state.{}.json",
    "stacks": "stacks.{}.{}.json",
}  # fmt: skip
_PROCESS: Final = re.compile(r"(events|curve|state)\.([0-9]+(?:-[0-9]+)?)\.jsonl?")


def process_file(
    folder: Path, kind: Literal["events", "curve", "state", "stacks"], process: str, run: str = ""
) -> Path:
    """Returns the path of a file of a process; the stacks have one for each of its runs."""
    return folder / _FILES[kind].format(process, run)


def processes_in(folder: Path) -> list[str]:
    """Returns the processes that have left a file, by the number of their process ids."""
    matches = [_PROCESS.fullmatch(path.name) for path in folder.iterdir()]
    found = {match[2] for match in matches if match is not None}
    return sorted(found, key=lambda process: [int(part) for part in process.split("-")])


def is_of_process(name: str) -> bool:
    """Returns whether a file has a name that only files of a recording have."""
    return _PROCESS.fullmatch(name) is not None


def newest_in(folder: Path) -> Path | None:
    """Returns the recording below a folder that was begun last, by its name; None without one."""
    found = [each for each in folder.glob("otel-quant-*") if (each / MANIFEST).is_file()]
    return max(found, key=lambda each: each.name[-15:], default=None)


_ENCODE: Final = json.JSONEncoder(default=str, allow_nan=False, separators=(",", ":")).encode
"""Made once: ``json.dumps`` with these arguments makes an encoder for each event."""


class EventFile(HeldFile):
    """Writes events. Any number of threads may use it: a line is one append."""

    def write(self, kind: str, time_ns: int, clock_ns: int, fields: Mapping[str, Any]) -> None:
        """Appends an event."""
        event: dict[str, Any] = {"schema": SCHEMA, "time": time_ns, "clock": clock_ns, "kind": kind}
        event.update((name, value) for name, value in fields.items() if value is not None)
        self.append(as_json(event).encode() + b"\n")


def as_json(value: Mapping[str, Any]) -> str:
    """Returns a mapping as JSON on one line, in ASCII; NaN and infinity as text."""
    try:
        return _ENCODE(value)
    except (TypeError, ValueError):  # JSON has no NaN, no infinity, and only some kinds of keys
        return _ENCODE(finite(value))


def finite(value: Any) -> Any:
    """Replaces numbers that JSON does not have (NaN, infinity) by their names."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def stacks_as_lists(stacks: Mapping[int, Node]) -> dict[str, Any]:
    """Returns what the file of a run's stacks holds: places, and for each step rows of parent, place and amounts."""
    places: dict[Place, int] = {}
    steps: dict[str, list[list[int]]] = {}
    for step, root in list(stacks.items()):
        rows = steps[str(step)] = [[-1, -1, *root.own]]
        waiting = [(0, root)]
        while waiting:
            above, node = waiting.pop()
            for place, inner in list(node.below.items()):
                waiting.append((len(rows), inner))
                rows.append([above, places.setdefault(place, len(places)), *inner.own])
    return {"places": [list(place) for place in places], "steps": steps}


BEFORE_RUNS: Final = "before"
"""Stands for a run in the name of the file with the stacks of a process that has not begun one."""

_STACKS_NS: Final = 5_000_000_000
"""Nanoseconds at least between two writes of the stacks, which are written whole."""

_STACKS_SHARE: Final = 0.0005  # Part of a core that writing them may take


class StacksWriter:
    """Writes the stacks of the runs of a process."""

    def __init__(self, least_ns: int = _STACKS_NS) -> None:
        self.due_ns = 0  # Monotonic clock, when they are to be written again
        self._least_ns = least_ns
        # Else a write of the sampler that takes long is put over that of the end. Reentrant: a signal handler may end a run.
        self._lock = threading.RLock()

    def write(self, path: Path, run: str, stacks: Mapping[int, Node], clock_ns: int) -> None:
        """Writes those of a run; if that fails, it is tried again as if it had not."""
        began = time.thread_time_ns()
        try:
            with self._lock:
                found = {"schema": SCHEMA, "run": run, **stacks_as_lists(stacks)}
                replace_whole(path, as_json(found).encode())
        finally:
            cost = time.thread_time_ns() - began
            self.due_ns = clock_ns + max(self._least_ns, round(cost / _STACKS_SHARE))


EXPECTED: Final = "expected a recording (the folder that `otel-quant run -- PROGRAM` makes) or a quark_profile.yaml"
"""The expected kind of path, as errors name it."""


class NotARecordingError(ValueError):
    """A folder holds no recording, or a file is no profile."""


class NewerSchemaError(ValueError):
    """A recording was written by a newer otel-quant."""


def refuse_newer(path: Path, record: Any) -> None:
    """Raises :class:`NewerSchemaError` if a newer otel-quant has written a record of a file."""
    schema = record.get("schema") if type(record) is dict else None
    if type(schema) is int and schema > SCHEMA:
        known = f"this otel-quant reads {SCHEMA} and less: read it with a newer one"
        raise NewerSchemaError(f"{path}: schema {schema}; {known}")


def mapping_in(path: Path) -> dict[str, Any] | None:
    """Returns what a file of one mapping holds; None if it is missing, cut or something else."""
    try:
        with open_regular(path) as file:
            found = json.loads(file.read())
    except (OSError, ValueError, RecursionError):
        return None
    refuse_newer(path, found)
    return found if type(found) is dict else None


class StateFile(PageFile):
    """Writes the newest figures of a run over in place. The file is made with the first write."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._head = ""
        self._head_of: tuple[object, ...] = ()

    def write(
        self,
        newest: Event,
        steps: Iterable[tuple[int, Counts, Spot | None]],
        **more: str | int | None,
    ) -> None:
        """Writes a reading, and of each open step its index, how far it is, and its line."""
        if self._head_of != (newest, more):  # else there are only more samples or layers
            peaks = newest.peaks.figures if newest.peaks is not None else {}
            # Peaks that no log record has and no launcher measures:
            shown = {name: peaks.get(figure) for figure, name in series.STATE_PEAKS.items()}
            head = {
                "schema": SCHEMA, "time": newest.time_ns, "clock": newest.clock_ns, "run": newest.run.id,
                **present(more), "attributes": {**newest.attributes, **present(shown)},
            }  # fmt: skip
            self._head, self._head_of = as_json(head), (newest, more)
        known = list(steps)
        texts = [_step_text(*step) for step in known]
        # Without room for all lines, only the line of the last step: numbers of samples matter more.
        short = [_step_text(*step[:2], None) for step in known[:-1]] + texts[-1:]
        for kept in itertools.chain((texts,), (short[at:] for at in range(len(short) + 1))):
            text = f'{self._head[:-1]},"steps":[{",".join(kept)}]}}'
            if len(text) < PAGE:
                self.put(text)
                return
        # else the attributes of a program fill a page by themselves


def _step_text(index: int, counts: Counts, spot: Spot | None) -> str:
    step: dict[str, Any] = {"index": index}
    for unit, (done, total) in counts.items():
        step |= {UNITS[unit].several: done, UNITS[unit].expected: total}
    if spot is not None:
        more = {"own": spot.own, "waits_for": spot.waits_for or None}
        step |= {"line": spot.leaf, **present(more)}
    return as_json(step)


def boot_id() -> str | None:
    """Returns what identifies the machine since it was started: its processes have one monotonic clock."""
    with suppress(OSError):
        return read_proc("/proc/sys/kernel/random/boot_id").decode().strip()
    return None


def create_manifest(
    folder: Path, began_ns: int, clock_ns: int, made_by: Literal["launcher", "process"], origin: Mapping[str, Any],
    **fields: Any,
) -> bool:  # fmt: skip
    """Makes the manifest, unless there is one. Missing folders are made."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest = {
        "schema": SCHEMA, "began": began_ns, "clock": clock_ns, "boot": boot_id(), "made_by": made_by,
        "pid": os.getpid(), "origin": origin, **fields,
    }  # fmt: skip
    try:
        with (folder / MANIFEST).open("xb", buffering=0) as file:
            file.write(as_json(manifest).encode() + b"\n")
    except FileExistsError:
        return False
    return True


def complete_manifest(folder: Path, origin: Mapping[str, Any], **fields: Any) -> None:
    """Adds to what made the recording, and other fields, and replaces the manifest whole."""
    known = load_manifest(folder)
    known |= {"origin": {**known.get("origin", {}), **origin}, **fields}
    path, data = folder / MANIFEST, as_json(known).encode() + b"\n"
    try:
        replace_whole(path, data)
    except OSError as error:
        if error.errno != errno.ENOSPC or len(data) > PAGE:
            raise
        with path.open("r+b") as file:  # the page that it has is room enough
            file.write(data)


def load_manifest(folder: Path) -> dict[str, Any]:
    """Returns the manifest; an empty one if it is missing or has been cut."""
    return mapping_in(folder / MANIFEST) or {}


_TRIES: Final = 10_000


def choose_folder(asked: Path, *, is_ours: bool, rank: int | None, names_paths: bool) -> Path:
    """Returns the folder for the recording of this process.

    Processes that run at the same time, and ranks that one launcher has started, share a recording.
    Any other recording that is at the path stays as it is.
    """
    folder = asked.absolute()
    if is_ours:
        return folder
    for number in range(_TRIES):
        numbered = folder.with_name(f"{folder.name}-{number}") if number else folder
        if not _is_another(numbered, rank):
            break
    if numbered != folder:
        from otel_quant.base.log import LOG  # readers of recordings do not need it

        LOG.warning(
            "%s holds another recording, which is kept; this one is in %s",
            folder if names_paths else "the folder of OTEL_QUANT_RECORD",
            numbered if names_paths else numbered.name,
        )
    return numbered


def make_folder(folder: Path, *, names_paths: bool) -> bool:
    """Makes the folder of a recording, and those above it."""
    reason = "no permission to write there"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            return True
    except OSError as error:
        reason = error.strerror or type(error).__name__
    from otel_quant.base.log import LOG

    LOG.warning(
        "%s cannot be written: %s; the program goes on without a recording: set OTEL_QUANT_RECORD to a folder that can be written",
        f"the recording {folder}" if names_paths else "the recording",
        reason,
    )
    return False


def open_events(folder: Path) -> tuple[str, EventFile]:
    """Makes the file of this process's events."""
    pid = os.getpid()
    process, numbers = str(pid), itertools.count(1)
    while True:
        try:
            return process, EventFile(process_file(folder, "events", process))
        except FileExistsError:
            process = f"{pid}-{next(numbers)}"


def _is_another(folder: Path, rank: int | None) -> bool:
    """Whether there is a recording to which this process does not belong."""
    try:
        processes = processes_in(folder)
    except OSError:
        return False
    if not processes:
        return (folder / MANIFEST).exists()
    events = [process_file(folder, "events", process) for process in processes]
    if any(map(is_held, events)):
        return False
    return rank is None or not any(map(_is_sibling, events))


def _is_sibling(path: Path) -> bool:
    """Whether a process had the parent that this one has."""
    try:
        with open_regular(path) as lines:
            first = json.loads(lines.readline())
    except (OSError, ValueError, RecursionError):
        return False
    return type(first) is dict and first.get("parent_pid") == parent_pid()


def parent_pid() -> int:
    """Returns the process that has started this one; a fork server, which is not recorded, has forked it."""
    loaded = sys.modules.get("multiprocessing.process")
    parent = loaded.parent_process() if loaded is not None else None
    return os.getppid() if parent is None else int(parent.pid)
