"""Writes the local file: a run as YAML in the format of AMD Quark's profiler.

A checkpoint is on disk when the sink's method returns, so the file of a killed run lacks only its
end; see :mod:`otel_quant.export.quark_yaml.file`. Five things are not in Quark's file, and ``strict`` leaves
them out: records of steps that Quark's profiler declares but does not report, last keys
``error_message`` and ``error`` in the End record of a failed step, comments below a record (the
step's peaks; what the step says of the run), the sections of
:mod:`otel_quant.export.quark_yaml.run_section`, and a last section ``onnx_model_cost`` with the static cost
of the models.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.export.quark_yaml import file as profile_file
from otel_quant.export.quark_yaml import run_section
from otel_quant.export.quark_yaml.program_metrics import (
    Kind,
    ProgramMetrics,
    checkpoint_columns,
    definitions,
    summary_columns,
)
from otel_quant.export.quark_yaml.request import beside
from otel_quant.export.quark_yaml.run_section import RunFacts
from otel_quant.export.quark_yaml.yaml_text import comment, inline, key, quoted
from otel_quant.schema import semconv
from otel_quant.schema.events import Attributes, Event
from otel_quant.schema.records import CostedModel
from otel_quant.schema.sink import Sink

_HEADER: Final = "# Quark Profiling Results\n\n"
_RUN: Final = "run:\n"
_RECORDS: Final = "memory_usage:\n"
_RUN_END: Final = "\nrun_end:\n"
_SUMMARY: Final = "\n# Summary Metrics\n"
_DEFINITIONS: Final = "\n# Metric Definitions:\n"
_RECORD_DEFINITIONS: Final = "#\n# Checkpoint Metrics (per record):\n"
_SUMMARY_DEFINITIONS: Final = "#\n# Summary Metrics (overall):\n"
_MIB: Final = 1 << 20
_COST: Final = "\nonnx_model_cost:\n"


class ProfileTextSink(Sink):
    """Makes the text of a run's file, piece by piece, and keeps it where it is asked to."""

    def __init__(self, metrics: ProgramMetrics, *, strict: bool = False) -> None:
        self._metrics = metrics
        self._strict = strict
        self._output: Callable[[str], None] | None = None
        self._kept: list[str] | None = None
        self._costs: list[CostedModel] = []
        self._facts = RunFacts()
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
            text += _RUN + _mapping(run_section.at_start(event), "  ", "  ") + "\n"
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
        yield _SUMMARY + _mapping(summary_columns(self._metrics, event), "", "")
        yield (
            _DEFINITIONS
            + _RECORD_DEFINITIONS
            + self._definitions("checkpoint_metrics")
            + _SUMMARY_DEFINITIONS
            + self._definitions("summary_metrics")
        )
        if not self._strict:
            yield _RUN_END + _mapping(run_section.at_end(event, self._facts), "  ", "  ")
        if self._costs and not self._strict:
            yield _COST + "".join(_mapping(_cost_values(cost), "- ", "  ") for cost in self._costs)

    def forget(self) -> None:
        """Writes nothing more."""
        self._output = self._kept = None

    def _leaves_out(self, event: Event) -> bool:
        return self._strict and event.step is not None and event.step.filled_in

    def _record(self, event: Event) -> str:
        columns = checkpoint_columns(self._metrics, event, strict=self._strict)
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
            before, self._facts = self._facts, self._facts.with_step(event)
            now = self._facts
        if now is before:
            return ""
        known = run_section.of_facts(before)
        return "".join(
            f"  # {name}: {inline(value)}\n"
            for name, value in run_section.of_facts(now).items()
            if known.get(name) != value
        )

    def _definitions(self, kind: Kind) -> str:
        text = ""
        for name, definition in definitions(self._metrics.every(kind), strict=self._strict):
            first, *rest = comment(f"{name}: {definition}")
            text += f"# - {first}\n" + "".join(f"#{line}\n" for line in rest)
        return text


class QuarkYamlSink(ProfileTextSink):
    """Writes a run's file."""

    name = "quark_yaml"

    def __init__(
        self,
        path: str | Path,
        metrics: ProgramMetrics,
        *,
        strict: bool = False,
        makes_folders: bool = False,
    ) -> None:
        super().__init__(metrics, strict=strict)
        self._requested = Path(path)
        self._makes_folders = makes_folders
        self._file: profile_file.ProfileFile | None = None

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

    def run_ended(self, event: Event) -> None:
        """Writes the end of the file and closes it."""
        try:
            super().run_ended(event)
        finally:
            if self._file is not None:
                self._file.close()

    def forget(self) -> None:
        """Closes the child's copy of the descriptor."""
        super().forget()
        if self._file is not None:
            self._file.forget()
            self._file = None


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
    values = {"role": cost.role, "path": cost.path, **cost.figures, "error": cost.error}
    return {name: value for name, value in values.items() if value is not None}


def _mapping(values: Mapping[str, object], first: str, indent: str) -> str:
    """Writes a mapping, one line for each key; a value that cannot be written is left out."""
    text, prefix = "", first
    for name, value in values.items():
        if type(value) is float or type(value) is str:  # the common case; cannot fail
            text += f"{prefix}{key(name)}: {inline(value)}\n"
            prefix = indent
            continue
        with FAULTS.kept_in(f"value of {name} for the local file"):
            text += f"{prefix}{key(name)}: {inline(value)}\n"
            prefix = indent
    return text
