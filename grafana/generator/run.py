"""Run: one run while it goes on and after it: where it is, how big, what each step cost."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import logs
from grafana_foundation_sdk.models.common import BigValueTextMode
from grafana_foundation_sdk.models.dashboard import VariableOption

from grafana.generator import names, panels
from otel_quant.telemetry import semconv

FILE = "run"

STEP = names.label(semconv.STEP_KIND)
MEMORY = names.series(semconv.RUN_MEMORY_USAGE)
LIMIT = names.series(semconv.RUN_MEMORY_LIMIT)
ACTIVE = names.series(semconv.STEP_ACTIVE)
SAMPLES = names.series(semconv.CALIBRATION_SAMPLES)
PROGRESS = names.series(semconv.CALIBRATION_PROGRESS)
DISK = names.series(semconv.RUN_DISK_IO)
GPU = names.series(semconv.RUN_GPU_MEMORY_USAGE)
GPU_LIMIT = names.series(semconv.RUN_GPU_MEMORY_LIMIT)
GPU_PEAK = names.series(semconv.STEP_GPU_MEMORY_PEAK)
DEVICE = names.label(semconv.HW_ID)
CPU = names.series(semconv.STEP_CPU_TIME)
SECONDS = names.series(semconv.STEP_DURATION, part="sum")

STEP_COLUMNS = {
    semconv.STEP_INDEX: ("Step", "none"),
    "name": ("Name", None),
    "duration": ("Duration", "ns"),
    semconv.MEMORY_DELTA: ("Growth", "bytes"),
    semconv.MEMORY_PEAK: ("Peak", "bytes"),
    semconv.MEMORY_PEAK_SOURCE: ("Peak from", None),
    semconv.GPU_MEMORY_PEAK: ("GPU peak", "bytes"),
    semconv.DISK_READ: ("Read", "bytes"),
    semconv.DISK_WRITE: ("Written", "bytes"),
    semconv.CPU_USER: ("CPU user", "s"),
    semconv.CPU_SYSTEM: ("CPU system", "s"),
    semconv.MAJOR_FAULTS: ("Major faults", "short"),
    semconv.CALIBRATION_SAMPLE_COUNT: ("Batches", "short"),
    semconv.ERROR_TYPE: ("Error", None),
}


def dashboard() -> builders.Dashboard:
    """Returns the dashboard."""
    board = panels.board(
        "quant-run", "Quantization run",
        "One run: what it is doing, how far it is, how big it is, and what each step cost.",
    )  # fmt: skip
    return (
        board.with_variable(
            builders.TextBoxVariable("trace").label("Trace")
            .description("Trace id; set by a click on a run or a step.")
            .default_value("").current(VariableOption(selected=True, text="", value=""))
        )
        .annotation(_checkpoints())
        .annotation(_open_steps())
        .with_panel(_now())
        .with_panel(_progress())
        .with_panel(_samples())
        .with_panel(_rate())
        .with_panel(_earlier())
        .with_panel(_share())
        .with_panel(_memory())
        .with_panel(_steps_over_time())
        .with_panel(_gpu())
        .with_panel(_disk())
        .with_panel(_cpu())
        .with_panel(_gpu_peaks())
        .with_panel(_steps())
        .with_panel(_trace())
        .with_panel(_log())
    )  # fmt: skip


def _checkpoints() -> panels.Marks:
    return panels.Marks(
        "Checkpoints", panels.LOKI, panels.LOGS_OF_RUNS, panels.BLUE,
        titleFormat=f"{{{{{names.label(semconv.CHECKPOINT_NAME)}}}}}", textFormat="", tagKeys=names.label(semconv.STEP_NAME),
    )  # fmt: skip


def _open_steps() -> panels.Marks:
    return panels.Marks(
        "Steps", panels.PROMETHEUS, f"{ACTIVE} > 0", panels.YELLOW,
        titleFormat=f"{{{{{STEP}}}}}", textFormat="", tagKeys=STEP, step="15s",
    )  # fmt: skip


def _now() -> panels.Panel:
    return panels.figure(
        "Open now",
        "The steps that are open. The one that stays longer than in earlier runs is where to look; none means the run has ended or is between steps.",
        "none",
        panels.promql(f"sum by ({STEP}) ({ACTIVE}) > 0", f"{{{{{STEP}}}}}"),
    ).no_value("no step is open").text_mode(BigValueTextMode.NAME)  # fmt: skip


def _progress() -> panels.Panel:
    return panels.figure(
        "Calibration done",
        "Share of the data reader's batches that the calibration has consumed. If it does not change, see which step is open and whether memory is at its limit. Empty where the reader does not say how many it has: give it a length, or compare the batches with what earlier runs took.",
        "percentunit",
        panels.promql(f"max by ({STEP}) ({PROGRESS})", f"{{{{{STEP}}}}}"),
    ).no_value("the reader does not say")  # fmt: skip


def _samples() -> panels.Panel:
    return panels.figure(
        "Calibration batches",
        "Calls of the data reader that returned data so far, a batch each. Compare with what earlier runs took to see how far this one is.",
        "short",
        panels.promql_table(f"sum by ({STEP}) (max_over_time({SAMPLES}[$__range]))"),
    )  # fmt: skip


def _rate() -> panels.Panel:
    return panels.figure(
        "Batches per second",
        "Speed of calibration now. Falling while memory rises means the host swaps or the collected histograms grow.",
        "cps",
        panels.promql(f"sum(rate({SAMPLES}[$__rate_interval]))"),
    )  # fmt: skip


def _earlier() -> panels.Panel:
    total = names.span(semconv.CALIBRATION_SAMPLE_COUNT)
    return panels.figure(
        "Batches in ended runs",
        "Most batches that one calibration of the chosen services took, in any run that ended within the time range: where this run will end if it is like them. Widen the time range if there is none.",
        "short",
        panels.traceql_metrics(
            f'{{ resource.service.name =~ "$job" && {total} > 0 }} | max_over_time({total})'
        ),
    )  # fmt: skip


def _share() -> panels.Panel:
    return panels.figure(
        "Peak share of the limit",
        "Highest memory that was reported, once a minute, as a share of what the process may use; a step's peak, in the table below, may be higher. From 90 % on expect to be killed next time.",
        "percentunit",
        panels.promql_table(f"max(max_over_time({MEMORY}[$__range])) / max(max_over_time({LIMIT}[$__range]))"),
    ).thresholds(panels.SHARE_OF_LIMIT)  # fmt: skip


def _memory() -> panels.Panel:
    return (
        panels.chart(
            "Memory",
            "Memory of the process tree with its limit; the marks are the steps and their checkpoints. The step under the peak is the one to make smaller. Points are the readings in log records, at checkpoints and, in long steps, between them: they are there even where the run was too short for the chart, and the last one says how big a run was that was killed.",
            "bytes",
            panels.promql(f"max by (instance) ({MEMORY})", "memory {{instance}}", "memory"),
            panels.promql(f"max by (instance) ({LIMIT})", "limit {{instance}}", "limit"),
            panels.logql(
                f"max by (service_instance_id) (max_over_time({panels.MEMORY_IN_LOGS} [$__auto]))",
                "readings",
            ).legend_format("readings {{service_instance_id}}"),
        )
        .span(24).height(11)
        .override_by_regexp("limit .*", panels.looks(color={"mode": "fixed", "fixedColor": panels.RED}, custom__lineStyle={"fill": "dash", "dash": [10, 10]}, custom__fillOpacity=0))
        .override_by_regexp("readings .*", panels.looks(custom__drawStyle="points", custom__pointSize=7))
    )  # fmt: skip


def _steps_over_time() -> panels.Panel:
    return panels.timeline(
        "Steps over time",
        "Which step was open when. A gap is time that no step accounts for: the script's own.",
        panels.promql(f"max by ({STEP}) ({ACTIVE})", f"{{{{{STEP}}}}}"),
    ).mappings([panels.value_map({"0": ("closed", "transparent"), "1": ("open", panels.BLUE)})])  # fmt: skip


def _gpu() -> panels.Panel:
    return panels.chart(
        "GPU memory",
        "Memory in use on each visible GPU, by all processes, and its size. If the run is small and this is full, look for another process. Empty where the process sees no GPU.",
        "bytes",
        panels.promql(f"max by (instance, {DEVICE}) ({GPU})", f"{{{{{DEVICE}}}}}", "used"),
        panels.promql(f"max by (instance, {DEVICE}) ({GPU_LIMIT})", f"limit {{{{{DEVICE}}}}}", "limit"),
    ).no_value("The run sees no GPU").span(8)  # fmt: skip


def _gpu_peaks() -> panels.Panel:
    return (
        panels.grid(
            "GPU peaks",
            "Highest memory in use on each visible GPU while a step of that kind ran, by all processes. The GPU that is fuller than the others is the one that the model has to be divided for. Empty where the process sees no GPU.",
            "bytes",
            panels.promql_table(f"max by ({STEP}, {DEVICE}) (max_over_time({GPU_PEAK}[$__range]))"),
        )
        .height(7)
        .with_transformation(panels.transform("groupingToMatrix", columnField=DEVICE, rowField=STEP, valueField="Value", emptyValue="empty"))
    )  # fmt: skip


def _disk() -> panels.Panel:
    direction = names.label(semconv.DISK_IO_DIRECTION)
    return panels.chart(
        "Disk",
        "Bytes that the process tree moves to and from storage. Steady reading while it calibrates means the data do not fit the page cache.",
        "Bps",
        panels.promql(f"sum by ({direction}) (rate({DISK}[$__rate_interval]))", f"{{{{{direction}}}}}"),
    ).span(8)  # fmt: skip


def _cpu() -> panels.Panel:
    mode = names.label(semconv.CPU_MODE)
    return panels.chart(
        "CPU",
        "Cores that each step kept busy on average, shown when it ends. Far below the cores there are: calibration waits for data; much system time: it moves memory.",
        "short",
        panels.promql(
            f"sum by ({STEP}, {mode}) (rate({CPU}[$__rate_interval]))"
            f" / on ({STEP}) group_left () (sum by ({STEP}) (rate({SECONDS}[$__rate_interval])) > 0)",
            f"{{{{{STEP}}}}} {{{{{mode}}}}}",
        ),
    ).span(8)  # fmt: skip


def _steps() -> panels.Panel:
    selected = [name for name in STEP_COLUMNS if name.startswith(("quant.", "error."))]
    query = (
        f"{{ {names.span(semconv.STEP_NAME)} != nil && {panels.TRACES_OF_RUNS} }}"
        f" | select({', '.join(map(names.span, selected))})"
    )
    table = (
        panels.grid(
            "Steps",
            "What each ended step cost. Sort by peak to find the one to make smaller, by duration for the one to make faster. A peak from the kernel is exact, a sampled one may have been missed by a little.",
            "short",
            panels.traceql(query),
        )
        .with_transformation(panels.numbers(*(name for name, (_, unit) in STEP_COLUMNS.items() if unit)))
        .with_transformation(
            panels.columns(
                {name: title for name, (title, _) in STEP_COLUMNS.items()} | {"traceIdHidden": "Trace"},
                hide=["traceService", "traceName", "spanID", "time", semconv.STEP_NAME],
            )
        )
        .with_transformation(panels.transform("sortBy", fields={}, sort=[{"field": "Step"}]))
        .override_by_name("Trace", panels.looks(links=[panels.link("Show this trace below", "/d/quant-run/run?${__url_time_range}&${job:queryparam}&${instance:queryparam}&var-trace=${__value.raw}")]))
    )  # fmt: skip
    for title, unit in STEP_COLUMNS.values():
        if unit:
            table = table.override_by_name(title, panels.looks(unit))
    return table


def _trace() -> panels.Panel:
    return (
        builders.Panel().type("traces").title("Trace")
        .description("The run as a trace: steps inside steps, with the exception on the one that failed. Click a trace in the table above to choose it.")
        .datasource(panels.TEMPO).with_target(panels.traceql("${trace}")).span(24).height(14)
    )  # fmt: skip


def _log() -> panels.Panel:
    return (
        logs.Panel().title("Checkpoints")
        .description("What the run said at each step's start and end, sent at once: after a kill the last line is the last thing it did, with its size. Open a line for all its figures.")
        .datasource(panels.LOKI).with_target(panels.logql(panels.LOGS_OF_RUNS))
        .show_time(True).wrap_log_message(True).enable_log_details(True).span(24).height(12)
    )  # fmt: skip
