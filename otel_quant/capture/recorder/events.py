"""Makes the events of one run: what sinks need of a checkpoint or a reading is computed here, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from otel_quant.base.fault_boundary import FAULTS, error_type, message_of
from otel_quant.capture.forecast import sentence, stall
from otel_quant.capture.recorder.attributes import (
    FigureAttributes,
    gpus_of,
    growth_of,
    kept_of,
    open_step_of,
    origin_of,
    progress_of,
    run_identity_of,
)
from otel_quant.capture.recorder.ongoing import OpenStep, Period
from otel_quant.capture.stacks import StackSampler
from otel_quant.export.quark_yaml.columns import ProgramMetrics
from otel_quant.schema import semconv
from otel_quant.schema.events import (
    Attributes,
    Event,
    EventKind,
    cost_of,
    identity_of,
    present,
    run_ids_of,
)
from otel_quant.schema.figures import Resource
from otel_quant.schema.records import (
    AttributeValue,
    CostedModel,
    GrowthForecast,
    Peaks,
    Reading,
    RunInfo,
    StepInfo,
    StepProgress,
)
from otel_quant.schema.stacks import Place


class Taken(NamedTuple):
    """A checkpoint that has been taken."""

    name: str
    sequence: int
    reading: Reading
    custom: Mapping[str, object]  # Values of the program's metrics at it
    latest: Mapping[str, object]  # The last value of each


class EventMaker:
    """Numbers the checkpoints of a run, keeps the last value of each metric of the program."""

    run: RunInfo
    baseline: Reading

    def __init__(self, resources: Sequence[Resource], metrics: ProgramMetrics | None) -> None:
        self._figures = FigureAttributes(resources)
        self._metrics, self._boundary = metrics, FAULTS.kept_in("metrics of the program")
        self.sampler: StackSampler | None = None  # None if no stacks are taken
        self._next = 0
        self._latest: Mapping[str, object] = {}
        # What the span of the run, or of a worker's part of it, has of its steps and models: of
        # several steps the first value counts, of several models in a role the last.
        self._of_run: dict[str, AttributeValue] = {}
        self._of_period: dict[str, AttributeValue] = {}

    def custom_at(self, name: str, reading: Reading, baseline: Reading) -> dict[str, object]:
        """Asks the program's metrics for their values at a checkpoint, without any lock."""
        if self._metrics is not None:
            with self._boundary:
                return self._metrics.at_checkpoint(name, reading, baseline)
        return {}

    def custom_of_run(self, reading: Reading, peaks: Peaks) -> dict[str, object]:
        """Asks for the values of the whole run."""
        if self._metrics is not None:
            with self._boundary:
                return self._metrics.at_end(reading, self.baseline, peaks)
        return {}

    def take(self, name: str, reading: Reading, custom: Mapping[str, object]) -> Taken:
        """Numbers a checkpoint. Called with the recorder's lock."""
        if custom:
            self._latest = {**self._latest, **custom}
        self._next += 1
        return Taken(name, self._next - 1, reading, custom, self._latest)

    # --- the events -----------------------------------------------------------------------

    def run_started(self, taken: Taken) -> Event:
        """Returns the start of the run."""
        reading = taken.reading
        known = {**origin_of(self.run, reading), **gpus_of(reading), **run_identity_of(self.run)}
        return self._event("run.started", taken, attributes=known)

    def step_started(
        self, step: StepInfo, attributes: Mapping[str, AttributeValue], taken: Taken
    ) -> Event:
        """Returns the start of a step."""
        known = {**kept_of(attributes), **identity_of(step)}
        self._copy_to_run(known)
        return self._event("step.started", taken, step, attributes=known)

    def step_ended(
        self, step: OpenStep, peaks: Peaks, error: BaseException | None, taken: Taken
    ) -> Event:
        """Returns the end of a step."""
        start, end = step.start, taken.reading
        lasted_ns = end.clock_ns - start.clock_ns
        known = {
            **kept_of(step.attributes),
            **self._figures.between(start, end, peaks, self.run.limits.memory),
        }
        self._copy_to_run(known)
        known |= progress_of(step.samples, step.items or None, lasted_ns / 1e9)
        known |= step.warnings
        top_lines: dict[str, Any] | None = None
        if self.sampler is not None:
            bound, top_lines = self.sampler.bound_of(step, lasted_ns / 1e9, known, self.run)
            known |= bound
        return self._event(
            "step.ended",
            taken,
            step.info,
            attributes=known,
            devices=tuple(self._figures.of_devices(start, end, peaks)),
            began_ns=start.time_ns,
            lasted_ns=lasted_ns,
            samples=step.samples or None,
            items=step.items or None,
            error=error_type(error) if error is not None else None,
            error_message=message_of(error, paths=self.run.paths) if error is not None else None,
            exception=error,
            peaks=peaks,
            top_lines=top_lines,
        )

    def checkpoint(self, step: StepInfo | None, taken: Taken) -> Event:
        """Returns a checkpoint that is neither the start nor the end of a step."""
        return self._event("checkpoint", taken, step)

    def samples_expected(self, step: StepInfo, total: int, now: tuple[int, int]) -> Event:
        """Returns how many samples a step will consume."""
        return self._bare("samples.expected", now, step=step, samples=total)

    def models_costed(self, costs: Sequence[CostedModel], now: tuple[int, int]) -> Event:
        """Returns what models cost."""
        for cost in costs:
            if cost.role == "float" and cost.path is not None:
                self._copy_to_run({semconv.INPUT_PATH: cost.path})
            for copied in (self._of_run, self._of_period):
                for name in [
                    each for each in copied if each.startswith(f"quant.model.{cost.role}.")
                ]:
                    del copied[name]
                copied |= cost_of(cost)
        return self._bare("models.costed", now, models=tuple(costs))

    def reading_taken(
        self,
        reading: Reading,
        peaks: Peaks,
        steps: tuple[StepProgress, ...],
        lines: Mapping[int, Place] | None = None,
    ) -> Event:
        """Returns what a run does and uses between two checkpoints."""
        run, elapsed = self.run, (reading.clock_ns - self.baseline.clock_ns) / 1e9
        known = {
            **run_ids_of(run),
            semconv.PROCESS_PID: run.pid,
            semconv.READING_ELAPSED: elapsed,
            semconv.READING_MEMORY_LIMIT: run.limits.memory,
            semconv.READING_MEMORY_PEAK: peaks.figures.get("memory"),
            semconv.READING_OPEN_STEPS: tuple(step.info.label for step in steps) or None,
            **self._figures.at_reading(reading, self.baseline),
            **(open_step_of(steps[-1]) if steps else {}),
        }
        return self._bare(
            "reading.taken",
            reading,
            step=steps[-1].info if steps else None,
            elapsed=elapsed,
            attributes=present(known),
            steps=steps,
            reading=reading,
            baseline=self.baseline,
            peaks=peaks,
            stacks=self.sampler.stacks if self.sampler is not None else None,
            lines=lines or {},
        )

    def forecast_exceeded(
        self, step: StepProgress, growth: GrowthForecast, reading: Reading
    ) -> Event:
        """Returns that memory will not suffice for the samples that are left."""
        text = sentence(step, growth, self.run.limits)
        known = {**run_ids_of(self.run), **open_step_of(step), **growth_of(growth)}
        return self._bare("forecast.exceeded", reading, step=step.info, name=text, attributes=known)

    def forecast_stalled(
        self, step: StepProgress, seconds: float, line: Place | None, reading: Reading
    ) -> Event:
        """Returns that a step has stalled, and where."""
        text, known = stall(step, seconds, line), {**run_ids_of(self.run), **open_step_of(step)}
        return self._bare("forecast.stalled", reading, step=step.info, name=text, attributes=known)

    def run_reported(self, period: Period, reading: Reading) -> Event:
        """Returns the end of a worker's task, and begins the next one's part of the run."""
        of_period = self._totals(period, reading, self._of_period)
        self._of_period = {}
        return self._bare(
            "run.reported",
            reading,
            attributes=of_period,
            latest_custom=self._latest,
            began_ns=period.start.time_ns,
            lasted_ns=reading.clock_ns - period.start.clock_ns,
            stacks=self.sampler.stacks if self.sampler is not None else None,
        )

    def run_ended(
        self,
        whole: Period,
        unreported: Period,
        custom: Mapping[str, object],
        error: BaseException | None,
        taken: Taken,
    ) -> Event:
        """Returns the end of the run; `custom` are the values of the whole run."""
        reading, peaks = taken.reading, whole.tracker.result()
        of_span = self._totals(unreported, reading, self._of_period)
        return self._event(
            "run.ended",
            taken._replace(latest={**taken.latest, **custom}),
            attributes=self._totals(whole, reading, self._of_run),
            of_span=of_span if unreported is not whole else None,
            devices=tuple(self._figures.of_devices(whole.start, reading, peaks)),
            began_ns=whole.start.time_ns,
            lasted_ns=reading.clock_ns - whole.start.clock_ns,
            error=error_type(error) if error is not None else None,
            error_message=message_of(error, paths=self.run.paths) if error is not None else None,
            peaks=peaks,
            stacks=self.sampler.stacks if self.sampler is not None else None,
        )

    # --- within -----------------------------------------------------------------------------

    def _event(
        self, kind: EventKind, taken: Taken, step: StepInfo | None = None, **more: Any
    ) -> Event:
        reading, baseline = taken.reading, self.baseline
        return Event(
            kind=kind,
            time_ns=reading.time_ns,
            clock_ns=reading.clock_ns,
            run=self.run,
            step=step,
            name=taken.name,
            sequence=taken.sequence,
            elapsed=(reading.clock_ns - baseline.clock_ns) / 1e9,
            checkpoint=self._figures.at_checkpoint(reading, baseline),
            custom=taken.custom,
            latest_custom=taken.latest,
            reading=reading,
            baseline=baseline,
            **more,
        )

    def _bare(self, kind: EventKind, at: Reading | tuple[int, int], **more: Any) -> Event:
        """Returns an event at the time of a reading, or by the wall clock and the monotonic clock."""
        time_ns, clock_ns = at[:2]
        return Event(kind=kind, time_ns=time_ns, clock_ns=clock_ns, run=self.run, **more)

    def _totals(
        self, period: Period, end: Reading, copied: Attributes
    ) -> dict[str, AttributeValue]:
        peaks = period.tracker.result()
        return {
            **copied,
            **self._figures.between(period.start, end, peaks, self.run.limits.memory),
            **origin_of(self.run, self.baseline),  # more is known at the end
            **present({semconv.MEMORY_PROCESS_PEAK: peaks.process_memory}),
            semconv.RUN_STEPS: period.steps,
            semconv.RUN_FAILED_STEPS: period.failed,
        }

    def name_model(self, name: AttributeValue | None) -> None:
        """Notes what the run's first model is called that is in no file."""
        if name is not None:
            for known in (self._of_run, self._of_period):
                known.setdefault(semconv.MODEL_NAME, name)

    def _copy_to_run(self, attributes: Attributes) -> None:
        for name in semconv.COPIED_TO_RUN:
            if name in attributes and name not in self._of_period:
                self._of_run.setdefault(name, attributes[name])
                self._of_period[name] = attributes[name]
