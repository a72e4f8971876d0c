"""Every query of every dashboard and alert, asked of real servers after real runs.

Four quantizations with AMD Quark (one good, one of another model with another method, one
that fails, one that is killed), one artificial run, since it uses a GPU and more memory
than it may, and there is neither here, and one `otel-quant inference`.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from otel_quant.schema import catalog, semconv
from tests.stack import traceql
from tests.stack.artificial_run import READ_BETWEEN, STEPS
from tests.stack.conftest import NO_TEMPO
from tests.stack.expected_columns import BASELINE, COLUMNS, RUN, UNORDERED
from tests.stack.grafana_panels import TIME_RANGE, Opened, Shown
from tests.stack.models_at_work import MEASURED, SHOWN, measure, rows_in
from tests.stack.processes import (
    CONFIGS,
    HERE,
    JOB,
    PATIENCE,
    ROOT,
    Collector,
    Webhook,
    eventually,
    fetch,
    quantize,
    started,
)
from tests.stack.world import World, stores
from tests.unit.stack.dashboards import FILES, QUERIES, Query, load

pytestmark = [pytest.mark.servers, pytest.mark.quark]


# Queries that have nothing to show after these runs, and why that is right.
RIGHTLY_EMPTY = {
    ("Quantization compared", "baseline"): "all runs are chosen: there is no other",
    ("alerts", "QuantizationRunSlow"): "a baseline takes four runs with steps over a minute",
    ("alerts", "QuantizationMemoryLeak"): "growth counts from half an hour on",
    **{
        ("alerts", f"Stack{name}"): "the stack works"
        for name in ("QueueGrows", "DiskFull", "DataRefused", "DataLost")
    },
}
# Fields that no span has after these runs, and why that is right.
RIGHTLY_ABSENT = dict.fromkeys(
    ("precision", "expected_precision"), "each column is a type of them all"
)
# A run counts as vanished after five minutes' silence; for the alert, tests/stack/test_outages.py waits.
SILENT_LATER = [
    ("alerts", name)
    for name in ("instance:quant_run_silent", "run:quant_run_silent", "QuantizationRunVanished")
]
VANISHED = ("Quantization runs", "Vanished")
MINUTE = 60
EACH_MINUTE = ":1m]"
"""In a query that looks at the data once in every whole minute."""
STEPS_OF_A_RUN = [
    "Model Caching", "Float Model Validation", "Dataset Loading", "Pre-process", "Model Caching",
    "Float Model Validation", "Calibration", "Quantization (Static)", "Post-process",
]  # fmt: skip
TO_BE_KILLED = "to-be-killed"


@pytest.fixture(scope="module")
def world(binaries: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    webhook = Webhook()
    try:
        folder = tmp_path_factory.mktemp("world")
        with stores(binaries, folder, webhook) as (before, made):
            measure(made.environment, folder)
            yield run_all(before, made, folder)
    finally:
        webhook.stop()


def run_all(world: World, made: Collector, folder: Path) -> World:
    instance = f"service.instance.id={TO_BE_KILLED}"
    killed = quantize(made, folder, "killed", OTEL_RESOURCE_ATTRIBUTES=instance)
    wait_for_calibration(world, TO_BE_KILLED)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    killed_at = time.time()
    wide = ("good", "--model=wide", "--preset=S8S8_AAWS")
    # Two runs of a model that begin in the same millisecond have the same name, so none begins beside another.
    for arguments, code in ((("good",), 0), (("failed",), 1), (wide, 0)):
        # On a busy machine a step lasts over a second, and what bounds it would be a column more.
        process = quantize(made, folder, *arguments, OTEL_QUANT_STACKS="false")
        assert process.wait(PATIENCE) == code
    artificial = started(
        made, sys.executable, HERE / "artificial_run.py", MEASURED, OTEL_SERVICE_NAME="artificial"
    )
    assert artificial.wait(PATIENCE) == 0
    runs = eventually(lambda: runs_by_end(world), "the runs' checkpoints and metrics")
    starts = [each["metric"] for each in world.metric("quant_run_start_seconds")]
    names = {start["instance"]: start.get("quant_run_name", "") for start in starts}
    return replace(world, **runs, killed_at=killed_at, names=names)


def wait_for_calibration(world: World, instance: str) -> None:
    """Waits until both Prometheus and Loki know that a run calibrates."""
    open_now = f'quant_step_active{{quant_step_kind="Calibration", instance=~"{instance}.+"}} == 1'
    begun = (
        f'{{service_name="{JOB}"}} | service_instance_id=~"{instance}.+"'
        ' | quant_checkpoint_name="Calibration Start"'
    )
    eventually(lambda: world.metric(open_now), "an open calibration in Prometheus", PATIENCE)
    eventually(lambda: world.records(begun), "an open calibration in Loki", PATIENCE)


def runs_by_end(world: World) -> dict[str, str]:
    """Returns a run that ended and the one that did not, from the checkpoints.

    Nothing before both stores hold all of each run: the checkpoints up to the last of those
    that ended, and the duration of each step that ended by them. Metrics of a run's last
    moment that are still on their way would make it one that vanished.
    """
    runs: dict[str, list[dict[str, str]]] = {}
    for stream in world.records('{service_name=~".+"} | quant_checkpoint_name != ""'):
        runs.setdefault(stream["stream"]["service_instance_id"], []).append(stream["stream"])
    names = {
        run: [one["quant_checkpoint_name"] for one in records] for run, records in runs.items()
    }
    ended = {run for run, passed in names.items() if "End" in passed}
    cut = [run for run in runs if run not in ended]
    if len(runs) != 5 or [run[: len(TO_BE_KILLED)] for run in cut] != [TO_BE_KILLED]:
        return {}
    count = "sum by (instance) (last_over_time(quant_step_duration_seconds_count[1h]))"
    steps = {
        series["metric"]["instance"]: int(series["value"][1]) for series in world.metric(count)
    }
    if steps != {
        run: sum(name.endswith(" End") for name in passed) for run, passed in names.items()
    }:
        return {}
    good = [
        run
        for run in ended
        if "Post-process End" in names[run] and runs[run][0]["service_name"] == JOB
    ]
    assert len(good) == 2, names
    return {
        "good": runs[good[0]][0]["trace_id"],
        "instance": good[0],
        "killed": runs[cut[0]][0]["trace_id"],
    }


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_every_query_finds_data_of_the_runs(world: World, query: Query) -> None:
    if query.store == "tempo" and world.spans is not None:
        pytest.skip(NO_TEMPO)
    if query.place in RIGHTLY_EMPTY or query.place in SILENT_LATER:
        assert world.ask(query) == []
    elif query.place == ("alerts", "StackServerDown"):
        down = [] if world.spans is None else ["tempo"]
        assert [each["metric"]["job"] for each in world.ask(query)] == down
    elif query.place == VANISHED:
        assert world.ask(query, at=world.killed_at + MINUTE) == []
        assert len(world.ask(query, at=world.killed_at + 6 * MINUTE)) == 1
    elif EACH_MINUTE in query.text:
        # The runs may not have lasted into another minute: it is asked at the next one.
        eventually(
            lambda: world.ask(query, at=(time.time() // MINUTE + 1) * MINUTE),
            f"{query}: {query.text}",
            30,
        )
    else:
        eventually(lambda: world.ask(query), f"{query}: {query.text}", 30)


@pytest.mark.parametrize("query", [q for q in QUERIES if q.store == "tempo"], ids=str)
def test_every_trace_query_uses_attributes_that_the_collector_sends(
    world: World, query: Query
) -> None:
    if world.spans is None:
        pytest.skip("Tempo runs and has answered the queries")
    text = world.filled(query, {})
    if text == world.good:
        assert text in {span.trace_id for span in world.spans}
        return

    def missing() -> list[str]:
        spans = traceql.found(text, list(world.spans or ()))
        return [
            field
            for field in traceql.fields(text)
            if RIGHTLY_ABSENT.keys().isdisjoint(field.split("."))
            and all(traceql.value(span, field) is None for span in spans)
        ]

    with contextlib.suppress(AssertionError):  # the next line names what is missing
        eventually(lambda: not missing(), f"{query}: {text}", 30)
    assert missing() == []


def test_the_store_has_no_unmeasured_memory_of_0(world: World) -> None:
    samples = '{__name__=~"(quant_run|hw_gpu)_memory_(usage|limit)_bytes"}[1h]'
    found = {
        (series["metric"]["__name__"], float(value) > 0)
        for series in world.metric(samples)
        for _, value in series["values"]
    }
    assert found == {
        ("quant_run_memory_usage_bytes", True),
        ("quant_run_memory_limit_bytes", True),
        ("hw_gpu_memory_usage_bytes", True),
        ("hw_gpu_memory_limit_bytes", True),
    }


def test_prometheus_scrapes_every_server_of_the_stack(world: World) -> None:
    def known(label: str, text: str) -> set[str]:
        return {series["metric"][label] for series in world.metric(text)}

    config = yaml.safe_load((CONFIGS / "backends" / "prometheus.yaml").read_text())
    scraped = {job["job_name"] for job in config["scrape_configs"]}
    assert scraped == {"prometheus", "alertmanager", "otelcol", "loki", "tempo"}
    if world.spans is not None:
        scraped.remove("tempo")
    eventually(lambda: known("job", "up == 1") == scraped, f"{scraped} are up")
    queue = 'otelcol_exporter_queue_size{job="otelcol"}'
    exporters = {"otlp_grpc/tempo", "otlp_http/loki", "otlp_http/prometheus"}
    eventually(lambda: known("exporter", queue) == exporters, f"the queues of {exporters}")


def test_alerts_fire_for_a_failed_step_a_run_near_its_limit_and_a_result_not_as_asked(
    world: World,
) -> None:
    url = f"http://127.0.0.1:{world.ports.prometheus}/api/v1/alerts"

    def firing() -> list[Any]:
        return [
            alert
            for alert in fetch(url)["data"]["alerts"]
            if alert["state"] == "firing" and not alert["labels"]["alertname"].startswith("Stack")
        ]

    alerts = eventually(lambda: len(found := firing()) == 3 and found, "three alerts")
    labels = ("alertname", "job", "error_type")
    assert sorted([alert["labels"].get(key) for key in labels] for alert in alerts) == [
        ["QuantizationMemoryNearLimit", "artificial", None],
        ["QuantizationResultNotAsAsked", "artificial", None],
        ["QuantizationStepFailed", JOB, "RuntimeError"],
    ]


def test_alertmanager_sends_firing_alerts_to_the_webhook(world: World) -> None:
    of_artificial = ("QuantizationMemoryNearLimit", "QuantizationResultNotAsAsked")
    expected = {
        *((alert, "artificial") for alert in of_artificial),
        ("QuantizationStepFailed", JOB),
    }
    # No Tempo runs here as a rule, and that is an alert too after two minutes.
    eventually(
        lambda: world.webhook.told - {("StackServerDown", "tempo")} == expected, f"{expected}"
    )


@pytest.mark.parametrize(
    "query",
    [
        q
        for q in QUERIES
        if q.store == "loki" and f"{semconv.READING_PREFIX}memory".replace(".", "_") in q.text
        and q.place[0] != "Quantization runs"  # there of runs that have not ended
    ],
    ids=str,
)  # fmt: skip
def test_memory_of_a_run_includes_its_readings(world: World, query: Query) -> None:
    def highest() -> int:
        values = [
            float(value)
            for series in world.ask(query)
            for _, value in series.get("values", [series.get("value")])
        ]
        return int(max(values, default=0))

    eventually(lambda: highest() == READ_BETWEEN, f"{query}: {query.text}", 30)


def test_the_lines_of_a_step_are_shown_as_a_table(world: World) -> None:
    (query,) = (each for each in QUERIES if each.place == ("Quantization run", "Lines of code"))
    lines = {line for result in world.ask(query) for _, line in result["values"]}
    assert (
        "Calibration: calibration_data, 63 % of its time, most at Reader.get_next (quantize.py:17)\n"
        " 75.0 %        3.00 s   merge (calibrate.py:983)\n"
        " 25.0 %        1.00 s   load (quantize.py:30)\n"
        " 75.0 %        90.0 MB  load (quantize.py:30)\n"
        " 25.0 %        30.0 MB  merge (calibrate.py:983)"
    ) in lines


def test_the_last_step_of_a_killed_run_is_shown(world: World) -> None:
    streams = world.records(f'{{service_name="{JOB}"}} | trace_id="{world.killed}"')
    found = [stream["stream"] for stream in streams]
    of_run = [
        each for each in found if not each.keys() & {"quant_step_index", "quant_reading_elapsed"}
    ]
    # Its span never arrives. The record of its start has what names the run, and the span's id.
    started, first = sorted(of_run, key=lambda labels: "quant_checkpoint_name" in labels)
    for name in ("quant_run_id", "process_pid", "span_id", "service_instance_id"):
        assert started[name] == first[name]
    checkpoints = [labels for labels in found if "quant_checkpoint_sequence" in labels]
    last = max(checkpoints, key=lambda labels: int(labels["quant_checkpoint_sequence"]))
    assert last["quant_checkpoint_name"] == "Calibration Start"
    assert int(last["quant_checkpoint_memory"]) > 1 << 20


def test_prometheus_names_every_metric_as_the_dashboards_expect(world: World) -> None:
    generator = pytest.importorskip("grafana.generator.names")
    url = f"http://127.0.0.1:{world.ports.prometheus}/api/v1/label/__name__/values"
    expected = {
        name
        for metric in catalog.METRICS
        if "<" not in metric.name
        for name in generator.prometheus(metric.name)
    }
    expected.add("quant_custom_accuracy")  # the artificial run sends one
    # Of a model that is measured here: not every machine counts the energy of its processors, and none has a GPU.
    expected -= {
        name
        for name in expected
        if name.startswith("quant_inference_") and name.endswith("_energy_joules")
    }

    def found() -> set[str]:
        names = {name for name in fetch(url)["data"] if name.startswith(("quant_", "hw_"))}
        return names - {"quant_inference_cpu_energy_joules"}

    eventually(lambda: found() >= expected, f"all of {sorted(expected)}")
    assert found() == expected


def test_the_store_has_as_many_series_of_a_run_as_the_docs_count(world: World) -> None:
    def names_of(**labels: str) -> Counter[str]:
        selector = ", ".join(f'{key}="{value}"' for key, value in labels.items())
        url = f"http://127.0.0.1:{world.ports.prometheus}/api/v1/series"
        found = fetch(url, **{"match[]": f"{{{selector}}}"}, start=world.began, end=time.time())
        return Counter(series["__name__"] for series in found["data"])

    def is_artificial(name: str) -> bool:
        """The runs with Quark see no GPU, and are over before a forecast can be made if nothing slows them."""
        return name.startswith(("quant_forecast_", "hw_")) or "_gpu_" in name

    (artificial,) = (run for run, name in world.names.items() if name.startswith("artificial"))
    added = {name: n for name, n in names_of(instance=artificial).items() if is_artificial(name)}
    of_each_step = added.pop("quant_step_gpu_memory_peak_bytes") // len(STEPS)
    real = {n: c for n, c in names_of(instance=world.instance).items() if not is_artificial(n)}
    steps = len(set(STEPS_OF_A_RUN))
    whole = sum(real.values()) + sum(added.values()) + steps * of_each_step
    text = (ROOT / "docs" / "scaling.md").read_text()
    assert f"| series in Prometheus | {whole}, half of them buckets" in text


@pytest.mark.parametrize("query", [q for q in QUERIES if q.exemplars], ids=str)
def test_an_exemplar_leads_from_a_chart_to_its_trace(world: World, query: Query) -> None:
    url = f"http://127.0.0.1:{world.ports.prometheus}/api/v1/query_exemplars"

    def traces() -> set[str]:
        answer = fetch(url, query=world.filled(query, {}), start=world.began, end=time.time())
        return {e["labels"]["trace_id"] for series in answer["data"] for e in series["exemplars"]}

    eventually(lambda: world.good in traces(), "an exemplar of the good run")


def run_named(world: World, service: str, model: str, last: bool = True) -> str:
    """Returns the name of the newest run of a service on a model, or of the oldest."""
    names = sorted(name for name in world.names.values() if name.startswith(f"{service} {model} "))
    return names[-1 if last else 0]


@pytest.fixture(scope="module")
def shown(world: World) -> dict[str, dict[str, Shown]]:
    """Returns what the panels of each dashboard show, by the dashboard's title and their own."""
    of_run = {"run": run_named(world, JOB, "wide")}
    variables = {
        "run": of_run,
        "compare": {**of_run, "baseline": run_named(world, JOB, "narrow", last=False)},
    }
    eventually(lambda: len(costed(world)) == 3, "the models of the three runs that ended well")
    for query in (query for query in QUERIES if query.place[0] == "Inference"):
        eventually(lambda query=query: world.ask(query), f"{query}: {query.text}", 30)
    return {
        load(file)["title"]: world.show(file.stem, **variables.get(file.stem, {})) for file in FILES
    }


