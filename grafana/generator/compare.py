"""Compare: runs and variants side by side, and against a baseline."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import heatmap
from grafana_foundation_sdk.models.dashboard import VariableRefresh, VariableSort
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from grafana.generator import names, panels
from grafana.generator import run_figures as figures
from otel_quant.schema import semconv

FILE = "compare"

STEP = names.label(semconv.STEP_KIND)
ENDED = f'{names.label(semconv.ERROR_TYPE)}=""'
BASELINE = f"{names.RUN_NAME}=~`${{baseline:regex}}`"
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def dashboard() -> builders.Dashboard:
    """Returns the dashboard."""
    return (
        panels.board(
            "quant-compare", "Quantization compared",
            "Runs and variants side by side: which method costs how much memory, which step got slower.",
            panels.run(several=True),
            beside=f"{names.RUN_NAME}=~`${{run:regex}}|${{baseline:regex}}`",
        )
        .with_variable(_baseline())
        .with_variable(
            panels.choice(
                "step", "Step", f'label_values({names.prometheus(semconv.STEP_DURATION)[2]}{{{names.OF_JOB}}}, {STEP})',
                "Steps of the panels on durations of the newest runs.",
            )
        )
        .with_panel(_variants())
        .with_panel(_ratio("Duration against the baseline", semconv.STEP_DURATION, "How many times the baseline's duration each step takes: 1 is the same. Above 1.5 look for more samples, another host or a busy disk."))
        .with_panel(_ratio("Peak memory against the baseline", semconv.STEP_MEMORY_PEAK, "How many times the baseline's peak each step reaches: 1 is the same. Look at what changed in the configuration of a step above 1.1."))
        .with_panel(_by_step("Duration by step", semconv.STEP_DURATION, "s", "Mean duration of each step for each run and its baseline. The one that grows fastest with the model is the one that will hurt next."))
        .with_panel(_by_step("Peak memory by step", semconv.STEP_MEMORY_PEAK, "bytes", "Mean peak of each step for each run and its baseline. Only the highest step decides whether the run fits."))
        .with_panel(_matrix())
        .with_panel(_median())
        .with_row(panels.row(f"Durations of the steps of the newest {figures.MOST_RUNS:,} runs", _slowest(), _spread()))
    )  # fmt: skip


def _baseline() -> builders.QueryVariable:
    """Returns the choice of what to compare with: at first the run before on the same model."""
    run, model = figures.RUN, figures.MODEL
    every = f"max by ({run}, {model}) (max_over_time({panels.START}{{{names.OF_JOB}}}[$__range]))"
    chosen = f"max by ({run}, {model}) (max_over_time({panels.START}{{{names.OF_JOB}, {names.CHOSEN}}}[$__range]))"
    before = f"({every} < on ({model}) group_left () min by ({model}) ({chosen}))"
    # After them the others, which are on another model or later, with a smaller value.
    others = f"({every} unless on ({run}) {chosen}) / 1000"
    return (
        builders.QueryVariable("baseline").label("Baseline")
        .description("What the others are measured against. At first the run before on the same model.")
        .query(f"query_result(sort_desc(topk({figures.MOST_RUNS}, {before} or on ({run}) {others})))").regex(panels.OF_RESULT)
        .datasource(panels.PROMETHEUS).refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.DISABLED)
    )  # fmt: skip


def _matrix() -> panels.Panel:
    model, method = figures.MODEL, figures.METHOD
    start = names.series(semconv.RUN_START)
    peak = names.series(semconv.RUN_MEMORY_PEAK)
    of_run = f"topk by (job, instance, {figures.RUN}) (1, max_over_time({start}[$__range]))"
    query = (
        f"max by ({model}, {method}) (max_over_time({peak}[$__range])"
        f" * on (job, instance, {figures.RUN}) group_left ({model}, {method}) ({of_run} > bool 0))"
    )
    # A label that no run has would be no column, and then there are no rows and columns to make.
    for label in (model, method):
        query = f'label_replace({query}, "{label}", "-", "{label}", "")'
    return panels.matrix(
        panels.grid(
            "Peak memory by model and method",
            f"Highest memory of any of the newest {figures.MOST_RUNS:,} runs of the chosen jobs, one row for each model, one column for each calibration method. Take the cheapest method whose accuracy is good enough. Without a model's name where OTEL_QUANT_PATHS hides it.",
            "bytes",
            panels.promql_table(query),
        ).span(12),
        "Model", model, method,
    )  # fmt: skip


def _variants() -> panels.Panel:
    of = f"{names.RUN_NAME}=~`${{run:regex}}|${{baseline:regex}}`"
    table = panels.grid(
        "Runs side by side",
        "The chosen runs and the baseline. Filter a column to compare like with like; click a run to open it.",
        panels.TEXT,
        *(
            panels.promql_table(query.replace(names.CHOSEN, of), ref)
            for ref, query in (
                ("began", figures.BEGAN), ("duration", figures.DURATION), ("peak", figures.PEAK),
                ("share", figures.SHARE), ("gpu", figures.GPU), ("disk", figures.DISK),
            )
        ),
    ).height(8).with_transformation(panels.transform("joinByField", byField=figures.RUN, mode="outer"))  # fmt: skip
    return (
        panels.transformed(
            table,
            panels.columns({
                "Value #began": "Began", figures.RUN: "Run", figures.MODEL: "Model",
                figures.METHOD: "Method", figures.CONFIG: "Configuration",
                "Value #duration": "Duration", "Value #peak": "Peak memory",
                "Value #share": "Share of limit", "Value #gpu": "GPU peak", "Value #disk": "Disk",
            }),
        )
        .with_transformation(panels.transform("sortBy", fields={}, sort=[{"field": "Began", "desc": True}]))
        .override_by_name("Began", panels.looks("dateTimeAsIso", custom__width=175))
        .override_by_name("Duration", panels.looks("ns"))
        .override_by_name("Share of limit", panels.looks("percentunit"))
        .override_by_regexp("Peak memory|GPU peak|Disk", panels.looks("bytes"))
        .override_by_name("Run", panels.looks(links=[panels.link("Open this run", panels.TO_RUN)], custom__width=360))
    )  # fmt: skip


def _mean(metric: str, by: str, runs: str) -> str:
    """Returns the mean of a histogram of some runs over the time range, by some labels."""
    total, count = (
        f"sum by ({by}) ({names.named(f'max_over_time({names.series(metric, ENDED, part=part)}[$__range])', runs, over=names.RANGE)})"
        for part in ("sum", "count")
    )  # fmt: skip
    mean = f"{total} / ({count} > 0)"
    return (
        mean.replace(names.SELECTED, 'job=~".+", instance=~"$process"')
        if runs == BASELINE
        else mean
    )


def _by_step(title: str, metric: str, unit: str, description: str) -> panels.Panel:
    by = f"{names.RUN_NAME}, {STEP}"
    own, baseline = (_mean(metric, by, runs) for runs in (names.CHOSEN, BASELINE))
    return panels.matrix(
        panels.grid(title, description, unit, panels.promql_table(f"({own}) or ({baseline})")).span(12),
        "Step", STEP, names.RUN_NAME,
    )  # fmt: skip


def _ratio(title: str, metric: str, description: str) -> panels.Panel:
    own = _mean(metric, f"{names.RUN_NAME}, {STEP}", names.CHOSEN)
    baseline = _mean(metric, STEP, BASELINE)
    return panels.matrix(
        panels.grid(
            title, description, "short",
            panels.promql_table(f"({own}) / on ({STEP}) group_left () ({baseline})"),
        ).span(12).decimals(2).no_value("No earlier run on the same model: choose a baseline"),
        "Step", STEP, names.RUN_NAME,
    ).thresholds(
        panels.thresholds((None, panels.GREEN), (1.1, panels.YELLOW), (1.5, panels.RED))
    ).override_by_field_type("number", panels.looks(**panels.coloured()))  # fmt: skip


def _median() -> panels.Panel:
    step = "{{job}} {{" + STEP + "}}"
    return panels.chart(
        "Median duration of the last 14 days",
        "What the slow-run alert measures against: the median over the service's runs. A slow rise is a regression that no single run shows.",
        "s",
        panels.promql(f'job_step:{names.prometheus(semconv.STEP_DURATION)[1].removesuffix("_sum")}:median14d{{{names.OF_JOB}}}', step),
    )  # fmt: skip


def _buckets() -> str:
    series = names.series(semconv.STEP_DURATION, f'{ENDED}, {STEP}=~"$step"', part="bucket")
    return f"increase({series}[$__rate_interval])"


def _slowest() -> panels.Panel:
    return panels.chart(
        "Duration of ended steps",
        "Half, nine in ten and 99 in 100 of the steps that ended then took no longer. Each point is one step: point at the highest and open its trace to see why it took so long.",
        "s",
        *(
            panels.promql(
                f"histogram_quantile({quantile}, sum by (le, {STEP}) ({_buckets()}))",
                f"{{{{{STEP}}}}} {name}",
                name,
            ).exemplar(name == "p90")
            for name, quantile in QUANTILES.items()
        ),
    ).no_value("No step ended in this time range").height(11)  # fmt: skip


def _spread() -> panels.Panel:
    return (
        heatmap.Panel().title("Spread of durations")
        .description("How many of the chosen steps took how long, at the time at which they ended. Two bands in one step are two kinds of runs: choose the step, then look at what differs.")
        .datasource(panels.PROMETHEUS).unit("none").y_axis(heatmap.YAxisConfig().unit("s"))
        .no_value("No step ended in this time range")
        .with_target(panels.promql(f"sum by (le) ({_buckets()})", "{{le}}").format(PromQueryFormat.HEATMAP))
        .span(12).height(11)
    )  # fmt: skip
