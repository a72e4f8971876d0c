"""A run that is sent to the sink of the local file, step by step."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from otel_quant.export.quark_yaml.columns import ProgramMetrics
from otel_quant.export.quark_yaml.sink import QuarkYamlSink
from otel_quant.schema import semconv
from otel_quant.schema.figures import DISK, GPU, MEMORY
from otel_quant.schema.records import (
    DiskReading,
    Limits,
    MemoryReading,
    Origin,
    Peaks,
    Reading,
    RunInfo,
    StepInfo,
)
from tests.fixtures.sent import SentRun

MIB = 1024 * 1024
MEASURED_BY_QUARK = (MEMORY, GPU, DISK)
RUN = RunInfo(
    id="0123456789abcdef",
    pid=1,
    limits=Limits(400 * MIB, "cgroup"),
    rank=3,
    origin=Origin("python quantize.py --name 'a \"b\"'", "node7", "Linux 6.1.0 x86_64", "3.11.2"),
)


def reading(second: int) -> Reading:
    return Reading(
        time_ns=1_700_000_000_500_000_000 + second * 1_000_000_000,
        clock_ns=second * 1_000_000_000,
        resources={
            "memory": MemoryReading(
                rss=100 * MIB, tree_rss=(100 + second) * MIB, high_water=(110 + second) * MIB
            ),
            "disk": DiskReading(read=second * MIB, write=second * MIB // 2),
        },
    )


class Script:
    """Sends a run to a sink, with one checkpoint each second."""

    def __init__(self, path: Path, *, strict: bool = False, paths: bool = True) -> None:
        self.metrics = ProgramMetrics(MEASURED_BY_QUARK)
        self.sink = QuarkYamlSink(path, self.metrics, strict=strict)
        run = dataclasses.replace(RUN, paths=paths)
        self.sent = SentRun(run, reading(0), self.sink, metrics=self.metrics)
        self.second = 0

    def now(self) -> Reading:
        self.second += 1
        return reading(self.second - 1)

    def start(self) -> None:
        self.now()
        self.sent.began()

    def open(self, name: str, library: str | None = None, method: str | None = None) -> None:
        info = StepInfo(0, name, name, library=library, library_version="0.13")
        attributes = {semconv.CALIBRATION_METHOD: method} if method else {}
        self.sent.opened(info, self.now(), attributes)

    def close(
        self,
        name: str,
        error: BaseException | None = None,
        peaks: Peaks | None = None,
        samples: int | None = None,
        items: int | None = None,
    ) -> None:
        step = StepInfo(0, name, name)
        self.sent.closed(step, self.now(), peaks, samples=samples, items=items, error=error)

    def point(self, name: str) -> None:
        self.sent.point(name, self.now())

    def end(self, error: str | None = None) -> None:
        now, peaks = self.now(), Peaks({"memory": 100 * MIB}, {"memory": "kernel"})
        custom = self.metrics.at_end(now, reading(0), peaks)
        self.sent.ended(now, peaks, of_run=custom, error=error)