def costed(world: World) -> list[Any]:
    """Returns the traces that a search for models' costs gives."""
    return world.ask(
        Query(("test", "cost"), "A", "tempo", '{ name = "model cost" } | select(name)')
    )


def placeholder(world: World, name: str) -> str:
    """Returns a column's name without the times in names of runs."""
    known = {
        run_named(world, JOB, "wide"): RUN,
        run_named(world, JOB, "narrow", last=False): BASELINE,
    }
    return known.get(name, name)


def test_tables_have_these_columns_in_this_order_and_unit(
    world: World, shown: dict[str, dict[str, Shown]]
) -> None:
    found = {
        (dashboard, title): [
            replace(one, name=placeholder(world, one.name)).heading for one in each.columns
        ]
        for dashboard, panels in shown.items()
        for title, each in panels.items()
        if each.panel["type"] == "table" and each.frames
    }
    for place in UNORDERED:
        found[place][1:] = sorted(found[place][1:])
    assert {place: ", ".join(headings) for place, headings in found.items()} == COLUMNS


def test_the_table_of_runs_describes_each_run_and_its_end(
    world: World, shown: dict[str, dict[str, Shown]]
) -> None:
    columns = ("Job", "Model", "Method", "Configuration", "State", "Failed steps")
    table = shown["Quantization runs"]["Runs"]
    ((killed, *_),) = (
        row
        for row in table.rows("State", "Run")
        if row[1] in {name for id_, name in world.names.items() if id_.startswith(TO_BE_KILLED)}
    )
    assert killed in ("running", "vanished")  # the second after five minutes
    assert sorted(table.rows(*columns)) == sorted([
        ("artificial", "resnet50", "Percentile", "XINT8", "ended", "-"),
        (JOB, "wide", "Percentile", "S8S8_AAWS", "ended", "-"),
        (JOB, "narrow", "MinMSE", "XINT8", "ended", "-"),
        (JOB, "narrow", "MinMSE", "XINT8", "failed", "1"),
        (JOB, "narrow", "MinMSE", "XINT8", killed, "-"),
    ])  # fmt: skip
    assert {name for (name,) in table.rows("Run")} == set(world.names.values())


