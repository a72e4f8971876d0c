"""The results in docs/scaling.md follow from its measurements and from the configurations."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from otel_quant.inference.telemetry import MOST_FINDINGS, MOST_OPERATORS
from otel_quant.schema import catalog, semconv

ROOT = Path(__file__).resolve().parents[3]
TEXT = " ".join((ROOT / "docs" / "scaling.md").read_text().split())
DAY_MS = 86_400_000
SHARE_OF_A_CORE = 0.6
MIB = 1 << 20
UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9, "ms": 1.0, "million": 1e6, "": 1.0}


def number(pattern: str) -> float:
    """Returns the figure in the only place that a pattern, `#` for the figure, is found."""
    figure = r"([\d.,]+?)(?: (kB|MB|GB|ms|million))?"
    found = re.findall(re.escape(pattern).replace(r"\#", figure), TEXT)
    assert len(found) == 1, (pattern, found)
    text, unit = found[0]
    return float(text.replace(",", "")) * UNITS[unit]


TRACES = number("| traces | # |")
LOGS = number("| logs | # |")
EXPORT = number("| one export of metrics | #, every 60 s")
SERIES = number("| series in Prometheus | #, half of them")
SERIES_BYTES = number("| Prometheus memory, an active series | # |")
RULE_BYTES = number("| Prometheus memory, a series that the rules look back at | # |")
CPU_TRACES = number("| gateway CPU, all traces of a run | # |")
CPU_LOGS = number("| gateway CPU, all logs of a run | # (")
CPU_EXPORT = number("| gateway CPU, one export of metrics | # |")
UNDECIDED = number("| gateway memory, a trace that is not decided yet | # |")


@pytest.mark.parametrize(
    ("length", "minutes"), [("5 minutes", 5), ("1 hour", 60), ("10 hours", 600)]
)
def test_runs_a_day_follow_from_the_cpu_time_of_a_run(length: str, minutes: int) -> None:
    row = re.search(rf"\| {length} \| ([\d.]+) ms \| ([\d.,]+)( million)? \|", TEXT)
    assert row
    cpu = CPU_TRACES + CPU_LOGS + (minutes + 1) * CPU_EXPORT
    runs = float(row[2].replace(",", "")) * (1e6 if row[3] else 1)
    assert float(row[1]) == pytest.approx(cpu, rel=0.05)
    assert runs == pytest.approx(SHARE_OF_A_CORE * DAY_MS / cpu, rel=0.05)


def test_the_runs_of_a_day_follow_from_the_memory_of_their_series() -> None:
    pattern = r"(\d+) for each of the seven names here, and (\d+) besides"
    of_a_name, besides = map(int, re.search(pattern, TEXT).groups())
    assert 7 * of_a_name + besides == SERIES
    assert number("271 x 2.1 kB = # for each") == pytest.approx(SERIES * SERIES_BYTES, rel=0.1)
    looked_back_at = 7 * 14
    assert number("14 days of them # for each run a day") == looked_back_at
    in_memory = SERIES * SERIES_BYTES / 8  # three hours are an eighth of a day
    looked_back = looked_back_at * RULE_BYTES
    day = number("**# runs a day** with the 2 GiB")
    held = number("1 GiB for series, which hold # runs a day")
    assert held == pytest.approx(1024 * MIB / (in_memory + looked_back), rel=0.05)
    assert held > day
    alone = number("the same memory holds # runs a day")
    assert alone == pytest.approx(1024 * MIB / in_memory, rel=0.05)
    assert number("and there are fewer than # a day") == day
    pattern = r"([\d,]+) runs a day are ([\d.]+) GB of traces and ([\d.]+) GB of logs"
    stored = re.search(pattern, TEXT)
    assert stored
    assert float(stored[1].replace(",", "")) == day
    assert float(stored[2]) == pytest.approx(day * TRACES / 1e9, rel=0.15)
    assert float(stored[3]) == pytest.approx(day * LOGS / 1e9, rel=0.15)
    assert number("Prometheus writes 108 bytes for a series: # in the 90 days") == pytest.approx(
        day * SERIES * 90 * 108, rel=0.02
    )
    assert number("# for each run a day, in 3 hours") == pytest.approx(SERIES / 8, rel=0.02)


def test_the_documented_series_of_an_inference_follow_from_the_contract() -> None:
    of_machines = {semconv.INFERENCE_GPU_ENERGY, semconv.INFERENCE_CPU_ENERGY}  # that count it
    found = [each for each in catalog.METRICS if semconv.MODEL_NAME in each.attributes]
    of_a_model = [each for each in found if each.name not in of_machines]
    against_the_first = {semconv.INFERENCE_SPEEDUP, semconv.INFERENCE_SQNR}
    of_the_first = [each for each in of_a_model if each.name not in against_the_first]
    series = number("of two models is # series in Prometheus")
    assert series == 1 + len(of_the_first) + len(of_a_model)
    assert "an inference is an eighteenth of a run" in TEXT
    assert SERIES / series == pytest.approx(18, rel=0.1)
    assert f"{MOST_OPERATORS * 2} records of operators and {MOST_FINDINGS} of findings" in TEXT


def test_the_documented_settings_for_other_stores_equal_the_files() -> None:
    backends = {
        name: yaml.safe_load((ROOT / "collector" / "backends" / f"{name}.yaml").read_text())
        for name in ("prometheus", "tempo")
    }
    mimir, tempo = (
        yaml.safe_load(block)
        for block in re.findall(
            r"```yaml\n(.+?)```", (ROOT / "docs" / "scaling.md").read_text(), re.DOTALL
        )
    )
    ours = backends["prometheus"]
    limits = mimir["limits"]
    promoted = ours["otlp"]["promote_resource_attributes"]
    assert limits["promote_otel_resource_attributes"].split(",") == promoted
    window = ours["storage"]["tsdb"]["out_of_order_time_window"]
    assert limits["out_of_order_time_window"] == window
    exemplars = ours["storage"]["exemplars"]["max_exemplars"]
    assert limits["max_global_exemplars_per_user"] == exemplars
    slack = tempo["live_store"]["wal"]["ingestion_time_range_slack"]
    assert slack == backends["tempo"]["live_store"]["wal"]["ingestion_time_range_slack"]
    assert tempo["block_builder"]["wal"]["ingestion_time_range_slack"] == slack
    for section in ("query_frontend", "backend_worker"):
        assert tempo[section] == backends["tempo"][section]


def test_the_documented_capacity_of_queues_and_gateways_follows_from_the_configurations() -> None:
    configs = {
        name: yaml.safe_load((ROOT / "collector" / f"{name}.yaml").read_text())
        for name in ("config", "agent", "gateway")
    }
    queues = {
        name: {exporter["sending_queue"]["queue_size"] for exporter in made["exporters"].values()}
        for name, made in configs.items()
    }
    assert queues == {"config": {512 * MIB}, "agent": {512 * MIB}, "gateway": {2048 * MIB}}
    assert "512 MiB for each exporter, 2 GiB in a gateway" in TEXT
    assert number("the traces of # runs") == pytest.approx(512 * MIB / TRACES, rel=0.05)
    assert number("the logs of #, and") == pytest.approx(512 * MIB / LOGS, rel=0.05)
    assert number("and # exports of metrics") == pytest.approx(512 * MIB / EXPORT, rel=0.05)
    undecided = configs["gateway"]["processors"]["tail_sampling"]["num_traces"] * UNDECIDED
    assert undecided == pytest.approx(1024 * MIB, rel=0.1)
