"""What the dashboards share: variables, queries, panels and their looks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    loki,
    prometheus,
    stat,
    statetimeline,
    table,
    tempo,
    timeseries,
)
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.common import (
    LegendDisplayMode,
    LegendPlacement,
    VizLegendOptions,
)
from grafana_foundation_sdk.models.dashboard import (
    AnnotationQuery,
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
    VariableHide,
    VariableOption,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.dashboard import Panel as BuiltPanel
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from grafana_foundation_sdk.models.tempo import SearchTableType

from grafana.generator import names
from otel_quant.schema import semconv

Panel: TypeAlias = Builder[BuiltPanel]
"""A panel of any kind, as a dashboard takes it."""

PROMETHEUS = DataSourceRef(type_val="prometheus", uid="${prometheus_datasource}")
TEMPO = DataSourceRef(type_val="tempo", uid="${tempo_datasource}")
LOKI = DataSourceRef(type_val="loki", uid="${loki_datasource}")

TRACES_OF_RUNS = (
    "resource.service.name =~ `(.+/)?${job:regex}`"
    f" && {names.span(semconv.RUN_NAME)} =~ `${{run:regex}}`"
    f" && {names.span(semconv.RUN_NAME)} =~ `(?i).*${{search:regex}}.*`"
)
"""TraceQL for the runs that the variables choose."""
RECORDS = f"{{service_name=~`(.+/)?${{job:regex}}`}} | {names.CHOSEN}"
LOGS_OF_RUNS = f'{RECORDS} | {names.label(semconv.CHECKPOINT_NAME)} != ""'
"""LogQL for their checkpoints. Loki keeps no event names; only checkpoints have this."""
_AT_CHECKPOINT = names.label(semconv.CHECKPOINT_MEMORY)
_BETWEEN = names.label(f"{semconv.READING_PREFIX}memory")
MEMORY_IN_LOGS = (
    f'{RECORDS} | {_AT_CHECKPOINT} != "" or {_BETWEEN} != ""'
    f" | label_format memory=`{{{{or .{_AT_CHECKPOINT} .{_BETWEEN}}}}}` | unwrap memory"
)
"""LogQL for their memory at checkpoints, and at the readings between them."""


def of_processes(query: str) -> str:
    """Returns one of the queries above for the chosen processes alone, where they can be chosen."""
    spans = f"{TRACES_OF_RUNS} && resource.service.instance.id =~ `${{instance:regex}}`"
    records = f"{RECORDS} | service_instance_id=~`${{instance:regex}}`"
    return query.replace(TRACES_OF_RUNS, spans).replace(RECORDS, records)


GREEN, YELLOW, RED, BLUE, GREY = "green", "yellow", "red", "blue", "text"
STATES = {
    0: ("ended", GREEN), 1: ("running", BLUE), 2: ("failed", RED), 3: ("vanished", "purple"),
}  # fmt: skip


UNITS = {
    "By": "bytes",
    "s": "s",
    "W": "watt",
    "J": "joule",
    "Cel": "celsius",
    "Hz": "hertz",
    "1": "percentunit",
}
"""What Grafana calls a unit."""


def promql(expr: str, legend: str = "", ref: str = "A") -> prometheus.Dataquery:
    """Returns a query for a chart."""
    query = prometheus.Dataquery().expr(expr).range().ref_id(ref).datasource(PROMETHEUS)
    return query.legend_format(legend) if legend else query


def promql_table(expr: str, ref: str = "A") -> prometheus.Dataquery:
    """Returns a query for the newest values, as rows."""
    query = prometheus.Dataquery().expr(expr).instant().ref_id(ref).datasource(PROMETHEUS)
    return query.format(PromQueryFormat.TABLE)


SPAN_TIME, SPAN_NAME, SPAN_DURATION = "Start time", "Name", "Duration"
"""What the data source calls the columns of a search that are no attributes."""
MOST_SPANS = 1000
"""Traces that a search returns at most, and spans of each, or of each group of them."""


def each_by(*attributes: str) -> str:
    """Returns stages of a search for spans that no two spans of a trace have the same values of.

    The spans of a run come over hours, and are in many blocks of Tempo's. Of a trace it returns the spans of one
    block, until it has compacted them into one; but of each group.
    """
    return "".join(f" | by({names.span(attribute)})" for attribute in attributes)


def traceql(query: str, ref: str = "A") -> tempo.TempoQuery:
    """Returns a search for spans, one row each."""
    return (
        tempo.TempoQuery().query_type("traceql").query(query).ref_id(ref).datasource(TEMPO)
        .table_type(SearchTableType.SPANS).limit(MOST_SPANS).spss(MOST_SPANS).filters([])
    )  # fmt: skip


def logql(expr: str, ref: str = "A") -> loki.Dataquery:
    """Returns a query for log lines or for figures in them."""
    return loki.Dataquery().expr(expr).query_type("range").ref_id(ref).datasource(LOKI)


def logql_table(expr: str, ref: str = "A") -> loki.Dataquery:
    """Returns a query for figures in log lines, as rows."""
    return loki.Dataquery().expr(expr).query_type("instant").ref_id(ref).datasource(LOKI)


def thresholds(*steps: tuple[float | None, str], percent: bool = False) -> Any:
    """Returns thresholds: each colour from its value on, the first from below."""
    return (
        dashboard.ThresholdsConfig()
        .mode(ThresholdsMode.PERCENTAGE if percent else ThresholdsMode.ABSOLUTE)
        .steps([Threshold(value=value, color=color) for value, color in steps])
    )


SHARE_OF_LIMIT = thresholds((None, GREEN), (0.8, YELLOW), (0.9, RED))


def chart(
    title: str, description: str, unit: str, *targets: Any, from_zero: bool = True
) -> timeseries.Panel:
    """Returns a chart over time."""
    panel = (
        timeseries.Panel().title(title).description(description).unit(unit)
        .no_value("No data in this time range").fill_opacity(10).line_width(2)
        .legend(_legend())
        .datasource(_datasource(targets)).span(12).height(9)
    )  # fmt: skip
    if from_zero:
        panel = panel.min(0)
    for target in targets:
        panel = panel.with_target(target)
    return panel


def figure(title: str, description: str, unit: str, *targets: Any) -> stat.Panel:
    """Returns one big number, or several: one for each row of a table."""
    panel = (
        stat.Panel().title(title).description(description).unit(unit)
        .no_value("-").datasource(_datasource(targets)).span(4).height(4)
        .reduce_options(common.ReduceDataOptions().values(targets[0].build().to_json().get("range") is not True).calcs(["lastNotNull"]))
    )  # fmt: skip
    for target in targets:
        panel = panel.with_target(target)
    return panel


TEXT = "string"
"""Unit of columns with texts: with any other, a run that is called 20261122 is shown as 20.3 Mil."""


def grid(title: str, description: str, unit: str, *targets: Any) -> table.Panel:
    """Returns a table. `no_value` is its text for when it has no row; an empty cell has a dash."""
    panel = (
        table.Panel().title(title).description(description).unit(unit).filterable(True)
        .no_value("Nothing in this time range").datasource(_datasource(targets)).span(24).height(10)
        .footer(common.TableFooterOptions().enable_pagination(True))
        .override_by_regexp(".*", looks(noValue="-", custom__wrapHeaderText=True))
    )  # fmt: skip
    for target in targets:
        panel = panel.with_target(target)
    return panel


def timeline(title: str, description: str, *targets: Any) -> statetimeline.Panel:
    """Returns states over time."""
    panel = (
        statetimeline.Panel().title(title).description(description).unit("none")
        .no_value("No data in this time range").datasource(_datasource(targets))
        .span(24).height(7)
    )  # fmt: skip
    for target in targets:
        panel = panel.with_target(target)
    return panel


class _Legend:
    def build(self) -> VizLegendOptions:
        return VizLegendOptions(
            display_mode=LegendDisplayMode.TABLE,
            placement=LegendPlacement.BOTTOM,
            show_legend=True,
            calcs=["lastNotNull", "max"],
        )


def _legend() -> Any:
    return _Legend()


def _datasource(targets: Sequence[Any]) -> DataSourceRef:
    """Returns the targets' data source, or Grafana's name for several."""
    found: dict[str, DataSourceRef] = {
        target.build().datasource.uid: target.build().datasource for target in targets
    }
    if len(found) == 1:
        return next(iter(found.values()))
    return DataSourceRef(type_val="datasource", uid="-- Mixed --")


def transform(kind: str, **options: Any) -> DataTransformerConfig:
    """Returns one step of a table's transformation."""
    return DataTransformerConfig(id_val=kind, options=options)


