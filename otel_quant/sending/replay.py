"""Makes the events of a recorded run again, and gives them to the sinks of spans, log records and metrics.

The sinks are the same as in a live run. What they write to has the recorded ids and times: see
:mod:`otel_quant.sending.sdk_parts` for metrics.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any, Final

from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, sampling
from opentelemetry.trace import NonRecordingSpan, SpanContext, StatusCode, set_span_in_context

from otel_quant.base.environment import settings_from
from otel_quant.diagnosis.stack_trees import Stacks, top_lines
from otel_quant.export.otel.logs import LogsSink
from otel_quant.export.otel.metrics import MetricsSink
from otel_quant.export.otel.service_name import model_name
from otel_quant.export.otel.spans import SpanIds, SpansSink
from otel_quant.format import series
from otel_quant.recordings import summary
from otel_quant.recordings.model import (
    Attributes,
    Ending,
    RecordedCheckpoint,
    RecordedRun,
    RecordedStep,
    Recording,
    number,
    script_of,
)
from otel_quant.recordings.reader import by_line, stacks_in
from otel_quant.schema import readings, semconv
from otel_quant.schema.events import Event, Sink, present, run_ids_of
from otel_quant.schema.figures import RESOURCES
from otel_quant.sending.identifiers import SAMPLED, Identifiers, RecordedIds
from otel_quant.sending.sdk_parts import Kept, RecordedMeters
from otel_quant.version import VERSION

_KNOWN_AT_START: Final = semconv.ORIGIN | {
    semconv.RUN_ID, semconv.RUN_NAME, semconv.RUN_RANK, semconv.RUN_WORLD_SIZE, semconv.PROCESS_PID,
    semconv.MEMORY_LIMIT, semconv.MEMORY_LIMIT_SOURCE, semconv.GPU_COUNT, semconv.GPU_MEMORY_LIMIT,
    semconv.GPU_MEMORY_SOURCE,
}  # fmt: skip
"""Attributes of a run's span that it has from its start."""

_PEAKS: Final = (summary.MEMORY_PEAK, summary.GPU_TREE_PEAK)
_DIGITS: Final = 6  # Of a share
_LOST: Final = "the process stopped without an end record (killed or crashed)"

_NAME: Final = "service.name"


_KINDS: Final[Mapping[tuple[readings.Phase, bool], str]] = {
    ("start", False): "run.started",
    ("start", True): "step.started",
    ("end", True): "step.ended",
    ("end", False): "run.ended",
}
"""The event of a checkpoint, by its phase and whether it is of a step."""

_NO_LIMITS: Final = SpanLimits(*[SpanLimits.UNSET] * 8)


