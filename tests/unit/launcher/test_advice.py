"""Each row of the advice applies to a program that it would have helped, and names its source."""

from __future__ import annotations

from typing import Any

import pytest

from otel_quant.launcher.advice import ROWS, Situation, advice_for, shortage_in
from otel_quant.recordings.model import RecordedStep
from otel_quant.schema.records import GpuReading

GB = 1_000_000_000


def situation(kind: str = "Calibration", /, **fields: Any) -> Situation:
    attributes = {
        f"quant.{name}": fields.pop(key)
        for key, name in (("library", "library.name"), ("method", "calibration.method"))
        if key in fields
    }
    consumed = {key: fields.pop(key) for key in ("samples", "expected_samples") if key in fields}
    error = fields.pop("error", None)
    known: dict[str, Any] = {"where": "host", "limit": 8 * GB, "memory": 8 * GB}
    step = RecordedStep(
        index=0,
        name=kind,
        kind=kind,
        start=0.0,
        state="lost",
        attributes=attributes,
        error=error,
        **consumed,
    )
    return Situation(step=step, **{**known, **fields})


MANY = {"samples": 10, "expected_samples": 100}
SITUATIONS = {
    "ulimit": situation("Post-process", limit_source="RLIMIT_AS"),
    "growth": situation(
        **MANY, growth=GB // 2, memory=7 * GB, limit_source="cgroup"
    ),
    "growth within the limit": situation(**MANY, growth=GB // 100, memory=GB),
    "no room for one": situation(samples=1, expected_samples=100, growth=GB // 100),
    "much": situation(
        **MANY, growth=GB // 2, library="amd-quark", method="Entropy",
        limit_source="RLIMIT_AS",
    ),
    "quark": situation(library="amd-quark", method="Entropy"),
    "minmse": situation(library="amd-quark", method="MinMSE"),
    "onnxruntime": situation(library="onnxruntime", method="Percentile"),
    "onnxruntime minmax": situation(library="onnxruntime", method="MinMax"),
    "finetune": situation("Fast Finetune", library="amd-quark"),
    "llmcompressor": situation(library="llmcompressor", where="gpu"),
    "gpu": situation(
        where="gpu", error="torch.OutOfMemoryError",
        gpus=(GpuReading(0, "a", None, 70 * GB, 80 * GB, 61 * GB),),
    ),
    "gpu of its own": situation(
        where="gpu", forecast=20 * GB, gpus=(GpuReading(0, "a", None, 70 * GB, 80 * GB, 63 * GB),)
    ),
    "container": situation("Post-process", limit_source="cgroup"),
    "leak": situation("Train", limit_source="cgroup", leak=GB // 100),
    "leak of samples": situation("Train", **MANY, growth=GB // 2, leak=GB // 100),
}  # fmt: skip


def test_every_row_applies_to_some_situation_and_names_its_source() -> None:
    applied = [row for row in ROWS if any(row.applies(each) for each in SITUATIONS.values())]
    assert applied == list(ROWS)
    assert all(row.source for row in ROWS)


@pytest.mark.parametrize(
    ("name", "beginnings"),
    [
        ("ulimit", ["Raise or lift the limit of the address space"]),
        ("growth", ["Give it more memory", "Use fewer calibration samples", "Use smaller batches"]),
        ("growth within the limit", ["Use smaller batches"]),
        ("no room for one", ["Give it more memory", "Use smaller batches"]),
        (
            "much",
            ["Raise or lift", "Give it more memory", "Use fewer", "Calibrate", "Leave Calib"],
        ),
        (
            "quark",
            ["Calibrate with MinMax instead of Entropy", "Leave CalibOptimizeMem", "Use smaller"],
        ),
        ("minmse", ["Calibrate with NonOverflow", "Leave CalibOptimizeMem", "Use smaller"]),
        ("onnxruntime", ["Calibrate with MinMax instead of Percentile", "Use smaller"]),
        ("onnxruntime minmax", ["Set CalibMaxIntermediateOutputs", "Use smaller"]),
        (
            "finetune",
            ["Set mem_opt_level=2", "Reduce data_size"],
        ),
        ("llmcompressor", ["Use the sequential pipeline"]),
        ("gpu", ["Use smaller batches", "Look for other processes", "Set PYTORCH_CUDA_ALLOC_CONF"]),
        ("gpu of its own", ["Use smaller batches"]),
        ("container", ["Raise the container's limit"]),
        ("leak", ["Find what keeps growing, by 10.0 MB a second"]),
        ("leak of samples", ["Give it more memory", "Use fewer", "Use smaller batches"]),
    ],
)
def test_advice_depends_on_the_known_facts(name: str, beginnings: list[str]) -> None:
    texts = [advice.text for advice in advice_for(SITUATIONS[name])]
    assert [
        text[: len(beginning)] for text, beginning in zip(texts, beginnings, strict=True)
    ] == beginnings


def test_a_program_whose_memory_did_not_run_out_gets_no_advice() -> None:
    assert advice_for(situation(where=None, growth=GB, samples=1, expected_samples=9)) == ()


def test_memory_that_does_not_grow_has_no_forecast() -> None:
    level = situation(samples=10, expected_samples=100, growth=-5)
    assert (level.expected, level.fitting) == (None, None)


def test_more_samples_than_expected_need_the_memory_held_now() -> None:
    assert situation(samples=12, expected_samples=10, growth=GB, memory=7 * GB).expected == 7 * GB


@pytest.mark.parametrize(
    ("error", "message", "where"),
    [
        ("torch.OutOfMemoryError", "", "gpu"),
        ("jax.OutOfMemoryError", "HIP device 0", "gpu"),
        ("polars.OutOfMemoryError", "no memory", "host"),
        ("MemoryError", None, "host"),
        ("RuntimeError", "cudaErrorMemoryAllocation", "gpu"),
        ("RuntimeError", "cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "gpu"),
        ("RuntimeError", "Failed to allocate memory for requested buffer of size 9", "host"),
        ("RuntimeError", "BFCArena of CUDA", "gpu"),
        ("OSError", "[Errno 12] Cannot allocate memory", "host"),
        ("ValueError", "memory", None),
        (None, "MemoryError", None),
    ],
)
def test_an_exception_identifies_the_memory_that_ran_out(
    error: str | None, message: str | None, where: str | None
) -> None:
    assert shortage_in(error, message) == where