def columns(order: Mapping[str, str]) -> list[DataTransformerConfig]:
    """Returns transformations that keep some columns, order and name them.

    The order has the new name by the one that the data source shows. What a store adds to what was asked
    for does not become a column.
    """
    return [
        transform("filterFieldsByName", include={"names": list(order)}),
        transform(
            "organize",
            excludeByName={},
            indexByName={name: index for index, name in enumerate(order)},
            renameByName=dict(order),
        ),
    ]


def numbers(*names: str) -> DataTransformerConfig:
    """Returns a transformation that makes numbers of a trace search's columns.

    A search gives every attribute as text, which has no unit and sorts by its letters.
    """
    return transform(
        "convertFieldType",
        fields={},
        conversions=[{"targetField": name, "destinationType": "number"} for name in names],
    )


def reduced(title: str, reducer: str, columns: Sequence[str]) -> DataTransformerConfig:
    """Returns a transformation that adds a column made of others, row by row."""
    return transform(
        "calculateField",
        mode="reduceRow",
        alias=title,
        replaceFields=False,
        reduce={"reducer": reducer, "include": list(columns)},
    )


def looks(unit: str | None = None, **more: Any) -> list[DynamicConfigValue]:
    """Returns how one column is shown."""
    made = [DynamicConfigValue(id_val="unit", value=unit)] if unit else []
    return made + [
        DynamicConfigValue(id_val=key.replace("__", "."), value=value)
        for key, value in more.items()
    ]


