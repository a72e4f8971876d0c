"""The post-mortem of a killed program, from the launcher's observations and the recording."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_quant.launcher.ending import ending_of
from otel_quant.launcher.observer import LastSeen
from otel_quant.launcher.surroundings import Disk, ProcessUse
from otel_quant.recordings.model import Advice, Ending, LastReading
from otel_quant.recordings.reader import read
from otel_quant.schema import semconv
from otel_quant.schema.code_lines import Place, Spot
from otel_quant.schema.readings import Count, Counts, GpuReading
from tests.fixtures.recorded import RecordedFolder
from tests.unit.launcher.ended_programs import (
    BEGAN,
    CHILD,
    COUNTER,
    MB,
    PROGRAM,
    calibration,
    kills,
    last_seen,
    recording,
    run,
    seen,
    step,
)


def test_a_program_that_ended_well_has_no_post_mortem() -> None:
    assert ending_of(seen(exit_code=0), recording(run(end=4.0, state="ended"))) == Ending(
        time=5.0, exit_code=0, memory_limit=8000 * MB, memory_limit_source="cgroup"
    )


GROWTH = "this recording: growth of memory with each sample or layer"


def advice(text: str, source: str) -> Advice:
    return Advice(text=text, source=source)


def test_an_out_of_memory_kill_in_a_calibration_is_described_completely() -> None:
    outer = step(name="Quantization (Static)", kind="Quantization (Static)")
    inner = calibration(
        index=1,
        parent=0,
        attributes={semconv.LIBRARY_NAME: "amd-quark", semconv.CALIBRATION_METHOD: "Percentile"},
    )
    held = {PROGRAM: last_seen(7900 * MB)}
    killed = seen(signal="SIGKILL", oom_kills=kills(1), last_seen=held, mark=7990 * MB)
    assert ending_of(killed, recording(run(outer, inner))) == Ending(
        time=5.0, signal="SIGKILL", out_of_memory="known",
        evidence=f"the kernel has counted 1 out-of-memory kill: oom_kill in {COUNTER}",
        where="Calibration, sample 37 of 512", open_steps=("Quantization (Static)", "Calibration"),
        memory=7990 * MB, memory_limit=8000 * MB, memory_limit_source="cgroup",
        memory_per_sample=200 * MB, memory_per_second=round(9800 * MB / 4.95),
        processes=(("python q.py (100)", 7900 * MB),), lost=5.0,
        advice=(
            advice("Give it more memory: about 113 GB for all 512 samples, with a tenth to spare (estimated).", GROWTH),
            advice("Use fewer calibration samples: about 36 fit into 8.00 GB (Quark: CalibDataSize).", GROWTH),
            advice("Calibrate with MinMax instead of Percentile: it keeps two values of each activation, not all of them.",
                   "AMD Quark, quark.onnx.calibration: run_calibration"),
            advice("Leave CalibOptimizeMem on, which keeps activations on disk instead of in memory; LayerWisePercentile has it off.",
                   "AMD Quark, quark.onnx.calibration: options of the calibration methods"),
            advice("Use smaller batches: the activations of a whole batch are in memory at once.",
                   "PyTorch, torch.utils.data.DataLoader: batch_size; ONNX Runtime, CalibrationDataReader"),
        ),
    )  # fmt: skip


def test_a_process_without_a_run_is_described_by_the_largest_process() -> None:
    held = {CHILD: last_seen(100 * MB), CHILD + 1: last_seen(7000 * MB), PROGRAM: last_seen(MB)}
    ending = ending_of(seen(exit_code=134, last_seen=held), recording())
    assert (ending.process, ending.process_signal) == ("a child process", "SIGABRT")
    assert (ending.memory, ending.where) == (7000 * MB, None)


def test_a_small_child_is_described_by_the_memory_of_the_program() -> None:
    killed = seen(exit_code=1, signals={CHILD: "SIGKILL"}, last_seen={PROGRAM: last_seen(5 * MB)})
    ending = ending_of(killed, recording(run(step(), pid=CHILD)))
    assert (ending.process, ending.memory) == ("process 200", 5 * MB)


def test_a_sample_is_reported_with_the_step_open_within_it() -> None:
    inner = step(index=1, name="Inference", parent=0)
    killed = seen(signal="SIGKILL")
    ending = ending_of(killed, recording(run(calibration(), inner)))
    assert ending.where == "Calibration, sample 37 of 512, in Inference"
    uncounted = ending_of(killed, recording(run(step(counts=Counts(sample=Count(3))))))
    assert uncounted.where == "Calibration, sample 3"


@pytest.mark.parametrize(("number", "memory"), [(0, 5000 * MB), (1, 7000 * MB)])
def test_a_kill_is_explained_by_the_memory_before_it_fell(number: int, memory: int) -> None:
    last = LastSeen(BEGAN + 4_750_000_000, 5000 * MB, 7000 * MB, ())
    killed = seen(signal="SIGKILL", oom_kills=kills(number), last_seen={PROGRAM: last})
    assert ending_of(killed, recording(run(step()))).memory == memory


@pytest.mark.parametrize(
    ("space", "expected"),
    [(4000 * MB, (4000 * MB, "RLIMIT_AS")), (9000 * MB, (8000 * MB, "cgroup"))],
)
def test_the_limit_is_the_smaller_of_memory_and_addresses(
    space: int, expected: tuple[int, str]
) -> None:
    aborted = seen(signal="SIGABRT", **of_program(address_space=space))
    ending = ending_of(aborted, recording(run(step())))
    assert (ending.memory_limit, ending.memory_limit_source) == expected


def test_an_unnamed_signal_and_a_clock_set_back_are_not_errors() -> None:
    ending = ending_of(seen(signal="signal 35", time_ns=BEGAN - 1), recording())
    assert (ending.signal, ending.time) == ("signal 35", 0)


def test_memory_growth_and_the_advised_limit_come_from_the_newest_forecast() -> None:
    forecast = {semconv.FORECAST_MEMORY: 20_000 * MB, semconv.FORECAST_MEMORY_PER_SAMPLE: 30 * MB}
    last = LastReading(time=4.5, attributes=forecast, open_steps=(0,))
    held = {PROGRAM: last_seen(7900 * MB)}
    killed = seen(signal="SIGKILL", oom_kills=kills(1), last_seen=held)
    ending = ending_of(killed, recording(run(calibration(), last=last)))
    assert ending.memory_per_sample == 30 * MB
    more = (
        "Give it more memory: about 22.0 GB for all 512 samples, with a tenth to spare (estimated)."
    )
    assert ending.advice[0] == advice(more, GROWTH)


KILL, FULL, HALF = "SIGKILL", last_seen(7800 * MB), last_seen(4000 * MB)
COUNTED = "the kernel has counted {}: oom_kill in " + COUNTER
NOT_COUNTED = "memory was at {} % of the limit, and the kernel has counted no out-of-memory kill"
USE = ProcessUse(
    is_over=True, cpu_time=10.004, cpu_limit=None, last_cpu_limit=None,
    file_size_limit=None, address_space=None, addresses=0,
)  # fmt: skip
TIME = {"cpu_limit": 9, "last_cpu_limit": 10}
JOB = "Slurm job 7 had run for 2 h 00 min of 2 h 00 min (SLURM_JOB_END_TIME)"


def of_program(**fields: Any) -> dict[str, Any]:
    return {"uses": {PROGRAM: USE._replace(**fields)}, "last_seen": {PROGRAM: HALF}}


CAUSES: dict[str, tuple[dict[str, Any], str | None, str | None]] = {
    "the counter rose": (
        {"signal": KILL, "last_seen": {PROGRAM: FULL}, "oom_kills": kills(2)},
        "known", COUNTED.format("2 out-of-memory kills"),
    ),
    "the counter rose, of a group that ends as a whole": (
        {"signal": KILL, "oom_kills": kills(2, of_groups=1)}, "known",
        COUNTED.format("2 out-of-memory kills") + " (memory.oom.group: every process of the group)",
    ),
    "the counter of the machine rose": (
        {"signal": KILL, "last_seen": {PROGRAM: FULL}, "oom_kills": kills(1, is_of_host=True)},
        "guessed",
        COUNTED.format("1 out-of-memory kill") + ", which counts all processes of the machine",
    ),
    "the counter of the machine rose, and nobody saw by which signal the process ended": (
        {"exit_code": 1, "oom_kills": kills(1, is_of_host=True)},
        None, COUNTED.format("1 out-of-memory kill") + ", which counts all processes of the machine",
    ),
    "no counter, memory at the limit": (
        {"signal": KILL, "last_seen": {PROGRAM: FULL}, "oom_kills": None},
        "guessed", "memory was at 97.5 % of the limit, and no counter of the kernel could be read",
    ),
    "the counter stood, memory far below the limit": ({"signal": KILL, "last_seen": {PROGRAM: HALF}}, None, NOT_COUNTED.format("50.0")),
    "the counter stood, memory at the limit": ({"signal": KILL, "last_seen": {PROGRAM: FULL}}, None, NOT_COUNTED.format("97.5")),
    "no counter, memory near the limit": ({"signal": KILL, "last_seen": {PROGRAM: last_seen(7500 * MB)}, "oom_kills": None}, None, None),
    "the counter rose, and nobody saw by which signal the process ended": (
        {"exit_code": 1, "oom_kills": kills(1)}, "known", COUNTED.format("1 out-of-memory kill"),
    ),
    "another signal, while the killer ended another process": (
        {"signal": "SIGTERM", "last_seen": {PROGRAM: FULL}, "oom_kills": kills(1)}, None, None,
    ),
    "CPU time at the last limit": (
        {"signal": KILL, **of_program(**TIME)},
        "limit of CPU time", "CPU time was 10.00 s, the limit is 10 s (RLIMIT_CPU, ulimit -t)",
    ),
    "CPU time at the first limit, which the kernel has raised by a second": (
        {"signal": "SIGXCPU", **of_program(**TIME | {"cpu_limit": 11, "last_cpu_limit": 99})},
        "limit of CPU time", "CPU time was 10.00 s, the limit is 10 s (RLIMIT_CPU, ulimit -t)",
    ),
    "CPU time below the limit": ({"signal": KILL, **of_program(**TIME | {"last_cpu_limit": 11})}, None, NOT_COUNTED.format("50.0")),
    "CPU time just below the limit when it was last read": (
        {"signal": KILL, **of_program(**TIME | {"last_cpu_limit": 11}, is_over=False)},
        "limit of CPU time",
        "CPU time was 10.00 s at the last reading, the limit is 11 s (RLIMIT_CPU, ulimit -t)",
    ),
    "a file at its limit": (
        {"signal": "SIGXFSZ", **of_program(file_size_limit=2 * MB)},
        "limit of the size of a file",
        "no file may be larger than 2.00 MB (RLIMIT_FSIZE, ulimit -f)",
    ),
    "bad_alloc with addresses at their limit": (
        {"signal": "SIGABRT", **of_program(address_space=4000 * MB, addresses=3900 * MB)},
        "limit of the address space",
        "its addresses reached 97.5 % of the limit of 4.00 GB (RLIMIT_AS, ulimit -v)",
    ),
    "an abort with addresses far below their limit": (
        {"signal": "SIGABRT", **of_program(address_space=4000 * MB, addresses=900 * MB)}, None, None,
    ),
    "memory in a file on a full disk": (
        {"signal": "SIGBUS", "disks": (Disk("temporary files", 4096, 64 * MB), Disk("the recording", MB * 9, MB * 9))},
        "disk full", "free at the least that was seen: 4.10 kB of 64.0 MB (temporary files), 9.00 MB of 9.00 MB (the recording)",
    ),
    "memory that processes share": (
        {"signal": "SIGBUS", "disks": (Disk("shared memory", 0, 64 * MB), Disk("the recording", MB * 9, MB * 9))},
        "shared memory full", "free at the least that was seen: 0 B of 64.0 MB (shared memory), 9.00 MB of 9.00 MB (the recording)",
    ),
    "a batch job at its limit": ({"signal": "SIGTERM", "batch_job": JOB}, None, JOB),
    "a batch job, and a signal that no batch system sends": ({"signal": "SIGSEGV", "batch_job": JOB}, None, None),
    "a batch job, and a guess": (
        {"signal": KILL, "oom_kills": kills(1, is_of_host=True), "batch_job": JOB},
        "guessed", f"{COUNTED.format('1 out-of-memory kill')}, which counts all processes of the machine; {JOB}",
    ),
    "a batch job, and a cause that the kernel tells": (
        {"signal": KILL, "oom_kills": kills(1), "batch_job": JOB},
        "known", COUNTED.format("1 out-of-memory kill"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("cause", CAUSES)
def test_known_and_assumed_causes_are_distinguished(cause: str) -> None:
    fields, name, evidence = CAUSES[cause]
    ending = ending_of(seen(**fields), recording(run(calibration())))
    assert (ending.out_of_memory or ending.cause, ending.evidence) == (name, evidence)
    assert ending.where == "Calibration, sample 37 of 512"


FULL_DISK = Disk("the recording", 4096, 64 * MB)
NOT_FREE = "free at the least that was seen: 4.10 kB of 64.0 MB (the recording)"
SHARED = Disk("shared memory", 60 * MB, 64 * MB)
SHARED_FREE = "free at the least that was seen: 60.0 MB of 64.0 MB (shared memory), 4.10 kB of 64.0 MB (the recording)"
NEAR, FAR = ({"address_space": 4000 * MB, "addresses": size * MB} for size in (3900, 900))
REACHED = "its addresses reached {} % of the limit of 4.00 GB (RLIMIT_AS, ulimit -v)"


@pytest.mark.parametrize(
    ("error", "message", "fields", "cause", "evidence", "limit"),
    [
        ("OSError", "[Errno 27] File too large", of_program(file_size_limit=2 * MB),
         "limit of the size of a file", "no file may be larger than 2.00 MB (RLIMIT_FSIZE, ulimit -f)", "cgroup"),
        ("OSError", "[Errno 28] No space", {"disks": (FULL_DISK,)}, "disk full", NOT_FREE, "cgroup"),
        ("RuntimeError", "No space left on device", {"disks": (FULL_DISK,)}, "disk full", NOT_FREE, "cgroup"),
        ("RuntimeError", "allocate shared memory(shm) for file </torch_1_2_0>: No space left", {"disks": (FULL_DISK, SHARED)}, "shared memory full", SHARED_FREE, "cgroup"),
        ("RuntimeError", "Bus error. It is possible that dataloader's workers are out of shared memory", {"disks": (FULL_DISK, SHARED)}, "shared memory full", SHARED_FREE, "cgroup"),
        ("OSError", "[Errno 28] No space", {}, "disk full", "", "cgroup"),  # a disk that nobody looked at
        ("MemoryError", "x", of_program(**NEAR), "limit of the address space", REACHED.format("97.5"), "RLIMIT_AS"),
        ("MemoryError", "x", of_program(**FAR), None, REACHED.format("22.5"), "RLIMIT_AS"),
        ("ValueError", "x", of_program(**NEAR), None, "", "cgroup"),
    ],
)  # fmt: skip
def test_an_exception_is_explained_by_kernel_counters(
    error: str, message: str, fields: dict[str, Any], cause: str | None, evidence: str, limit: str
) -> None:
    failed = calibration(end=4.8, error=error, error_message=message)
    ended = run(failed, end=4.9, state="failed", error=error, error_message=message)
    ending = ending_of(seen(exit_code=1, **fields), recording(ended))
    assert (ending.cause, ending.memory_limit_source) == (cause, limit)
    assert ending.evidence == "; ".join(filter(None, (f"{error}: {message}", evidence)))


@pytest.mark.parametrize(
    ("told", "cause", "share"),
    [({}, None, "22.5"), ({semconv.ADDRESS_SPACE_PEAK: 3900 * MB}, "limit of the address space", "97.5")],
)  # fmt: skip
def test_a_process_tells_itself_how_many_addresses_it_had_since_the_launcher_looked(
    told: dict[str, Any], cause: str | None, share: str
) -> None:
    ended = run(calibration(end=4.8), end=4.9, state="failed", error="MemoryError", attributes=told)
    ending = ending_of(seen(exit_code=1, **of_program(**FAR)), recording(ended))
    assert (ending.cause, ending.evidence) == (cause, f"MemoryError; {REACHED.format(share)}")


def test_a_disk_that_cannot_hold_the_model_is_the_one_that_was_full_and_has_advice(
    tmp_path: Path,
) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(bytes(64_000))
    known = {"error": "RuntimeError", "error_message": "x; because of OSError: [Errno 28] No space"}
    failed = calibration(end=4.8, **known, attributes={semconv.INPUT_PATH: str(model)})
    disks = (Disk("the current folder", 2 * MB, 9 * MB), Disk("temporary files", 50_000, 50_000))
    ending = ending_of(
        seen(exit_code=1, disks=disks), recording(run(failed, end=4.9, state="failed", **known))
    )
    assert (ending.cause, ending.evidence) == (
        "disk full",
        "RuntimeError: x; because of OSError: [Errno 28] No space; free at the least that was seen: "
        "50.0 kB of 50.0 kB (temporary files), 2.00 MB of 9.00 MB (the current folder); the model has 64.0 kB",
    )
    assert ending.advice == (
        advice(
            "Set TMPDIR to a folder on a disk with more room than 50.0 kB, which temporary files have now.",
            "this recording: room on disks",
        ),
    )


def test_an_unknown_process_has_the_limits_of_the_largest_process() -> None:
    used = USE._replace(cpu_limit=10)
    uses = {PROGRAM: used._replace(cpu_time=0.1), CHILD: used}
    ending = ending_of(seen(exit_code=128 + signal.SIGXCPU, uses=uses), recording())
    assert (ending.cause, ending.process_signal) == ("limit of CPU time", "SIGXCPU")


@pytest.mark.parametrize(
    ("processes", "mark", "expected"),
    [(None, 7, 7), ((("a", 8), ("b", 2)), 11, 13), ((("a", 8), ("b", 2)), 5, 10), ((), 5, 15)],
)
def test_growth_of_the_largest_process_is_added_to_the_last_reading(
    processes: tuple[tuple[str, int], ...] | None, mark: int, expected: int
) -> None:
    last = {} if processes is None else {PROGRAM: LastSeen(0, 10, 10, processes)}
    killed = seen(signal="SIGKILL", last_seen=last, mark=mark)
    assert ending_of(killed, recording()).memory == expected


@pytest.mark.parametrize(("samples", "growth"), [(4, None), (5, 200 * MB)])
def test_growth_is_reported_after_five_samples(samples: int, growth: int | None) -> None:
    progress = tuple((1.0 + at / 10, at) for at in range(1, samples))
    short = step(counts=Counts(sample=Count(samples, 64)), progress=progress)
    killed = seen(signal="SIGKILL", last_seen={PROGRAM: last_seen(4000 * MB)})
    assert ending_of(killed, recording(run(short))).memory_per_sample == growth


def test_the_largest_processes_are_not_those_after_an_exception_has_freed_memory() -> None:
    of_step = calibration(end=4.8, error="ValueError")
    failed = run(of_step, end=4.8, state="failed", error="ValueError")
    ended = seen(exit_code=1, last_seen={PROGRAM: last_seen(100 * MB)})
    ending = ending_of(ended, recording(failed))
    assert (ending.memory, ending.processes) == (8500 * MB, ())


def test_what_the_first_sample_brings_is_not_growth_with_each(tmp_path: Path) -> None:
    made = RecordedFolder(tmp_path / "r", by_launcher=True)
    curve = [(0.5, {"memory": 100 * MB}, {})]
    made.curve([*curve, *((at + 0.5, {"memory": 800 * MB}, {}) for at in range(1, 10))])
    progress = tuple((at + 1.0, at) for at in range(1, 9))
    open_step = step(counts=Counts(sample=Count(9, 64)), start=1.0, progress=progress)
    killed = seen(signal="SIGKILL", last_seen={PROGRAM: last_seen(800 * MB)})
    known = replace(recording(run(open_step)), curves=read(tmp_path / "r").curves)
    assert ending_of(killed, known).memory_per_sample is None


@pytest.mark.parametrize(
    ("error", "message", "limit", "source"),
    [
        ("MemoryError", "", 8000 * MB, "cgroup"),
        ("numpy._core._exceptions._ArrayMemoryError", "Unable to allocate", 8000 * MB, "cgroup"),
        ("RuntimeError", "DefaultCPUAllocator: can't allocate memory", 8000 * MB, "cgroup"),
        ("RuntimeError", "std::bad_alloc", 8000 * MB, "cgroup"),
        ("torch.OutOfMemoryError", "CUDA out of memory.", 80_000 * MB, "gpu 1"),
        ("RuntimeError", "CUDA error: out of memory", 80_000 * MB, "gpu 1"),
    ],
)
def test_a_run_that_ran_out_of_memory_has_its_place_and_advice(
    error: str, message: str, limit: int, source: str
) -> None:
    failed = calibration(end=4.8, error=error, error_message=message)
    gpus = (
        GpuReading(0, "a", None, 2 * MB, 80_000 * MB),
        GpuReading(1, "b", None, 79_000 * MB, 80_000 * MB),
    )
    ending = ending_of(
        seen(exit_code=1, gpus=gpus, last_seen={PROGRAM: last_seen(50 * MB)}),
        recording(run(failed, end=4.9, state="failed", error=error, error_message=message)),
    )
    assert ending.error == error
    assert ending.evidence == (f"{error}: {message}" if message else error)
    assert ending.cause == ("out of GPU memory" if source.startswith("gpu") else "out of memory")
    assert ending.where == "Calibration, sample 37 of 512"
    assert (ending.signal, ending.exit_code, ending.out_of_memory) == (None, 1, None)
    assert ending.memory == 8500 * MB  # then, not after the exception has freed it
    assert (ending.memory_limit, ending.memory_limit_source) == (limit, source)
    assert ending.advice


def test_memory_reached_long_after_a_kill_is_not_the_memory_at_the_kill() -> None:
    ending = ending_of(
        seen(
            exit_code=1,
            last_seen={CHILD: last_seen(5000 * MB, 2.0), PROGRAM: last_seen(600 * MB, 4.9)},
            signals={CHILD: "SIGKILL"},
            mark=6000 * MB,
        ),
        recording(run(calibration(), pid=CHILD, rank=0)),
    )
    assert (ending.process, ending.memory) == ("rank 0 (process 200)", 5000 * MB)


def test_a_program_ended_by_ctrl_c_has_its_open_step() -> None:
    stopped = calibration(end=4.9, error="KeyboardInterrupt")
    ended = run(stopped, end=4.95, state="failed", error="KeyboardInterrupt")
    ending = ending_of(
        seen(signal="SIGINT", last_seen={PROGRAM: last_seen(900 * MB)}), recording(ended)
    )
    assert (ending.signal, ending.where) == ("SIGINT", "Calibration, sample 37 of 512")
    assert ending.evidence == "KeyboardInterrupt"


@pytest.mark.parametrize(("ends", "where"), [(4.95, "Calibration, sample 37 of 512"), (60.0, None)])
def test_a_second_ctrl_c_leaves_the_step_that_the_first_has_ended(
    ends: float, where: str | None
) -> None:
    stopped = calibration(
        end=4.9, error="KeyboardInterrupt", error_message="raised at get (x.py:3)"
    )
    ended = run(
        stopped, end=ends, state="failed", error="KeyboardInterrupt",
        error_message="raised at join (y.py:7)",
    )  # fmt: skip
    assert ending_of(seen(signal="SIGINT"), recording(ended)).where == where


STALLED_AT = Spot(
    Place("/a/q.py", "Reader.get_next", 15, ""),
    Place("threading.py", "Condition.wait", 3, "python"),
    "a lock",
)
HANG = "no progress for 41.0 s after sample 37 of 512, at Reader.get_next (q.py:15), in Condition.wait, which waits for a lock"


@pytest.mark.parametrize("signal_name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_a_program_that_was_ended_while_it_hung_has_that_as_its_cause(signal_name: str) -> None:
    last = LastReading(time=4.0, attributes={semconv.FORECAST_STALLED: 40.0}, open_steps=(0,))
    hung = run(calibration(line=STALLED_AT), last=last)
    ending = ending_of(seen(signal=signal_name), recording(hung))
    assert (ending.cause, ending.evidence) == ("a hang", HANG)
    told = {semconv.STEP_BOUND_BY: "stalled", semconv.STEP_BOUND_EVIDENCE: HANG}
    stopped = calibration(end=4.9, error="KeyboardInterrupt", attributes=told)
    ended = run(stopped, end=4.95, state="failed", error="KeyboardInterrupt")
    ending = ending_of(seen(signal="SIGINT"), recording(ended))
    assert (ending.cause, ending.evidence) == ("a hang", f"KeyboardInterrupt; {HANG}")


def test_a_hang_of_a_step_that_counts_nothing_is_told_without_a_count() -> None:
    last = LastReading(time=4.0, attributes={semconv.FORECAST_STALLED: 40.0}, open_steps=(0,))
    hung = run(step(line=STALLED_AT), last=last)
    assert ending_of(seen(signal="SIGTERM"), recording(hung)).evidence == HANG.replace(
        " after sample 37 of 512", ""
    )


def test_a_hang_is_not_the_cause_of_an_out_of_memory_kill_nor_of_another_exception() -> None:
    last = LastReading(time=4.0, attributes={semconv.FORECAST_STALLED: 40.0}, open_steps=(0,))
    killed = seen(signal="SIGKILL", oom_kills=kills(1))
    assert ending_of(killed, recording(run(calibration(), last=last))).cause is None
    told = {semconv.STEP_BOUND_BY: "stalled", semconv.STEP_BOUND_EVIDENCE: HANG}
    failed = calibration(end=4.9, error="ValueError", attributes=told)
    ended = run(failed, end=4.95, state="failed", error="ValueError")
    assert ending_of(seen(exit_code=1), recording(ended)).cause is None


def test_the_exception_of_a_rank_is_reported_and_not_the_stopped_ranks() -> None:
    failed = calibration(end=4.2, error="MemoryError")
    ending = ending_of(
        seen(exit_code=1, last_seen={CHILD: last_seen(5000 * MB, 4.5)}),
        recording(
            run(failed, pid=CHILD + 1, rank=1, end=4.3, state="failed", error="MemoryError"),
            run(calibration(), id="b", pid=CHILD, rank=0),
        ),
    )
    assert (ending.process, ending.error) == ("rank 1 (process 201)", "MemoryError")


def test_a_program_that_failed_by_itself_is_not_reported_as_out_of_memory() -> None:
    failed = step(end=4.8, error="ValueError", error_message="no")
    ended = run(failed, end=4.9, state="failed", error="ValueError")
    ending = ending_of(seen(exit_code=1, oom_kills=kills(1)), recording(ended))
    assert (ending.error, ending.where) == ("ValueError", "Calibration")
    assert (ending.out_of_memory, ending.advice) == (None, ())


def test_a_handled_exception_is_not_the_end_of_the_program() -> None:
    ending = ending_of(
        seen(exit_code=3), recording(run(step(end=2.0, error="ValueError"), end=4.0, state="ended"))
    )
    assert (ending.error, ending.where, ending.exit_code) == (None, None, 3)


def test_a_kill_in_a_layer_has_the_layer_and_the_memory_that_each_took() -> None:
    progress = tuple((1.0 + layer / 10, layer) for layer in range(38))
    counts = Counts(sample=Count(8, 8), layer=Count(37, 40))
    algorithms = step(name="Advanced Algorithms", counts=counts, progress=progress)
    held = {PROGRAM: last_seen(8300 * MB)}
    killed = seen(signal="SIGKILL", oom_kills=kills(1), last_seen=held)
    ending = ending_of(killed, recording(run(algorithms)))
    assert ending.where == "Advanced Algorithms, layer 37 of 40"
    assert (ending.memory_per_sample, ending.memory_per_layer) == (None, 200 * MB)
    assert ending.advice[0].text == (
        "Give it more memory: about 9.79 GB for all 40 layers, with a tenth to spare (estimated)."
    )
