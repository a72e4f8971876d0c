"""Which process of a program was killed or failed first, and what would have helped."""

from __future__ import annotations

from typing import Any

import pytest

from otel_quant.diagnosis.spots import Grown, Spot
from otel_quant.launcher.causes import ROWS, Situation, Victim, advice_for, find_victim, shortage_in
from otel_quant.launcher.observer import Observation
from otel_quant.recordings.model import RecordedRun, RecordedStep
from otel_quant.schema import semconv
from otel_quant.schema.code_lines import Place
from otel_quant.schema.readings import Count, Counts, GpuReading
from tests.unit.launcher.ended_programs import (
    CHILD,
    MB,
    PROGRAM,
    kills,
    last_seen,
    recording,
    run,
    seen,
    step,
)

OPEN = step()
ERROR = {"end": 4.9, "state": "failed"}


def child(*steps: Any, number: int = 0, **fields: Any) -> RecordedRun:
    return run(*steps, pid=CHILD + number, id=str(number), **fields)


def failed(index: int, end: float, error: str = "ValueError", **fields: Any) -> Any:
    return step(index=index, end=end, error=error, state="failed", **fields)


ENDED = {
    "a shell that was killed with the program that it ran": (seen(signal="SIGKILL"), [child(OPEN)], (PROGRAM, "SIGKILL", "0", [0], 5.0)),
    "a worker that was ended for another that was killed, but seen first": (
        seen(
            exit_code=1, signals={CHILD: "SIGTERM", CHILD + 1: "SIGKILL"},
            last_seen={CHILD: last_seen(MB, 4.2), CHILD + 1: last_seen(MB, 4.6)},
        ),
        [child(OPEN), child(OPEN, number=1)], (CHILD + 1, "SIGKILL", "1", [0], 4.6),
    ),
    "a worker that goes on after the program": (seen(exit_code=1), [child(OPEN, state="running")], (PROGRAM, None, None, [], 5.0)),
    "a worker without work": (seen(exit_code=0, signals={CHILD: "SIGKILL"}, last_seen={CHILD: last_seen(MB)}), [child()], None),
    "a worker that was killed and that the program survives": (
        seen(exit_code=0, signals={CHILD: "SIGKILL"}, last_seen={CHILD: last_seen(MB, 4)}),
        [child(OPEN)], (CHILD, "SIGKILL", "0", [0], 4.0),
    ),
    "a worker that its pool has ended": (seen(exit_code=0, signals={CHILD: "SIGTERM"}), [child(OPEN)], None),
    "a worker that ended, nobody knows how": (seen(exit_code=0), [child(OPEN)], None),
    "a program that has survived its exception": (seen(exit_code=0), [run(failed(0, 4.8), **ERROR)], None),
    "a small process that is no worker": (seen(exit_code=0, signals={300: "SIGKILL"}), [], None),
    "a large process that is no worker": (
        seen(exit_code=0, signals={300: "SIGKILL"}, last_seen={300: last_seen(MB, 3)}), [],
        (300, "SIGKILL", None, [], 3.0),
    ),
    "a worker that ended unseen while the kernel killed one": (
        seen(exit_code=0, oom_kills=kills(1)), [child(OPEN)], (CHILD, None, "0", [0], 5.0),
    ),
    "a worker that ended unseen while the kernel killed any process of the machine": (
        seen(exit_code=0, oom_kills=kills(1, is_of_host=True)), [child(OPEN)], None,
    ),
    "a child of a shell, by the exit code": (seen(exit_code=139), [], (None, "SIGSEGV", None, [], 5.0)),
    "the newest run of the program that is open": (
        seen(signal="SIGKILL"),
        [run(OPEN, id="a"), run(OPEN, id="b", start=2.0), run(id="c", start=3.0, end=4.0)],
        (PROGRAM, "SIGKILL", "b", [0], 5.0),
    ),
    "one want of memory that two exceptions report": (
        seen(exit_code=1),
        [
            run(
                failed(0, 4.8, "RuntimeError", error_message="std::bad_alloc"),
                failed(1, 4.7, "MemoryError", parent=0), error="RuntimeError",
                error_message="std::bad_alloc", **ERROR,
            ),
        ],
        (PROGRAM, None, "a", [0, 1], 4.7),
    ),
    "two steps that one exception has ended at the same moment": (
        seen(exit_code=1),
        [run(failed(0, 4.8), failed(1, 4.8, parent=0), error="ValueError", **ERROR)],
        (PROGRAM, None, "a", [0, 1], 4.8),
    ),
    "an exception like an earlier one that the program has survived": (
        seen(exit_code=1), [run(failed(0, 2.0), failed(1, 4.8), error="ValueError", **ERROR)],
        (PROGRAM, None, "a", [1], 4.8),
    ),
    "want of memory that the program handled, and ended": (
        seen(exit_code=1), [run(failed(0, 4.8, "MemoryError"), end=5.0)], (PROGRAM, None, "a", [0], 5.0),
    ),
    "another exception that the program handled": (
        seen(exit_code=1), [run(failed(0, 4.8), end=5.0)], (PROGRAM, None, "a", [], 5.0),
    ),
    "want of memory that the program handled long before": (
        seen(exit_code=1), [run(failed(0, -1.0, "MemoryError", start=-2.0), end=5.0)], (PROGRAM, None, "a", [], 5.0),
    ),
    "want of memory that the program handled before another step": (
        seen(exit_code=1), [run(failed(0, 4.1, "MemoryError"), step(index=1, start=4.9, end=5.0), end=5.0)],
        (PROGRAM, None, "a", [], 5.0),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("observation", "runs", "expected"), ENDED.values(), ids=ENDED)
def test_the_process_that_ended_first_by_itself_is_found(
    observation: Observation, runs: list[RecordedRun], expected: tuple[Any, ...] | None
) -> None:
    found = find_victim(observation, recording(*runs))
    if expected is None:
        assert found is None
        return
    pid, number, of_run, steps, time = expected
    (its_run,) = [each for each in runs if each.id == of_run] or [None]
    its_steps = tuple(its_run.steps[index] for index in steps) if its_run is not None else ()
    assert found == Victim(pid, number, its_run, its_steps, pytest.approx(time))


GB = 1_000_000_000


def situation(kind: str = "Calibration", /, **fields: Any) -> Situation:
    attributes = {
        name: fields.pop(key)
        for key, name in (
            ("library", semconv.LIBRARY_NAME),
            ("method", semconv.CALIBRATION_METHOD),
            ("items", semconv.CALIBRATION_ITEM_COUNT),
        )
        if key in fields
    }
    counts = Counts()
    if "samples" in fields:
        counts["sample"] = Count(fields.pop("samples"), fields.pop("expected_samples"))
    error = fields.pop("error", None)
    known: dict[str, Any] = {"where": "host", "limit": 8 * GB, "memory": 8 * GB}
    step = RecordedStep(
        index=0, name=kind, kind=kind, start=0.0, state="lost", attributes=attributes, error=error,
        counts=counts,
    )  # fmt: skip
    return Situation(step=step, **{**known, **fields})


READER, ONES = Place("/a/q.py", "Reader.get_next", 16, ""), Place("numpy/n.py", "ones", 9, "numpy")
OWN = Grown(GB, Spot(READER, ONES), 0.9, 0.9, 0.0, is_own=True)
MANY = {"samples": 10, "expected_samples": 100}
SITUATIONS = {
    "ulimit": situation("Post-process", limit_source="RLIMIT_AS"),
    "growth": situation(**MANY, growth=GB // 2, memory=7 * GB, limit_source="cgroup"),
    "growth within the limit": situation(**MANY, growth=GB // 100, memory=GB),
    "growth of addresses": situation(**MANY, growth=GB, memory=8 * GB, limit=4 * GB + 4 * 10**8, limit_source="RLIMIT_AS"),
    "growth that the method doubles at the end": situation(**MANY, growth=GB // 2, memory=7 * GB, after=1.0, limit=8 * GB),
    "growth, and what comes at the end is not known": situation(**MANY, growth=GB // 2, memory=7 * GB, after=None),
    "growth of the last of all": situation(samples=10, expected_samples=10, growth=GB // 2, memory=8 * GB),
    "growth of samples of one item": situation(**MANY, growth=GB // 2, memory=7 * GB, items=10),
    "growth in the program's code": situation(**MANY, growth=GB // 2, memory=7 * GB, leak=GB, limit_source="cgroup", library="onnxruntime", method="Entropy", grown=OWN, recording="my r"),
    "growth while a model is loaded": situation(**MANY, growth=GB // 2, memory=7 * GB, leak=GB, grown=OWN._replace(is_own=False, own=0.0, loaded=0.9)),
    "no room for one": situation(samples=1, expected_samples=100, growth=GB // 100),
    "much": situation(**MANY, growth=GB // 2, library="amd-quark", method="Entropy", limit_source="RLIMIT_AS"),
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
    "gpu of its own": situation(where="gpu", forecast=20 * GB, gpus=(GpuReading(0, "a", None, 70 * GB, 80 * GB, 63 * GB),)),
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
        ("growth within the limit", ["Use fewer calibration samples: about 9 fit", "Use smaller batches"]),
        ("growth of addresses", ["Raise or lift", "Use smaller batches"]),
        ("growth that the method doubles at the end", ["Give it more memory: about 112 GB", "Use fewer calibration samples: about 5 fit", "Use smaller batches"]),
        ("growth, and what comes at the end is not known", ["Give it more memory", "Use smaller batches"]),
        ("growth of the last of all", ["Use fewer calibration samples: about 9 fit", "Use smaller batches"]),
        ("growth of samples of one item", ["Give it more memory", "Use fewer calibration samples"]),
        ("growth in the program's code", ["Find what keeps growing at Reader.get_next (q.py:16), in ones, by 500 MB with each sample: a higher limit only delays the end of a leak. `otel-quant stacks 'my r' --by memory` names"]),
        ("growth while a model is loaded", ["Give it more memory", "Use fewer", "Use smaller batches"]),
        ("no room for one", ["Give it more memory", "Use smaller batches"]),
        ("much", ["Raise or lift", "Calibrate", "Leave Calib", "Use smaller"]),
        ("quark", ["Calibrate with MinMax instead of Entropy", "Leave CalibOptimizeMem", "Use smaller"]),
        ("minmse", ["Calibrate with NonOverflow", "Leave CalibOptimizeMem", "Use smaller"]),
        ("onnxruntime", ["Calibrate with MinMax instead of Percentile", "Use smaller"]),
        ("onnxruntime minmax", ["Use smaller"]),
        ("finetune", ["Set mem_opt_level=2", "Reduce data_size"]),
        ("llmcompressor", ["Use the sequential pipeline"]),
        ("gpu", ["Use smaller batches", "Look for other processes", "Set PYTORCH_CUDA_ALLOC_CONF"]),
        ("gpu of its own", ["Use smaller batches"]),
        ("container", ["Raise the container's limit"]),
        ("leak", ["Find what keeps growing, by 10.0 MB a second"]),
        ("leak of samples", ["Give it more memory", "Use fewer", "Use smaller batches"]),
    ],
)  # fmt: skip
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
