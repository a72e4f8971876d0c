"""What sinks receive of a run between its checkpoints."""

from __future__ import annotations

import threading

from otel_quant.capture.recorder.recorder import Recorder
from otel_quant.schema.events import Event
from otel_quant.schema.records import MemoryReading
from tests.unit.capture.recorder.received import Received, in_thread, recorder_of


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
    recorder.expect_samples(inner, 512)
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
    assert [(s.info.label, s.samples, s.expected_samples) for s in progress.steps] == [
        ("Model Quantization", None, None), ("Calibration", 37, 512),
    ]  # fmt: skip


def test_progress_goes_on_between_steps_and_is_about_a_second_apart() -> None:
    sink = Progress(2)
    sink.recorder = recorder_of([sink], lambda pids: MemoryReading(100, 100), sample_interval=0.01)
    sink.recorder.start()
    assert sink.enough.wait(60)
    sink.recorder.end()
    first, second = sink.received[:2]
    assert first.steps == ()
    assert second.clock_ns - first.clock_ns >= 1_000_000_000