def coloured() -> dict[str, Any]:
    """Returns the look of a cell that takes the colour of its value."""
    return {"custom__cellOptions": {"type": "color-background", "mode": "basic"}}


def states() -> list[dict[str, Any]]:
    """Returns the words and colours for a run's state."""
    return [{
        "type": "value",
        "options": {
            str(value): {"text": text, "color": color, "index": value}
            for value, (text, color) in STATES.items()
        },
    }]  # fmt: skip


def transformed(
    panel: table.Panel, transformations: Iterable[DataTransformerConfig]
) -> table.Panel:
    """Returns a table with transformations, in their order."""
    for one in transformations:
        panel = panel.with_transformation(one)
    return panel


def merged(panel: table.Panel, order: Mapping[str, str], newest: str) -> table.Panel:
    """Returns a table whose queries have the same labels, a row for each set of their values.

    Rows are sorted by the column `newest`, the largest first.
    """
    kept, named = columns(order)
    return transformed(
        panel,
        (kept, transform("merge"), named, transform("sortBy", fields={}, sort=[{"field": newest, "desc": True}])),
    )  # fmt: skip


def matrix(
    panel: table.Panel, title: str, row: str, column: str, value: str = "Value"
) -> table.Panel:
    """Returns a table with a row and a column for each value of two labels; `title` is of the rows'."""
    panel = panel.with_transformation(
        transform("groupingToMatrix", columnField=column, rowField=row, valueField=value, emptyValue="null")
    )  # fmt: skip
    panel = panel.with_transformation(
        transform("organize", excludeByName={}, indexByName={}, renameByName={f"{row}\\{column}": title})
    )  # fmt: skip
    # As many columns as runs, or two: of the usual 150 pixels a panel of a third of the page shows one and a half.
    return panel.override_by_regexp(".*", looks(custom__minWidth=80)).override_by_name(
        title, looks(TEXT)
    )


