"""What sinks receive of a run: each thing once, in order, and nothing after the end."""

from __future__ import annotations

import contextvars
import itertools
import threading
from typing import Any, NoReturn

import pytest

from otel_quant.capture.recorder.observed_layers import ObservedLayers
from otel_quant.capture.recorder.recorder import Recorder
from otel_quant.schema import semconv
from otel_quant.schema.events import Event
from otel_quant.schema.readings import LayerAccuracy, MemoryReading, Peaks, Reading, StepInfo
from tests.unit.capture.recorder.received import Metric, Received, in_thread, of_span, recorder_of


class Checkpoints(Received):
    """Keeps checkpoints and everything else that arrives, each with the name of the sink."""

    def __init__(self, name: str = "a", events: list[Any] | None = None) -> None:
        super().__init__()
        self.name = name
        self.events: list[Any] = [] if events is None else events
        self.checkpoints: list[Event] = []

    def run_started(self, event: Event) -> None:
        self.checkpoints.append(event)

    def step_started(self, event: Event) -> None:
        self.checkpoints.append(event)
        self.events.append((self.name, event.name))

    def step_ended(self, event: Event) -> None:
        super().step_ended(event)
        self.checkpoints.append(event)
        self.events.append((self.name, event.name))

    def run_ended(self, event: Event) -> None:
        super().run_ended(event)
        self.checkpoints.append(event)
        self.events.append((self.name, event.name))

    def progress_expected(self, event: Event) -> None:
        assert event.step is not None
        self.events.append((self.name, event.step.label, event.counts["sample"].total))

    def models_costed(self, event: Event) -> None:
        self.events.append((self.name, event.models))

    def step_entered(self, step: StepInfo) -> object:
        self.events.append((self.name, "entered", step.label))
        return step.label

    def step_left(self, step: StepInfo, token: object) -> None:
        self.events.append((self.name, "left", token))


def closed(recorder: Recorder, *labels: str, error: BaseException | None = None) -> None:
    for label in labels:
        recorder.close(recorder.open(label), error)


def test_a_step_ends_whatever_fails_in_what_its_calibration_has_seen() -> None:
    class Failing(ObservedLayers):
        def end(self) -> NoReturn:
            raise ValueError

    sink = Checkpoints()
    recorder = recorder_of([sink])
    step = recorder.open("Calibration")
    assert step is not None
    step.observed = Failing()
    recorder.close(step)
    assert sink.events == [("a", "Calibration Start"), ("a", "Calibration End")]


def test_checkpoints_are_numbered_and_have_the_error_that_ended_a_step() -> None:
    sink = Checkpoints()
    recorder = recorder_of([sink])
    closed(recorder, "A", error=ValueError("no"))
    closed(recorder, "B")
    recorder.end(KeyError())
    recorder.end()
    assert [(each.sequence, each.name, each.phase, each.error) for each in sink.checkpoints] == [
        (0, "Start", "start", None),
        (1, "A Start", "start", None),
        (2, "A End", "end", "ValueError"),
        (3, "B Start", "start", None),
        (4, "B End", "end", None),
        (5, "End", "end", "KeyError"),
    ]
    (run,) = sink.runs
    assert run.attributes[semconv.RUN_STEPS] == 2
    assert run.attributes[semconv.RUN_FAILED_STEPS] == 1


def test_a_metric_that_fails_loses_no_checkpoint() -> None:
    def fails(*_: object) -> object:
        raise ValueError

    received = Received()
    recorder = recorder_of([received], metrics=Metric(fails, fails))
    closed(recorder, "A")
    recorder.end()
    assert received.names == ["Start", "A Start", "A End", "End"]


def test_the_final_value_of_a_metric_replaces_its_last_checkpoint_value() -> None:
    class Totals(Metric):
        def at_end(self, reading: Reading, baseline: Reading, peaks: Peaks) -> dict[str, object]:
            return {"m": "total"}

    received = Received()
    recorder = recorder_of([received], metrics=Totals(lambda name: name))
    closed(recorder, "A")
    recorder.end()
    assert received.steps[0].latest_custom == {"m": "A End"}
    assert received.runs[0].latest_custom == {"m": "total"}


