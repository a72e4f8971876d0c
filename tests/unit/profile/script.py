"""A run that is sent to the sink of the local file, step by step."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from otel_quant.base.fault_boundary import error_type
from otel_quant.export.quark_yaml.program_metrics import ProgramMetrics
from otel_quant.export.quark_yaml.sink import QuarkYamlSink
from otel_quant.schema import semconv
from otel_quant.schema.figures import DISK, GPU, MEMORY
from otel_quant.schema.records import (
    Checkpoint,
    DiskReading,
    Limits,
    MemoryReading,
    Origin,
    Peaks,
    Phase,
    Reading,
    RunInfo,
    RunRecord,
    StepInfo,
    StepRecord,
)

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
        self.run = dataclasses.replace(RUN, paths=paths)
        self.second = 0

    def checkpoint(self, name: str, phase: Phase, error: str | None = None) -> Checkpoint:
        now = reading(self.second)
        custom = self.metrics.at_checkpoint(name, now, reading(0))
        self.second += 1
        return Checkpoint(self.second, name, phase, now, reading(0), None, custom, error)

    def start(self) -> None:
        self.sink.run_started(self.run, self.checkpoint("Start", "start"))

    def open(self, name: str, library: str | None = None, method: str | None = None) -> None:
        info = StepInfo(0, name, name, library=library, library_version="0.13")
        attributes = {semconv.CALIBRATION_METHOD: method} if method else {}
        self.sink.step_started(info, self.checkpoint(f"{name} Start", "start"), attributes)

    def close(
        self,
        name: str,
        error: BaseException | None = None,
        peaks: Peaks | None = None,
        samples: int | None = None,
        items: int | None = None,
    ) -> None:
        now = reading(self.second)
        info = StepInfo(0, name, name)
        record = StepRecord(info, now, now, peaks or Peaks(), {}, samples, items, error=error)
        kind = error_type(error) if error else None
        self.sink.step_ended(record, self.checkpoint(f"{name} End", "end", kind))

    def end(self, error: str | None = None) -> None:
        checkpoint = self.checkpoint("End", "end")
        peaks = Peaks({"memory": 100 * MIB}, {"memory": "kernel"})
        custom = self.metrics.at_end(checkpoint.reading, reading(0), peaks)
        record = RunRecord(RUN, reading(0), checkpoint.reading, peaks, 1, 0, custom, error, peaks)
        self.sink.run_ended(record, checkpoint)
