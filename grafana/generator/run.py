"""Run: one run while it goes on and after it: where it is, how big, what each step cost."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import logs
from grafana_foundation_sdk.models.common import BigValueTextMode
from grafana_foundation_sdk.models.dashboard import DashboardLinkType, VariableRefresh

from grafana.generator import names, panels
from grafana.generator import run_figures as figures
from otel_quant.schema import semconv
from otel_quant.schema.catalog import QUANTITIES
from otel_quant.schema.figures import RESOURCES

FILE = "run"

STEP = names.label(semconv.STEP_KIND)
MEMORY = names.series(semconv.RUN_MEMORY_USAGE)
LIMIT = names.series(semconv.RUN_MEMORY_LIMIT)
SAMPLES = names.series(semconv.CALIBRATION_SAMPLES)
PROGRESS = names.series(semconv.CALIBRATION_PROGRESS)
LAYERS = names.series(semconv.STEP_LAYER_PROGRESS)
DISK = names.series(semconv.RUN_DISK_IO)
GPU = names.series(semconv.RUN_GPU_MEMORY_USAGE)
GPU_LIMIT = names.series(semconv.RUN_GPU_MEMORY_LIMIT)
GPU_PEAK = names.series(semconv.STEP_GPU_MEMORY_PEAK)
DEVICE = names.label(semconv.HW_ID)
RANK = names.label(semconv.RUN_RANK)
CPU = names.series(semconv.STEP_CPU_TIME)
TIME_LEFT = names.series(semconv.FORECAST_TIME_LEFT)
FORECAST = names.series(semconv.FORECAST_MEMORY)
GPU_FORECAST = names.series(semconv.FORECAST_GPU_MEMORY)
SECONDS = names.series(semconv.STEP_DURATION, part="sum")
RECORDS, LOGS_OF_RUN = map(panels.of_processes, (panels.RECORDS, panels.LOGS_OF_RUNS))


def _checkpoints_of_steps(phase: str, range_: str) -> str:
    """Returns LogQL for how many steps of each kind have begun or ended: never a series for each step."""
    label = names.label
    lines = f'{LOGS_OF_RUN} | {label(semconv.CHECKPOINT_PHASE)}=~"{phase}" | {STEP}!=""'
    return f"sum by (service_instance_id, {STEP}) (count_over_time({lines} [{range_}]))"


def _open_steps(range_: str) -> str:
    """Returns LogQL for the kinds of steps of which more have begun than ended.

    Samples of metrics, which come once a minute, miss the shorter steps; log records are sent
    when a step begins and when it ends.
    """
    begun, ended = (_checkpoints_of_steps(phase, range_) for phase in ("start", "end"))
    return f"({begun} unless ({ended} >= {begun}))"


_NAMED_COLUMNS = {
    semconv.RUN_RANK: ("Rank", "none"),
    semconv.STEP_INDEX: ("Step", "none"),
    panels.SPAN_NAME: ("Name", None),
    panels.SPAN_DURATION: ("Duration", "ns"),
    semconv.MEMORY_DELTA: ("Growth", "bytes"),
    semconv.MEMORY_PEAK: ("Peak", "bytes"),
    semconv.MEMORY_PEAK_SOURCE: ("Peak from", None),
    semconv.GPU_TREE_PEAK: ("GPU peak", "bytes"),
    semconv.GPU_MEMORY_PEAK: ("GPU peak, all programs", "bytes"),
    semconv.GPU_ENERGY: ("GPU energy", "joule"),
    semconv.CPU_ENERGY: ("CPU energy", "joule"),
    semconv.DISK_READ: ("Read", "bytes"),
    semconv.DISK_WRITE: ("Written", "bytes"),
    semconv.CPU_USER: ("CPU user", "s"),
    semconv.CPU_SYSTEM: ("CPU system", "s"),
    semconv.MAJOR_FAULTS: ("Major faults", "short"),
    semconv.CALIBRATION_SAMPLE_COUNT: ("Batches", "short"),
    semconv.STEP_BOUND_BY: ("Bound by", None),
}

STEP_COLUMNS = {
    **_NAMED_COLUMNS,
    **{
        each.attributes[0]: (each.heading.capitalize(), panels.UNITS.get(each.unit, "short"))
        for each in QUANTITIES
        if each.heading and len(each.attributes) == 1 and each.attributes[0] not in _NAMED_COLUMNS
    },
    semconv.ERROR_TYPE: ("Error", None),
}


def dashboard() -> builders.Dashboard:
    """Returns the dashboard."""
    board = panels.board(
        "quant-run", "Quantization run",
        "One run: what it is doing, how far it is, how big it is, and what each step cost.",
        panels.run(),
        panels.processes(),
    )  # fmt: skip
    return (
        board.with_variable(
            builders.QueryVariable("trace").label("Trace")
            .description("Trace of the run; ranks have one each, unless `otel-quant run` has started them. A click on a step chooses its own.")
            .query(f'label_values({panels.START}{{{names.OF_JOB}, {names.CHOSEN}, instance=~"$instance"}}, {names.label(semconv.RUN_TRACE_ID)})')
            .datasource(panels.PROMETHEUS).refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        )
        .link(
            builders.DashboardLink("Inference of its models").type(DashboardLinkType.LINK)
            .url("/d/quant-inference/inference?var-run=${run:percentencode}").keep_time(True).icon("bolt")
            .tooltip("What was measured of the models that this run has made, where it has the run's name")
        )
        .with_variable(
            builders.TextBoxVariable("lines").label("Lines of step").default_value("")
            .description("A part of the names of steps whose lines of code are shown. A click on a step chooses its own.")
        )
        .annotation(_checkpoints())
        .annotation(_warnings())
        .with_panel(_answer())
        .with_panel(_now())
        .with_panel(_progress())
        .with_panel(_time_left())
        .with_panel(_samples())
        .with_panel(_rate())
        .with_panel(_earlier())
        .with_panel(_share())
        .with_panel(_memory())
        .with_panel(_steps_over_time())
        .with_panel(_steps())
        .with_panel(_lines())
        .with_panel(_disk())
        .with_panel(_cpu())
        .with_panel(_trace())
        .with_panel(_log())
        .with_row(panels.row("GPUs", _gpu(), *_gpu_activity(), _gpu_peaks(), *_others("The run sees no GPU, or it does not tell", devices=True)))
        .with_row(panels.row("Other resources", *_others("It is not measured here", devices=False)))
    )  # fmt: skip


SHOWN = (
    semconv.RUN_MEMORY_USAGE, semconv.RUN_DISK_IO, semconv.RUN_GPU_MEMORY_USAGE, semconv.RUN_GPU_MEMORY_LIMIT,
    semconv.GPU_UTILIZATION, semconv.GPU_POWER, semconv.GPU_TEMPERATURE, semconv.GPU_CLOCK,
)  # fmt: skip
"""Metrics of resources that have a chart above; the schema's others have one made from it."""


