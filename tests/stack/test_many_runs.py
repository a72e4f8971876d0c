"""With 600 runs in view, every panel still shows all of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.stack.many_runs import names, send
from tests.stack.processes import eventually
from tests.stack.world import World, stores
from tests.unit.stack.dashboards import FILES, QUERIES

pytestmark = pytest.mark.servers

RUNS = 600
KEPT_DAYS = 90
"""For as long docker-compose.yml and collector/backends have the stores keep what they have."""


@pytest.fixture(scope="module")
def world(binaries: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with stores(binaries, tmp_path_factory.mktemp("many")) as (empty, made):
        world = replace(empty, began=time.time() - RUNS - 60)
        send(made.grpc, RUNS)
        eventually(lambda: arrived(world) == {RUNS}, f"{RUNS} runs in Prometheus and Loki")
        yield world


def arrived(world: World) -> set[int]:
    """Returns how many runs each store has."""
    ended = '{service_name=~".+"} | quant_checkpoint_name="End"'
    logged = {stream["stream"]["quant_run_name"] for stream in world.records(ended)}
    return {len(world.metric("quant_run_memory_limit_bytes")), len(logged)}


@pytest.mark.parametrize("dashboard", [file.stem for file in FILES])
def test_every_store_answers_with_all_runs_chosen(world: World, dashboard: str) -> None:
    assert world.show(dashboard)  # a refusal of a store would raise


def test_the_table_of_runs_has_each_run_with_its_model_and_method(world: World) -> None:
    shown = world.show("runs")
    expected: list[tuple[Any, ...]] = [
        (name, "ended", name.split()[0], name.split()[1], "Percentile", "500 ms", "800 MiB", "80%")
        for name in reversed(names(RUNS))
    ]
    columns = "Run, State, Job, Model, Method, Duration, Peak memory, Share of limit"
    assert shown["Runs"].rows(*columns.split(", ")) == expected
    assert shown["Runs in view"].columns[-1].values == [str(RUNS)]
    assert shown["Ended"].columns[-1].values == [str(RUNS)]


def test_the_menu_has_every_run_newest_first(world: World) -> None:
    (query,) = (query for query in QUERIES if query.place == ("Quantization runs", "run"))
    assert world.ask(query) == list(reversed(names(RUNS)))


def test_every_panel_has_data_if_ranks_share_an_id(
    binaries: dict[str, str], tmp_path: Path
) -> None:
    with stores(binaries, tmp_path) as (world, made):
        send(made.grpc, 2, ranks_share_an_id=True)
        eventually(lambda: arrived(world) == {1}, "the run in Prometheus and Loki")
        shown = {file.stem: world.show(file.stem) for file in FILES}  # a refusal would raise
    assert shown["runs"]["Runs"].rows("Run") == [(names(1)[0],)]


@pytest.mark.parametrize("store", ["loki", "tempo"])
def test_a_time_range_may_be_as_long_as_the_retention(world: World, store: str) -> None:
    long = replace(world, began=time.time() - KEPT_DAYS * 24 * 3600)
    for query in QUERIES:
        if query.store == store and query.ref != "link" and query.text != "${trace}":
            long.ask(query)  # a refusal of the store would raise