def test_each_report_counts_new_steps_and_the_run_keeps_its_peaks() -> None:
    rss = itertools.chain([100] * 3, [900], itertools.repeat(100))  # at the first report
    received = Received()
    recorder = recorder_of([received], lambda pids: MemoryReading(*([next(rss)] * 2)))
    closed(recorder, "A")
    recorder.report()
    recorder.report()
    closed(recorder, "B", "C")
    recorder.report()
    closed(recorder, "D")
    recorder.open("E")
    recorder.report()  # waits for the step
    recorder.end()
    assert [
        (of_span(each)[semconv.RUN_STEPS], of_span(each)[semconv.MEMORY_PEAK])
        for each in received.runs
    ] == [(1, 900), (2, 900), (2, 100)]
    whole = received.runs[-1].attributes
    assert (whole[semconv.RUN_STEPS], whole[semconv.MEMORY_PEAK]) == (5, 900)


def test_a_step_belongs_to_the_innermost_open_step_of_its_own_run() -> None:
    recorder, other = recorder_of([]), recorder_of([])
    outer = recorder.open("Outer")
    assert outer is not None
    outer.enter()
    inner = recorder.open("Inner")
    assert inner is not None
    inner.enter()
    recorder.close(inner)  # and not left: a generator is closed elsewhere
    steps = recorder.open("Next"), other.open("Other")
    assert [step.info.parent for step in steps if step is not None] == [outer.info.index, None]


def test_sinks_leave_a_step_once_and_only_in_the_context_that_entered_it() -> None:
    sink = Checkpoints()
    step = recorder_of([sink]).open("A")
    assert step is not None
    sink.events.clear()
    elsewhere = contextvars.copy_context()
    entered = step.enter()
    elsewhere.run(step.leave, entered)
    assert sink.events == [("a", "entered", "A")]
    step.leave(entered)
    assert sink.events == [("a", "entered", "A"), ("a", "left", "A")]


