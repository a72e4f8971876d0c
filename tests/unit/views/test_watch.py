"""What the live view shows of recordings that are built here, and the lines on how a program ended."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Final

import pytest
from rich.console import Console

from otel_quant.recordings.model import Advice, Ending
from otel_quant.recordings.reader import read
from otel_quant.schema import semconv
from otel_quant.schema.units import size
from otel_quant.views.endings import ending_lines
from otel_quant.views.watch import Looked, PlainView, last_lines, screen
from tests.fixtures.commands import Commands
from tests.fixtures.recorded import RecordedFolder, RecordedProcess

GB: Final = 10**9
ORIGIN: Final = {"process.command_line": "python quantize.py"}


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.localtime", __import__("time").gmtime)


def begun(folder: Path) -> tuple[RecordedFolder, RecordedProcess, int]:
    """Returns a recording of 400 s whose run is in a calibration, and the calibration."""
    recording = RecordedFolder(folder, ORIGIN, by_launcher=True)
    recording.curve(
        ((second, {"memory": GB + second * GB / 50, "gpu.0.used": 5 * GB}, {"disk.write": second * 1000})
         for second in range(400)),
        process="4711", interval=1,
    )  # fmt: skip
    process = recording.process()
    process.begin(0.5, attributes={semconv.MEMORY_LIMIT: 16 * GB})
    outer = process.step("Model Quantization", 1)
    first = process.step("Pre-process", 2, outer)
    process.close(first, 27, attributes={semconv.MEMORY_PEAK: 2 * GB})
    inner = process.step("Calibration", 30, outer)
    process.expect(inner, 512, 30)
    go_on(process, inner, 137)
    return recording, process, inner


def go_on(process: RecordedProcess, step: int, samples: int, **attributes: Any) -> None:
    steps = [{"index": 0}, {"index": step, "samples": samples, "expected": 512}]
    figures = {semconv.READING_MEMORY: 8 * GB, semconv.FORECAST_TIME_LEFT: 1830.5, **attributes}
    process.state(399.5, steps, **figures)


def shown(folder: Path, width: int = 120, height: int = 30, log: tuple[str, ...] = ()) -> list[str]:
    text = io.StringIO()
    console = Console(file=text, width=width, height=height)
    console.print(screen(Looked(read(folder)), width, height, log))
    return [line.rstrip() for line in text.getvalue().splitlines()]


def test_a_terminal_shows_the_steps_the_curve_and_the_resource_use(tmp_path: Path) -> None:
    _, process, inner = begun(tmp_path / "r")
    exceeds = {semconv.FORECAST_MEMORY: 20 * GB, semconv.FORECAST_MEMORY_LIMIT: 16 * GB}
    go_on(process, inner, 137, **exceeds)
    lines = shown(tmp_path / "r", log=("Loading", "\x1b[31mcalibrating\x1b[0m"))
    assert lines[:8] == [
        "▶ running  6 min 40 s  python quantize.py",
        "",
        "STEP                        TIME  MEM PEAK",
        "--------------------  ----------  --------",
        "▶ Model Quantization  6 min 38 s",
        "  ✓ Pre-process           25.0 s   2.00 GB",
        "  ▶ Calibration       6 min 10 s            sample 137 of 512, about 30 min 30 s left",
        "",
    ]
    assert lines[8].startswith(" 16.0 GB ")
    assert lines[8].endswith(" limit")
    assert [line.count("█") for line in lines[9:14]] == [0, 0, 15, 50, 86]
    assert lines[14:] == [
        f"         0:00{'6:40':>101}",
        "memory              8.98 GB, peak 8.98 GB, limit 16.0 GB (56.1 % of it)",
        "GPU 0, all programs 5.00 GB, peak 5.00 GB",
        "disk written        399 kB",
        "Calibration: memory would be 20.0 GB after the last sample (estimated); the limit is 16.0 GB",
        "a restart would lose 6 min 40 s",
        "",
        "last lines of the output",
        "Loading",
        r"\x1b[31mcalibrating\x1b[0m",
    ]


def test_layers_are_shown_before_samples_and_what_is_complete_is_not(tmp_path: Path) -> None:
    _, process, inner = begun(tmp_path / "r")
    process.expect(inner, 32, 399, "layers")
    layers = {"layers": 17, "expected_layers": 32}
    passes = {"passes": 9000, "expected_passes": 16384}
    for samples, more, text in (
        (137, {}, "layer 17 of 32, sample 137 of 512"),
        (512, {}, "layer 17 of 32"),
        (512, passes, "layer 17 of 32, pass 9,000 of 16,384"),
    ):
        process.state(
            399.5, [{"index": inner, "samples": samples, "expected": 512, **layers, **more}]
        )
        (found,) = (line for line in shown(tmp_path / "r", 160) if "▶ Calibration" in line)
        assert found.split("  ")[-1] == text


def test_a_step_without_progress_and_a_stale_step_are_marked(tmp_path: Path) -> None:
    _, process, inner = begun(tmp_path / "r")
    line = ["/a/quantize.py", "Reader.get_next", 17, ""]
    steps = [{"index": 0}, {"index": inner, "samples": 137, "expected": 512, "line": line}]
    process.state(380, steps, **{semconv.FORECAST_STALLED: 65.2})
    (found,) = (line for line in shown(tmp_path / "r", 160) if "▶ Calibration" in line)
    assert found.endswith(
        "sample 137 of 512, no progress for 1 min 05 s, "
        "at Reader.get_next (quantize.py:17) 19.0 s ago"
    )


def test_a_small_terminal_keeps_the_open_steps(tmp_path: Path) -> None:
    _, process, _ = begun(tmp_path / "r")
    for number in range(40):
        process.close(process.step(f"Layer {number}", 100 + number), 100.5 + number)
    lines = shown(tmp_path / "r", 60, 14)
    assert len(lines) <= 14
    assert lines[2:7] == [
        "40 steps that ended are not shown",
        "STEP                        TIME",
        "--------------------  ----------",
        "▶ Model Quantization  6 min 38 s",
        "  ▶ Calibration       6 min 10 s  sample 137 of 512, about …",
    ]


def test_each_step_is_printed_once_and_its_progress_every_half_minute(tmp_path: Path) -> None:
    recording, process, inner = begun(tmp_path / "r")
    view = PlainView()
    assert list(view.lines(read(tmp_path / "r"))) == [
        "22:13:20 python quantize.py",
        "22:13:21 Model Quantization began",
        "22:13:22 Pre-process began",
        "22:13:47 Pre-process ended: took 25.0 s, peak 2.00 GB",
        "22:13:50 Calibration began",
        "22:19:59 Model Quantization; Calibration, sample 137 of 512, about 30 min 30 s left; a restart would lose 6 min 40 s; "
        "memory 8.98 GB, peak 8.98 GB, limit 16.0 GB (56.1 % of it)",
    ]
    assert list(view.lines(read(tmp_path / "r"))) == []
    process.close(inner, 410, error="MemoryError", error_message="no more\x1b")
    assert list(view.lines(read(tmp_path / "r"))) == [
        r"22:20:10 Calibration failed: took 6 min 20 s, MemoryError: no more\x1b"
    ]
    process.gone()
    recording.ended(Ending(time=411, signal="SIGKILL"))
    assert list(view.lines(read(tmp_path / "r"))) == ["22:20:11 killed by SIGKILL after 6 min 51 s"]


def test_a_killed_run_is_shown_with_its_open_step_and_advice(tmp_path: Path) -> None:
    recording, process, _ = begun(tmp_path / "r")
    process.gone()
    advice = Advice(text="Fewer samples.", source="here")
    where = "Calibration, sample 137 of 512"
    recording.ended(
        Ending(time=400, signal="SIGKILL", where=where, evidence="oom_kill rose", advice=(advice,))
    )
    lines = shown(tmp_path / "r")
    assert lines[0] == "✗ killed by SIGKILL  6 min 40 s  python quantize.py"
    assert lines[-3:] == [
        f"the program was killed by SIGKILL, in {where}",
        "  evidence: oom_kill rose",
        "  would help: Fewer samples. [here]",
    ]


def test_ranks_are_distinguished_and_the_largest_peak_is_used(tmp_path: Path) -> None:
    recording = RecordedFolder(tmp_path / "r", ORIGIN)
    for rank in range(2):
        process = recording.process(100 + rank).begin(0, run=f"run-{rank}", rank=rank)
        process.close(process.step("Calibration", 1), 2, attributes={semconv.MEMORY_PEAK: rank + 5})
    assert shown(tmp_path / "r")[4:6] == [
        "✓ Calibration (rank 0)  1.00 s       5 B",
        "✓ Calibration (rank 1)  1.00 s       6 B",
    ]
    assert Looked(read(tmp_path / "r")).memory().peak == 6


def test_unknown_values_are_not_shown(tmp_path: Path) -> None:
    RecordedFolder(tmp_path / "r", ORIGIN).process().begin(0).gone()
    assert shown(tmp_path / "r") == [
        "? stopped without an end record  0 ms  python quantize.py",
        "",
        "no step has begun",
        "",
    ]


def test_output_after_a_progress_bar_is_shown_as_in_a_terminal(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    assert last_lines(log) == []
    log.write_bytes(b"x" * 9000 + b"\nfirst\n 1%\r 50%\r100%\nlast\n")
    assert last_lines(log) == ["first", "100%", "last"]


def test_the_command_shows_the_last_state_of_the_newest_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Commands
) -> None:
    for name in ("otel-quant-z-20260101-000000", "otel-quant-a-20260102-000000"):
        folder = RecordedFolder(tmp_path / name, {"process.command_line": name})
        folder.process().begin(0).end(1)
    monkeypatch.chdir(tmp_path)
    assert command.output("watch").splitlines()[0] == "22:13:20 otel-quant-a-20260102-000000"


def test_a_missing_recording_is_an_error_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Commands
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command("watch") == (
        1,
        "",
        "otel-quant: no recording here; expected a folder otel-quant-*, as `otel-quant run -- PROGRAM` "
        "makes one, or its path\n",
    )


ENDINGS: dict[str, tuple[Ending, list[str]]] = {
    "a killed calibration": (
        Ending(
            time=95.2, signal="SIGKILL", out_of_memory="known",
            evidence="the kernel has counted 1 out-of-memory kill: oom_kill in memory.events",
            where="Calibration, sample 37 of 512",
            open_steps=("Quantization (Static)", "Calibration"),
            memory=7_530_000_000, memory_limit=8 * GB, memory_limit_source="cgroup",
            memory_per_sample=188_000_000,
            processes=(("python3 q.py (7)", 7_400_000_000), ("python3 w.py (8)", 130_000_000)),
            advice=(Advice(text="Use fewer calibration samples.", source="this recording"),),
        ),
        [
            "the program was killed by SIGKILL: out of memory, in Calibration, sample 37 of 512",
            "  known from: the kernel has counted 1 out-of-memory kill: oom_kill in memory.events",
            "  open steps: Quantization (Static) > Calibration",
            "  memory: 7.53 GB, 94.1 % of the limit of 8.00 GB (cgroup), 188 MB more with each sample",
            "  largest: python3 q.py (7) 7.40 GB, python3 w.py (8) 130 MB",
            "  would help: Use fewer calibration samples. [this recording]",
        ],
    ),
    "a killed child": (
        Ending(
            time=1.0, exit_code=1, process="rank 1 (process 201)", process_signal="SIGKILL",
            evidence="Slurm job 7",
        ),
        [
            "rank 1 (process 201) was killed by SIGKILL; the program ended with exit code 1",
            "  evidence: Slurm job 7",
        ],
    ),
    "an exception": (
        Ending(time=1.0, exit_code=1, error="MemoryError", evidence="MemoryError: \x1b[2J", where="Calibration"),
        ["the program failed with MemoryError, in Calibration", "  because: MemoryError: \\x1b[2J"],
    ),
    "a good end": (Ending(time=1.0, exit_code=0, memory_limit=1), []),
    "an end by itself": (Ending(time=1.0, exit_code=3), []),
}  # fmt: skip


@pytest.mark.parametrize(("ending", "lines"), ENDINGS.values(), ids=ENDINGS)
def test_an_ending_is_described_in_a_few_lines(ending: Ending, lines: list[str]) -> None:
    assert ending_lines(ending) == lines


def test_sizes_have_three_digits_and_a_unit() -> None:
    sizes = (0, 999, 1000, 12_345, 999_499, 999_500, 7_530_000_000, 1e19, -5_000_000)
    assert [size(each) for each in sizes] == [
        "0 B", "999 B", "1.00 kB", "12.3 kB", "999 kB", "1.00 MB", "7.53 GB", "10000 PB", "-5.00 MB",
    ]  # fmt: skip
