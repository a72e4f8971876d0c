"""Memory of GPUs wherever a person looks: the program's first, all programs' only where others have much."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from otel_quant.recordings.gpus import Bracket, bracket, shows_all_programs
from otel_quant.recordings.model import Ending
from otel_quant.recordings.reader import read
from otel_quant.schema import semconv
from otel_quant.views.curves import OF_PROGRAM, charts_of
from otel_quant.views.endings import ending_facts
from otel_quant.views.report import document
from otel_quant.views.steps import subject_of
from otel_quant.views.watch import Looked
from tests.fixtures.commands import Commands
from tests.fixtures.recorded import RecordedFolder

GB: Final = 10**9
STEM: Final = "quant.gpu.device."
OF_DEVICE: Final = ("gpu.0.used", "gpu.0.process_used")


def recorded(
    path: Path,
    *,
    own: float | None = 8.02,  # peak of the program's memory in the step, in GB
    used: float = 8.05,  # peak of the device's
    seen: float = 0.5,  # how much less the launcher has seen of it
    before: float = 0.0,  # in use on the device at first
    reserved: float | None = None,  # torch's
    retries: int = 0,
    is_killed: bool = False,
    has_sums: bool = True,  # curves of all GPUs together, which earlier versions did not write
) -> Path:
    """Makes a recording of a step within another on a GPU of 80 GB; the inner one has the peak."""
    folder = RecordedFolder(path, {semconv.GPU_NAMES: ["NVIDIA H100"]}, by_launcher=True)
    process = folder.process().begin(
        0, attributes={semconv.GPU_COUNT: 1, semconv.GPU_MEMORY_LIMIT: 80 * GB}
    )
    outer = process.step("Model Quantization", 1)
    inner = process.step("Calibration", 2, outer)
    readings = []
    for second in range(9):
        mine = 0.0 if own is None or second == 0 else own - seen if second == 5 else 1.0
        now = before if second == 0 else used - (own or 0) + mine
        levels: dict[str, float] = {"memory": GB, "gpu.0.used": now * GB, "gpu.memory": now * GB}
        if own is not None:
            levels |= {"gpu.0.process_used": mine * GB, "gpu.process_memory": mine * GB}
        if not has_sums:
            levels = {name: levels[name] for name in levels.keys() & {"memory", *OF_DEVICE}}
        readings.append((second, levels, {}))
    folder.curve(readings, interval=1)
    figures: dict[str, Any] = {semconv.GPU_MEMORY_PEAK: round(used * GB)}
    device: dict[str, Any] = {f"{STEM}index": 0, f"{STEM}memory.peak": round(used * GB)}
    if own is not None:
        figures |= {
            semconv.GPU_TREE_PEAK: round(own * GB),
            semconv.GPU_TREE_PEAK_SOURCE: "allocator",
        }
        device[f"{STEM}process_memory.peak"] = round(own * GB)
    if reserved is not None:
        device[f"{STEM}torch_reserved.peak"] = round(reserved * GB)
    if is_killed:
        process.state(5.5, [{"index": 0}, {"index": 1}])
        process.gone()
        folder.ended(Ending(time=8, signal="SIGKILL"))
        return path
    of_inner = {**device, f"{STEM}torch_retries": retries}
    process.close(inner, 6, attributes=figures, devices=[of_inner])
    process.close(outer, 7, attributes=figures, devices=[of_inner])
    process.end(8, attributes=figures, devices=[device])
    folder.ended(Ending(time=8, exit_code=0))
    return path


def gpu_line(command: Commands, path: Path) -> str:
    (line,) = (
        each for each in command.output("show", path).splitlines() if each.startswith("GPU memory")
    )
    return line


def cells(command: Commands, path: Path) -> dict[str, str]:
    """Returns the GPU's cells of the inner step."""
    shown = command.output("show", path, "--format", "markdown").splitlines()
    heading = next(each for each in shown if each.startswith("| STEP"))
    row = next(each for each in shown if "Calibration" in each and each.startswith("|"))
    names, values = (
        [cell.strip() for cell in line.strip("| ").split(" | ")] for line in (heading, row)
    )
    return {
        name[:-3]: value
        for name, value in zip(names, values, strict=False)
        if name.startswith("GPU")
    }


def meters(path: Path) -> dict[str, float]:
    (section,) = (
        each for each in document(read(path)).parts if getattr(each, "layout", "") == "answer"
    )
    return {name: value for name, value, _ in section.parts[1].rows if "GPU" in name}


def test_the_headline_the_table_the_page_and_watch_have_one_peak_of_the_program(
    tmp_path: Path, command: Commands
) -> None:
    path = recorded(tmp_path / "r")
    assert gpu_line(command, path) == (
        "GPU memory peaked at 8.02 GB in Model Quantization > Calibration: 10.0 % of the limit of 80.0 GB."
    )
    assert cells(command, path) == {"GPU PEAK": "8,020.0"}
    assert meters(path) == {"GPU 0 peak": round(8.02 * GB)}
    uses = {use.name: (use.peak, use.limit) for use in Looked(read(path)).usage()}
    assert uses["GPU 0"] == (round(8.02 * GB), 80 * GB)
    assert not any("all programs" in name for name in uses)
    (run,) = json.loads(command.output("show", path, "--format", "json"))
    step = run["steps"][1]
    assert (step["gpu_process_memory_peak_mb"], step["gpu_memory_peak_mb"]) == (
        pytest.approx(8.02 * GB / (1 << 20), abs=0.01), pytest.approx(8.05 * GB / (1 << 20), abs=0.01),
    )  # fmt: skip