def _others(where_empty: str, *, devices: bool) -> list[panels.Panel]:
    """Returns a chart for each figure of a resource, or of its devices, that no other panel shows."""
    charts: dict[str, panels.Panel] = {}
    for resource in RESOURCES:
        for each in resource.device_figures if devices else resource.figures:
            if each.live is None or each.live.metric.name in {*SHOWN, *charts}:
                continue
            metric = each.live.metric
            by = ", ".join([*map(names.label, each.live.labels), *([DEVICE] if devices else [])])
            series = names.series(metric.name)
            if metric.instrument == "observable_counter":
                series = f"rate({series}[$__rate_interval])"
            charts[metric.name] = (
                panels.chart(
                    metric.name.removeprefix(semconv.RUN_PREFIX)
                    .replace(".", " ")
                    .replace("_", " ")
                    .removesuffix(" usage")
                    .capitalize()
                    .replace("Gpu", "GPU"),
                    f"{metric.brief} Empty where the system does not tell.",
                    panels.UNITS.get(metric.unit, "short"),
                    panels.promql(
                        f"max{f' by ({by})' if by else ''} ({names.named(series)})",
                        f"{{{{{by}}}}}" if by else each.name,
                    ),
                )
                .span(12)
                .no_value(where_empty)
            )
    return list(charts.values())  # fmt: skip


