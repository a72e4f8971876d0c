"""What several threads count at once is counted completely."""

from __future__ import annotations

import json
from pathlib import Path

from otel_quant.schema import semconv
from tests.fixtures.programs import run_script

THREADS, TIMES = 4, 500

COUNTING = f"""
import contextvars, json, logging, sys, threading, time
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
import otel_quant
from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments.samples import count_layer, count_sample
from otel_quant.capture.instruments.steps import operating
from otel_quant.capture.runtime import RUNTIME
from otel_quant.schema.readings import Count

logging.getLogger("otel_quant").setLevel(logging.CRITICAL)
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))

class Slow(int):
    # Another thread runs in the middle of every addition.
    def __add__(self, other):
        time.sleep(0)
        return Slow(int(self) + other)
    def __sub__(self, other):
        return self + -other

FAULTS.counts["test"] = Slow(0)

class Data:
    def __len__(self):
        time.sleep(0.001)
        return {THREADS * TIMES}

class Batch:
    shape = (8, 3)

def count():
    together.wait()
    for _ in range({TIMES}):
        count_layer(["library"])
        count_sample(data, Batch)
        with operating("library", {{}}), FAULTS.kept_in("test"):
            raise ValueError

sys.setswitchinterval(1e-6)
data, together = Data(), threading.Barrier({THREADS})
step = RUNTIME.recorder.open("Calibration", library="library")
step.counts["layer"], step.items = Count(Slow(0)), Slow(0)
entered = step.enter()
threads = [
    threading.Thread(target=contextvars.copy_context().run, args=[count]) for _ in range({THREADS})
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
points = {{
    metric.name: metric.data.data_points[0].value
    for scope in reader.get_metrics_data().resource_metrics[0].scope_metrics
    for metric in scope.metrics if metric.name.startswith("quant.calibration")
}}
print(json.dumps([
    step.counts["layer"].done, step.counts["sample"].done, step.items, points, FAULTS.counts["test"],
    len(RUNTIME.operations),
]))
"""


def test_counts_of_several_threads_are_complete(tmp_path: Path) -> None:
    counted, _ = run_script(tmp_path, COUNTING, OTEL_QUANT_SAMPLE_INTERVAL="0")
    every = THREADS * TIMES
    metrics = {semconv.CALIBRATION_SAMPLES: every, semconv.CALIBRATION_PROGRESS: 1.0}
    assert json.loads(counted) == [every, every, 8 * every, metrics, every, 0]
