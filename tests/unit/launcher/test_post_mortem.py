"""What is said of a program that was killed, from what the launcher has seen and what is recorded."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_quant.launcher.observation import LastSeen, Observation
from otel_quant.launcher.post_mortem import ending_of
from otel_quant.recordings.curve import Curve
from otel_quant.recordings.curve_file import RecordedCurve
from otel_quant.recordings.model import (
    Advice,
    Ending,
    LastReading,
    RecordedCheckpoint,
    RecordedRun,
    RecordedStep,
    Recording,
)
from otel_quant.records import GpuReading, Limits

MB = 1_000_000
BEGAN = 1_700_000_000_000_000_000
COUNTER = "/sys/fs/cgroup/memory.events"
PROGRAM, CHILD = 100, 200


def step(**fields: Any) -> RecordedStep:
    known: dict[str, Any] = {
        "index": 0,
        "name": "Calibration",
        "kind": "Calibration",
        "start": 1.0,
        "state": "lost",
    }
    return RecordedStep(**{**known, **fields})


def calibration(**fields: Any) -> RecordedStep:
    """37 of 512 samples, one every 100 ms."""
    progress = tuple((1.0 + sample / 10, sample) for sample in range(1, 38))
    return step(samples=37, expected_samples=512, progress=progress, **fields)


def run(*steps: RecordedStep, pid: int = PROGRAM, **fields: Any) -> RecordedRun:
    known: dict[str, Any] = {
        "id": "a",
        "process": str(pid),
        "pid": pid,
        "start": 0.5,
        "state": "lost",
    }
    return RecordedRun(**{**known, **fields}, steps=steps)


def curve() -> RecordedCurve:
    """900 MB, and from second 1 on 200 MB more each 100 ms, until second 6."""
    levels = Curve(50)
    for at in range(0, 6000, 50):
        levels.add(at, {"memory": (900 + max(0, at // 100 - 10) * 200) * MB}, {})
    return RecordedCurve(BEGAN, 0, levels)


def recording(*runs: RecordedRun) -> Recording:
    return Recording(
        path=Path("r"),
        began_ns=BEGAN,
        state="lost",
        duration=6.0,
        runs=runs,
        curves={"launcher": curve()},
    )


def last_seen(memory: int, at: float = 4.75) -> LastSeen:
    return LastSeen(BEGAN + round(at * 1e9), memory, memory, (("python q.py (100)", memory),))


def seen(**fields: Any) -> Observation:
    known: dict[str, Any] = {
        "pid": PROGRAM,
        "time_ns": BEGAN + 5_000_000_000,
        "limits": Limits(8000 * MB, "cgroup"),
        "oom_kills": 0,
        "oom_counter": COUNTER,
    }
    return Observation(**{**known, **fields})


def test_a_program_that_ended_well_has_no_post_mortem() -> None:
    assert ending_of(seen(exit_code=0), recording(run(end=4.0, state="ended"))) == Ending(
        time=5.0, exit_code=0, memory_limit=8000 * MB, memory_limit_source="cgroup"
    )


def test_an_out_of_memory_kill_in_a_calibration_says_all_that_is_known() -> None:
    outer = step(name="Quantization (Static)", kind="Quantization (Static)")
    inner = calibration(
        parent=0,
        attributes={
            "quant.library.name": "amd-quark",
            "quant.calibration.method": "Percentile",
        },
    )
    inner = RecordedStep(**{**{n: getattr(inner, n) for n in inner.__slots__}, "index": 1})
    killed = seen(
        signal=signal.SIGKILL,
        oom_kills=1,
        last_seen={PROGRAM: last_seen(7900 * MB)},
        mark=7990 * MB,
        written=3100 * MB,
    )
    assert ending_of(killed, recording(run(outer, inner))) == Ending(
        time=5.0,
        signal="SIGKILL",
        out_of_memory="known",
        evidence=f"the kernel's out-of-memory killer struck once: oom_kill in {COUNTER}",
        where="Calibration, sample 37 of 512",
        open_steps=("Quantization (Static)", "Calibration"),
        memory=7990 * MB,
        memory_limit=8000 * MB,
        memory_limit_source="cgroup",
        memory_per_sample=200 * MB,
        processes=(("python q.py (100)", 7900 * MB),),
        disk=(("written by the program", 3100 * MB),),
        advice=(
            Advice(
                text="Give it more memory: about 113 GB for all 512 samples, with a tenth to spare (estimated).",
                source="this recording: growth of memory with each sample",
            ),
            Advice(
                text="Use fewer calibration samples: about 33 fit into 8.00 GB (Quark: CalibDataSize).",
                source="this recording: growth of memory with each sample",
            ),
            Advice(
                text="Calibrate with MinMax instead of Percentile: it keeps two values of each activation, not all of them.",
                source="AMD Quark, quark.onnx.calibration: run_calibration",
            ),
            Advice(
                text="Leave CalibOptimizeMem on, which keeps activations on disk instead of in memory; LayerWisePercentile has it off.",
                source="AMD Quark, quark.onnx.calibration: options of the calibration methods",
            ),
            Advice(
                text="Use smaller batches: the activations of a whole batch are in memory at once.",
                source="PyTorch, torch.utils.data.DataLoader: batch_size; ONNX Runtime, CalibrationDataReader",
            ),
        ),
    )


def test_the_growth_in_a_short_calibration_is_from_the_memory_at_its_beginning() -> None:
    # The curve has read 2,900 MB 50 ms before; at the beginning there were 3,000 MB.
    short = step(start=2.05, samples=10, expected_samples=64)
    start = RecordedCheckpoint(
        name="Calibration Start",
        time=2.05,
        step=0,
        attributes={"quant.checkpoint.memory": 3000 * MB},
    )
    killed = seen(signal=signal.SIGKILL, last_seen={PROGRAM: last_seen(4000 * MB)})
    alone = recording(run(short, checkpoints=(start,)))
    assert ending_of(killed, alone).memory_per_sample == 100 * MB
    # Of several processes the curve has the sum.
    several = recording(run(short, checkpoints=(start,)), run(pid=200, id="b"))
    assert ending_of(killed, several).memory_per_sample == 110 * MB


def causes() -> Iterator[Any]:
    kill, full, half = signal.SIGKILL, last_seen(7800 * MB), last_seen(4000 * MB)
    yield pytest.param(
        seen(signal=kill, last_seen={PROGRAM: full}, oom_kills=2),
        ("known", f"the kernel's out-of-memory killer struck 2 times: oom_kill in {COUNTER}"),
        id="the counter rose",
    )
    yield pytest.param(
        seen(signal=kill, last_seen={PROGRAM: full}, oom_kills=None),
        (
            "guessed",
            "SIGKILL when memory was at 98% of the limit; no counter of the kernel tells who sent it",
        ),
        id="no counter, memory at the limit",
    )
    yield pytest.param(
        seen(signal=kill, last_seen={PROGRAM: half}),
        (
            None,
            "memory was at 50% of the limit, and the kernel has counted no out-of-memory kill: somebody has sent the signal",
        ),
        id="the counter stood, memory far below the limit",
    )
    yield pytest.param(
        seen(signal=kill, last_seen={PROGRAM: half}, oom_kills=None), (None, None), id="unknown"
    )
    yield pytest.param(
        seen(
            signal=kill,
            last_seen={PROGRAM: half},
            oom_kills=None,
            limits=Limits(8000 * MB, "physical"),
            available=100 * MB,
        ),
        (
            "guessed",
            "SIGKILL when memory was at 50% of the limit; no counter of the kernel tells who sent it",
        ),
        id="other programs have used the machine's memory up",
    )
    yield pytest.param(
        seen(signal=signal.SIGTERM, last_seen={PROGRAM: full}, oom_kills=1),
        (None, None),
        id="another signal, while the killer struck elsewhere",
    )
    yield pytest.param(
        seen(signal=signal.SIGABRT, last_seen={PROGRAM: half}, address_space=4000 * MB),
        (
            None,
            "SIGABRT with an address space limited to 4.00 GB (ulimit -v): C++ code that gets no memory ends so",
        ),
        id="bad_alloc under ulimit -v",
    )


def test_what_would_have_sufficed_is_what_the_forecast_said() -> None:
    forecast = {"quant.forecast.memory.at_end": 20_000 * MB}
    last = LastReading(time=4.5, attributes=forecast, open_steps=(0,))
    killed = seen(signal=signal.SIGKILL, oom_kills=1, last_seen={PROGRAM: last_seen(7900 * MB)})
    ending = ending_of(killed, recording(run(calibration(), last=last)))
    assert ending.advice[0] == Advice(
        text="Give it more memory: about 22.0 GB for all 512 samples, with a tenth to spare (estimated).",
        source="this recording: growth of memory with each sample",
    )


@pytest.mark.parametrize(("observation", "expected"), list(causes()))
def test_what_is_known_and_what_is_guessed_are_told_apart(
    observation: Observation, expected: tuple[str | None, str | None]
) -> None:
    ending = ending_of(observation, recording(run(calibration())))
    assert (ending.out_of_memory, ending.evidence) == expected
    assert ending.where == "Calibration, sample 37 of 512"


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
def test_a_run_that_failed_for_want_of_memory_says_where_and_what_would_help(
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
    assert ending.where == "Calibration, sample 37 of 512"
    assert (ending.signal, ending.exit_code, ending.out_of_memory) == (None, 1, None)
    assert ending.memory == 8500 * MB  # then, not after the exception has freed it
    assert (ending.memory_limit, ending.memory_limit_source) == (limit, source)
    assert ending.advice


def test_of_several_ranks_the_one_that_died_first_is_told() -> None:
    ranks = [
        run(calibration(), id=str(rank), pid=CHILD + rank, rank=rank, world_size=3)
        for rank in range(3)
    ]
    times = {CHILD: 4.6, CHILD + 1: 4.4, CHILD + 2: 4.6}
    ending = ending_of(
        seen(
            exit_code=1,
            oom_kills=1,
            last_seen={pid: last_seen(5000 * MB, at) for pid, at in times.items()},
            signals={CHILD + 1: signal.SIGKILL, CHILD: signal.SIGTERM},
        ),
        recording(*ranks),
    )
    assert (ending.process, ending.process_signal) == ("rank 1 (process 201)", "SIGKILL")
    assert (ending.signal, ending.exit_code, ending.out_of_memory) == (None, 1, "known")
    assert ending.where == "Calibration, sample 37 of 512"


def test_what_the_program_has_reached_long_after_a_rank_was_killed_is_not_what_was_held() -> None:
    ending = ending_of(
        seen(
            exit_code=1,
            last_seen={CHILD: last_seen(5000 * MB, 2.0), PROGRAM: last_seen(600 * MB, 4.9)},
            signals={CHILD: signal.SIGKILL},
            mark=6000 * MB,
        ),
        recording(run(calibration(), pid=CHILD, rank=0)),
    )
    assert (ending.process, ending.memory) == ("rank 0 (process 200)", 5000 * MB)


def test_a_program_that_ctrl_c_has_ended_says_where_it_was() -> None:
    stopped = calibration(end=4.9, error="KeyboardInterrupt")
    ended = run(stopped, end=4.95, state="failed", error="KeyboardInterrupt")
    ending = ending_of(
        seen(signal=signal.SIGINT, last_seen={PROGRAM: last_seen(900 * MB)}), recording(ended)
    )
    assert (ending.signal, ending.where) == ("SIGINT", "Calibration, sample 37 of 512")
    assert ending.evidence == "KeyboardInterrupt"


def test_of_ranks_that_died_between_two_readings_the_one_that_wrote_last_did_not_die_first() -> (
    None
):
    ranks = [run(calibration(), id=str(n), pid=CHILD + n, rank=n, world_size=2) for n in range(2)]
    ending = ending_of(
        seen(
            exit_code=1,
            last_seen={CHILD + rank: last_seen(5000 * MB, 4.4) for rank in range(2)},
            last_words_ns={CHILD: BEGAN + 4_450_000_000, CHILD + 1: BEGAN + 4_410_000_000},
        ),
        recording(*ranks),
    )
    assert ending.process == "rank 1 (process 201)"


def test_the_exception_of_one_rank_is_told_before_the_ranks_that_are_stopped_for_it() -> None:
    failed = calibration(end=4.2, error="MemoryError")
    ending = ending_of(
        seen(exit_code=1, last_seen={CHILD: last_seen(5000 * MB, 4.5)}),
        recording(
            run(failed, pid=CHILD + 1, rank=1, end=4.3, state="failed", error="MemoryError"),
            run(calibration(), id="b", pid=CHILD, rank=0),
        ),
    )
    assert (ending.process, ending.error) == ("rank 1 (process 201)", "MemoryError")


def test_a_worker_that_was_killed_is_told_even_if_the_program_survives() -> None:
    killed = seen(
        exit_code=0,
        signals={CHILD: signal.SIGKILL},
        last_seen={CHILD: last_seen(100 * MB)},
    )
    ending = ending_of(killed, recording(run(calibration(), pid=CHILD)))
    assert (ending.process, ending.process_signal, ending.exit_code) == (
        "process 200",
        "SIGKILL",
        0,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, None])
def test_a_worker_that_its_pool_has_ended_is_no_harm(number: int | None) -> None:
    ended = seen(exit_code=0, signals={} if number is None else {CHILD: number})
    ending = ending_of(ended, recording(run(calibration(), pid=CHILD)))
    assert (ending.process, ending.open_steps, ending.advice) == (None, (), ())


def test_a_program_that_a_shell_has_run_is_the_one_that_was_killed() -> None:
    killed = seen(exit_code=137, oom_kills=1, last_seen={CHILD: last_seen(7900 * MB)})
    ending = ending_of(killed, recording(run(calibration(), pid=CHILD)))
    assert (ending.process, ending.process_signal) == ("process 200", "SIGKILL")
    assert (ending.signal, ending.exit_code, ending.out_of_memory) == (None, 137, "known")
    assert ending.memory == 7900 * MB


def test_a_program_that_failed_by_itself_is_not_said_to_have_run_out_of_memory() -> None:
    ending = ending_of(
        seen(exit_code=1),
        recording(
            run(
                step(end=4.8, error="ValueError", error_message="no"),
                end=4.9,
                state="failed",
                error="ValueError",
            )
        ),
    )
    assert (ending.error, ending.where, ending.out_of_memory, ending.advice) == (
        "ValueError",
        "Calibration",
        None,
        (),
    )


def test_an_exception_that_the_program_has_survived_is_not_its_end() -> None:
    ending = ending_of(
        seen(exit_code=3),
        recording(run(step(end=2.0, error="ValueError"), end=4.0, state="ended")),
    )
    assert (ending.error, ending.where, ending.exit_code) == (None, None, 3)