def test_firing_alerts_are_listed_and_pending_ones_are_not(
    shown: dict[str, dict[str, Shown]],
) -> None:
    # The artificial run would need more memory than it may; that alert waits five minutes.
    listed = set(shown["Quantization runs"]["Alerts that fire"].rows("Alert"))
    listed.discard(("StackServerDown",))  # no Tempo runs here as a rule: after two minutes
    names = ("MemoryNearLimit", "ResultNotAsAsked", "StepFailed")
    assert sorted(listed) == [(f"Quantization{name}",) for name in names]


def test_an_empty_cell_of_a_table_with_rows_has_a_dash(shown: dict[str, dict[str, Shown]]) -> None:
    for panels in shown.values():
        for title, each in panels.items():
            if each.panel["type"] == "table" and not each.is_empty:
                texts = {value for frame in each.frames for one in frame for value in one.values}
                nothing = each.panel["fieldConfig"]["defaults"]["noValue"]
                assert nothing == "-" or nothing not in texts, title


def test_inference_results_of_models_are_shown_side_by_side(
    shown: dict[str, dict[str, Shown]],
) -> None:
    assert rows_in(shown["Inference"]) == SHOWN


def test_links_lead_to_the_run_and_to_the_trace_of_the_row(
    world: World, shown: dict[str, dict[str, Shown]]
) -> None:
    def to_runs(dashboard: str, title: str) -> dict[str, list[Opened]]:
        names = shown[dashboard][title].rows("Run")
        return {"Run": [(path, {**start, "var-run": [name]}) for (name,) in names]}

    def at_work(dashboard: str, title: str) -> dict[str, list[Opened]]:
        names = shown[dashboard][title].rows("Run")
        opened = [
            ("/d/quant-inference/inference", {**TIME_RANGE, "var-run": [n]}) for (n,) in names
        ]
        return {"Model": opened}

    path, start = "/d/quant-run/run", {**TIME_RANGE, "var-job": [JOB]}
    name = run_named(world, JOB, "wide")
    began = f'quant_run_start_seconds{{quant_run_name="{name}"}}'
    (trace,) = (each["metric"]["quant_run_trace_id"] for each in world.metric(began))
    chosen = {"var-run": [name], "var-instance": ["$__all"], "var-trace": [trace]}
    assert {
        (dashboard, title): each.opened
        for dashboard, panels in shown.items()
        for title, each in panels.items()
        if each.opened
    } == {
        ("Quantization runs", "Alerts that fire"): to_runs("Quantization runs", "Alerts that fire"),
        ("Quantization runs", "Runs without an end"): to_runs("Quantization runs", "Runs without an end"),
        ("Quantization runs", "Runs"): to_runs("Quantization runs", "Runs") | at_work("Quantization runs", "Runs"),
        ("Quantization compared", "Runs side by side"): to_runs("Quantization compared", "Runs side by side"),
        ("Quantization run", "Steps"): {"Name": [(path, start | chosen | {"var-lines": [step]}) for step in STEPS_OF_A_RUN]},
    }  # fmt: skip
    steps = shown["Quantization run"]["Steps"]
    assert [step for (step,) in steps.rows("Name")] == STEPS_OF_A_RUN


