"""Writes the local file: a run as YAML in the format of AMD Quark's profiler.

A checkpoint is on disk when the sink's method returns, so the file of a killed run lacks only its
end; see :mod:`otel_quant.export.quark_yaml.file`. Five things are not in Quark's file, and ``strict`` leaves
them out: records of steps that Quark's profiler declares but does not report, last keys
``error_message`` and ``error`` in the End record of a failed step, comments below a record (the
step's peaks; what the step says of the run), the sections ``run`` and ``run_end`` with what made the
run and how it went, and a last section ``onnx_model_cost`` with the static cost of the models. What
reads Quark's file ignores them. ``run`` stands before the records, so that the file of a killed run has
it too.

A step may last for hours: of a run that is killed in it, a file beside the local file says what the run
was doing and using a second before. It is one JSON object with the columns of the local file, the peaks
so far, the memory limit and the open steps. Its name has the run's id, so that a later run at the same
path leaves it alone; the end of the run removes it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.base.files import PAGE, PageFile
from otel_quant.export.quark_yaml import file as profile_file
from otel_quant.export.quark_yaml.columns import Kind, ProgramMetrics
from otel_quant.export.quark_yaml.request import beside
from otel_quant.export.quark_yaml.yaml_text import comment, inline, key, number, quoted
from otel_quant.export.recording.layout import LAST_READING
from otel_quant.schema import semconv
from otel_quant.schema.events import Attributes, Event, Sink
from otel_quant.schema.records import CostedModel, Peaks, Reading
from otel_quant.version import VERSION

_HEADER: Final = "# Quark Profiling Results\n\n"
_RUN: Final = "run:\n"
_RECORDS: Final = "memory_usage:\n"
_RUN_END: Final = "\nrun_end:\n"
_SUMMARY: Final = "\n# Summary Metrics\n"
_DEFINITIONS: Final = "\n# Metric Definitions:\n"
_RECORD_DEFINITIONS: Final = "#\n# Checkpoint Metrics (per record):\n"
_SUMMARY_DEFINITIONS: Final = "#\n# Summary Metrics (overall):\n"
_COST: Final = "\nonnx_model_cost:\n"

_MIB: Final = 1 << 20
_SHARE_DIGITS: Final = 4

_LAST_READING_SCHEMA: Final = 1
_MOST_STEPS: Final = 20
_LONGEST_LABEL: Final = 200  # characters, each of up to 12 bytes


class ProfileTextSink(Sink):
    """Makes the text of a run's file, piece by piece, and keeps it where it is asked to."""

    def __init__(self, metrics: ProgramMetrics, *, strict: bool = False) -> None:
        self._metrics = metrics
        self._strict = strict
        self._output: Callable[[str], None] | None = None
        self._kept: list[str] | None = None
        self._costs: list[CostedModel] = []
        self._facts = _Facts()
        # Reentrant: a signal handler may close a step while another is being written.
        self._lock = threading.RLock()

    def keep(self, pieces: list[str]) -> bool:
        """Keeps the text in memory too, before the run begins."""
        if not self._strict:
            self._kept = pieces
        return not self._strict

    def begin(self, text: str) -> Callable[[str], None] | None:
        """Writes the first piece somewhere else than to memory."""
        return None

    def run_started(self, event: Event) -> None:
        """Writes the header and the first record."""
        text = _HEADER
        if not self._strict:
            text += _RUN + _mapping(_section_at_start(event), "  ", "  ") + "\n"
        text += _RECORDS + self._record(event)
        if self._kept is not None:
            self._kept.append(text)
        self._output = self.begin(text)

    @property
    def _is_on(self) -> bool:
        return self._output is not None or bool(self._kept)

    def _put(self, text: str) -> None:
        if self._kept is not None:
            self._kept.append(text)
        if self._output is not None:
            self._output(text)

    def step_started(self, event: Event) -> None:
        """Writes the record; a strict file contains only the steps that Quark's file has."""
        if self._is_on and not self._leaves_out(event):
            self._put(self._record(event) + self._new_facts(event))

    def step_ended(self, event: Event) -> None:
        """Writes the record, and below it the step's peaks."""
        if self._is_on and not self._leaves_out(event):
            text = self._record(event)
            if text and not self._strict:
                text += _peaks(event.attributes)
            self._put(text + self._new_facts(event))

    def checkpoint(self, event: Event) -> None:
        """Writes the record."""
        if self._is_on:
            self._put(self._record(event))

    def models_costed(self, event: Event) -> None:
        """Stores the costs; they are written at the end of the file, after all records."""
        self._costs.extend(event.models)

    def run_ended(self, event: Event) -> None:
        """Writes the last record, the summary, the definitions and the costs."""
        if not self._is_on:
            return
        for piece in self._last_pieces(event):
            # If the disk has no room for one piece, the next ones are still tried.
            with FAULTS.kept_in(f"sink {self.name}"):
                self._put(piece)

    def _last_pieces(self, event: Event) -> Iterator[str]:
        yield self._record(event)
        yield _SUMMARY + _mapping(self._metrics.summary(event), "", "")
        yield (
            _DEFINITIONS
            + _RECORD_DEFINITIONS
            + self._definitions("checkpoint_metrics")
            + _SUMMARY_DEFINITIONS
            + self._definitions("summary_metrics")
        )
        if not self._strict:
            yield _RUN_END + _mapping(_section_at_end(event, self._facts), "  ", "  ")
        if self._costs and not self._strict:
            yield _COST + "".join(_mapping(_cost_values(cost), "- ", "  ") for cost in self._costs)

    def forget(self) -> None:
        """Writes nothing more."""
        self._output = self._kept = None

    def _leaves_out(self, event: Event) -> bool:
        return self._strict and event.step is not None and event.step.filled_in

    def _record(self, event: Event) -> str:
        columns = self._metrics.columns(event, strict=self._strict)
        text = _mapping(columns, "- ", "  ")
        if text and event.error and not self._strict:
            for name, value in (("error_message", event.error_message), ("error", event.error)):
                if value and name not in columns:
                    text += f"  {name}: {quoted(value)}\n"
        return text

    def _new_facts(self, event: Event) -> str:
        """Returns, as comments, what a step says of the run that was not known before it."""
        if self._strict:
            return ""
        with self._lock:  # steps of several threads may begin and end at the same time
            new = self._facts.add(event)
        if not new:
            return ""
        return "".join(f"  # {name}: {inline(value)}\n" for name, value in new.items())

    def _definitions(self, kind: Kind) -> str:
        text = ""
        for name, definition in self._metrics.definitions(kind, strict=self._strict):
            first, *rest = comment(f"{name}: {definition}")
            text += f"# - {first}\n" + "".join(f"#{line}\n" for line in rest)
        return text


