"""Makes the events of one run: what sinks need of a checkpoint or a reading is computed here, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from otel_quant.base.fault_boundary import FAULTS, error_type, message_of
from otel_quant.capture.exits import LAST_ERRORS
from otel_quant.capture.probes.memory import most_addresses
from otel_quant.capture.recorder.attributes import (
    FigureAttributes,
    accuracy_of,
    gpus_of,
    growth_of,
    kept_of,
    open_step_of,
    origin_of,
    progress_of,
    run_identity_of,
)
from otel_quant.capture.recorder.ongoing import OpenStep, Period
from otel_quant.capture.stack_sampler import StackSampler, raised_at
from otel_quant.diagnosis.headline import StepTimes, error_text
from otel_quant.export.quark_yaml.columns import ProgramMetrics
from otel_quant.schema import semconv
from otel_quant.schema.code_lines import Spot
from otel_quant.schema.events import Attributes, Event, cost_of, identity_of, present, run_ids_of
from otel_quant.schema.figures import TREE_MEMORY, Resource
from otel_quant.schema.readings import (
    AttributeValue,
    CostedModel,
    Counts,
    GrowthForecast,
    Limits,
    Peaks,
    Reading,
    RunInfo,
    StepProgress,
)

_MB: Final = 1_000_000

_SHORT_NS: Final = 1_000_000_000
"""Nanoseconds from which on a step has readings of its own of what devices do."""

_NO_METRICS: Final = ProgramMetrics(())
_NO_LINES: Final[Mapping[int, Spot]] = {}


class EventMaker:
    """Numbers the checkpoints of a run, keeps the last value of each metric of the program."""

    run: RunInfo
    baseline: Reading

    def __init__(
        self,
        resources: Sequence[Resource],
        metrics: ProgramMetrics | None,
        sampler: StackSampler | None = None,
    ) -> None:
        self._figures = FigureAttributes(resources)
        self._metrics = metrics or _NO_METRICS
        self._boundary = FAULTS.kept_in("metrics of the program")
        self._sampler = sampler  # None if no stacks are taken
        self._stacks = sampler.stacks.steps if sampler is not None else None
        self._next = 0
        self._latest: Mapping[str, object] = {}
        # What the span of the run, or of a worker's part of it, has of its steps and models: of
        # several steps the first value counts, of several models in a role the last.
        self._of_run: dict[str, AttributeValue] = {}
        self._of_period: dict[str, AttributeValue] = {}

    def custom_at(self, name: str, reading: Reading, baseline: Reading) -> dict[str, object]:
        """Asks the program's metrics for their values at a checkpoint, without any lock."""
        with self._boundary:
            return self._metrics.at_checkpoint(name, reading, baseline)
        return {}

    def custom_of_run(self, reading: Reading, peaks: Peaks) -> dict[str, object]:
        """Asks for the values of the run."""
        with self._boundary:
            return self._metrics.at_end(reading, self.baseline, peaks)
        return {}

    def take(self, name: str, reading: Reading, custom: Mapping[str, object]) -> Event:
        """Returns a checkpoint with its number, for one of the methods below. Called with the recorder's lock."""
        if custom:
            self._latest = {**self._latest, **custom}
        self._next += 1
        return self.at(name, reading, custom, self._next - 1)

    def at(
        self, name: str, reading: Reading, custom: Mapping[str, object], sequence: int = 0
    ) -> Event:
        """Returns a checkpoint at a reading."""
        time_ns, clock_ns = reading[:2]
        return Event(
            kind="checkpoint", time_ns=time_ns, clock_ns=clock_ns, run=self.run, name=name,
            sequence=sequence, elapsed=(clock_ns - self.baseline.clock_ns) / 1e9,
            checkpoint=self._figures.at_checkpoint(reading, self.baseline), custom=custom,
            latest_custom=self._latest, reading=reading, baseline=self.baseline,
        )  # fmt: skip

    def bare(self, kind: str, at: Reading | tuple[int, int], **more: Any) -> Event:
        """Returns an event at the time of a reading, or by the wall clock and the monotonic clock."""
        time_ns, clock_ns = at[:2]
        return Event(kind=kind, time_ns=time_ns, clock_ns=clock_ns, run=self.run, **more)

    # --- the events -----------------------------------------------------------------------

    def run_started(self, taken: Event) -> Event:
        """Completes the start of the run."""
        reading = self.baseline
        known = {**origin_of(self.run, reading), **gpus_of(reading), **run_identity_of(self.run)}
        taken.kind, taken.attributes, taken.stacks = "run.started", known, self._stacks
        return taken

    def step_started(self, step: OpenStep, taken: Event) -> Event:
        """Completes the start of a step."""
        taken.kind, taken.step, taken.counts = "step.started", step.info, step.counts
        taken.attributes = {**kept_of(step.attributes), **identity_of(step.info)}
        self._copy_to_run(taken.attributes)
        return taken

    def step_ended(
        self, step: OpenStep, peaks: Peaks, error: BaseException | None, taken: Event
    ) -> Event:
        """Completes the end of a step."""
        start, end = step.start, taken.reading
        assert end is not None
        lasted_ns = end.clock_ns - start.clock_ns
        known = {
            **kept_of(step.attributes),
            **self._figures.between(start, end, peaks, self.run.limits.memory),
        }
        self._copy_to_run(known)
        if step.counts:
            taken.counts, taken.items = Counts(step.counts), step.items or None
            known |= progress_of(step.counts, taken.items, lasted_ns / 1e9)
        known |= step.warnings
        if step.layers:
            known |= accuracy_of(step.layers, step.measured)
        if self._sampler is not None:
            bound, taken.top_lines = self._sampler.bound_of(step, lasted_ns / 1e9, known, self.run)
            at = self._sampler.peak_line(step, known.get(semconv.MEMORY_PEAK))
            known |= bound | present({semconv.MEMORY_PEAK_LINE: at})
        taken.kind, taken.step, taken.attributes = "step.ended", step.info, known
        taken.exception = error
        return self._ended(taken, start, peaks, error)

    def models_costed(self, costs: Sequence[CostedModel], now: tuple[int, int]) -> Event:
        """Returns what models cost."""
        for cost in costs:
            if cost.role == "float":
                self._copy_to_run(present({semconv.INPUT_PATH: cost.path}))
            self._of_run = _with_cost(self._of_run, cost)
            self._of_period = _with_cost(self._of_period, cost)
        return self.bare("models.costed", now, models=tuple(costs))

    def reading_taken(
        self, reading: Reading, peaks: Peaks, steps: tuple[StepProgress, ...],
        lines: Mapping[int, Spot] = _NO_LINES,
    ) -> Event:  # fmt: skip
        """Returns what a run does and uses between two checkpoints."""
        run, elapsed = self.run, (reading.clock_ns - self.baseline.clock_ns) / 1e9
        known = {
            **run_ids_of(run),
            semconv.PROCESS_PID: run.pid,
            semconv.READING_ELAPSED: elapsed,
            semconv.READING_MEMORY_LIMIT: run.limits.memory,
            semconv.READING_MEMORY_PEAK: peaks.figures.get(TREE_MEMORY.name),
            semconv.RUN_DEAD_THREAD: LAST_ERRORS.thread,
            semconv.READING_OPEN_STEPS: tuple(step.info.label for step in steps) or None,
            **self._figures.at_reading(reading, self.baseline),
            **(open_step_of(steps[-1]) if steps else {}),
        }
        return self.bare(
            "reading.taken", reading, step=steps[-1].info if steps else None, elapsed=elapsed,
            attributes=present(known), steps=steps, reading=reading, baseline=self.baseline,
            peaks=peaks, stacks=self._stacks, lines=lines,
        )  # fmt: skip

    def forecast_exceeded(
        self, step: StepProgress, growth: GrowthForecast, reading: Reading
    ) -> Event:
        """Returns that memory will not suffice for the samples or layers that are left."""
        text = _sentence(step, growth, self.run.limits)
        known = {**run_ids_of(self.run), **open_step_of(step), **growth_of(growth)}
        return self.bare("forecast.exceeded", reading, step=step.info, name=text, attributes=known)

    def forecast_stalled(
        self, step: StepProgress, seconds: float, spot: Spot | None, reading: Reading
    ) -> Event:
        """Returns that a step has stalled, and where."""
        known, at = {**run_ids_of(self.run), **open_step_of(step)}, ""
        if spot is not None:
            at, line = f", at {spot.waiting_words}", spot.own or spot.leaf
            known |= {
                semconv.CODE_FUNCTION_NAME: line.function,
                semconv.CODE_FILE_PATH: line.file,
                semconv.CODE_LINE_NUMBER: line.line,
            }
        name = ", ".join(filter(None, (step.info.label, str(step.counts))))
        text = f"{name}: no progress for {seconds:.0f} s{at}"
        return self.bare("forecast.stalled", reading, step=step.info, name=text, attributes=known)

    def run_reported(self, period: Period, reading: Reading) -> Event:
        """Returns the end of a worker's task, and begins the next one's part of the run."""
        of_period = self._totals(period, reading, self._of_period)
        self._of_period = {}
        return self.bare(
            "run.reported", reading, attributes=of_period, latest_custom=self._latest,
            began_ns=period.start.time_ns, lasted_ns=reading.clock_ns - period.start.clock_ns,
            stacks=self._stacks,
        )  # fmt: skip

    def run_ended(
        self, whole: Period, unreported: Period, custom: Mapping[str, object],
        error: BaseException | None, taken: Event, times: StepTimes,
    ) -> Event:  # fmt: skip
        """Completes the end of the run; `custom` are the values of the run."""
        reading, peaks = taken.reading, whole.tracker.result()
        assert reading is not None
        taken.kind, taken.latest_custom = "run.ended", {**taken.latest_custom, **custom}
        taken.attributes = self._totals(whole, reading, self._of_run)
        if unreported is not whole:
            taken.of_span = self._totals(unreported, reading, self._of_period)
        taken.stacks = self._stacks
        ended = self._ended(taken, whole.start, peaks, error)
        peak, limit = peaks.figures.get(TREE_MEMORY.name), self.run.limits.memory
        at = ended.attributes.get(semconv.ERROR_LINE)
        failed = ended.error and error_text(ended.error, ended.error_message, at)
        text = times.answer(peak, limit, failed)
        ended.attributes = {**ended.attributes, **present({semconv.RUN_ANSWER: text or None})}
        return ended

    # --- within -----------------------------------------------------------------------------

    def _ended(
        self, taken: Event, start: Reading, peaks: Peaks, error: BaseException | None
    ) -> Event:
        """Completes what the ends of a step and of the run have in common."""
        assert taken.reading is not None
        taken.began_ns, taken.lasted_ns = start.time_ns, taken.clock_ns - start.clock_ns
        is_short = taken.step is not None and taken.lasted_ns < _SHORT_NS
        devices = self._figures.of_devices(start, taken.reading, peaks, is_short=is_short)
        taken.devices = tuple(devices)
        taken.peaks = peaks
        if error is not None:
            message = message_of(error, paths=self.run.paths)
            taken.error, taken.error_message = error_type(error), message
            with FAULTS.kept_in("line of an exception"):
                at = present({semconv.ERROR_LINE: raised_at(error)})
                taken.attributes = {**taken.attributes, **at}
        return taken

    def _totals(
        self, period: Period, end: Reading, copied: Attributes
    ) -> dict[str, AttributeValue]:
        peaks = period.tracker.result()
        is_limited = semconv.ADDRESS_SPACE_LIMIT in self.run.origin
        return {
            **copied,
            **self._figures.between(period.start, end, peaks, self.run.limits.memory),
            **origin_of(self.run, self.baseline),  # more is known at the end
            **present(
                {
                    semconv.MEMORY_PROCESS_PEAK: peaks.process_memory,
                    semconv.RUN_DEAD_THREAD: LAST_ERRORS.thread,
                    semconv.ADDRESS_SPACE_PEAK: most_addresses() if is_limited else None,
                }
            ),
            semconv.RUN_STEPS: period.steps,
            semconv.RUN_FAILED_STEPS: period.failed,
        }

    def name_model(self, name: AttributeValue) -> None:
        """Notes what the run's first model is called that is in no file."""
        for known in (self._of_run, self._of_period):
            known.setdefault(semconv.MODEL_NAME, name)

    def _copy_to_run(self, attributes: Attributes) -> None:
        for name in semconv.COPIED_TO_RUN:
            if name in attributes:
                for known in (self._of_run, self._of_period):
                    values = str(known.setdefault(name, attributes[name])).split(", ")
                    if name in semconv.OF_ALL_STEPS and attributes[name] not in values:
                        known[name] = ", ".join((*values, str(attributes[name])))


def _with_cost(known: Mapping[str, AttributeValue], cost: CostedModel) -> dict[str, AttributeValue]:
    """Returns attributes with the totals of a model, in place of an earlier one's in its role."""
    stem = semconv.of_model(cost.role)
    others = {name: value for name, value in known.items() if not name.startswith(stem)}
    return others | cost_of(cost)


def _sentence(step: StepProgress, growth: GrowthForecast, limits: Limits) -> str:
    """Returns a warning in words."""
    what, limit = f"memory of GPU {growth.device}", "it has"
    if growth.device is None:
        what, limit = "memory", f"the limit ({limits.memory_source}) is"
    return (
        f"{step.info.label}, {step.counts}: {what} grows by "
        f"{growth.per_unit / _MB:,.1f} MB with each {growth.unit} and would be "
        f"{growth.at_end / _MB:,.0f} MB after the last one (estimated); {limit} "
        f"{growth.limit / _MB:,.0f} MB. Fewer or smaller samples, or a calibration method that keeps "
        "less, would help"
    )
