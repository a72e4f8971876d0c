"""What is sent days after it was measured, as `otel-quant send` does, arrives; what is too old, `send` names before."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from otel_quant.sending.send import TAKEN_DAYS
from tests.stack.many_runs import send
from tests.stack.processes import Collector, eventually
from tests.stack.world import World, stores
from tests.unit.stack.dashboards import Query

pytestmark = pytest.mark.servers

RUNS = 12
RECORDS = 4 * RUNS
HOUR, DAY = 3600, 86400
AGES = {"now": 0, "hours": 2 * HOUR, "days": 3 * DAY, "month": (TAKEN_DAYS - 1) * DAY}


@pytest.fixture
def world(binaries: dict[str, str], tmp_path: Path) -> Iterator[tuple[World, Collector]]:
    with stores(binaries, tmp_path, limited=True) as (world, made):
        yield replace(world, began=time.time() - 45 * DAY), made


def arrived(world: World, age: str) -> tuple[float, float]:
    """Returns how many runs of an age Prometheus has, and how many of their records Loki."""
    runs = f'count(last_over_time(quant_run_start_seconds{{quant_run_name=~".* {age}"}}[45d]))'
    lines = f'sum(count_over_time({{service_name=~".+"}} | quant_run_name=~".* {age}" [45d]))'
    counted = world.ask(Query(("test", "records"), "A", "loki", lines, instant=True))
    first, second = (
        sum(float(each["value"][1]) for each in found) for found in (world.metric(runs), counted)
    )
    return first, second


def refused(world: World) -> set[str]:
    """Returns the exporters whose store has refused something for good."""
    names = (
        "otelcol_exporter_send_failed_metric_points.*|otelcol_exporter_send_failed_log_records.*"
    )
    return {each["metric"]["exporter"] for each in world.metric(f'{{__name__=~"{names}"}} > 0')}


def test_runs_of_the_last_month_arrive_in_any_order_and_twice_is_once(
    world: tuple[World, Collector],
) -> None:
    asked, made = world
    for age, seconds in AGES.items():
        send(made.grpc, RUNS, seconds_ago=seconds, suffix=f" {age}")
        eventually(lambda age=age: arrived(asked, age) == (RUNS, RECORDS), f"the runs of {age}")
    assert refused(asked) == set()
    send(made.grpc, RUNS, seconds_ago=(TAKEN_DAYS + 10) * DAY, suffix=" older")
    both = {"otlp_http/prometheus", "otlp_http/loki"}
    eventually(lambda: refused(asked) == both, "what is older is refused")
    assert arrived(asked, "older") == (0, 0)