def row(title: str, *below: Any) -> dashboard.Row:
    """Returns a row that is closed at first: its panels ask nothing until it is opened."""
    made = dashboard.Row(title).collapsed(True)
    for panel in below:
        made = made.with_panel(panel)
    return made


def value_map(words: Mapping[str, tuple[str, str]]) -> ValueMap:
    """Returns words and colours by value."""
    return ValueMap(options={
        value: ValueMappingResult(text=text, color=color, index=index)
        for index, (value, (text, color)) in enumerate(words.items())
    })  # fmt: skip


def link(title: str, url: str) -> dict[str, Any]:
    """Returns a link on a cell."""
    return {"title": title, "url": url}


TO_RUN = (
    "/d/quant-run/run?${__url_time_range}&${job:queryparam}"
    "&var-run=${__data.fields." + names.RUN_NAME + ":percentencode}"
)
"""Address of the dashboard of the run of a table's row. The name of the column is the store's."""
TO_INFERENCE = "/d/quant-inference/inference?${__url_time_range}&var-run="
"""Address of the dashboard of inference, without the run: another service may have measured them."""


class _Marks(AnnotationQuery):
    """An annotation with what Prometheus and Loki need beyond the SDK's model."""

    def __init__(self, extra: Mapping[str, Any], **fields: Any) -> None:
        super().__init__(**fields)
        self.extra = extra

    def to_json(self) -> dict[str, object]:
        """Returns the annotation as Grafana stores it."""
        return {**super().to_json(), **self.extra}


class Marks(Builder[AnnotationQuery]):
    """Marks on every chart of a dashboard, from a query."""

    def __init__(self, name: str, source: DataSourceRef, expr: str, color: str, **extra: Any):
        self.made = _Marks(
            extra, name=name, datasource=source, expr=expr, icon_color=color, enable=True
        )

    def build(self) -> AnnotationQuery:
        """Returns the annotation."""
        return self.made


START = names.prometheus(semconv.RUN_START)[0]


def board(
    uid: str,
    title: str,
    description: str,
    run: dashboard.QueryVariable,
    processes: dashboard.QueryVariable | None = None,
    start: str = START,
    beside: str = "",
) -> dashboard.Dashboard:
    """Returns a dashboard with the variables that all have.

    Processes of many runs are nothing to choose from; `start` is the metric that has each run's start, `beside` matches
    the names of runs that are shown beside the newest.
    """
    made = (
        dashboard.Dashboard(title).uid(uid).description(description).tags(["quantization"])
        .readonly().tooltip(DashboardCursorSync.CROSSHAIR).refresh("30s")
        .time("now-6h", "now").timezone("browser")
        .link(
            dashboard.DashboardLink("Quantization").type(DashboardLinkType.DASHBOARDS).tags(["quantization"])
            .as_dropdown(False).keep_time(True).include_vars(True).tooltip("").url("").icon("")
        )
    )  # fmt: skip
    for kind, ref in (("prometheus", PROMETHEUS), ("tempo", TEMPO), ("loki", LOKI)):
        uid_of = f"quant-{kind}"
        made = made.with_variable(
            dashboard.DatasourceVariable(str(ref.uid).strip("${}")).type(kind)
            .label(f"{kind.title()} data source")
            .current(VariableOption(selected=True, text=kind.title(), value=uid_of))
        )  # fmt: skip
    made = (
        made.with_variable(
            choice("job", "Job", f"label_values({start}, job)", "The service: OTEL_SERVICE_NAME.")
            .regex("/([^/]+)$/")
        )
        .with_variable(
            dashboard.TextBoxVariable("search").label("Search runs").default_value("")
            .description("A part of the names of runs, in upper or lower case: the menu beside it, and the page, have those alone.")
        )
        .with_variable(run)
    )  # fmt: skip
    if processes is not None:
        made = made.with_variable(processes)
    return made.with_variable(_shown(start, beside, 'instance=~"$instance"' if processes else ""))


