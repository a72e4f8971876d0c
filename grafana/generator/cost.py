"""Model cost: what quantization bought, float against quantized."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as builders

from grafana.generator import names, panels
from otel_quant.schema import semconv
from otel_quant.schema.figures import MODEL_FIGURES

FILE = "cost"

ROLE = names.label(semconv.MODEL_ROLE)
ROLES = ("float", "quantized")
PRECISIONS = (
    "float32", "float16", "bfloat16", "int16", "float8", "int8", "float4", "int4", "int2",
    "int8 weight-only", "int4 weight-only", "block float", "microscaling",
)  # fmt: skip
HEAVIEST = 8
FIGURES = {
    each.name: (each.heading[:1].upper() + each.heading[1:], panels.UNITS.get(each.unit, "short") if each.unit else None)
    for each in MODEL_FIGURES
    if each.heading and each.name != "backward_macs"
}  # fmt: skip


def dashboard() -> builders.Dashboard:
    """Returns the dashboard."""
    board = panels.board(
        "quant-cost", "Model cost",
        "The float model against the quantized one: size, parameters, MACs, precision.",
        panels.runs(),
    )  # fmt: skip
    for title, metric, description in (
        ("Size against float", semconv.MODEL_SIZE, "The quantized file as a share of the float one. Int8 weights give about a quarter; much more means that layers were left in float or that Q/DQ constants are large."),
        ("Parameters against float", semconv.MODEL_PARAMS, "Elements of the static tensors. More than 100 % are scales and zero points; far less means that layers were folded or lost."),
        ("MACs against float", semconv.MODEL_MACS_CONTRACTION, "Contraction MACs. Quantization should leave them as they are: if not, the graph was changed."),
    ):  # fmt: skip
        quantized, plain = (_sum(metric, role) for role in ("quantized", "float"))
        board = board.with_panel(
            panels.figure(title, description, "percentunit", panels.promql_table(f"{quantized} / {plain}")).span(8)
        )  # fmt: skip
    for title, metric, unit, description in (
        ("Size", semconv.MODEL_SIZE, "bytes", "Bytes on disk, external data included. A quantized model that is no smaller than the float one was not quantized."),
        ("Parameters", semconv.MODEL_PARAMS, "short", "Elements of the static tensors. If the two differ by much, see which layers were folded, added or lost."),
        ("MACs", semconv.MODEL_MACS_CONTRACTION, "short", "Multiply-accumulates of one forward pass, contractions only. The two should be equal: quantization makes each one cheaper, not fewer."),
    ):  # fmt: skip
        board = board.with_panel(_both(title, metric, unit, description))
    for role in ROLES:
        board = board.with_panel(_figures(role))
    for role in ROLES:
        board = board.with_panel(_precision(role, "precision"))
    board = board.with_panel(_precision("quantized", "expected_precision"))
    return board.with_panel(_heaviest())


def _sum(metric: str, role: str) -> str:
    chosen = names.series(metric, f'{ROLE}="{role}"')
    return f"sum(max by ({names.RUN_NAME}) ({names.named(f'last_over_time({chosen}[$__range])', over=names.RANGE)}))"


def _both(title: str, metric: str, unit: str, description: str) -> panels.Panel:
    values = names.named(f"last_over_time({names.series(metric)}[$__range])", over=names.RANGE)
    return panels.matrix(
        panels.grid(
            title,
            f"{description} One row for each run, one column for each model.",
            unit,
            panels.promql_table(f"max by ({names.RUN_NAME}, {ROLE}) ({values})"),
        ).span(8),
        "Run", names.RUN_NAME, ROLE,
    )  # fmt: skip


def _costed(role: str) -> str:
    return (
        f'{{ name = "{semconv.COST_SPAN}" && {names.span(semconv.MODEL_ROLE)} = "{role}"'
        f" && {panels.TRACES_OF_RUNS} }}{panels.each_by(semconv.RUN_ID, semconv.MODEL_PATH)}"
    )


def _figures(role: str) -> panels.Panel:
    selected = ", ".join(
        [
            names.span(semconv.RUN_NAME),
            names.span(semconv.MODEL_PATH),
            *(names.model(role, figure) for figure in FIGURES),
        ]
    )
    prefix = semconv.of_model(role)
    table = panels.transformed(
        panels.grid(
            f"{role.title()} models",
            f"Every figure of the {role} model that can be had without running it, and its heaviest node by memory: the first to split, to tile or to leave out. Ops under 'Not costed' are in none of the sums. The newest {panels.MOST_SPANS}.",
            panels.TEXT,
            panels.traceql(f"{_costed(role)} | select({selected})"),
        )
        .height(8)
        .with_transformation(panels.numbers(*(prefix + name for name, (_, unit) in FIGURES.items() if unit))),
        panels.columns(
            {panels.SPAN_TIME: "Costed", semconv.RUN_NAME: "Run", semconv.MODEL_PATH: "Model"}
            | {prefix + figure: title for figure, (title, _) in FIGURES.items()}
        ),
    )  # fmt: skip
    for title, unit in FIGURES.values():
        if unit:
            table = table.override_by_name(title, panels.looks(unit))
    return (
        table.override_by_name("Costed", panels.looks(custom__width=175))
        .override_by_name("Model", panels.looks(custom__width=260))
    )  # fmt: skip


def _heaviest() -> panels.Panel:
    costed = f'{panels.RECORDS} | {ROLE}!="" | {names.label(semconv.CHECKPOINT_NAME)}="" | {names.label(semconv.MODEL_NAME)}=""'
    targets = [
        panels.logql_table(
            f"max_over_time({costed}"
            f' | json node="heaviest[{rank}].name", macs="heaviest[{rank}].macs"'
            f" | unwrap macs [$__auto]) by ({names.RUN_NAME}, {ROLE}, node)",
            f"rank{rank + 1}",
        )
        for rank in range(HEAVIEST)
    ]
    values = [f"Value #rank{rank + 1}" for rank in range(HEAVIEST)]
    return panels.transformed(
        panels.grid(
            "Heaviest nodes",
            "The nodes with the most MACs, from each run's own report. If one of them is still in float, quantizing it is worth more than all that is not in this list.",
            panels.TEXT,
            *targets,
        ).span(12).height(8).with_transformation(panels.transform("merge")).with_transformation(panels.reduced("MACs", "max", values)),
        panels.columns({names.RUN_NAME: "Run", ROLE: "Model", "node": "Node", "MACs": "MACs"}),
    ).with_transformation(panels.transform("sortBy", fields={}, sort=[{"field": "MACs", "desc": True}])).override_by_name("MACs", panels.looks("short"))  # fmt: skip


def _precision(role: str, mix: str) -> panels.Panel:
    figures = {f"{mix}.{each.replace(' ', '_').replace('-', '_')}": each for each in PRECISIONS}
    does = "ask for" if mix == "precision" else "onnxruntime is expected to run in"
    selected = ", ".join(names.model(role, figure) for figure in figures)
    prefix = semconv.of_model(role)
    return panels.transformed(
        panels.grid(
            f"{'Precision' if mix == 'precision' else 'Expected precision'} of the {role} models",
            f"Share of the contraction MACs that {does} each type. What is still in float after quantization is where the next gain is: see which op types the configuration leaves out. The newest {panels.MOST_SPANS}.",
            "percentunit",
            panels.traceql(f"{_costed(role)} | select({names.span(semconv.RUN_NAME)}, {names.span(semconv.MODEL_PATH)}, {selected})"),
        )
        .span(12).height(8).override_by_regexp(".*", panels.looks(custom__minWidth=80))
        .with_transformation(panels.numbers(*(prefix + figure for figure in figures))),
        panels.columns(
            {semconv.RUN_NAME: "Run", semconv.MODEL_PATH: "Model"}
            | {f"{prefix}{figure}": precision for figure, precision in figures.items()}
        ),
    ).override_by_regexp("(Run|Model)", panels.looks(panels.TEXT))  # fmt: skip