def _checkpoints() -> panels.Marks:
    return panels.Marks(
        "Checkpoints", panels.LOKI, LOGS_OF_RUN, panels.BLUE,
        titleFormat=f"{{{{{names.label(semconv.CHECKPOINT_NAME)}}}}}", textFormat="", tagKeys=names.label(semconv.STEP_NAME),
    )  # fmt: skip


def _warnings() -> panels.Marks:
    return panels.Marks(
        "Warnings", panels.LOKI, f'{RECORDS} | severity_text = "WARN"', panels.RED,
        titleFormat="Warning", textFormat="", tagKeys=names.label(semconv.STEP_NAME),
    )  # fmt: skip


def _answer() -> panels.Panel:
    known = map(names.label, (semconv.RUN_ANSWER, semconv.ENDING_SIGNAL, semconv.ENDING_CAUSE))
    records = f"{RECORDS} | " + " or ".join(f'{name} != ""' for name in known)
    return (
        logs.Panel().title("What it came to")
        .description("How the run went, in plain sentences, once it has ended: its error, its peak, where its time went. Of a run that was killed under `otel-quant run`, how, and what would help. Empty while it goes on.")
        .datasource(panels.LOKI).with_target(panels.logql(records))
        .show_time(True).wrap_log_message(True).enable_log_details(True).span(24).height(4)
    )  # fmt: skip


def _now() -> panels.Panel:
    return panels.figure(
        "Open now",
        "The steps that are open. The one that stays longer than in earlier runs is where to look; none means the run has ended or is between steps.",
        "none",
        panels.logql_table(f"count by ({STEP}) ({_open_steps('$__auto')})").legend_format(f"{{{{{STEP}}}}}"),
    ).no_value("no step is open").text_mode(BigValueTextMode.NAME)  # fmt: skip


def _progress() -> panels.Panel:
    return panels.figure(
        "Calibration done",
        "Share of the data reader's batches that the calibration has consumed, or of its layers that another step has begun. If it does not change, see which step is open and whether memory is at its limit. Empty where the reader has no length: give it one, or compare the batches with what earlier runs took.",
        "percentunit",
        panels.promql(
            f"max by ({STEP}) ({names.named(PROGRESS)}) or max by ({STEP}) ({names.named(LAYERS)})",
            f"{{{{{STEP}}}}}",
        ),
    ).no_value("the reader has no length")  # fmt: skip


def _time_left() -> panels.Panel:
    return panels.figure(
        "Time left",
        "Estimate of the time until the last calibration sample, or until the last layer is done, from how long the newest ones took. Empty where their number is not known, and from five minutes after the run's end.",
        "s",
        panels.promql_table(f"max by ({STEP}) ({names.named(TIME_LEFT)})"),
    ).no_value("no calibration is open, or the reader has no length")  # fmt: skip


def _samples() -> panels.Panel:
    return panels.figure(
        "Calibration batches",
        "Calls of the data reader that returned data so far, a batch each. Compare with what earlier runs took to see how far this one is.",
        "short",
        panels.promql_table(f"sum by ({STEP}) ({names.named(f'max_over_time({SAMPLES}[$__range])', over=names.RANGE)})"),
    )  # fmt: skip


def _rate() -> panels.Panel:
    return panels.figure(
        "Batches per second",
        "Speed of calibration, on average of the last minutes: four, or more in a long time range. Falling while memory rises means the host swaps or the collected histograms grow.",
        "cps",
        panels.promql_table(f"sum({names.named(f'rate({SAMPLES}[$__rate_interval])')}) > 0"),
    ).no_value("no batch in the last minutes")  # fmt: skip


