"""Runs: every run in the time range, newest first, and how many run, failed and vanished.

Tables of runs are made from metrics, which come while a run goes on, survive its death and are not sampled.
"""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as builders

from grafana.generator import names, panels, stack_health
from grafana.generator import run_figures as figures
from otel_quant.schema import semconv

FILE = "runs"

STEP = names.label(semconv.STEP_KIND)
FAILURES = names.series(
    semconv.STEP_DURATION, f'{names.label(semconv.ERROR_TYPE)}!=""', part="count"
)
ENDED = names.series(semconv.STEP_DURATION, part="count")
SEEN = names.series(semconv.RUN_LAST_SEEN)


_MOST_IN_LOKI = 5000
"""`max_query_series` in collector/backends/loki.yaml."""


def _lines(range_: str, name: str = "") -> str:
    # `sum by` of counts, and the maximum `by`: of `count by` or `max by` Loki would keep a series for each
    # record, which takes more memory than it has.
    matcher = f' | {names.label(semconv.CHECKPOINT_NAME)} = "{name}"' if name else ""
    return f"sum by ({figures.RUN}) (count_over_time({panels.LOGS_OF_RUNS}{matcher} [{range_}]))"


# Of a program that makes its providers itself, a run that was killed in its first minute is known from its
# checkpoints alone: it has a first one, and no last.
UNENDED = f"""({_lines("$__auto", "Start")} unless {_lines("$__auto", "End")})"""
MEMORY_BY_LOGS = (
    f"max_over_time({panels.MEMORY_IN_LOGS} [$__auto]) by ({figures.RUN}) and {UNENDED}"
)


def dashboard() -> builders.Dashboard:
    """Returns the dashboard."""
    return (
        panels.board(
            "quant-runs", "Quantization runs",
            f"The newest {figures.MOST_RUNS:,} quantizations in the time range: which run, how long, how big, how it ended.",
            panels.runs(),
        )
        .with_panel(_count(1, "Running", "The run has not ended and has sent metrics in the last 5 minutes. Nothing to do but watch.", panels.BLUE))
        .with_panel(_count(2, "Failed", "A step raised an exception. Open the run and read the exception in its trace.", panels.RED))
        .with_panel(_count(3, "Vanished", "Silent for 5 minutes without having ended: most likely killed. Look for the kernel's out-of-memory message on the host. A run killed before it first sent metrics is in the table alone.", "purple"))
        .with_panel(_count(0, "Ended", "The run ended and no step failed: nothing to do. Compare their cost in the Compare dashboard.", panels.GREEN))
        .with_panel(
            panels.figure(
                "Closest to the limit",
                "Highest share of its memory limit that a chosen run has had. From 90 % on, the next larger model or sample count is killed: raise the limit or calibrate with less.",
                "percentunit",
                panels.promql_table(f"max({figures.SHARE})"),
            ).thresholds(panels.SHARE_OF_LIMIT)
        )
        .with_panel(
            panels.figure(
                "Runs in view",
                f"Runs of the chosen jobs in the time range. All else on this page is of the newest {figures.MOST_RUNS:,}: if there are more, choose an earlier end of the time range, a job or a part of a name.",
                "none",
                panels.promql_table(f"count({figures.ALL})"),
            ).no_value("0").thresholds(panels.thresholds((None, panels.GREY), (figures.MOST_RUNS + 1, panels.YELLOW)))
        )
        .with_panel(_alerts())
        .with_panel(_table())
        .with_panel(
            panels.chart(
                "Memory",
                "Memory of each run's process tree, its ranks on one host added up. A run that climbs steadily while it calibrates keeps every activation: use fewer samples or a method without histograms. Of more than 50 runs, those with the highest peaks.",
                "bytes",
                panels.promql(figures.of_the_highest(f"max by ({figures.RUN}) ({figures.MEMORY_THEN})"), f"{{{{{figures.RUN}}}}}"),
            ).max_data_points(figures.MOST_POINTS)
        )
        .with_panel(
            panels.chart(
                "Share of the memory limit",
                "The same as a share of what the process may use. The kernel kills at 100 %; act at 90 %. Of more than 50 runs, those with the highest peaks.",
                "percentunit",
                panels.promql(figures.of_the_highest(f"max by ({figures.RUN}) ({figures.SHARE_THEN})"), f"{{{{{figures.RUN}}}}}"),
            ).thresholds(panels.SHARE_OF_LIMIT).axis_soft_max(1).max_data_points(figures.MOST_POINTS)
        )
        .with_panel(
            panels.chart(
                "Error rate",
                "Share of the steps that ended then with an exception, by job; 0 while there are runs and none has. One failure among a few runs is an accident; a rate that stays is the job's configuration or its host.",
                "percentunit",
                panels.promql(
                    # The 0 is of another metric: the one of all steps is the most expensive query of this page.
                    f"sum by (job) (increase({FAILURES}[$__rate_interval])) / (sum by (job) (increase({ENDED}[$__rate_interval])) > 0)"
                    f" or 0 * count by (job) (max_over_time({SEEN}[$__rate_interval]))",
                    "{{job}}",
                ),
            ).max(1).no_value("No run in this time range").span(24).max_data_points(figures.MOST_POINTS)
        )
        .with_row(panels.row("Known by checkpoints alone", _by_checkpoints()))
        .with_row(stack_health.row())
    )  # fmt: skip


