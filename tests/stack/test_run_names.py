"""Runs of any name, and of several ranks, from their start to what the link of their row shows."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stack.grafana_panels import TIME_RANGE
from tests.stack.processes import PATIENCE, Collector, eventually, instrumented, started
from tests.stack.world import World, stores
from tests.unit.stack.dashboards import FILES, QUERIES, Query, load

pytestmark = pytest.mark.servers

SERVICE = "vision (team a+b) v1.0"
STEPS = {
    "R&D #3: 100% of 50%25 + a=b?c/d;e": "Model Loading",
    r"""C:\runs\nightly "int8" 'x'""": "Dataset Loading",
    "$5 of $HOME [a.b*c|(d)]{2}^ ~!@,<>": "Pre-process",
    "v1.2": "Model Caching",
    "v1x2": "Calibration",  # found with the one before if the dot were any character
    "20261122": "Post-process",
}
"""The only step of each run, by the run's name."""
NAMES = list(STEPS)
PROGRAM = "import otel_quant, sys, time\nwith otel_quant.step(sys.argv[1]): time.sleep(1)"


RANKS = "ranks"
"""The service of the run of two ranks."""
RANK = """
import otel_quant, time
for name in ("Calibration", "Model Quantization"):
    with otel_quant.step(name):
        time.sleep(1.5)  # several collections of the metrics
"""


def start_ranks(made: Collector, folder: Path) -> subprocess.Popen[bytes]:
    """Starts a run in two processes, as in the README."""
    (folder / "rank.py").write_text(RANK)
    programs = Path(sys.executable).parent
    launcher = (programs / "torchrun", "--nproc-per-node", "2", "--master-port", "0")
    return started(
        made, programs / "otel-quant", "run", "--", *launcher, "rank.py", folder=folder,
        OTEL_SERVICE_NAME=RANKS, OMP_NUM_THREADS="1",
        # As the conventions for Kubernetes have it: of a container, whatever runs in it.
        OTEL_RESOURCE_ATTRIBUTES="service.instance.id=pod-7.main,k8s.pod.name=pod-7",
    )  # fmt: skip


def start(made: Collector, name: str) -> subprocess.Popen[bytes]:
    return instrumented(
        made, "-c", PROGRAM, STEPS[name], OTEL_QUANT_RUN_NAME=name, OTEL_SERVICE_NAME=SERVICE,
        OTEL_RESOURCE_ATTRIBUTES="service.namespace=research",
    )  # fmt: skip