def _earlier() -> panels.Panel:
    return panels.figure(
        "Batches in other runs",
        "Most batches that one process of the chosen jobs took, in any run within the time range: where this run will end if it is like them. Widen the time range if there is none.",
        "short",
        panels.promql_table(f"max(sum by (job, instance) (max_over_time({SAMPLES}[$__range])))"),
    )  # fmt: skip


def _share() -> panels.Panel:
    return panels.figure(
        "Peak share of the limit",
        "Highest memory as a share of what the process may use. From 90 % on expect to be killed next time.",
        "percentunit",
        panels.promql_table(f"max({figures.SHARE})"),
    ).thresholds(panels.SHARE_OF_LIMIT)  # fmt: skip


def _memory() -> panels.Panel:
    return (
        panels.chart(
            "Memory",
            "Memory of the process tree, of each rank where there are several, with its limit; the forecast is what it would be after the last calibration sample if it goes on growing as it does (estimated; only where it grows); the marks are the steps and their checkpoints. The step under the peak is the one to make smaller. Points are the readings in log records, at checkpoints and, in long steps, between them: they are there even where the run was too short for the chart, and the last one shows how big a run was that was killed.",
            "bytes",
            panels.promql(f"max by ({RANK}) ({names.named(MEMORY, labels=(RANK,))})", f"memory {{{{{RANK}}}}}", "memory"),
            panels.promql(f"max ({names.named(LIMIT)})", "limit", "limit"),
            panels.promql(f"max ({names.named(FORECAST)})", "forecast", "forecast"),
            panels.logql(
                f"max_over_time({panels.of_processes(panels.MEMORY_IN_LOGS)} [$__auto]) by ({RANK})",
                "readings",
            ).legend_format(f"readings {{{{{RANK}}}}}"),
        )
        .span(20).height(11)
        .override_by_name("limit", panels.looks(color={"mode": "fixed", "fixedColor": panels.RED}, custom__lineStyle={"fill": "dash", "dash": [10, 10]}, custom__fillOpacity=0))
        .override_by_name("forecast", panels.looks(color={"mode": "fixed", "fixedColor": panels.YELLOW}, custom__lineStyle={"fill": "dot", "dash": [2, 6]}, custom__fillOpacity=0))
        .override_by_regexp("readings.*", panels.looks(custom__drawStyle="points", custom__pointSize=7))
    )  # fmt: skip


def _steps_over_time() -> panels.Panel:
    return panels.timeline(
        "Steps over time",
        "Which step was open when, by the log records of its beginning and its end: a step that is shorter than a point fills it. A gap is time that no step accounts for: the script's own.",
        panels.logql(
            f"max by ({STEP}) ("
            f"({_checkpoints_of_steps('start|end', '$__auto')} or {_open_steps('$__range')}) * 0 + 1"
            f" or {_checkpoints_of_steps('end', '$__range')} * 0)"
        ).legend_format(f"{{{{{STEP}}}}}"),
    ).mappings([panels.value_map({"0": ("closed", "transparent"), "1": ("open", panels.BLUE)})])  # fmt: skip


def _gpu() -> panels.Panel:
    return panels.chart(
        "GPU memory",
        "Memory in use on each visible GPU, by all processes, and its size. If the run is small and this is full, look for another process. Empty where the process sees no GPU.",
        "bytes",
        panels.promql(f"max by ({DEVICE}) ({names.named(GPU)})", f"{{{{{DEVICE}}}}}", "used"),
        panels.promql(f"max by ({DEVICE}) ({names.named(GPU_LIMIT)})", f"limit {{{{{DEVICE}}}}}", "limit"),
        panels.promql(f"max by ({DEVICE}) ({names.named(GPU_FORECAST)})", f"forecast {{{{{DEVICE}}}}}", "forecast"),
    ).no_value("The run sees no GPU")  # fmt: skip