def test_all_programs_are_beside_it_where_others_have_more_than_a_twentieth(
    tmp_path: Path, command: Commands
) -> None:
    little, much = (recorded(tmp_path / str(used), used=used) for used in (11.0, 13.0))
    assert [shows_all_programs(read(path)) for path in (little, much)] == [False, True]
    assert gpu_line(command, much).endswith("; all programs had 13.0 GB of it at most.")
    assert cells(command, much) == {"GPU PEAK": "8,020.0", "GPU (ALL) PEAK": "13.00"}
    uses = {use.name: use.peak for use in Looked(read(much)).usage()}
    assert uses["GPU 0, all programs"] == pytest.approx(12.5 * GB)


@pytest.mark.parametrize(
    ("used", "labels"), [(11.0, [OF_PROGRAM]), (13.0, [OF_PROGRAM, "all programs"])]
)
def test_the_charts_of_a_killed_run_whose_curve_has_no_sum_of_gpus_have_the_same_rule(
    tmp_path: Path, used: float, labels: list[str]
) -> None:
    recording = read(recorded(tmp_path / "r", used=used, is_killed=True, has_sums=False))
    charts = {chart.id: chart for chart in charts_of(recording, subject_of(recording))}
    assert [each.label for each in charts["gpu-0"].series] == labels


def test_memory_that_the_driver_does_not_tell_is_between_two_figures(
    tmp_path: Path, command: Commands
) -> None:
    path = recorded(tmp_path / "r", own=None, before=2.0, used=9.0, reserved=5.5)
    assert bracket(read(path)) == Bracket(round(5.5 * GB), 7 * GB)
    assert gpu_line(command, path) == (
        "GPU memory peaked between 5.50 GB and 7.00 GB: the driver does not tell what this program has."
    )
    assert cells(command, path) == {"GPU AT LEAST": "5,500.0", "GPU AT MOST": "7,000.0"}
    # Without torch only what is in use is known, of whomever.
    path = recorded(tmp_path / "q", own=None, used=9.0)
    assert bracket(read(path)) == Bracket(None, 9 * GB)
    assert gpu_line(command, path).startswith("GPU memory peaked at 9.00 GB at most: the driver")
    assert cells(command, path) == {"GPU AT MOST": "9,000.0"}
    # A program that has taken nothing has no column for that.
    path = recorded(tmp_path / "nothing", own=None, before=9.0, used=9.0)
    assert "GPU AT MOST" not in cells(command, path)


def test_memory_on_the_host_is_no_share_of_the_limit_of_a_gpu_that_was_full() -> None:
    full = Ending(time=1, memory=round(0.5 * GB), memory_limit=80 * GB, memory_limit_source="gpu 1")
    assert dict(ending_facts(full))["memory"] == "500 MB"


def test_the_launcher_has_seen_the_memory_of_a_step_that_was_killed(
    tmp_path: Path, command: Commands
) -> None:
    path = recorded(tmp_path / "r", own=2.6, used=2.7, seen=0, is_killed=True)
    assert cells(command, path) == {"GPU PEAK": "2,600.0"}
    assert gpu_line(command, path).startswith(
        "GPU memory peaked at 2.60 GB in Model Quantization > Calibration"
    )


def test_older_recordings_have_the_memory_of_the_program_by_device(
    tmp_path: Path, command: Commands
) -> None:
    path = recorded(tmp_path / "r")
    for file in path.glob("*.jsonl"):
        text = (
            file.read_text()
            .replace(semconv.GPU_TREE_PEAK, "quant.none")
            .replace("gpu.process_memory.", "none.")
        )
        file.write_text(text.replace("gpu.memory.", "none2.") if "curve" in file.name else text)
    assert cells(command, path) == {"GPU PEAK": "8,020.0"}
    assert gpu_line(command, path).startswith(
        "GPU memory peaked at 8.02 GB in Model Quantization > Calibration"
    )
    assert meters(path) == {"GPU 0 peak": round(8.02 * GB)}


def test_an_allocator_at_its_limit_is_told_of_the_innermost_step(
    tmp_path: Path, command: Commands
) -> None:
    for retries, expected in ((0, []), (3, ["Model Quantization > Calibration: torch's allocator was at its limit: 3 times it could reserve no more, freed what it had cached and tried again."])):  # fmt: skip
        shown = command.output("show", recorded(tmp_path / str(retries), retries=retries))
        assert [each for each in shown.splitlines() if "allocator" in each] == expected


def test_a_comparison_is_of_the_program_unless_others_have_much(
    tmp_path: Path, command: Commands
) -> None:
    base = recorded(tmp_path / "base", own=8.0, used=8.1)
    for name, own, used, said in (
        (
            "new",
            16.0,
            16.1,
            "new needs twice the GPU memory of base, in Calibration; memory and time equal.",
        ),
        ("beside", 8.0, 20.0, "the GPU memory of all programs of base"),
    ):
        shown = command.output("compare", base, recorded(tmp_path / name, own=own, used=used))
        assert said in shown
        assert ("gpu.memory.peak" in shown) == (name == "beside")