class QuarkYamlSink(ProfileTextSink):
    """Writes a run's file, and beside it the newest reading while the run goes on."""

    name = "quark_yaml"

    def __init__(
        self,
        path: str | Path,
        metrics: ProgramMetrics,
        *,
        strict: bool = False,
        makes_folders: bool = False,
        keeps_last_reading: bool = True,
    ) -> None:
        super().__init__(metrics, strict=strict)
        self._requested = Path(path)
        self._makes_folders = makes_folders
        self._keeps_last_reading = keeps_last_reading
        self._file: profile_file.ProfileFile | None = None
        self._last_reading: PageFile | None = None
        self._is_over = False

    @property
    def path(self) -> Path:
        """Path of the file; before the run begins, the requested path."""
        return self._file.path if self._file is not None else self._requested

    def move(self, path: str | Path) -> None:
        """Moves the file to another path, before the run begins or during it."""
        self._requested = Path(path)
        if self._file is not None:
            self._file.move(self._requested)

    def move_off(self, path: str | Path) -> None:
        """Moves the file aside if another program is about to write to its path."""
        if self._file is not None and self._file.path == Path(path).resolve():
            self._file.move(beside(self._file.path, "otel"))

    def begin(self, text: str) -> Callable[[str], None]:
        """Creates the file with its first record."""
        self._file = profile_file.create(self._requested, text, parents=self._makes_folders)
        return self._file.append

    def reading_taken(self, event: Event) -> None:
        """Writes the reading over the one before."""
        file = self._file
        if file is None or not self._keeps_last_reading or not file.path.is_file():
            return  # the local file could not be made, or it is a device
        path = file.path.with_name(f"{file.path.stem}.{event.run.id}{LAST_READING}")
        text = _last_reading(self._metrics.columns(event), event)
        with self._lock:
            if self._is_over:
                return  # the run has ended meanwhile
            if self._last_reading is None or self._last_reading.path != path:  # moved
                self._remove_last_reading()
                self._last_reading = PageFile(path)
            self._last_reading.write(text)

    def run_ended(self, event: Event) -> None:
        """Writes the end of the file and closes it."""
        try:
            super().run_ended(event)
        finally:
            if self._file is not None:
                self._file.close()
            with self._lock:
                self._is_over = True
                self._remove_last_reading()

    def forget(self) -> None:
        """Closes the child's copies of the descriptors, and leaves the files alone."""
        super().forget()
        self._lock = threading.RLock()
        for file in (self._file, self._last_reading):
            if file is not None:
                file.forget()
        self._file = self._last_reading = None

    def _remove_last_reading(self) -> None:
        if self._last_reading is not None:
            self._last_reading.remove()
            self._last_reading = None


