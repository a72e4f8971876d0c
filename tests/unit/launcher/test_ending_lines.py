"""What is printed of an ending."""

from __future__ import annotations

from otel_quant.recordings.model import Advice, Ending
from otel_quant.schema.units import size
from otel_quant.views.answer import ending_lines


def test_a_killed_calibration_is_described_in_a_few_lines() -> None:
    ending = Ending(
        time=95.2,
        signal="SIGKILL",
        out_of_memory="known",
        evidence="the kernel has counted 1 out-of-memory kill: oom_kill in memory.events",
        where="Calibration, sample 37 of 512",
        open_steps=("Quantization (Static)", "Calibration"),
        memory=7_530_000_000,
        memory_limit=8_000_000_000,
        memory_limit_source="cgroup",
        memory_per_sample=188_000_000,
        processes=(("python3 q.py (7)", 7_400_000_000), ("python3 w.py (8)", 130_000_000)),
        advice=(Advice(text="Use fewer calibration samples.", source="this recording"),),
    )
    assert ending_lines(ending) == [
        "the program was killed by SIGKILL: out of memory, in Calibration, sample 37 of 512",
        "  known from: the kernel has counted 1 out-of-memory kill: oom_kill in memory.events",
        "  open steps: Quantization (Static) > Calibration",
        "  memory: 7.53 GB, 94.1 % of the limit of 8.00 GB (cgroup), 188 MB more with each sample",
        "  largest: python3 q.py (7) 7.40 GB, python3 w.py (8) 130 MB",
        "  would help: Use fewer calibration samples. [this recording]",
    ]


def test_a_killed_child_is_described_with_how_the_program_ended() -> None:
    ending = Ending(
        time=1.0,
        exit_code=1,
        process="rank 1 (process 201)",
        process_signal="SIGKILL",
        evidence="Slurm job 7",
    )
    assert ending_lines(ending) == [
        "rank 1 (process 201) was killed by SIGKILL; the program ended with exit code 1",
        "  evidence: Slurm job 7",
    ]


def test_a_program_that_failed_is_described_by_its_exception() -> None:
    ending = Ending(
        time=1.0,
        exit_code=1,
        error="MemoryError",
        evidence="MemoryError: \x1b[2J",
        where="Calibration",
    )
    assert ending_lines(ending) == [
        "the program failed with MemoryError, in Calibration",
        "  because: MemoryError: \\x1b[2J",
    ]


def test_a_program_that_ended_well_or_by_itself_has_no_lines() -> None:
    assert ending_lines(Ending(time=1.0, exit_code=0, memory_limit=1)) == []
    assert ending_lines(Ending(time=1.0, exit_code=3)) == []


def test_sizes_have_three_digits_and_a_unit() -> None:
    sizes = (0, 999, 1000, 12_345, 999_499, 999_500, 7_530_000_000, 1e19, -5_000_000)
    assert [size(each) for each in sizes] == [
        "0 B", "999 B", "1.00 kB", "12.3 kB", "999 kB", "1.00 MB", "7.53 GB", "10000 PB", "-5.00 MB",
    ]  # fmt: skip
