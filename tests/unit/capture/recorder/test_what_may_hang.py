"""A driver or a metric of the program that waits blocks only the thread that called it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

from otel_quant.capture.probes.readers import Probes
from otel_quant.capture.recorder.recorder import Recorder
from otel_quant.capture.recorder.run_info import new_run_info
from otel_quant.schema.records import GpuReading
from tests.unit.capture.recorder.received import Metric, Received


class HangingDriver:
    """Reads no GPU, and hangs in one thread.

    Attributes:
        resumes: Set it to end the wait.
    """

    def __init__(self) -> None:
        self.resumes = threading.Event()
        self._hangs = threading.Event()
        self._thread: threading.Thread | None = None

    def __call__(self, pids: Collection[int]) -> tuple[GpuReading, ...]:
        if threading.current_thread() is self._thread:
            self._hangs.set()
            self.resumes.wait()
        return ()

    def hang_in(self, act: Callable[[], object]) -> threading.Thread:
        """Starts a thread and returns it once it hangs in the driver."""
        self._thread = threading.Thread(target=act, daemon=True)
        self._thread.start()
        assert self._hangs.wait(60)
        return self._thread


def test_a_driver_that_hangs_in_one_thread_blocks_no_step_of_another() -> None:
    driver = HangingDriver()

    def one_step() -> None:
        recorder.close(recorder.open("Hanging"))

    sink = Received()
    recorder = Recorder(new_run_info({}), Probes(gpu=driver), [sink], sample_interval=0)
    recorder.start()
    hanging = driver.hang_in(one_step)

    recorder.close(recorder.open("Calibration"))

    assert sink.names == ["Start", "Calibration Start", "Calibration End"]
    driver.resumes.set()
    hanging.join()
    recorder.end()
    assert sink.names[3:] == ["Hanging Start", "Hanging End", "End"]


def test_a_driver_that_hangs_at_the_runs_start_blocks_no_other_thread() -> None:
    driver = HangingDriver()
    sink = Received()
    recorder = Recorder(new_run_info({}), Probes(gpu=driver), [sink], sample_interval=0)
    hanging = driver.hang_in(recorder.start)

    recorder.close(recorder.open("Calibration"))

    driver.resumes.set()
    hanging.join()
    recorder.end()
    assert sink.names == ["Start", "Calibration Start", "Calibration End", "End"]


def test_a_metric_may_wait_for_a_thread_that_opens_a_step() -> None:
    def one_step() -> None:
        recorder.close(recorder.open("Inner"))

    def act(name: str) -> None:
        if name == "Outer Start":
            other = threading.Thread(target=one_step, daemon=True)
            other.start()
            other.join(60)
            assert not other.is_alive()

    sink = Received()
    recorder = Recorder(new_run_info({}), Probes(), [sink], Metric(act), sample_interval=0)
    recorder.close(recorder.open("Outer"))
    recorder.end()

    assert sink.names == [
        "Start", "Inner Start", "Inner End", "Outer Start", "Outer End", "End",
    ]  # fmt: skip