def _gpu_activity() -> list[panels.Panel]:
    shown = (
        ("GPU utilization", "Share of the last moments in which each GPU computed. Low while a step is slow: it waits for data or for the CPU.", "percentunit", semconv.GPU_UTILIZATION),
        ("GPU power", "Electric power of each GPU. Well below the others at the same work: something holds it back, see the warnings.", "watt", semconv.GPU_POWER),
        ("GPU temperature", "Temperature of each GPU's chip. A warning marks when heat begins to slow it down.", "celsius", semconv.GPU_TEMPERATURE),
        ("GPU clock", "Clock of each GPU's processors. If it falls under load, see the warnings for why.", "hertz", semconv.GPU_CLOCK),
    )  # fmt: skip
    return [
        panels.chart(
            title, description, unit,
            panels.promql(f"max by ({DEVICE}) ({names.named(names.series(name))})", f"{{{{{DEVICE}}}}}"),
        ).span(12).no_value("The run sees no GPU, or it does not tell")
        for title, description, unit, name in shown
    ]  # fmt: skip


def _gpu_peaks() -> panels.Panel:
    return panels.matrix(
        panels.grid(
            "GPU peaks",
            "Highest memory in use on each visible GPU while a step of that kind ran, by all processes. The GPU that is fuller than the others is the one that the model has to be divided for. Empty where the process sees no GPU.",
            "bytes",
            panels.promql_table(f"max by ({STEP}, {DEVICE}) ({names.named(f'max_over_time({GPU_PEAK}[$__range])', over=names.RANGE)})"),
        )
        .height(9).span(12).no_value("The run sees no GPU"),
        "Step", STEP, DEVICE,
    )  # fmt: skip


def _disk() -> panels.Panel:
    direction = names.label(semconv.DISK_IO_DIRECTION)
    return panels.chart(
        "Disk",
        "Bytes that the process tree moves to and from storage. Steady reading while it calibrates means the data do not fit the page cache.",
        "Bps",
        panels.promql(f"sum by ({direction}) ({names.named(f'rate({DISK}[$__rate_interval])')})", f"{{{{{direction}}}}}"),
    )  # fmt: skip


def _cpu() -> panels.Panel:
    mode = names.label(semconv.CPU_MODE)
    return panels.chart(
        "CPU",
        "Cores that each step kept busy on average, shown when it ends. Far below the cores there are: calibration waits for data; much system time: it moves memory.",
        "short",
        panels.promql(
            f"sum by ({STEP}, {mode}) ({names.named(f'rate({CPU}[$__rate_interval])')})"
            f" / on ({STEP}) group_left () (sum by ({STEP}) ({names.named(f'rate({SECONDS}[$__rate_interval])')}) > 0)",
            f"{{{{{STEP}}}}} {{{{{mode}}}}}",
        ),
    )  # fmt: skip


_PEAKS = semconv.MEMORY_PEAK, semconv.MEMORY_HIGHEST_KNOWN
"""What a process has sent of a peak, and what `otel-quant send` knew beside it: the higher one counts."""


