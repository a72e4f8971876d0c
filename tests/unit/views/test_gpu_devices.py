"""Several GPUs: what each did and had, over time, by step, and which is nearest to its limit."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Final

import pytest
from rich.console import Console

from otel_quant.recordings.model import Recording
from otel_quant.recordings.reader import read
from otel_quant.schema import semconv
from otel_quant.views import show
from otel_quant.views.answer import sentences
from otel_quant.views.curves import charts_of
from otel_quant.views.report import document
from otel_quant.views.steps import subject_of
from otel_quant.views.watch import Looked, screen
from otel_quant.views.writers import terminal_text, written
from tests.fixtures.commands import Commands
from tests.fixtures.recorded import RecordedFolder

GB: Final = 10**9


def device(index: int, own: int | None, limit: int = 80 * GB, **more: Any) -> dict[str, Any]:
    """Returns what a step used of a GPU that all programs together have 1 GB more of."""
    figures = {
        "index": index, "memory.peak": (own or 0) + GB, "memory.limit": limit, "process_memory.peak": own,
        "utilization.peak": 0.9, "power.peak": 612.4, "energy": 5000.5 + index, **more,
    }  # fmt: skip
    known = {f"quant.gpu.device.{name}": value for name, value in figures.items()}
    return {"hw.id": f"GPU-{index}", "hw.name": "Fake", **{k: v for k, v in known.items() if v}}


def recorded(folder: Path, *devices: dict[str, Any], gpus: int = 2) -> Recording:
    """Makes a recording of a step of 10 s with these devices."""
    made = RecordedFolder(folder, {"process.command_line": "python q.py"}, by_launcher=True)
    levels = (
        (second, {"memory": GB, **{
            f"gpu.{gpu}.{name}": value
            for gpu in range(gpus)
            for name, value in (
                ("used", 5 * GB), ("utilization", (0.5 if second < 5 else 1.0) * (1 - gpu)),
                ("power", 300 + 100 * gpu + second),
            )
        }}, {})
        for second in range(10)
    )  # fmt: skip
    made.curve(levels, interval=1)
    process = made.process()
    process.begin(0)
    step = process.step("Calibration", 0)
    process.close(step, 10, devices=devices)
    process.end(10, devices=devices)
    return read(folder)


ROWS = """\
STEP         GPU  NAME  MEM PEAK  OF LIMIT  HIGHEST UTILIZATION  HIGHEST POWER  ENERGY
                              GB         %                    %                      J