class _Facts:
    """What is known of a run by its steps so far."""

    def __init__(self) -> None:
        # Each library with its version, in the order of their first steps: ``amd-quark 0.13``
        self.libraries: list[str] = []
        self.method: str | None = None  # Of the first calibration that names one
        self.samples: int | None = None  # Of all steps; None if none were counted
        self.items: int | None = 0  # Items in these samples; None if one of them did not tell

    def add(self, event: Event) -> dict[str, object]:
        """Adds a step that has begun or ended; returns what was not known before it."""
        step, new = event.step, set()
        if step is not None and step.library is not None:
            library = " ".join(filter(None, (step.library, step.library_version)))
            if library not in self.libraries:
                self.libraries.append(library)
                new.add("libraries")
        method = event.attributes.get(semconv.CALIBRATION_METHOD)
        if method is not None and self.method is None:
            self.method = str(method)
            new.add("calibration_method")
        if event.samples:
            self.samples = (self.samples or 0) + event.samples
            is_told = event.items is not None and self.items is not None
            self.items = (self.items or 0) + (event.items or 0) if is_told else None
            new.add("calibration_samples")
        return {name: value for name, value in self.known().items() if name in new} if new else {}

    def known(self) -> dict[str, object]:
        """Returns what steps say of the run, for either section."""
        return _present(
            {
                "libraries": self.libraries or None,
                "calibration_method": self.method,
                "calibration_samples": self.samples,
            }
        )


def _section_at_start(event: Event) -> dict[str, object]:
    """Returns the section ``run``."""
    run, first = event.run, event.reading
    assert first is not None
    origin = run.origin
    return _present(
        {
            "id": run.id,
            "rank": run.rank,
            "command": origin.command or None if origin else None,
            "host": origin.host if origin else None,
            "system": origin.system if origin else None,
            "python": origin.python if origin else None,
            "otel_quant": VERSION,
            "memory_limit_mb": _mebibytes(run.limits.memory),
            "memory_limit_source": run.limits.memory_source,
            "gpus": [gpu.name or gpu.id for gpu in first.gpus] or None,
        }
    )