def _shown(start: str, beside: str, chosen: str) -> dashboard.QueryVariable:
    """Returns a variable that nobody sees: the processes of the newest of the chosen runs.

    It bounds the work of every query. Prometheus finds the series of 1,000 processes in 20 ms; those of 100,000 runs
    take a second and 0.4 GB for each selector.
    """
    matchers = ", ".join(
        filter(None, (names.OF_JOB, names.SEARCHED if beside else names.CHOSEN, chosen))
    )
    began = f"max_over_time({start}{{{matchers}}}[$__range])"
    newest = (
        f"{began} and on ({names.RUN_NAME}) topk({MOST_SPANS}, max by ({names.RUN_NAME}) ({began}))"
    )
    if beside:
        newest = f"{newest} or max_over_time({start}{{{beside}}}[$__range])"
    return (
        choice("process", "Processes", f"query_result(max by (instance) ({newest}))", f"Those of the newest {MOST_SPANS} runs.")
        .regex('/instance="([^"]+)"/').all_value("").hide(VariableHide.HIDE_VARIABLE)
    )  # fmt: skip


OF_RESULT = f'/{names.RUN_NAME}="(.+)"}} \\S+ \\S+$/'
"""The name in a result as Grafana writes it, with quotes in it as they are: labels, value, time."""


def _newest_first(start: str) -> str:
    newest = f"topk({MOST_SPANS}, max by ({names.RUN_NAME}) (max_over_time({start}{{{names.OF_JOB}, {names.SEARCHED}}}[$__range])))"
    return f"query_result(sort_desc({newest}))"


def runs(start: str = START) -> dashboard.QueryVariable:
    """Returns the choice of any runs, by name, all of them at first; `start` has when each began."""
    return choice("run", "Run", _newest_first(start), f"Service, model and start, or OTEL_QUANT_RUN_NAME; the newest {MOST_SPANS}, newest first.").regex(OF_RESULT).sort(VariableSort.DISABLED)  # fmt: skip


def run(several: bool = False) -> dashboard.QueryVariable:
    """Returns the choice of one run, the newest at first, or of several."""
    return (
        dashboard.QueryVariable("run").label("Run").query(_newest_first(START)).regex(OF_RESULT)
        .description(f"Service, model and start, or OTEL_QUANT_RUN_NAME; the newest {MOST_SPANS}, newest first.")
        .datasource(PROMETHEUS).refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.DISABLED).multi(several).include_all(several).all_value(".+")
    )  # fmt: skip


def processes() -> dashboard.QueryVariable:
    """Returns the choice of processes of one run, by rank and process id."""
    rank, pid = names.label(semconv.RUN_RANK), names.label(semconv.PROCESS_PID)
    each = f"max by (instance, {rank}, {pid}) (max_over_time({START}{{{names.OF_JOB}, {names.CHOSEN}}}[$__range]))"
    for label, words in ((rank, "rank $1,"), (pid, "pid $1")):
        each = f'label_replace({each}, "{label}", "{words}", "{label}", "(.+)")'
    named = f'max by (instance, process) (label_join({each}, "process", " ", "{rank}", "{pid}"))'
    return (
        choice("instance", "Process", f"query_result({named})", "One process of a run: it may have children and ranks.")
        .regex('/instance="(?<value>[^"]+)",process=" ?(?<text>[^"]+)"/').sort(VariableSort.NATURAL_ASC)
    )  # fmt: skip


def choice(name: str, label: str, query: str, description: str) -> dashboard.QueryVariable:
    """Returns a variable whose values Prometheus lists; several may be chosen, or all."""
    return (
        dashboard.QueryVariable(name).label(label).description(description).query(query)
        .datasource(PROMETHEUS).refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC).multi(True).include_all(True).all_value(".+")
        .current(VariableOption(selected=True, text=["All"], value=["$__all"]))
    )  # fmt: skip
