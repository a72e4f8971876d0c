"""Compare: runs and variants side by side, and against a baseline."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as builders

from grafana.generator import names, panels
from otel_quant.telemetry import semconv

FILE = "compare"

STEP = names.label(semconv.STEP_KIND)
ENDED = f'{names.label(semconv.ERROR_TYPE)}=""'
BASELINE = (names.SELECTED, 'job=~".+", instance=~"$baseline"')


def dashboard() -> builders.Dashboard:
    """Returns the dashboard."""
    memory = names.prometheus(semconv.RUN_MEMORY_USAGE)[0]
    return (
        panels.board(
            "quant-compare", "Quantization compared",
            "Runs and variants side by side: which method costs how much memory, which step got slower.",
        )
        .with_variable(
            panels.choice(
                "baseline", "Baseline", f"label_values({memory}, instance)",
                "The run, or runs, that the others are measured against.",
            )
        )
        .with_panel(_matrix())
        .with_panel(_variants())
        .with_panel(_by_step("Duration by step", semconv.STEP_DURATION, "s", "Mean duration of each step for each run. The one that grows fastest with the model is the one that will hurt next."))
        .with_panel(_by_step("Peak memory by step", semconv.STEP_MEMORY_PEAK, "bytes", "Mean peak of each step for each run. Only the highest step decides whether the run fits."))
        .with_panel(_ratio("Duration against the baseline", semconv.STEP_DURATION, "How many times the baseline's duration each step takes: 1 is the same. Above 1.5 look for more samples, another host or a busy disk."))
        .with_panel(_ratio("Peak memory against the baseline", semconv.STEP_MEMORY_PEAK, "How many times the baseline's peak each step reaches: 1 is the same. Look at what changed in the configuration of a step above 1.1."))
        .with_panel(_median())
        .with_panel(_slowest())
    )  # fmt: skip


def _matrix() -> panels.Panel:
    model, method = names.span(semconv.INPUT_PATH), names.span(semconv.CALIBRATION_METHOD)
    query = (
        f'{{ name = "{semconv.ROOT_SPAN}" && {panels.TRACES_OF_RUNS} && {method} != nil }}'
        f" | max_over_time({names.span(semconv.MEMORY_PEAK)}) by ({model}, {method})"
    )
    return (
        panels.grid(
            "Peak memory by model and method",
            "Highest memory of any chosen run, one row for each model, one column for each calibration method. Take the cheapest method whose accuracy is good enough. Empty where OTEL_QUANT_PATHS hides the model's file.",
            "bytes",
            panels.traceql_metrics(query),
        )
        .span(12)
        .with_transformation(panels.transform("reduce", labelsToFields=True, reducers=["max"], mode="seriesToRows"))
        .with_transformation(panels.transform("renameByRegex", regex=r"^span\.(.*)$", renamePattern="$1"))
        .with_transformation(panels.transform("groupingToMatrix", columnField=semconv.CALIBRATION_METHOD, rowField=semconv.INPUT_PATH, valueField="Max", emptyValue="empty"))
    )  # fmt: skip


def _variants() -> panels.Panel:
    shown = (
        semconv.INPUT_PATH, semconv.CALIBRATION_METHOD, semconv.CONFIG_NAME, semconv.MEMORY_PEAK,
        semconv.MEMORY_PEAK_RATIO, semconv.GPU_MEMORY_PEAK, semconv.DISK_READ, semconv.DISK_WRITE,
    )  # fmt: skip
    query = (
        f'{{ name = "{semconv.ROOT_SPAN}" && {panels.TRACES_OF_RUNS} }}'
        f" | select({', '.join(map(names.span, shown))})"
    )
    return (
        panels.grid(
            "Ended runs",
            "The chosen runs' totals side by side. Filter a column to compare like with like.",
            "short",
            panels.traceql(query),
        )
        .span(12)
        .with_transformation(
            panels.numbers(
                semconv.MEMORY_PEAK, semconv.MEMORY_PEAK_RATIO, semconv.GPU_MEMORY_PEAK,
                semconv.DISK_READ, semconv.DISK_WRITE,
            )
        )
        .with_transformation(
            panels.columns(
                {
                    "time": "Began", "traceService": "Job", semconv.INPUT_PATH: "Model",
                    semconv.CALIBRATION_METHOD: "Method", semconv.CONFIG_NAME: "Configuration",
                    "duration": "Duration", semconv.MEMORY_PEAK: "Peak memory",
                    semconv.MEMORY_PEAK_RATIO: "Share of limit", semconv.GPU_MEMORY_PEAK: "GPU peak",
                    semconv.DISK_READ: "Read", semconv.DISK_WRITE: "Written",
                },
                hide=["traceIdHidden", "traceName", "spanID", "name"],
            )
        )
        .override_by_name("Duration", panels.looks("ns"))
        .override_by_name("Share of limit", panels.looks("percentunit"))
        .override_by_regexp("Peak memory|GPU peak|Read|Written", panels.looks("bytes"))
    )  # fmt: skip


def _mean(metric: str, by: str) -> str:
    """Returns the mean of a histogram over the time range, by some labels."""
    total, count = (
        f"sum by ({by}) (increase({names.series(metric, ENDED, part=part)}[$__range]))"
        for part in ("sum", "count")
    )
    return f"{total} / ({count} > 0)"


def _by_step(title: str, metric: str, unit: str, description: str) -> panels.Panel:
    return (
        panels.grid(title, description, unit, panels.promql_table(_mean(metric, f"instance, {STEP}")))
        .span(12)
        .with_transformation(panels.transform("groupingToMatrix", columnField="instance", rowField=STEP, valueField="Value", emptyValue="empty"))
    )  # fmt: skip


def _ratio(title: str, metric: str, description: str) -> panels.Panel:
    own = _mean(metric, f"instance, {STEP}")
    baseline = _mean(metric, STEP).replace(*BASELINE)
    return (
        panels.grid(
            title, description, "short",
            panels.promql_table(f"({own}) / on ({STEP}) group_left () ({baseline})"),
        )
        .span(12).decimals(2)
        .with_transformation(panels.transform("groupingToMatrix", columnField="instance", rowField=STEP, valueField="Value", emptyValue="empty"))
        .thresholds(panels.thresholds((None, panels.GREEN), (1.1, panels.YELLOW), (1.5, panels.RED)))
        .override_by_regexp(".*-.*", panels.looks(**panels.coloured()))
    )  # fmt: skip


def _median() -> panels.Panel:
    step = "{{job}} {{" + STEP + "}}"
    return panels.chart(
        "Median duration of the last 14 days",
        "What the slow-run alert measures against: the median over the service's runs. A slow rise is a regression that no single run shows.",
        "s",
        panels.promql(f'job_step:{names.prometheus(semconv.STEP_DURATION)[1].removesuffix("_sum")}:median14d{{job=~"$job"}}', step),
    )  # fmt: skip


def _slowest() -> panels.Panel:
    buckets = names.series(semconv.STEP_DURATION, ENDED, part="bucket")
    return panels.chart(
        "Duration of ended steps",
        "Nine in ten of the steps that ended then took no longer. Each point is one step: point at the highest and open its trace to see why it took so long.",
        "s",
        panels.promql(
            f"histogram_quantile(0.9, sum by (le, {STEP}) (increase({buckets}[$__rate_interval])))",
            f"{{{{{STEP}}}}}",
        ).exemplar(True),
    )  # fmt: skip