def _section_at_end(event: Event, facts: _Facts) -> dict[str, object]:
    """Returns the section ``run_end``."""
    peaks, limit = event.peaks, event.run.limits.memory
    assert peaks is not None
    assert event.baseline is not None
    memory = peaks.figures.get("memory")
    share = round(memory / limit, _SHARE_DIGITS) if memory is not None and limit else None
    return _present(
        {
            "ended": f"with {event.error}" if event.error else "without an exception",
            **facts.known(),
            # Not before the end: a later step may turn out not to tell.
            "calibration_items": facts.items or None,
            "tree_peak_memory_mb": _mebibytes(memory),
            "tree_peak_memory_source": peaks.sources.get("memory"),
            "memory_limit_share": share,
            "gpu_memory_limit_share": _highest_gpu_share(peaks, event.baseline),
        }
    )


def _highest_gpu_share(peaks: Peaks, first: Reading) -> float | None:
    """Returns how much of its memory the fullest GPU has used."""
    shares = [
        used / gpu.limit
        for gpu in first.gpus
        if gpu.limit and (used := peaks.devices.get("gpu", {}).get(gpu.index, {}).get("memory"))
    ]
    return round(max(shares), _SHARE_DIGITS) if shares else None


def _last_reading(columns: dict[str, object], event: Event) -> str:
    """Returns the text with as many of the steps that opened last as fit into a page."""
    run, peaks, baseline = event.run, event.peaks, event.baseline
    assert peaks is not None
    assert baseline is not None
    columns.pop("step", None)
    content = _present(
        {
            "schema": _LAST_READING_SCHEMA,
            "run_id": run.id,
            "pid": run.pid,
            "run_started": baseline.time_ns / 1_000_000_000,
            **columns,
            "peak_memory_mb": _mebibytes(peaks.figures.get("memory")),
            "peak_gpu_memory_mb": _mebibytes(peaks.figures.get("gpu.memory")),
            "memory_limit_mb": _mebibytes(run.limits.memory),
        }
    )
    steps = [
        _present(
            {
                "step": step.info.label[:_LONGEST_LABEL],
                "samples": step.samples,
                "expected_samples": step.expected_samples,
            }
        )
        for step in event.steps
    ]
    for cut in range(max(0, len(steps) - _MOST_STEPS), len(steps) + 1):
        more = {"more_open_steps": cut} if cut else {}
        text = json.dumps({**content, **more, "open_steps": steps[cut:]}, default=str)
        if len(text) < PAGE:  # all of it is ASCII
            return text
    return json.dumps({"run_started": content["run_started"]})


def _peaks(attributes: Attributes) -> str:
    """Writes a step's peaks as comments: Quark's file has no key for them."""
    text = ""
    for key_of, name in (
        ("peak_memory_mb", semconv.MEMORY_PEAK),
        ("peak_gpu_memory_mb", semconv.GPU_MEMORY_PEAK),
    ):
        value = attributes.get(name)
        if isinstance(value, int | float):
            text += f"  # {key_of}: {value / _MIB:.2f}\n"
    return text


def _cost_values(cost: CostedModel) -> dict[str, object]:
    return _present({"role": cost.role, "path": cost.path, **cost.figures, "error": cost.error})


def _mebibytes(size: float | None) -> float | None:
    return None if size is None else round(size / _MIB, 2)


def _present(values: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


def _mapping(values: Mapping[str, object], first: str, indent: str) -> str:
    """Writes a mapping, one line for each key; a value that cannot be written is left out."""
    text, prefix = "", first
    for name, value in values.items():
        if type(value) is float:  # most are, and these two cannot fail
            shown = number(value)
        elif type(value) is str:
            shown = quoted(value)
        else:
            shown = ""
            with FAULTS.kept_in(f"value of {name} for the local file"):
                shown = inline(value)
            if not shown:
                continue
        text += f"{prefix}{key(name)}: {shown}\n"
        prefix = indent
    return text