def test_every_panel_shows_data_or_a_reason(shown: dict[str, dict[str, Shown]]) -> None:
    found = {
        (dashboard, title): each.panel["fieldConfig"]["defaults"]["noValue"]
        for dashboard, panels in shown.items()
        for title, each in panels.items()
        # The first two are asked at set times above; Grafana reports itself that there are no log records.
        if each.is_empty and title not in ("Running", "Vanished") and each.panel["type"] != "logs"
    }
    # Only a run that something slows has time for a forecast; and both are of the last minutes.
    for title, text in (
        ("Time left", "no calibration is open, or the reader has no length"),
        ("Batches per second", "no batch in the last minutes"),
    ):
        assert found.pop(("Quantization run", title), text) == text
    assert found == {
        ("Quantization run", "Open now"): "no step is open",
        ("Quantization run", "GPU memory"): "The run sees no GPU",
        ("Quantization run", "GPU peaks"): "The run sees no GPU",
        **{
            ("Quantization run", f"GPU {figure}"): "The run sees no GPU, or it does not tell"
            for figure in (
                "utilization", "power", "temperature", "clock", "memory clock", "process memory",
                "torch allocated", "torch reserved",
            )
        },
    }  # fmt: skip


def test_compare_preselects_the_previous_run_of_the_same_model(world: World) -> None:
    (query,) = (q for q in QUERIES if q.place == ("Quantization compared", "baseline"))
    newest = sorted(world.names.values(), key=lambda name: name.split()[-1])
    narrow = [name for name in newest if name.startswith(f"{JOB} narrow ")]
    others = [name for name in newest if name not in narrow]
    offered = world.ask(query, run=narrow[-1])
    assert (offered[:2], sorted(offered[2:])) == ([narrow[1], narrow[0]], sorted(others))
