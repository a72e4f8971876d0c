"""Writes the recording of this process: what has begun and what has ended, as it happens."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from otel_quant.base.fault_boundary import error_type, message_of
from otel_quant.export.otel import forecasts
from otel_quant.export.otel.attributes import (
    FigureAttributes,
    custom_value,
    gpus_of,
    identity_of,
    origin_of,
    progress_of,
    run_identity_of,
)
from otel_quant.export.otel.readings import attributes_of
from otel_quant.export.otel.service_name import name_of_program
from otel_quant.export.otel.span_ids import SpanIds
from otel_quant.export.recording import layout, manifest
from otel_quant.export.recording.event_file import EventFile, StateFile, open_events
from otel_quant.export.recording.own_curve import OwnCurve
from otel_quant.schema import semconv
from otel_quant.schema.forecast_warnings import NewWarnings
from otel_quant.schema.records import (
    AttributeValue,
    Checkpoint,
    CostedModel,
    Peaks,
    Reading,
    RunInfo,
    RunProgress,
    RunRecord,
    StepInfo,
    StepRecord,
)
from otel_quant.schema.series import CACHE_GROWTH
from otel_quant.schema.sink import Sink

_HEARTBEAT: Final = 30_000_000_000
"""Nanoseconds between two heartbeats."""

_SAMPLES_SHARE: Final = 0.02
"""Part of a step's time so far that lies between two records of its samples, a second at least: a
step of ten hours has some hundred of them."""

_TRACEPARENT: Final = re.compile(
    "[0-9a-f]{2}-(?P<trace_id>[0-9a-f]{32})-(?P<parent_span_id>[0-9a-f]{16})-[0-9a-f]{2}"
)

_NO_IDS: Final[Mapping[str, Any]] = {}


@dataclass(slots=True)
class _OpenStep:
    started_ns: int
    samples: int = 0
    expected: int | None = None
    told: int = 0  # samples in the last event
    told_ns: int = 0
    warning: dict[str, Any] = field(default_factory=dict)  # of the forecast


class RecordingSink(Sink):
    """Writes the files of this process. They are made when its first run begins, and stay open."""

    name = "recording"

    def __init__(
        self,
        folder: Path,
        figures: FigureAttributes,
        ids_of: Callable[[StepInfo | CostedModel | None], SpanIds | None],
        *,
        takes_curve: bool,
        interval: float,
    ) -> None:
        self.folder = folder
        self._figures = figures
        self._ids_of = ids_of
        self._takes_curve = takes_curve
        self._interval = interval
        self._run: RunInfo | None = None
        self._run_ids: SpanIds | None = None
        self._steps: dict[int, _OpenStep] = {}
        self._of_steps: dict[str, AttributeValue] = {}  # what the run's span has of its steps
        self._of_models: dict[str, dict[str, AttributeValue]] = {}  # by role
        self._events: EventFile | None = None
        self._state: StateFile | None = None
        self._curve: OwnCurve | None = None
        self._made_manifest = False
        self._has_failed = False
        self._warnings = NewWarnings()
        self._heartbeat_ns = 0
        self._newest: tuple[int, int, Mapping[str, Any]] = 0, 0, {}
        # Reentrant: a signal handler may close a step while another is being written.
        self._lock = threading.RLock()

    # --- the run --------------------------------------------------------------------------

    def run_started(self, run: RunInfo, checkpoint: Checkpoint) -> None:
        """Makes the files, if this is the first run, and writes the start."""
        reading = checkpoint.reading
        self._run, self._run_ids = run, self._ids_of(None)
        self._steps, self._of_steps, self._of_models = {}, {}, {}
        self._warnings.clear()
        self._newest = reading.time_ns, reading.clock_ns, {}
        self._heartbeat_ns = reading.clock_ns
        if self._events is None and not self._has_failed:
            self._open(run, reading)
        self._write(
            "run.started",
            reading,
            {
                "rank": run.rank,
                "world_size": run.world_size,
                **(_fields_of(self._run_ids) or _fields_without_sdk(run)),
                "attributes": {
                    **run_identity_of(run),
                    **origin_of(run, reading),
                    **gpus_of(reading),
                },
                **self._of_checkpoint(checkpoint),
            },
        )

    def run_ended(self, record: RunRecord, checkpoint: Checkpoint) -> None:
        """Writes the end."""
        alone = record.run_peaks.process_memory
        self._write(
            "run.ended",
            checkpoint.reading,
            {
                "attributes": {
                    **self._of_steps,
                    **{
                        name: value for of in self._of_models.values() for name, value in of.items()
                    },
                    **self._figures.between(
                        record.start, record.end, record.run_peaks, record.info.limits.memory
                    ),
                    **origin_of(record.info, checkpoint.baseline),  # more is known at the end
                    **({semconv.MEMORY_PROCESS_PEAK: alone} if alone is not None else {}),
                    semconv.RUN_STEPS: record.steps,
                    semconv.RUN_FAILED_STEPS: record.failed_steps,
                },
                "devices": self._devices_of(record.start, record.end, record.run_peaks),
                "error": record.error,
                **self._of_checkpoint(checkpoint),
                "custom": _shown(record.custom),
            },
        )
        with self._lock:
            self._run = None
        if self._made_manifest:
            manifest.complete(
                self.folder,
                ended=checkpoint.reading.time_ns,
                origin=origin_of(record.info, checkpoint.baseline),
            )
        if self._curve is not None:
            self._curve.flush(checkpoint.reading)

    def forget(self) -> None:
        """In a forked child: leaves the files to the parent."""
        self._lock = threading.RLock()
        self._run = None
        self._has_failed = True
        for file in (self._events, self._state, self._curve):
            if file is not None:
                file.forget()
        self._events = self._state = self._curve = None

    # --- steps ----------------------------------------------------------------------------

    def step_started(
        self, step: StepInfo, checkpoint: Checkpoint, attributes: Mapping[str, AttributeValue]
    ) -> None:
        """Writes that a step has begun."""
        ids = self._ids_of(None)
        if ids is not None and (self._run_ids is None or ids.span_id != self._run_ids.span_id):
            self._run_ids = ids  # a provider has turned up, or a worker has begun another root span
            self._write("run.attributes", checkpoint.reading, _fields_of(ids))
        self._steps[step.index] = _OpenStep(checkpoint.reading.clock_ns)
        known = {**attributes, **identity_of(step)}
        self._copy_to_run(known)
        self._write(
            "step.started",
            checkpoint.reading,
            {
                "index": step.index,
                "name": step.label,
                "step_kind": step.kind,
                "parent": step.parent,
                **_fields_of(self._ids_of(step)),
                "attributes": known,
                **self._of_checkpoint(checkpoint),
            },
        )

    def step_ended(self, record: StepRecord, checkpoint: Checkpoint) -> None:
        """Writes what a step's span says."""
        run = self._run
        if run is None:
            return
        known = self._steps.pop(record.info.index, None)
        self._copy_to_run(record.attributes)
        error = record.error
        self._write(
            "step.ended",
            checkpoint.reading,
            {
                "index": record.info.index,
                "attributes": {
                    **record.attributes,
                    **self._figures.between(
                        record.start, record.end, record.peaks, run.limits.memory
                    ),
                    **progress_of(record),
                    **(known.warning if known is not None else {}),
                },
                "devices": self._devices_of(record.start, record.end, record.peaks),
                "samples": record.samples,
                "items": record.items,
                "error": error_type(error) if error else None,
                "error_message": message_of(error, paths=run.paths) if error else None,
                **self._of_checkpoint(checkpoint),
            },
        )

    def point(self, checkpoint: Checkpoint) -> None:
        """Writes a checkpoint that is neither the start nor the end of a step."""
        self._write(
            "checkpoint",
            checkpoint.reading,
            {
                "name": checkpoint.name,
                "step": checkpoint.step.index if checkpoint.step else None,
                **self._of_checkpoint(checkpoint),
            },
        )

    def samples_expected(self, step: StepInfo, total: int) -> None:
        """Writes how many samples a step will consume."""
        known = self._steps.get(step.index)
        if known is None:
            return
        known.expected = total
        self._write("samples.expected", None, {"index": step.index, "total": total})
        with self._lock:
            self._write_state()

    def samples_counted(self, step: StepInfo, count: int) -> None:
        """Writes the number over: it is right when the process is killed at the next sample."""
        with self._lock:
            known, state = self._steps.get(step.index), self._state
            if known is None or state is None:
                return
            known.samples += count
            if not state.count(step.index, known.samples):
                self._write_state()

    def models_costed(self, costs: Sequence[CostedModel]) -> None:
        """Writes what models cost."""
        models = [
            {
                "role": cost.role,
                "path": cost.path,
                "figures": dict(cost.figures),
                "heaviest": [dict(node) for node in cost.heaviest],
                "error": cost.error,
                "began": cost.start_ns,
                "ended": cost.end_ns,
                "span_id": _fields_of(self._ids_of(cost)).get("span_id"),
            }
            for cost in costs
        ]
        present = [
            {name: value for name, value in model.items() if value is not None} for model in models
        ]
        self._write("models.costed", None, {"models": present})
        for cost in costs:
            if cost.role == "float" and cost.path is not None:
                self._copy_to_run({semconv.INPUT_PATH: cost.path})
            self._of_models[cost.role] = {
                f"quant.model.{cost.role}.{name}": value for name, value in cost.figures.items()
            }

    # --- between checkpoints ----------------------------------------------------------------

    def sampled(self, reading: Reading) -> None:
        """Adds a reading to the curve."""
        if self._curve is not None:
            self._curve.add(reading)

    def run_progressed(self, progress: RunProgress) -> None:
        """Writes the newest figures over, and what is due of samples and heartbeats."""
        run, reading = self._run, progress.reading
        if run is None:
            return
        attributes = dict(attributes_of(progress, run, self._figures))
        cache = progress.peaks.figures.get("cache.disk")
        if cache is not None:  # no log record has it, but a launcher cannot measure it
            attributes[CACHE_GROWTH] = cache
        with self._lock:
            self._newest = reading.time_ns, reading.clock_ns, attributes
            self._write_state()
        for step, growth in self._warnings.of(progress):
            if step.info.index in self._steps:
                self._steps[step.info.index].warning |= forecasts.attributes_of(growth)
        for step in progress.steps:
            self._tell_samples(step.info.index, reading)
        if reading.clock_ns - self._heartbeat_ns >= _HEARTBEAT:
            self._heartbeat_ns = reading.clock_ns
            samples = {
                str(step.info.index): step.samples for step in progress.steps if step.samples
            }
            self._write("heartbeat", reading, {"attributes": attributes, "samples": samples})

    # --- within -----------------------------------------------------------------------------

    def _open(self, run: RunInfo, reading: Reading) -> None:
        self._has_failed = True  # until it has not
        process, events = open_events(self.folder)
        self._made_manifest = manifest.create(
            self.folder, reading.time_ns, "process", origin_of(run, reading)
        )
        self._has_failed = False
        self._events = events
        self._state = StateFile(layout.state_path(self.folder, process))
        argv0 = Path(sys.orig_argv[0]).name if sys.orig_argv else ""
        fields = {"pid": run.pid, "parent_pid": os.getppid(), "argv0": argv0}
        events.write("process.started", reading.time_ns, reading.clock_ns, fields)
        if self._takes_curve:
            path = layout.curve_path(self.folder, process)
            self._curve = OwnCurve(path, reading, self._interval)

    def _write(self, kind: str, reading: Reading | None, fields: Mapping[str, Any]) -> None:
        """Writes an event: at the time of a reading, or now."""
        run, events = self._run, self._events
        if run is None or events is None:
            return
        event = {"run": run.id, **fields}
        if reading is None:
            events.write(kind, time.time_ns(), time.perf_counter_ns(), event)
        else:
            events.write(kind, reading.time_ns, reading.clock_ns, event)

    def _copy_to_run(self, attributes: Mapping[str, AttributeValue]) -> None:
        for name in semconv.COPIED_TO_RUN:
            if name in attributes:
                self._of_steps.setdefault(name, attributes[name])

    def _write_state(self) -> None:
        """Writes the state; the caller has the lock."""
        run, state = self._run, self._state
        if run is None or state is None:
            return
        steps = [(index, step.samples, step.expected) for index, step in self._steps.copy().items()]
        state.write(run.id, *self._newest, steps)

    def _tell_samples(self, index: int, reading: Reading) -> None:
        step = self._steps.get(index)
        if step is None or step.samples == step.told:
            return
        between = _SAMPLES_SHARE * (reading.clock_ns - step.started_ns)
        if reading.clock_ns - step.told_ns >= between:
            step.told, step.told_ns = step.samples, reading.clock_ns
            self._write("samples.consumed", reading, {"index": index, "samples": step.told})

    def _devices_of(
        self, start: Reading, end: Reading, peaks: Peaks
    ) -> list[Mapping[str, AttributeValue]] | None:
        return list(self._figures.of_devices(start, end, peaks)) or None

    def _of_checkpoint(self, checkpoint: Checkpoint) -> dict[str, Any]:
        figures = self._figures.at_checkpoint(checkpoint.reading, checkpoint.baseline)
        return {"checkpoint": figures, "custom": _shown(checkpoint.custom)}


def _shown(custom: Mapping[str, object]) -> dict[str, Any] | None:
    """Returns the values of the program's metrics that telemetry can have; None for none."""
    if not custom:
        return None
    values = {name: custom_value(value) for name, value in custom.items()}
    return {name: value for name, value in values.items() if value is not None}


def _fields_of(ids: SpanIds | None) -> Mapping[str, Any]:
    if ids is None:
        return _NO_IDS
    fields: dict[str, Any] = {"trace_id": ids.trace_id, "span_id": ids.span_id}
    if ids.parent_span_id is not None:
        fields["parent_span_id"] = ids.parent_span_id
    if ids.resource is not None:
        fields["resource"] = dict(ids.resource)
    return fields


def _fields_without_sdk(run: RunInfo) -> Mapping[str, Any]:
    """Returns what a span would have had from outside: where `otel-quant send` is to put it."""
    fields: dict[str, Any] = {}
    name = name_of_program()
    if name is not None:
        fields["resource"] = {"service.name": name}
    above = _TRACEPARENT.fullmatch(run.parent_carrier.get("traceparent", ""))
    if above is not None:
        fields |= above.groupdict()
    return fields