def _steps() -> panels.Panel:
    selected = [
        name for name in STEP_COLUMNS if name.startswith((semconv.PREFIX, semconv.ERROR_TYPE))
    ]
    selected.append(semconv.MEMORY_HIGHEST_KNOWN)
    numbers = [name for name, (_, unit) in STEP_COLUMNS.items() if unit and name in selected]
    titles = {name: title for name, (title, _) in STEP_COLUMNS.items()} | {"traceIdHidden": "Trace"}
    shown = {"Peak" if name in _PEAKS else name: title for name, title in titles.items()}
    # Tempo gives a span's name only where it is asked for.
    query = (
        f"{{ {names.span(semconv.STEP_NAME)} != nil && {panels.of_processes(panels.TRACES_OF_RUNS)} }}"
        f"{panels.each_by(semconv.RUN_ID, semconv.STEP_INDEX)}"
        f" | select(name, {', '.join(map(names.span, selected))})"
    )
    table = panels.grid(
        "Steps",
        f"What each ended step cost; click a name for its trace. Sort by peak to find the one to make smaller, by duration for the one to make faster. A peak from the kernel is exact, a sampled one may have been missed by a little; of one that is from at_least, the true peak may be much higher. Of more than {panels.MOST_SPANS} ranks, as many are shown.",
        panels.TEXT,
        panels.traceql(query),
    ).no_value("No step has ended, or its span has not arrived").with_transformation(panels.numbers(*numbers, semconv.MEMORY_HIGHEST_KNOWN)).with_transformation(panels.reduced("Peak", "max", _PEAKS))  # fmt: skip
    table = (
        panels.transformed(
            table,
            panels.columns(shown),
        )
        .with_transformation(panels.transform("sortBy", fields={}, sort=[{"field": "Step"}]))
        .with_transformation(panels.transform("sortBy", fields={}, sort=[{"field": "Rank"}]))
        .override_by_name("Name", panels.looks(links=[panels.link("Show its trace and its lines of code below", "/d/quant-run/run?${__url_time_range}&${job:queryparam}&${run:queryparam}&${instance:queryparam}&var-trace=${__data.fields.traceIdHidden}&var-lines=${__data.fields.Name:percentencode}")], custom__hideFrom__viz=False, custom__width=240))
        .override_by_name("Trace", panels.looks(custom__hideFrom__viz=True))
    )  # fmt: skip
    for title, unit in STEP_COLUMNS.values():
        if unit:
            table = table.override_by_name(title, panels.looks(unit))
    return table


LINES = (
    f"{{{{ .{names.label(semconv.STEP_NAME)} }}}}: {{{{ .{names.label(semconv.STEP_BOUND_BY)} }}}},"
    f" {{{{ .{names.label(semconv.STEP_BOUND_EVIDENCE)} }}}}"
    '{{ range (fromJson __line__).time }}{{ printf "\\n%5.1f %%  %10.2f s   %s" (mulf .share 100) .seconds .line }}{{ end }}'
    '{{ range (fromJson __line__).growth }}{{ printf "\\n%5.1f %%  %10.1f MB  %s" (mulf .share 100) (divf .bytes 1e6) .line }}{{ end }}'
)  # fmt: skip
"""How Loki writes a record of lines: what bounds the step, then time by line, then growth of memory by line."""


def _lines() -> panels.Panel:
    name, bound = map(names.label, (semconv.STEP_NAME, semconv.STEP_BOUND_BY))
    records = (
        f'{RECORDS} | {bound} != "" | {name} =~ `(?i).*${{lines:regex}}.*` | line_format `{LINES}`'
    )
    return (
        logs.Panel().title("Lines of code")
        .description("What bounded each step of which a second or more was seen, and where it spent its time: the ten lines of code with the most time of their own, then the ten at which memory grew most. Click a step in the table above for its own. `otel-quant stacks` shows them all.")
        .datasource(panels.LOKI).with_target(panels.logql(records))
        .show_time(True).wrap_log_message(True).enable_log_details(True).span(24).height(12)
    )  # fmt: skip


def _trace() -> panels.Panel:
    return (
        builders.Panel().type("traces").title("Trace")
        .description("The run as a trace: steps inside steps, with the exception on the one that failed. It comes with the end of each step; a run that was killed has no span of its own. Click a step in the table above for its trace, where there are several.")
        .datasource(panels.TEMPO).with_target(panels.traceql("${trace}")).span(24).height(14)
    )  # fmt: skip


def _log() -> panels.Panel:
    return (
        logs.Panel().title("Checkpoints")
        .description("The run's log records at each step's start and end, sent at once: after a kill the last line is the last thing it did, with its size. Open a line for all its figures.")
        .datasource(panels.LOKI).with_target(panels.logql(LOGS_OF_RUN))
        .show_time(True).wrap_log_message(True).enable_log_details(True).span(24).height(12)
    )  # fmt: skip