def test_the_sinks_receive_an_end_in_the_reverse_of_their_order() -> None:
    events: list[Any] = []
    recorder = recorder_of([Checkpoints(name, events) for name in "ab"])
    closed(recorder, "A")
    recorder.end()
    assert events == [
        ("a", "A Start"), ("b", "A Start"), ("b", "A End"), ("a", "A End"), ("b", "End"), ("a", "End"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("counted", "expected"),
    [([], (None, None)), ([4, 3], (2, 7)), ([4, None, 3], (3, None)), ([0], (1, None))],
)
def test_samples_and_items_that_cannot_be_counted_are_unknown_and_not_zero(
    counted: list[int | None], expected: tuple[int | None, int | None]
) -> None:
    sink = Checkpoints()
    recorder = recorder_of([sink])
    step = recorder.open("Calibration")
    assert step is not None
    recorder.expect(step, "sample", 8)
    recorder.expect(step, "sample", 99)  # by a second reader of the same samples
    for items in counted:
        recorder.count_sample(step, items)
    recorder.close(step)
    assert [(each.counts.samples, each.items) for each in sink.steps] == [expected]
    assert sink.events[1:-1] == [("a", "Calibration", 8)]


def test_of_the_layers_of_a_step_as_many_are_sent_as_a_step_keeps_and_all_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(semconv, "MOST_LAYERS", 4)
    received = Received()
    recorder = recorder_of([received])
    outer, inner = recorder.open("A", library="one"), recorder.open("B", library="two")
    values = [3.0, None, 1.0, 9.0, 7.0]
    layers = [LayerAccuracy(f"layer {value}", "loss", value, "lower") for value in values]
    recorder.measure_layers(layers[:1], {"nobody's"})
    thread = threading.Thread(
        target=recorder.measure_layers, args=(layers, {"one"})
    )  # of a library's own
    thread.start()
    thread.join()
    recorder.measure_layers([LayerAccuracy("w", "error", 2.0)], {"one", "two"})
    for step in (inner, outer):
        recorder.close(step)
    assert [(step.label, each.layer, each.number) for step, each in received.layers] == [
        *(("A", layer.layer, number) for number, layer in enumerate(layers[:4])),
        ("B", "w", 0),
    ]
    of_b, of_a = (
        {name: value for name, value in step.attributes.items() if "accuracy" in name}
        for step in received.steps
    )
    assert of_a == {
        semconv.ACCURACY_MEASURE: "loss", semconv.ACCURACY_BETTER: "lower",
        semconv.ACCURACY_COUNT: 5, semconv.ACCURACY_MINIMUM: 1.0, semconv.ACCURACY_MEDIAN: 3.0,
        semconv.ACCURACY_WORST_LAYER: "layer None",
    }  # fmt: skip
    assert of_b == {
        semconv.ACCURACY_MEASURE: "error", semconv.ACCURACY_COUNT: 1, semconv.ACCURACY_MINIMUM: 2.0,
        semconv.ACCURACY_MEDIAN: 2.0,
    }  # fmt: skip


def test_nothing_reaches_the_sinks_after_the_end_or_in_a_forked_child() -> None:
    for stop in (Recorder.end, Recorder.forget):
        sink = Checkpoints()
        recorder = recorder_of([sink])
        recorder.models_costed([])  # before the run
        step = recorder.open("A")
        stop(recorder)
        sink.events.clear()
        sink.names.clear()
        recorder.close(step)
        recorder.point("P")
        assert recorder.open("B") is None
        recorder.models_costed([])
        recorder.report()
        recorder.end()
        assert (sink.events, sink.names, recorder.idle, recorder.ended) == ([], [], True, True)


@pytest.mark.parametrize("moment", ["open", "close"])
def test_ctrl_c_at_a_checkpoint_leaves_no_step_open(moment: str) -> None:
    is_interrupted = False

    def interrupt(*_: object) -> None:
        if is_interrupted:
            raise KeyboardInterrupt

    metric = Metric(interrupt) if moment == "open" else None
    recorder = recorder_of([], interrupt if moment == "close" else lambda pids: None, metric)
    recorder.start()
    step = recorder.open("A") if moment == "close" else None
    is_interrupted = True
    with pytest.raises(KeyboardInterrupt):
        recorder.open("B") if moment == "open" else recorder.close(step)
    assert recorder.idle


def test_a_child_that_was_forked_while_a_thread_ended_the_run_can_end() -> None:
    holds, ends = threading.Event(), threading.Event()
    recorder = recorder_of([])

    def hold() -> None:
        with recorder._end_lock:
            holds.set()
            ends.wait(60)

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    assert holds.wait(60)
    recorder.forget()  # as the child does, where that thread does not exist
    assert not in_thread(recorder.end).is_alive()
    ends.set()
    thread.join(60)


class Progress(Received):
    """Keeps the progress of a run, and asks the recorder for a reading each time."""

    recorder: Recorder

    def __init__(self, count: int = 1) -> None:
        super().__init__()
        self.received: list[Event] = []
        self.threads: set[str] = set()
        self.enough, self._count = threading.Event(), count

    def reading_taken(self, event: Event) -> None:
        assert not in_thread(self.recorder.reading_now).is_alive(), "the recorder is locked"
        self.threads.add(threading.current_thread().name)
        self.received.append(event)
        if len(self.received) == self._count:
            self.enough.set()


def test_sinks_receive_the_open_steps_and_their_samples_from_the_sampler() -> None:
    sink = Progress()
    memory = iter((MemoryReading(100, 100), MemoryReading(900, 900)))
    last = MemoryReading(500, 500)
    recorder = recorder_of([sink], lambda pids: next(memory, last), sample_interval=0.01)
    sink.recorder = recorder
    outer = recorder.open("Model Quantization")
    inner = recorder.open("Calibration")
    assert inner is not None
    recorder.expect(inner, "sample", 512)
    for _ in range(37):
        recorder.count_sample(inner, None)
    over = recorder.open("Over")
    recorder.close(over)
    assert sink.enough.wait(60)
    recorder.close(inner)
    recorder.close(outer)
    recorder.end()
    progress = sink.received[0]
    assert sink.threads == {"otel-quant-sampler"}
    assert progress.reading is not None
    assert progress.reading.memory == last
    assert progress.elapsed >= 1
    assert progress.peaks is not None
    assert progress.peaks.figures == {"memory": 900}
    assert [(s.info.label, s.counts.get("sample")) for s in progress.steps] == [
        ("Model Quantization", None), ("Calibration", (37, 512)),
    ]  # fmt: skip


def test_progress_is_sent_about_every_second_also_between_steps() -> None:
    sink = Progress(2)
    sink.recorder = recorder_of([sink], lambda pids: MemoryReading(100, 100), sample_interval=0.01)
    sink.recorder.start()
    assert sink.enough.wait(60)
    sink.recorder.end()
    first, second = sink.received[:2]
    assert first.steps == ()
    assert second.clock_ns - first.clock_ns >= 1_000_000_000
