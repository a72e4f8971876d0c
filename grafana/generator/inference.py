"""Inference: float beside quantized: how fast, how big, how far off, and why."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import timeseries
from grafana_foundation_sdk.models.common import VisibilityMode

from grafana.generator import names, panels
from otel_quant.schema import semconv

FILE = "inference"

RUN = names.RUN_NAME
MODEL, ROLE = names.label(semconv.MODEL_NAME), names.label(semconv.MODEL_ROLE)
PROVIDER = names.label(semconv.INFERENCE_PROVIDER)
OPERATOR, NODE = names.label(semconv.OPERATOR_TYPE), names.label(semconv.OPERATOR_NAME)
TYPES, KIND = names.label(semconv.OPERATOR_TYPES), names.label(semconv.FINDING_KIND)
FINDING = "finding"
"""Label of the query for findings that has their sentence."""

CHOSEN = f'{names.CHOSEN}, {MODEL}=~"$model"'
RECORDS = f"{panels.RECORDS} | {MODEL}=~`${{model:regex}}`"
WITH_ROLE = f'{ROLE}!=""'
START = names.prometheus(semconv.INFERENCE_START)[0]
MOST_ROWS = 500

SIDE_BY_SIDE = {
    "median": (semconv.INFERENCE_MEDIAN, "Median", "s"),
    "p10": (semconv.INFERENCE_P10, "p10", "s"),
    "p90": (semconv.INFERENCE_P90, "p90", "s"),
    "speedup": (semconv.INFERENCE_SPEEDUP, "Speed-up", "short"),
    "memory": (semconv.INFERENCE_MEMORY_PEAK, "Peak memory", "bytes"),
    "sqnr": (semconv.INFERENCE_SQNR, "SQNR", "dB"),
    "findings": (semconv.INFERENCE_FINDINGS, "Findings", "none"),
    "conversions": (semconv.INFERENCE_CONVERSIONS, "Conversions", "percentunit"),
}
"""Columns by the name of their query: metric, title and unit."""

MEASURED = {
    semconv.MODEL_PATH: ("File", None),
    semconv.LIBRARY_NAME: ("Runtime", None),
    semconv.LIBRARY_VERSION: ("Version", None),
    semconv.INFERENCE_RUNS: ("Runs", "short"),
    semconv.INFERENCE_WEIGHTS: ("Weights", "bytes"),
    semconv.INFERENCE_KERNEL_TIME: ("Time in kernels", "s"),
    semconv.INFERENCE_PROBLEM: ("Not measured", None),
}
"""Columns by attribute of the spans: title and unit."""


def dashboard() -> builders.Dashboard:
    """Returns the dashboard."""
    return (
        panels.board(
            "quant-inference", "Inference",
            "Inference of models, float beside quantized: how fast, in how much memory, how far off, and what takes the time.",
            panels.runs(START),
            start=START,
        )
        .with_variable(
            panels.choice("model", "Model", f'label_values({names.prometheus(semconv.INFERENCE_MEDIAN)[0]}{{{names.OF_JOB}, {names.CHOSEN}}}, {MODEL})', "Models of the chosen runs, by the names of their files.")
        )
        .with_panel(_by_role("Latency", "min", semconv.INFERENCE_MEDIAN, "s", "Median time of a run, of the fastest model of each role. Quantized is no faster: see the findings, and how much of its time only converts."))
        .with_panel(_by_role("Peak memory", "min", semconv.INFERENCE_MEMORY_PEAK, "bytes", "Highest memory of the model's process while it ran, of the smallest model of each role. Python and the runtime are part of it: of small models it is nearly all."))
        .with_panel(_by_role("Time in conversions", "max", semconv.INFERENCE_CONVERSIONS, "percentunit", "Share of the time of all kernels in those that only quantize, dequantize, cast, reorder or copy. Above a tenth, see between which nodes they stand."))
        .with_panel(_side_by_side())
        .with_panel(_operators())
        .with_panel(_kernels())
        .with_panel(_findings())
        .with_panel(_over_time("Latency over time", semconv.INFERENCE_MEDIAN, "s", "Median time of each model whenever it was measured. A step that only one model has is that model; one that all have is the machine or the runtime."))
        .with_panel(_over_time("Peak memory over time", semconv.INFERENCE_MEMORY_PEAK, "bytes", "Highest memory of each model's process whenever it was measured. Growth without another model is the runtime's."))
        .with_panel(_over_time("Error over time", semconv.INFERENCE_SQNR, "dB", "Signal to quantization noise of the outputs, compared with the first model, of the worst output. A fall is a change of the calibration or of the configuration: compare the runs that made the models."))
        .with_panel(_over_time("Findings over time", semconv.INFERENCE_FINDINGS, "none", "How many things went wrong in each model whenever it was measured. A rise with another version of the runtime is a kernel that it has lost."))
        .with_panel(_measured())
    )  # fmt: skip


def _last(metric: str, *matchers: str) -> str:
    return f"last_over_time({names.series(metric, ', '.join((CHOSEN, *matchers)))}[$__range])"


def _by_role(title: str, best: str, metric: str, unit: str, description: str) -> panels.Panel:
    return panels.matrix(
        panels.grid(
            title,
            f"{description} One row for each run, one column for each role.",
            unit,
            panels.promql_table(f"{best} by ({RUN}, {ROLE}) ({_last(metric, WITH_ROLE)})"),
        ).span(8),
        "Run", RUN, ROLE,
    )  # fmt: skip


def _side_by_side() -> panels.Panel:
    key = f"{RUN}, {MODEL}, {ROLE}, {PROVIDER}"
    start = f"last_over_time({names.series(semconv.INFERENCE_START, names.CHOSEN)}[$__range])"
    began = (
        f"1000 * max by ({RUN}) ({start}) * on ({RUN}) group_right ()"
        f" (max by ({key}) ({_last(semconv.INFERENCE_MEDIAN)}) > bool 0)"
    )
    queries = {"began": began} | {
        ref: f"max by ({key}) ({_last(metric)})" for ref, (metric, _, _) in SIDE_BY_SIDE.items()
    }
    table = panels.merged(
        panels.grid(
            "Models side by side",
            f"One row for each model of each run, newest first, {MOST_ROWS} at most. Speed-up and SQNR are relative to the first model of the run; a speed-up that the noise of the machine hides is absent, and so is the SQNR of equal outputs.",
            panels.TEXT,
            *(panels.promql_table(f"topk({MOST_ROWS}, {query})", ref) for ref, query in queries.items()),
        ),
        {"Value #began": "Began", RUN: "Run", MODEL: "Model", ROLE: "Role", PROVIDER: "Provider"}
        | {f"Value #{ref}": title for ref, (_, title, _) in SIDE_BY_SIDE.items()},
        "Began",
    ).override_by_name("Began", panels.looks("dateTimeAsIso", custom__width=175)).override_by_name("Run", panels.looks(custom__width=260)).override_by_name("Provider", panels.looks(custom__width=190))  # fmt: skip
    for _, title, unit in SIDE_BY_SIDE.values():
        table = table.override_by_name(title, panels.looks(unit))
    return table


def _in_records(attribute: str, condition: str, by: str) -> str:
    value = names.label(attribute)
    lines = f'{RECORDS} | {value}!="" | {condition} | unwrap {value}'
    return f"topk({MOST_ROWS}, max_over_time({lines} [$__auto]) by ({by}))"


def _operators() -> panels.Panel:
    query = _in_records(semconv.OPERATOR_SHARE, f'{NODE}=""', f"{OPERATOR}, {MODEL}")
    return panels.matrix(
        panels.grid(
            "Share of time by operator",
            "Where each model's time goes, one column for each model: its ten slowest operators, all kernels of each together. Operators that only the quantized model has are what quantization costs.",
            "percentunit",
            panels.logql_table(query),
        ).span(12),
        "Operator", OPERATOR, MODEL, value="Value #A",
    )  # fmt: skip


def _kernels() -> panels.Panel:
    by = f"{MODEL}, {NODE}, {OPERATOR}, {TYPES}, {PROVIDER}"
    queries = {
        "time": semconv.OPERATOR_DURATION,
        "share": semconv.OPERATOR_SHARE,
        "rate": semconv.OPERATOR_MAC_RATE,
    }
    return panels.merged(
        panels.grid(
            "Slowest kernels",
            "The ten slowest kernels of each model, the most of the chosen runs. A quantized kernel with fewer MACs per second than the float one of the same node has no fast implementation: see its types and its provider.",
            panels.TEXT,
            *(panels.logql_table(_in_records(attribute, f'{NODE}!=""', by), ref) for ref, attribute in queries.items()),
        ).span(12),
        {
            MODEL: "Model", NODE: "Node", OPERATOR: "Operator", "Value #time": "Time",
            "Value #share": "Share", "Value #rate": "MACs per second", TYPES: "Types", PROVIDER: "Provider",
        },
        "Time",
    ).override_by_name("Time", panels.looks("s")).override_by_name("Share", panels.looks("percentunit")).override_by_name("MACs per second", panels.looks("short"))  # fmt: skip


def _findings() -> panels.Panel:
    query = _in_records(
        semconv.FINDING_SHARE,
        f"label_format {FINDING}=`{{{{__line__}}}}`",
        f"{RUN}, {MODEL}, {KIND}, {FINDING}",
    )
    return panels.transformed(
        panels.grid(
            "Findings",
            "What each model promises and the runtime did not do, with the node and what would change it, what takes longest first. docs/inference.md explains each kind.",
            panels.TEXT,
            panels.logql_table(query),
        ).no_value("Nothing went wrong, or nobody has looked").height(9),
        panels.columns({RUN: "Run", MODEL: "Model", KIND: "Kind", FINDING: "Finding", "Value #A": "Share of time"}),
    ).with_transformation(
        panels.transform("sortBy", fields={}, sort=[{"field": "Share of time", "desc": True}])
    ).override_by_name("Share of time", panels.looks("percentunit", custom__width=120)).override_by_regexp("Run|Model|Kind", panels.looks(custom__width=150))  # fmt: skip


def _over_time(title: str, metric: str, unit: str, description: str) -> timeseries.Panel:
    by = f"{MODEL}, {ROLE}, {PROVIDER}, host_name"
    query = f"max by ({by}) (max_over_time({names.series(metric, CHOSEN)}[$__interval]))"
    legend = f"{{{{{MODEL}}}}} ({{{{{ROLE}}}}}) {{{{{PROVIDER}}}}} {{{{host_name}}}}"
    return (
        panels.chart(title, description, unit, panels.promql(query, legend), from_zero=unit != "dB")
        .show_points(VisibilityMode.ALWAYS).point_size(7).span_nulls(True)
    )  # fmt: skip


def _measured() -> panels.Panel:
    query = (
        f'{{ name = "{semconv.MODEL_SPAN}" && {names.span(semconv.MODEL_NAME)} =~ `${{model:regex}}`'
        f" && {panels.TRACES_OF_RUNS} }}{panels.each_by(semconv.RUN_NAME, semconv.MODEL_NAME)}"
        f" | select({', '.join(map(names.span, MEASURED))})"
    )
    table = panels.transformed(
        panels.grid(
            "Measured models",
            f"What else the spans have: file, runtime, how many runs were timed, and why a model could not be measured. The newest {panels.MOST_SPANS}; the trace has them below the span of the measurement.",
            panels.TEXT,
            panels.traceql(query),
        )
        .height(8)
        .with_transformation(panels.numbers(*(name for name, (_, unit) in MEASURED.items() if unit))),
        panels.columns(
            {panels.SPAN_TIME: "Began", semconv.RUN_NAME: "Run", semconv.MODEL_NAME: "Model"}
            | {name: title for name, (title, _) in MEASURED.items()}
        ),
    )  # fmt: skip
    for title, unit in MEASURED.values():
        if unit:
            table = table.override_by_name(title, panels.looks(unit))
    return table.override_by_name("Began", panels.looks("dateTimeAsIso", custom__width=175))