-----------  ---  ----  --------  --------  -------------------  -------------  ------
(whole run)    0  Fake     20.00      25.0                 90.0            612   5,000
(whole run)    1  Fake     70.00      87.5                 90.0            612   5,002
Calibration    0  Fake     20.00      25.0                 90.0            612   5,000
Calibration    1  Fake     70.00      87.5                 90.0            612   5,002
A run of a process begins with its first step. Energy is of the device, whatever program used it.
"""


def test_what_steps_used_of_each_gpu_is_a_table_of_show_and_of_the_report(
    tmp_path: Path, command: Commands
) -> None:
    found = recorded(tmp_path / "r", device(0, 20 * GB), device(1, 70 * GB))
    assert terminal_text(show.devices({"r": found}), 100) == ROWS
    assert command.output("show", tmp_path / "r", "--by", "device", "--format", "csv").splitlines()[3:] == [
        "Calibration,0,Fake,20000000000,0.25,0.9,612.4,5000.5",
        "Calibration,1,Fake,70000000000,0.875,0.9,612.4,5001.5",
    ]  # fmt: skip
    page = "".join(written(document(found), "markdown"))
    assert "| Calibration | 1 | Fake | 70.00 | 87.5 | 90.0 | 612 | 5,002 |" in page
    without = recorded(tmp_path / "none", gpus=0)
    assert terminal_text(show.devices({"r": without}), 100) == "No GPU was seen.\n"
    assert "## GPUs" in page
    assert "## GPUs" not in "".join(written(document(without), "markdown"))


@pytest.mark.parametrize(
    ("devices", "sentence"),
    [
        ((device(0, 20 * GB), device(1, 70 * GB)), "Of 2 GPUs GPU 1 came nearest to its limit in Calibration: 70.0 GB, 87.5 % of the limit of 80.0 GB."),
        ((device(0, 20 * GB, 24 * GB), device(1, 70 * GB)), "Of 2 GPUs GPU 1 came nearest to its limit in Calibration: 70.0 GB, 87.5 % of the limit of 80.0 GB."),
        ((device(0, 23 * GB, 24 * GB), device(1, 70 * GB)), "Of 2 GPUs GPU 0 came nearest to its limit in Calibration: 23.0 GB, 95.8 % of the limit of 24.0 GB."),
        ((device(0, 70 * GB), device(1, GB)), ""),  # a context alone is no part of a model
        ((device(0, 70 * GB),), ""),
        ((device(0, None), device(1, None, **{"memory.peak": 70 * GB})), ""),  # whose it is, nobody tells
    ],
)  # fmt: skip
def test_of_a_model_on_several_gpus_the_one_that_is_nearest_to_its_limit_is_named(
    tmp_path: Path, devices: tuple[dict[str, Any], ...], sentence: str
) -> None:
    found = recorded(tmp_path / "r", *devices)
    told = [each for each in sentences(found, subject_of(found)) if "nearest" in each]
    assert told == ([sentence] if sentence else [])


def test_what_the_gpus_did_over_time_has_a_chart_with_a_line_for_each(tmp_path: Path) -> None:
    found = recorded(tmp_path / "r", device(0, 20 * GB))
    charts = {each.id: each for each in charts_of(found, subject_of(found))}
    busy, power = charts["gpus-utilization"], charts["gpus-power"]
    assert (busy.title, busy.unit, power.title, power.unit) == (
        "Utilization of the GPUs", "1", "Power of the GPUs", "W",
    )  # fmt: skip
    assert busy.summary == (
        "GPU 0: 75.0 % on average, at most 100.0 %; GPU 1: 0.0 % on average, at most 0.0 %."
    )
    assert [each.label for each in power.series] == ["GPU 0", "GPU 1"]
    assert power.series[1].values == tuple(400 + second for second in range(10))
    alone = recorded(tmp_path / "alone", device(0, 20 * GB), gpus=1)
    titles = [each.title for each in charts_of(alone, subject_of(alone))]
    assert titles[2:4] == ["Utilization of the GPU", "Power of the GPU"]


def rows_of_gpus(folder: Path, gpus: int) -> list[str]:
    recorded(folder, device(0, 20 * GB), gpus=gpus)
    text = io.StringIO()
    console = Console(file=text, width=100, height=40)
    console.print(screen(Looked(read(folder)), 100, 40))
    found = (line.rstrip() for line in text.getvalue().splitlines())
    return [line for line in found if " utilization " in line or " power " in line]


def test_a_terminal_shows_what_each_gpu_does_and_of_many_what_there_is_room_for(
    tmp_path: Path,
) -> None:
    assert rows_of_gpus(tmp_path / "one", 1) == [
        "GPU 0 utilization         100.0 %  ▄▄▄▄▄█████",
        "GPU 0 power               309 W    ██████████",
    ]
    many = rows_of_gpus(tmp_path / "many", 16)
    assert [line.split()[:3] for line in many] == [
        ["GPU", str(gpu), "utilization"] for gpu in range(8)
    ]


@pytest.mark.parametrize(
    ("grows", "samples", "sentence"),
    [
        (10**8, 20, "Memory of GPU 0 kept growing in Calibration, by 49.9 MB with each sample, 998 MB in all: a leak, or data that is kept."),
        (10**6, 20, ""),
        (10**8, 0, ""),  # a model that is loaded, as likely
    ],
)  # fmt: skip
def test_memory_of_a_gpu_that_grows_with_the_samples_is_told(
    tmp_path: Path, grows: int, samples: int, sentence: str
) -> None:
    made = RecordedFolder(tmp_path, {"process.command_line": "python q.py"}, by_launcher=True)
    read_at = (tenth / 10 for tenth in range(100))
    made.curve(
        ((at, {"memory": GB, "gpu.0.used": 60 * GB, "gpu.0.process_used": 2 * GB + round(at * grows)}, {})
         for at in read_at),
        interval=0.1,
    )  # fmt: skip
    process = made.process()
    process.begin(0, attributes={semconv.GPU_COUNT: 1, semconv.GPU_MEMORY_LIMIT: 40 * GB})
    step = process.step("Calibration", 0)
    if samples:
        process.expect(step, samples, 0)
    process.close(step, 10, samples=samples or None)
    process.end(10)
    found = read(tmp_path)
    told = [each for each in sentences(found, subject_of(found)) if "Memory of GPU" in each]
    assert told == ([sentence] if sentence else [])