@pytest.fixture(scope="module")
def world(binaries: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("names")
    with stores(binaries, folder) as (world, made):
        processes = [start_ranks(made, folder), *(start(made, name) for name in NAMES)]
        assert [each.wait(PATIENCE) for each in processes] == [0] * len(processes)
        eventually(lambda: arrived(world) == len(NAMES) + 2, "the runs")
        yield world


def arrived(world: World) -> int:
    """Returns of how many processes all stores have the end of the run."""
    ends = "quant_run_end_seconds"
    logs = '{service_name=~".+"} | quant_checkpoint_name="End"'
    spans = '{ name = "quantization" } | by(span.quant.run.id) | select(span.quant.run.name)'
    return min(
        len(world.metric(ends)),
        sum(len(each["values"]) for each in world.records(logs)),
        sum(
            len(trace["spanSets"])
            for trace in world.ask(Query(("test", "ends"), "A", "tempo", spans))
        ),
    )


@pytest.fixture(scope="module")
def links(world: World) -> dict[str, str]:
    """Returns the run that each row's link opens, by the name in the row."""
    runs = world.show("runs", job=SERVICE)["Runs"]
    opened = [parameters for _, parameters in runs.opened["Run"]]
    assert [{**each, "var-run": None} for each in opened] == (
        [{**TIME_RANGE, "var-job": [SERVICE], "var-run": None}] * len(NAMES)
    )
    rows = [name for (name,) in runs.rows("Run")]
    return {row: each["var-run"][0] for row, each in zip(rows, opened, strict=True)}


def test_the_link_of_a_row_opens_its_run(links: dict[str, str]) -> None:
    assert links == {name: name for name in NAMES}


OF_RUNS = [file for file in FILES if file.stem != "inference"]
"""The menus of *Inference* have what was measured; the expressions are the same."""


@pytest.mark.parametrize("file", OF_RUNS, ids=lambda file: file.stem)
def test_the_menus_show_every_name_unchanged(world: World, file: Path) -> None:
    title = load(file)["title"]
    menus = {q.place[1]: q for q in QUERIES if q.place[0] == title and q.ref == "variable"}
    assert sorted(world.ask(menus["job"])) == sorted([RANKS, SERVICE])
    assert sorted(world.ask(menus["run"], job=SERVICE)) == sorted(NAMES)
    if "baseline" in menus:
        offered = world.ask(menus["baseline"], job=SERVICE, run=NAMES[0])
        assert sorted(offered) == sorted(NAMES[1:])


@pytest.mark.parametrize("name", NAMES)
def test_a_link_opens_a_dashboard_of_only_its_run(
    world: World, links: dict[str, str], name: str
) -> None:
    chosen = {"job": SERVICE, "run": links[name]}
    run = world.show("run", **chosen)
    assert run["Steps"].rows("Name") == [(STEPS[name],)]
    over_time = [frame[-1].name for frame in run["Steps over time"].frames]
    assert over_time == [STEPS[name]]
    compared = world.show("compare", **chosen, baseline="v1x2")
    runs = {row for (row,) in compared["Runs side by side"].rows("Run")}
    assert runs == {name, "v1x2"}
    by_step = compared["Duration by step"]
    assert {column.name for column in by_step.columns} == {"Step", name, "v1x2"}
    assert {step for (step,) in by_step.rows("Step")} == {STEPS[name], STEPS["v1x2"]}


def test_ranks_are_one_run_with_two_processes(world: World) -> None:
    (menu,) = (q for q in QUERIES if q.place == ("Quantization run", "run"))
    (name,) = world.ask(menu, job=RANKS)
    assert re.fullmatch(rf"{RANKS} \d{{4}}-\d\d-\d\dT[\d:.]+Z", name)
    chosen = {"job": RANKS, "run": name}
    menus = {
        q.place[1]: q for q in QUERIES if q.place[0] == "Quantization run" and q.ref == "variable"
    }
    processes = world.options(world.filled(menus["instance"], chosen), menus["instance"].regex)
    assert [re.sub(r"\d+$", "", text) for text, _ in sorted(processes)] == [
        "rank 0, pid ",
        "rank 1, pid ",
    ]
    assert len(world.ask(menus["trace"], **chosen)) == 1  # the trace of `otel-quant run`
    other = {"job": SERVICE, "run": NAMES[0]}
    ((text, _),) = world.options(world.filled(menus["instance"], other), menus["instance"].regex)
    assert re.fullmatch(r"pid \d+", text)
    runs = world.show("runs", job=RANKS)
    assert ", ".join(one.heading for one in runs["Runs"].columns) == (
        "Began [dateTimeAsIso], Run, State [none], Job, Duration [ns], Peak memory [bytes], "
        "Share of limit [percentunit], Disk [bytes]"
    )
    assert runs["Runs"].rows("Run", "State", "Job") == [(name, "ended", RANKS)]
    assert {title: runs[title].columns[-1].values for title in ("Ended", "Runs in view")} == {
        "Ended": ["1"],
        "Runs in view": ["1"],
    }
    peaks, limits = (
        [float(each["value"][1]) for each in world.metric(f'{metric}{{job="{RANKS}"}}')]
        for metric in ("quant_run_memory_peak_bytes", "quant_run_memory_limit_bytes")
    )
    assert len(peaks) == 2
    active = world.metric(f'quant_step_active{{job="{RANKS}"}}')
    assert {each["metric"].get("k8s_pod_name") for each in active} == {"pod-7"}
    table = {q.ref: q for q in QUERIES if q.place == ("Quantization runs", "Runs")}
    (whole,), (share,) = (world.ask(table[ref], **chosen) for ref in ("peak", "share"))
    assert float(whole["value"][1]) == sum(peaks)
    assert float(share["value"][1]) == pytest.approx(sum(peaks) / max(limits))
    run = world.show("run", **chosen)
    assert run["Steps"].rows("Rank", "Step", "Name") == [
        (rank, step, name)
        for rank in ("0", "1")
        for step, name in (("0", "Calibration"), ("1", "Model Quantization"))
    ]
    assert {frame[-1].name for frame in run["Memory"].frames} == {
        "memory 0", "memory 1", "limit", "readings 0", "readings 1",
    }  # fmt: skip
    compared = world.show("compare", **chosen, baseline="v1.2")
    assert compared["Runs side by side"].rows("Run") == [(name,)]
    by_model = compared["Peak memory by model and method"]
    assert [column.name for column in by_model.columns] == ["Model", "-"]