class Replay:
    """The telemetry of one run: its spans and log records in `kept`, and its points in `meters`."""

    def __init__(
        self, run: RecordedRun, recording: Recording, identifiers: Identifiers,
        ending_lines: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._run, self._ids = run, identifiers
        self._began_ns = recording.began_ns
        self._ending, self._ending_lines = recording.ending, ending_lines
        self._limit = summary.limit(recording, run)
        self._steps_known = summary.StepSummary(recording, run)
        self._stacks = stacks_in(recording, [run])
        self._info = _info_of(run, self._limit)
        peaks = (summary.peak_of_run(recording, run, name) for name in _PEAKS)
        self._of_run = self._with_peaks(run.attributes, *peaks)
        if (limit := self._limit) is not None:
            of_limit = {
                semconv.MEMORY_LIMIT: round(limit.value),
                semconv.MEMORY_LIMIT_SOURCE: limit.source,
            }
            self._of_run = {**self._of_run, **present(of_limit)}
        self._peak = number(_with_highest(self._of_run), semconv.MEMORY_PEAK)
        self._infos: dict[int | None, readings.StepInfo] = {s.index: _step_of(s) for s in run.steps}
        self._steps: dict[int | None, RecordedStep] = {step.index: step for step in run.steps}
        # When the run (None) and its steps began, by the wall clock: a process reads its two clocks one
        # after the other, and telemetry has the one, the recording's times are by the other.
        self._starts: dict[int | None, int] = {}
        resource = resource_of(run)
        self._next_ids = RecordedIds()
        self._root: SpanContext | None = None
        self.kept = Kept(
            resource,
            sampler=sampling.ALWAYS_ON,
            id_generator=self._next_ids,
            span_limits=_NO_LIMITS,
        )
        self.meters = RecordedMeters(resource, self._ns(run.start))

    def play(self, *, only_unended: bool = False) -> Replay:
        """Replays everything, or only the spans that were open at a kill, and how the run was ended."""
        meters: Any = self.meters
        logs = LogsSink(lambda: None, self._context_of, self.kept.loggers)
        self._spans = spans = SpansSink(
            run_span_started=(lambda *_: None) if only_unended else logs.run_span_started,
            provider=self.kept.tracers,
            has_profiles=settings_from(os.environ).profiles,
        )
        metrics = MetricsSink(RESOURCES, lambda: None, self._context_of, meters, lambda: self._peak)
        for event in self._events():
            self.meters.now_ns = event.time_ns
            step = self._steps.get(event.step.index) if event.step is not None else None
            is_open = event.kind == "step.started" and step is not None and step.end is None
            if only_unended and not is_open and event.kind not in ("run.started", "run.killed"):
                continue
            token = otel_context.attach(_context(self._place(event, step, only_unended)))
            sinks: tuple[Sink, ...] = (spans, metrics, logs)
            if event.kind == "reading.taken":
                logs.send_reading(event)
                sinks = ()
            elif event.kind in ("step.ended", "run.ended", "run.killed"):
                sinks = (metrics, logs, spans)  # a span ends after what refers to it
            elif only_unended:
                sinks = (spans,)
            if event.step is not None:
                _add_counts(metrics, event.step, event.counts)
            for sink in sinks:
                highest = _with_highest(event.attributes) if sink is metrics else event.attributes
                sink.receive(replace(event, attributes=highest))
            metrics.flush()
            otel_context.detach(token)
        if not only_unended:
            self._add_points_of_run(metrics)
        return self

    def profiles(self) -> list[Any]:
        """Returns the requests of profiles of the run."""
        from otel_quant.export.otel.profiles import ProfilesSink  # only for those who ask

        requests: list[Any] = []
        stacks = Stacks()
        for each in self._stacks:
            if each.step is not None and not each.step.step.spans:
                stacks.add(each.step.step.index, each.lines, each.seen)
        sink = ProfilesSink(requests.append, self._span_ids)
        for event in self._events():
            sink.receive(replace(event, stacks=stacks.steps))
        return requests

    def _span_ids(self, step: readings.StepInfo | None) -> SpanIds:
        run, ids = self._run, self._ids
        made = ids.of_run(run) if step is None else ids.of_step(run, self._steps[step.index])
        resource: Any = self.kept.tracers.resource.attributes
        return SpanIds(f"{made.trace_id:032x}", f"{made.span_id:016x}", None, resource)

    def _place(self, event: Event, step: RecordedStep | None, last: bool) -> SpanContext | None:
        """Puts in the ids of the spans that an event begins; returns what the first is within."""
        run, ids, following = self._run, self._ids, self._next_ids.next
        if event.kind == "models.costed":
            following.append(ids.of_cost(run, event.sequence))
        elif event.kind == "run.started":
            first = next((each for each in run.steps if each.parent is None), None)
            self._root = ids.root_of(run, None if last else first)
            following.append(self._root)
            return ids.above_run(run)
        elif event.kind == "step.started" and step is not None:
            root = ids.root_of(run, step) if step.parent is None else self._root
            if root is not None and root != self._root:
                # A worker has ended its span after a task, and begins another.
                self._spans.receive(self._event("run.reported", self._ns(self._end_of_task(step))))
                self._root = root
                following.extend((root, ids.of_step(run, step)))
                return ids.above_run(run)
            following.append(ids.of_step(run, step))
            return ids.above_step(run, step)
        return None

    def _add_points_of_run(self, metrics: MetricsSink) -> None:
        run = self._run
        for step in run.steps:
            if step.end is None and step.counts:
                self.meters.now_ns = self._ns(step.progress[-1][0] if step.progress else step.start)
                _add_counts(metrics, self._infos[step.index], step.counts)
                metrics.flush()
        if self._info.name:
            self.meters.now_ns = self._ns(self._cut_at() if run.end is None else run.end)
            self.meters.observe_run(has_ended=run.end is not None)

    # --- the events -------------------------------------------------------------------------

    def _events(self) -> Iterator[Event]:
        """Yields the events in the order in which they were written."""
        run = self._run
        latest: dict[str, Any] = {}
        end: Event | None = None
        for position, checkpoint in enumerate(run.checkpoints):
            event = self._checkpoint(position, checkpoint, latest)
            if event.kind == "run.ended":
                end = event
            else:
                yield event
            if event.kind == "step.started" and event.step is not None:
                for layer in self._steps[event.step.index].layers:
                    yield self._event("layer.measured", layer.time_ns, step=event.step, layer=layer)
                yield from self._others(event.step)
        for position, known in enumerate(run.models):
            if "began" in known and "ended" in known:
                model = _model_of(known)
                yield self._event("models.costed", model.end_ns, models=(model,), sequence=position)
        yield from self._others(None)
        if end is not None:
            yield end
        elif run.state != "running":
            if run.last is not None:
                yield self._last_reading()
            yield self._killed()

    def _others(self, step: readings.StepInfo | None) -> Iterator[Event]:
        """Yields the events of other kinds of a step, while its span is open, or of none."""
        for kind, line in self._run.events:
            if self._infos.get(line.get("index", -1)) is step:
                known = {name: line[name] for name in ("name", "attributes") if name in line}
                yield self._event(kind, line["time"], step=step, **known)

    def _checkpoint(
        self, number: int, checkpoint: RecordedCheckpoint, latest: dict[str, Any]
    ) -> Event:
        run, prefix = self._run, semconv.CUSTOM_PREFIX
        step = self._steps.get(checkpoint.step)
        kind = _KINDS.get((checkpoint.phase, step is not None), "checkpoint")
        time_ns = self._ns(checkpoint.time) if checkpoint.wall_ns is None else checkpoint.wall_ns
        of_event = dict(checkpoint.attributes)
        names = [name for name in of_event if name.startswith(prefix)]
        custom = {name.removeprefix(prefix): of_event.pop(name) for name in names}
        latest |= custom
        known: dict[str, Any] = {"attributes": self._of_run}
        item: RecordedRun | RecordedStep = run if step is None else step
        if step is not None:
            peaks = (self._steps_known.peak(step, name) for name in _PEAKS)
            known = {"attributes": self._with_peaks(step.attributes, *peaks)}
        elif kind == "run.started":
            items = self._of_run.items()
            known = {"attributes": {name: it for name, it in items if name in _KNOWN_AT_START}}
        if checkpoint.phase == "start":
            self._starts[checkpoint.step] = time_ns
        elif checkpoint.phase == "end":
            known |= {
                "began_ns": self._starts.get(checkpoint.step, self._ns(item.start)),
                "lasted_ns": self._ns(checkpoint.time) - self._ns(item.start),
                "error": item.error,
                "latest_custom": dict(run.custom if step is None else latest),
            }
        if kind == "step.ended" and step is not None:
            known |= {"counts": step.counts, "error_message": step.error_message}
            if semconv.STEP_BOUND_BY in step.attributes:
                own = (each for each in self._stacks if each.step and each.step.step is step)
                known["top_lines"] = top_lines(by_line(own))
        return self._event(
            kind, time_ns, step=self._infos.get(checkpoint.step), name=checkpoint.name,
            sequence=number, elapsed=round(checkpoint.time - run.start, 9), checkpoint=of_event,
            custom=custom, **known,
        )  # fmt: skip

    def _last_reading(self) -> Event:
        last = self._run.last
        assert last is not None
        not_sent = series.STATE_PEAKS.values()
        read = {name: value for name, value in last.attributes.items() if name not in not_sent}
        return self._event(
            "reading.taken",
            self._ns(last.time),
            step=self._infos.get(last.open_steps[-1]) if last.open_steps else None,
            attributes={**run_ids_of(self._info), **read},
        )

    def _killed(self) -> Event:
        """Returns how a run was cut that has not ended."""
        run, ending = self._run, self._ending
        cause = None if ending is None else ending.signal or ending.process_signal
        attributes = {} if ending is None else _attributes_of(ending)
        lines = () if ending is None else self._ending_lines
        of_run = {**run_ids_of(self._info), **present({semconv.PROCESS_PID: run.pid})}
        is_open = [step for step in run.steps if step.end is None]
        return self._event(
            "run.killed", self._ns(self._cut_at()), name="\n".join(lines),
            attributes={**of_run, **attributes}, of_span={**self._of_run, **attributes},
            latest_custom=run.custom, error=run.error or cause or "lost",
            error_message=run.error or next(iter(lines), _LOST),
            steps=tuple(readings.StepProgress(self._infos[it.index], it.counts) for it in is_open),
        )  # fmt: skip

    def _event(self, kind: str, time_ns: int, **known: Any) -> Event:
        known.setdefault("began_ns", time_ns)
        return Event(kind=kind, time_ns=time_ns, clock_ns=time_ns, run=self._info, **known)

    # --- within -----------------------------------------------------------------------------

    def _with_peaks(
        self,
        attributes: Attributes,
        peak: summary.KnownValue | None,
        of_gpus: summary.KnownValue | None,
    ) -> Attributes:
        """Returns attributes with the peaks that all commands show.

        A span is sent once: what the process itself has sent stays, and what is known beside it is another attribute.
        """
        if of_gpus is not None and semconv.GPU_TREE_PEAK not in attributes:
            seen = {semconv.GPU_TREE_PEAK: round(of_gpus.value)}
            attributes = {**attributes, **seen, semconv.GPU_TREE_PEAK_SOURCE: "sampled"}
        own = number(attributes, semconv.MEMORY_PEAK)
        if peak is None or (own is not None and peak.value <= own):
            return attributes
        share = None if self._limit is None else round(peak.value / self._limit.value, _DIGITS)
        found: dict[str, Any] = {
            semconv.MEMORY_HIGHEST_KNOWN: round(peak.value),
            semconv.MEMORY_PEAK_RATIO: share,
        }
        if own is not None:
            return {**attributes, **present(found)}
        found = {
            semconv.MEMORY_PEAK: round(peak.value),
            semconv.MEMORY_PEAK_SOURCE: "kernel" if peak.source == "kernel" else "sampled",
            semconv.MEMORY_PEAK_RATIO: share,
        }
        return {**attributes, **present(found)}

    def _context_of(self, step: readings.StepInfo | None) -> Context | None:
        return self._spans.context_of(step)

    def _cut_at(self) -> float:
        """Returns when a run that has not ended was cut, as far as that is known."""
        run, ending = self._run, self._ending
        if ending is not None:
            return max(run.start, ending.time)
        return max(
            run.start,
            *(checkpoint.time for checkpoint in run.checkpoints),
            *(time for step in run.steps for time, _ in step.progress[-1:]),
            *([run.last.time] if run.last is not None else []),
        )

    def _end_of_task(self, next_step: RecordedStep) -> float:
        """Returns when the task before a step was over."""
        before = [each for each in self._run.steps if each.start < next_step.start]
        return max(each.start if each.end is None else each.end for each in before)

    def _ns(self, time: float) -> int:
        return self._began_ns + round(time * 1e9)


def program_span(recording: Recording, program: tuple[str, str] | None) -> list[Any]:
    """Returns the span of a program with these ids; nothing without them."""
    ending = recording.ending
    if program is None or ending is None:
        return []
    trace_id, span_id = (int(each, 16) for each in program)
    ids, resource = RecordedIds(), Resource.create()
    ids.next.append(SpanContext(trace_id, span_id, False, SAMPLED))
    command = str(recording.origin.get(semconv.PROCESS_COMMAND_LINE, ""))
    if str(resource.attributes.get(_NAME)).startswith("unknown_service"):
        resource = resource.merge(Resource({_NAME: PurePath(script_of(command) or command).stem}))
    error = ending.signal or (f"exit code {ending.exit_code}" if ending.exit_code else None)
    attributes = {
        semconv.PROCESS_COMMAND_LINE: command or None,
        semconv.PROCESS_EXIT_CODE: None if ending.signal else ending.exit_code,
        semconv.ENDING_SIGNAL: ending.signal,
        semconv.ERROR_TYPE: error,
    }
    kept = Kept(resource, sampler=sampling.ALWAYS_ON, id_generator=ids)
    tracer = kept.tracers.get_tracer(semconv.SCOPE, VERSION, schema_url=semconv.SCHEMA_URL)
    span = tracer.start_span(
        semconv.PROGRAM_SPAN,
        Context(),
        attributes=present(attributes),
        start_time=recording.began_ns,
    )
    if error is not None:
        span.set_status(StatusCode.ERROR, error)
    span.end(recording.began_ns + round(ending.time * 1e9))
    return kept.spans


def resource_of(run: RecordedRun) -> Resource:
    """Returns what a run's telemetry comes from: the process that ran, not the one that sends."""
    if run.span_id is not None:
        return Resource(run.resource)
    now, ran = Resource.create(), dict(run.resource)
    if not str(now.attributes.get(_NAME)).startswith("unknown_service"):
        ran.pop(_NAME, None)
    id_ = str(uuid.uuid5(uuid.NAMESPACE_URL, f"urn:otel-quant:run:{run.id}"))
    return now.merge(Resource({**ran, semconv.SERVICE_INSTANCE: id_}))


def _context(above: SpanContext | None) -> Context:
    return Context() if above is None else set_span_in_context(NonRecordingSpan(above), Context())


def _info_of(run: RecordedRun, limit: summary.MemoryLimit | None) -> readings.RunInfo:
    first: Mapping[str, Any] = run.steps[0].attributes if run.steps else {}
    model = first.get(semconv.INPUT_PATH)
    return readings.RunInfo(
        id=run.id, pid=run.pid, name=str(run.attributes.get(semconv.RUN_NAME, "")),
        model=model_name(model) if isinstance(model, str) else None,
        method=first.get(semconv.CALIBRATION_METHOD), config=first.get(semconv.CONFIG_NAME),
        limits=readings.Limits(None if limit is None else round(limit.value)), rank=run.rank,
        world_size=run.world_size,
    )  # fmt: skip


def _step_of(step: RecordedStep) -> readings.StepInfo:
    library = step.attributes.get(semconv.LIBRARY_NAME)
    return readings.StepInfo(
        index=step.index, label=step.name, kind=step.kind, parent=step.parent,
        library=None if library is None else str(library),
    )  # fmt: skip


def _with_highest(attributes: Attributes) -> Attributes:
    """Returns attributes in which the peak is the highest that is known."""
    highest = attributes.get(semconv.MEMORY_HIGHEST_KNOWN, attributes.get(semconv.MEMORY_PEAK))
    return {**attributes, **present({semconv.MEMORY_PEAK: highest})}


def _model_of(model: Mapping[str, Any]) -> readings.CostedModel:
    return readings.CostedModel(
        role=model.get("role", "float"), path=model.get("path"), start_ns=model["began"],
        end_ns=model["ended"], figures=model.get("figures", {}),
        heaviest=tuple(model.get("heaviest", ())), error=model.get("error"),
    )  # fmt: skip


def _add_counts(metrics: MetricsSink, step: readings.StepInfo, counts: readings.Counts) -> None:
    for unit, (done, _) in counts.items():
        if done:
            metrics.counted(step, unit, done)


def _attributes_of(ending: Ending) -> Mapping[str, Any]:
    return present(
        {
            semconv.ENDING_SIGNAL: ending.signal or ending.process_signal,
            semconv.ENDING_CAUSE: ending.cause,
            semconv.ENDING_OUT_OF_MEMORY: ending.out_of_memory,
            semconv.ENDING_EVIDENCE: ending.evidence,
            semconv.ENDING_OPEN_STEPS: ending.open_steps or None,
            semconv.ENDING_MEMORY: ending.memory,
            semconv.ENDING_MEMORY_LIMIT: ending.memory_limit,
            semconv.ENDING_MEMORY_LIMIT_SOURCE: ending.memory_limit_source,
            semconv.ENDING_MEMORY_PER_SAMPLE: ending.memory_per_sample,
            semconv.ENDING_MEMORY_PER_LAYER: ending.memory_per_layer,
        }
    )
