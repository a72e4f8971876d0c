"""What the dashboards share: variables, queries, panels and their looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from grafana_foundation_sdk.builders import (
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
    VariableOption,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.dashboard import Panel as BuiltPanel
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from grafana_foundation_sdk.models.tempo import MetricsQueryType, SearchTableType

from grafana.generator import names
from otel_quant.telemetry import semconv

Panel: TypeAlias = Builder[BuiltPanel]
"""A panel of any kind, as a dashboard takes it."""

PROMETHEUS = DataSourceRef(type_val="prometheus", uid="${prometheus_datasource}")
TEMPO = DataSourceRef(type_val="tempo", uid="${tempo_datasource}")
LOKI = DataSourceRef(type_val="loki", uid="${loki_datasource}")

TRACES_OF_RUNS = 'resource.service.name =~ "$job" && resource.service.instance.id =~ "$instance"'
"""TraceQL for the runs that the variables choose."""
LOGS_OF_RUNS = (
    f'{{service_name=~"$job"}} | service_instance_id=~"$instance"'
    f' | {names.label(semconv.CHECKPOINT_NAME)} != ""'
)
"""LogQL for their checkpoints. Loki keeps no event names; only checkpoints have this."""
_AT_CHECKPOINT = names.label(semconv.CHECKPOINT_MEMORY)
_BETWEEN = names.label(f"{semconv.READING_PREFIX}memory")
MEMORY_IN_LOGS = (
    f'{{service_name=~"$job"}} | service_instance_id=~"$instance"'
    f' | {_AT_CHECKPOINT} != "" or {_BETWEEN} != ""'
    f" | label_format memory=`{{{{or .{_AT_CHECKPOINT} .{_BETWEEN}}}}}` | unwrap memory"
)
"""LogQL for their memory at checkpoints, and at the readings between them."""

GREEN, YELLOW, RED, BLUE, GREY = "green", "yellow", "red", "blue", "text"
STATES = {
    0: ("ended", GREEN), 1: ("running", BLUE), 2: ("failed", RED), 3: ("vanished", "purple"),
}  # fmt: skip


def promql(expr: str, legend: str = "", ref: str = "A") -> prometheus.Dataquery:
    """Returns a query for a chart."""
    query = prometheus.Dataquery().expr(expr).range().ref_id(ref).datasource(PROMETHEUS)
    return query.legend_format(legend) if legend else query


def promql_table(expr: str, ref: str = "A") -> prometheus.Dataquery:
    """Returns a query for the newest values, as rows."""
    query = prometheus.Dataquery().expr(expr).instant().ref_id(ref).datasource(PROMETHEUS)
    return query.format(PromQueryFormat.TABLE)


def traceql(query: str, ref: str = "A", *, limit: int = 200) -> tempo.TempoQuery:
    """Returns a search for spans, one row each."""
    return (
        tempo.TempoQuery().query_type("traceql").query(query).ref_id(ref).datasource(TEMPO)
        .table_type(SearchTableType.SPANS).limit(limit).spss(100).filters([])
    )  # fmt: skip


def traceql_metrics(query: str, ref: str = "A") -> tempo.TempoQuery:
    """Returns one figure for each group of spans, over the whole time range."""
    return (
        tempo.TempoQuery().query_type("traceql").query(query).ref_id(ref).datasource(TEMPO)
        .metrics_query_type(MetricsQueryType.INSTANT).filters([])
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


def chart(title: str, description: str, unit: str, *targets: Any) -> timeseries.Panel:
    """Returns a chart over time."""
    panel = (
        timeseries.Panel().title(title).description(description).unit(unit).min(0)
        .no_value("No data in this time range").fill_opacity(10).line_width(2)
        .legend(_legend())
        .datasource(_datasource(targets)).span(12).height(9)
    )  # fmt: skip
    for target in targets:
        panel = panel.with_target(target)
    return panel


def figure(title: str, description: str, unit: str, *targets: Any) -> stat.Panel:
    """Returns one big number, or several."""
    panel = (
        stat.Panel().title(title).description(description).unit(unit)
        .no_value("-").datasource(_datasource(targets)).span(4).height(4)
    )  # fmt: skip
    for target in targets:
        panel = panel.with_target(target)
    return panel


def grid(title: str, description: str, unit: str, *targets: Any) -> table.Panel:
    """Returns a table."""
    panel = (
        table.Panel().title(title).description(description).unit(unit).filterable(True)
        .no_value("-").datasource(_datasource(targets)).span(24).height(10)
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
    """Returns the targets' data source, or Grafana's way to say that they have several."""
    found: dict[str, DataSourceRef] = {
        target.build().datasource.uid: target.build().datasource for target in targets
    }
    if len(found) == 1:
        return next(iter(found.values()))
    return DataSourceRef(type_val="datasource", uid="-- Mixed --")


def transform(kind: str, **options: Any) -> DataTransformerConfig:
    """Returns one step of a table's transformation."""
    return DataTransformerConfig(id_val=kind, options=options)


def columns(order: Mapping[str, str], hide: Sequence[str] = ()) -> DataTransformerConfig:
    """Returns a transformation that orders and names the columns, and hides others.

    Args:
        order: New name by old name, in the order of the columns.
        hide: Columns left out.
    """
    return transform(
        "organize",
        excludeByName=dict.fromkeys(hide, True),
        indexByName={name: index for index, name in enumerate(order)},
        renameByName=dict(order),
    )


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


def value_map(words: Mapping[str, tuple[str, str]]) -> ValueMap:
    """Returns words and colours by value."""
    return ValueMap(options={
        value: ValueMappingResult(text=text, color=color, index=index)
        for index, (value, (text, color)) in enumerate(words.items())
    })  # fmt: skip


def link(title: str, url: str) -> dict[str, Any]:
    """Returns a link on a cell."""
    return {"title": title, "url": url}


def to_run(instance: str, trace: str = "") -> str:
    """Returns the address of one run's dashboard."""
    address = f"/d/quant-run/run?${{__url_time_range}}&var-instance={instance}"
    return f"{address}&var-trace={trace}" if trace else address


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


def board(uid: str, title: str, description: str) -> dashboard.Dashboard:
    """Returns a dashboard with the variables that all have."""
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
    memory = names.prometheus(semconv.RUN_MEMORY_USAGE)[0]
    return made.with_variable(
        choice("job", "Job", f"label_values({memory}, job)", "The service: OTEL_SERVICE_NAME.")
    ).with_variable(
        choice(
            "instance", "Instance", f'label_values({memory}{{job=~"$job"}}, instance)',
            "One run: the process's service.instance.id.",
        )
    )  # fmt: skip


def choice(name: str, label: str, query: str, description: str) -> dashboard.QueryVariable:
    """Returns a variable whose values Prometheus lists; several may be chosen, or all."""
    return (
        dashboard.QueryVariable(name).label(label).description(description).query(query)
        .datasource(PROMETHEUS).refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC).multi(True).include_all(True).all_value(".+")
        .current(VariableOption(selected=True, text=["All"], value=["$__all"]))
    )  # fmt: skip
