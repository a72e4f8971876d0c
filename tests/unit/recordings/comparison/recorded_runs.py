"""Recordings of a quantization with a calibration, made without running one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from otel_quant.recordings.model import Ending
from otel_quant.schema import semconv
from tests.fixtures.recorded import RecordedFolder

MIB: Final = 1 << 20

ORIGIN: Final[Mapping[str, Any]] = {
    "process.command_line": "python quantize.py", "host.name": "build-7",
    "host.cpu.model.name": "EPYC", semconv.CPU_COUNT: 8, "process.runtime.version": "3.12.4",
    semconv.LIBRARIES: ["onnxruntime 1.20.1"],
}  # fmt: skip


def record(
    path: Path,
    *,
    seconds: float = 10.0,  # the second step
    memory: int = 1000,  # peak of the second step and of those around it, in MiB
    allocated: int | None = None,  # peak of what torch allocated on each of two GPUs in it, in MiB
    reserved: int = 0,  # what it reserved beyond that, in MiB
    origin: Mapping[str, Any] | None = None,  # beside `ORIGIN`
    error: str | None = None,  # which ended the second step and the run
    ends: bool = True,
    goes_on: bool = False,  # its process still locks its file
    waited: tuple[float, float]
    | None = None,  # seconds of the main thread, and of all, for a processor
    steps: tuple[str, ...] = ("Model Quantization", "Calibration", "Post-process"),
) -> Path:
    """Makes a recording; its last two steps are within the first."""
    folder = RecordedFolder(path, {**ORIGIN, **(origin or {})})
    process = folder.process().begin(0)
    outer = process.step(steps[0], 1)
    inner = process.step(steps[1], 2, outer, attributes={semconv.CALIBRATION_METHOD: "MinMax"})
    peak: dict[str, Any] = {semconv.MEMORY_PEAK: memory * MIB}
    waits: dict[str, Any] = {}
    if waited is not None:
        waits = {semconv.CPU_WAIT: waited[0]}
        ends = {"cpu": seconds, "cpu.wait": waited[0], "cpu.waits": waited[1]}
        folder.curve([(1.9, {}, dict.fromkeys(ends, 0)), (2.1 + seconds, {}, ends)])
    devices = None
    if allocated is not None:
        peak[semconv.GPU_MEMORY_PEAK] = 2 * (allocated + reserved) * MIB
        devices = [{semconv.GPU_ALLOCATED_PEAK: allocated * MIB}] * 2
    at = 2 + seconds
    if not ends:
        if not goes_on:
            process.gone()
        return path
    process.close(
        inner, at, attributes={**peak, **waits, semconv.CPU_USER: seconds, semconv.CPU_SYSTEM: 0.5},
        devices=devices, error=error,
    )  # fmt: skip
    if error is None:
        last = process.step(steps[2], at, outer)
        process.close(last, at + 5, attributes={semconv.MEMORY_PEAK: 400 * MIB})
        process.close(outer, at + 5, attributes=peak, devices=devices)
    totals = {semconv.DISK_WRITE: 64 * MIB}
    process.end(at + 6, attributes={**totals, **peak}, devices=devices, error=error)
    folder.ended(Ending(time=at + 6, exit_code=1 if error else 0))
    return path