def _count(state: int, title: str, description: str, color: str) -> panels.Panel:
    return panels.figure(
        title, description, "none", panels.promql_table(f"count(({figures.STATE}) == {state})")
    ).no_value("0").thresholds(panels.thresholds((None, panels.GREY), (1, color)))  # fmt: skip


def _alerts() -> panels.Panel:
    labels = f"alertname, severity, job, {figures.RUN}, {STEP}"
    table = panels.grid(
        "Alerts that fire",
        "Alerts of the rules in grafana/alerts for the chosen jobs, newest first; click a run to open it. What to do about each is in its message and in grafana/alerts/quant.yaml.",
        panels.TEXT,
        panels.promql_table(f'1000 * max by ({labels}) (ALERTS_FOR_STATE{{{names.OF_JOB}}} and ignoring (alertstate) ALERTS{{{names.OF_JOB}, alertstate="firing"}})'),
    ).no_value("No alert fires").height(6)  # fmt: skip
    table = panels.transformed(
        table,
        panels.columns({
            "Value": "Since", "severity": "Severity", "alertname": "Alert", "job": "Job",
            figures.RUN: "Run", STEP: "Step",
        }),
    ).with_transformation(panels.transform("sortBy", fields={}, sort=[{"field": "Since", "desc": True}]))  # fmt: skip
    return (
        table.override_by_name("Since", panels.looks("dateTimeAsIso", custom__width=175))
        .override_by_name("Run", panels.looks(links=[panels.link("Open this run", panels.TO_RUN)]))
    )  # fmt: skip


def _table() -> panels.Panel:
    table = (
        panels.grid(
            "Runs",
            f"One row for each run, newest first, the newest {figures.MOST_RUNS:,}; click a run to open it, a model for its inference. Children and ranks count for their run: the peaks of the ranks on one host are added up. Figures of a run that goes on, or was killed, are up to a minute old. A run that was killed before its first metrics is in the row below.",
            panels.TEXT,
            panels.promql_table(figures.BEGAN, "began"),
            panels.promql_table(figures.STATE, "state"),
            panels.promql_table(figures.DURATION, "duration"),
            panels.promql_table(figures.PEAK, "peak"),
            panels.promql_table(figures.SHARE, "share"),
            panels.promql_table(figures.GPU, "gpu"),
            panels.promql_table(figures.DISK, "disk"),
            panels.promql_table(figures.FAILED, "failed"),
        )
        .height(14)
        .with_transformation(panels.transform("joinByField", byField=figures.RUN, mode="outer"))
    )  # fmt: skip
    return (
        panels.transformed(
            table,
            panels.columns({
                "Value #began": "Began", figures.RUN: "Run", "Value #state": "State", "job": "Job",
                figures.MODEL: "Model", figures.METHOD: "Method", figures.CONFIG: "Configuration",
                "Value #duration": "Duration", "Value #peak": "Peak memory",
                "Value #share": "Share of limit", "Value #gpu": "GPU peak", "Value #disk": "Disk",
                "Value #failed": "Failed steps",
            }),
        )
        .with_transformation(panels.transform("sortBy", fields={}, sort=[{"field": "Began", "desc": True}]))
        .override_by_name("Began", panels.looks("dateTimeAsIso", custom__width=175))
        .override_by_name("Duration", panels.looks("ns"))
        .override_by_regexp("Peak memory|GPU peak|Disk", panels.looks("bytes"))
        .override_by_name("Failed steps", panels.looks("none"))
        .override_by_name("Share of limit", panels.looks("percentunit", thresholds={"mode": "absolute", "steps": [{"value": None, "color": panels.GREEN}, {"value": 0.8, "color": panels.YELLOW}, {"value": 0.9, "color": panels.RED}]}, **panels.coloured()))
        .override_by_name("State", panels.looks("none", mappings=panels.states(), **panels.coloured()))
        .override_by_name("Run", panels.looks(links=[panels.link("Open this run", panels.TO_RUN)], custom__width=360))
        .override_by_name("Model", panels.looks(links=[panels.link("Inference of its models", panels.TO_INFERENCE + "${__data.fields." + figures.RUN + ":percentencode}")]))
    )  # fmt: skip


def _by_checkpoints() -> panels.Panel:
    table = (
        panels.grid(
            "Runs without an end",
            f"Runs that have a first checkpoint in Loki and no last, with their highest memory there: they go on, or were killed. Those that have no row above were killed before they first sent metrics, as a program that makes its providers itself does after a minute. Of a time range that ends now, the last day: Loki reads every record of it. Choose the days of earlier ones, at most {_MOST_IN_LOKI:,} runs, or search.",
            panels.TEXT,
            panels.logql_table(MEMORY_BY_LOGS),
        )
        .no_value("Every run has ended")
        .time_from("1d")
        .span(24)
    )
    return panels.transformed(
        table, panels.columns({figures.RUN: "Run", "Value #A": "Peak memory"})
    ).override_by_name("Peak memory", panels.looks("bytes")).override_by_name("Run", panels.looks(links=[panels.link("Open this run", panels.TO_RUN)]))  # fmt: skip
