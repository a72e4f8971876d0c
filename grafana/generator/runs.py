"""Runs: every run in the time range, newest first, and how many run, failed and vanished."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as builders

from grafana.generator import names, panels
from otel_quant.telemetry import semconv

FILE = "runs"

MEMORY = names.series(semconv.RUN_MEMORY_USAGE)
LIMIT = names.series(semconv.RUN_MEMORY_LIMIT)
ACTIVE = names.series(semconv.STEP_ACTIVE)
FAILURES = names.series(
    semconv.STEP_DURATION, f'{names.label(semconv.ERROR_TYPE)}!=""', part="count"
)

OPEN = f"(max by (instance) (last_over_time({ACTIVE}[$__range])) > 0)"
SEEN_LATELY = f"count by (instance) (last_over_time({MEMORY}[5m]))"
FAILED = f"(sum by (instance) (max_over_time({FAILURES}[$__range])) > 0)"
EVERY = f"max by (instance) (max_over_time({MEMORY}[$__range]))"
STATE = (
    f"({FAILED} * 0 + 2) or (({OPEN} unless {SEEN_LATELY}) * 0 + 3)"
    f" or (({OPEN} and {SEEN_LATELY}) * 0 + 1) or ({EVERY} * 0)"
)
SEEN = f"timestamp({MEMORY})[$__range:1m]"


def _lines(range_: str, matcher: str = "") -> str:
    return f"count by (service_instance_id) (count_over_time({panels.LOGS_OF_RUNS}{matcher} [{range_}]))"


# Metrics come once a minute, checkpoints at once: a run that was killed in its first minute is
# known from these alone. They show that it has not ended, and whether it has sent anything lately.
UNENDED = f"""({_lines("$__auto")} unless {_lines("$__auto", f' | {names.label(semconv.CHECKPOINT_NAME)} = "End"')})"""
STATE_BY_CHECKPOINTS = (
    f"({UNENDED} and {_lines('5m')}) * 0 + 1 or ({UNENDED} unless {_lines('5m')}) * 0 + 3"
)
MEMORY_BY_LOGS = f"max by (service_instance_id) (max_over_time({panels.MEMORY_IN_LOGS} [$__auto]))"


def dashboard() -> builders.Dashboard:
    """Returns the dashboard."""
    return (
        panels.board(
            "quant-runs", "Quantization runs",
            "Every quantization in the time range: which run, how long, how big, how it ended.",
        )
        .with_panel(_count(1, "Running", "A step is open and the run has sent metrics in the last 5 minutes. Nothing to do but watch.", panels.BLUE))
        .with_panel(_count(2, "Failed", "A step raised an exception. Open the run and read the exception in its trace.", panels.RED))
        .with_panel(_count(3, "Vanished", "Silent for 5 minutes with a step open: most likely killed. Look for the kernel's out-of-memory message on the host. A run killed before it first sent metrics, in its first minute, is in the table alone.", "purple"))
        .with_panel(_count(0, "Ended", "Every step ended and none failed: nothing to do. Compare their cost in the Compare dashboard.", panels.GREEN))
        .with_panel(
            panels.figure(
                "Closest to the limit",
                "Highest share of its memory limit that a chosen run had when it reported, once a minute; the table has the exact peak of those that ended. From 90 % on, the next larger model or sample count is killed: raise the limit or calibrate with less.",
                "percentunit",
                panels.promql_table(f"max({EVERY} / max by (instance) (max_over_time({LIMIT}[$__range])))"),
            ).span(8).thresholds(panels.SHARE_OF_LIMIT)
        )
        .with_panel(_table())
        .with_panel(
            panels.chart(
                "Memory",
                "Memory of each run's process tree. A run that climbs steadily while it calibrates keeps every activation: use fewer samples or a method without histograms.",
                "bytes",
                panels.promql(f"max by (instance, job) ({MEMORY})", "{{job}} {{instance}}"),
            )
        )
        .with_panel(
            panels.chart(
                "Share of the memory limit",
                "The same as a share of what the process may use. The kernel kills at 100 %; act at 90 %.",
                "percentunit",
                panels.promql(f"max by (instance, job) ({MEMORY}) / max by (instance, job) ({LIMIT})", "{{job}} {{instance}}"),
            ).thresholds(panels.SHARE_OF_LIMIT).max(1)
        )
    )  # fmt: skip


def _count(state: int, title: str, description: str, color: str) -> panels.Panel:
    return panels.figure(
        title, description, "none", panels.promql_table(f"count(({STATE}) == {state})")
    ).no_value("0").thresholds(panels.thresholds((None, panels.GREY), (1, color)))  # fmt: skip


def _table() -> panels.Panel:
    disk = names.series(semconv.RUN_DISK_IO)
    gpu = names.series(semconv.RUN_GPU_MEMORY_USAGE)
    shown = (
        semconv.LIBRARY_NAME, semconv.INPUT_PATH, semconv.CALIBRATION_METHOD,
        semconv.CONFIG_NAME, semconv.ERROR_TYPE, semconv.RUN_FAILED_STEPS,
        semconv.MEMORY_PEAK, semconv.MEMORY_PEAK_RATIO, semconv.GPU_MEMORY_PEAK,
    )  # fmt: skip
    # Columns with several sources: of a run that ended, the trace has the exact figure; of any
    # other, the samples and checkpoints have it.
    merged = {
        "State": ("firstNotNull", ("Value #state", "Value #state_by_checkpoints")),
        "Duration": ("max", ("duration", "Value #duration")),
        "Peak memory": ("max", (semconv.MEMORY_PEAK, "Value #peak", "Value #logs")),
        "Share of limit": ("max", (semconv.MEMORY_PEAK_RATIO, "Value #share")),
        "GPU peak": ("max", (semconv.GPU_MEMORY_PEAK, "Value #gpu")),
    }
    roots = (
        f'{{ name = "{semconv.ROOT_SPAN}" && {panels.TRACES_OF_RUNS} }} | select('
        f"resource.service.instance.id, {', '.join(map(names.span, shown))})"
    )
    table = (
        panels.grid(
            "Runs",
            "One row for each run, newest first; click an instance to open it. Library, model and method are on the trace's root span, which a run sends when it ends: running and vanished runs do not have them. A run killed in its first minute is known by its checkpoints alone.",
            "short",
            panels.promql_table(f"max by (instance, job) (max_over_time({MEMORY}[$__range]))", "peak"),
            panels.promql_table(f"{EVERY} / max by (instance) (max_over_time({LIMIT}[$__range]))", "share"),
            panels.promql_table(f"1000 * min by (instance) (min_over_time({SEEN}))", "began"),
            panels.promql_table(f"1e9 * (max by (instance) (max_over_time({SEEN})) - min by (instance) (min_over_time({SEEN})))", "duration"),
            panels.promql_table(STATE, "state"),
            panels.promql_table(f"max by (instance) (max_over_time({gpu}[$__range]))", "gpu"),
            panels.promql_table(f"sum by (instance) (max_over_time({disk}[$__range]))", "disk"),
            panels.logql_table(STATE_BY_CHECKPOINTS, "state_by_checkpoints"),
            panels.logql_table(MEMORY_BY_LOGS, "logs"),
            panels.traceql(roots, "roots"),
        )
        .height(14)
        .with_transformation(panels.transform("renameByRegex", regex=r"^service[._]instance[._]id$", renamePattern="instance"))
        .with_transformation(panels.transform("joinByField", byField="instance", mode="outer"))
        .with_transformation(panels.numbers(semconv.MEMORY_PEAK, semconv.MEMORY_PEAK_RATIO, semconv.GPU_MEMORY_PEAK))
    )  # fmt: skip
    for title, (reducer, sources) in merged.items():
        table = table.with_transformation(panels.reduced(title, reducer, sources))
    return (
        table
        .with_transformation(
            panels.columns(
                {
                    "Value #began": "Began", "job": "Job", "instance": "Instance",
                    "State": "State", semconv.LIBRARY_NAME: "Library",
                    semconv.INPUT_PATH: "Model", semconv.CALIBRATION_METHOD: "Method",
                    semconv.CONFIG_NAME: "Configuration", "Duration": "Duration",
                    "Peak memory": "Peak memory", "Share of limit": "Share of limit",
                    "GPU peak": "GPU peak", "Value #disk": "Disk",
                    semconv.RUN_FAILED_STEPS: "Failed steps", semconv.ERROR_TYPE: "Error",
                    "traceIdHidden": "Trace",
                },
                hide=[
                    *(f"Time {n}" for n in range(1, 10)), "Time", "traceService", "traceName",
                    "spanID", "time", "name", *(s for _, sources in merged.values() for s in sources),
                ],
            )
        )
        .with_transformation(panels.transform("sortBy", fields={}, sort=[{"field": "Began", "desc": True}]))
        .override_by_name("Began", panels.looks("dateTimeAsIso"))
        .override_by_name("Duration", panels.looks("ns"))
        .override_by_name("Peak memory", panels.looks("bytes"))
        .override_by_name("GPU peak", panels.looks("bytes"))
        .override_by_name("Disk", panels.looks("bytes"))
        .override_by_name("Share of limit", panels.looks("percentunit", thresholds={"mode": "absolute", "steps": [{"value": None, "color": panels.GREEN}, {"value": 0.8, "color": panels.YELLOW}, {"value": 0.9, "color": panels.RED}]}, **panels.coloured()))
        .override_by_name("State", panels.looks("none", mappings=panels.states(), **panels.coloured()))
        .override_by_name("Instance", panels.looks(links=[panels.link("Open this run", panels.to_run("${__value.raw}", "${__data.fields.Trace}"))]))
    )  # fmt: skip
