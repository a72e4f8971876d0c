"""What Prometheus, Tempo and Loki call the names of `otel_quant.schema.semconv`.

A query is put together from these and nothing else, so a name that is not in the contract
fails while the dashboards are made. A test against a real Prometheus holds that it makes of
each metric what `prometheus` returns.
"""

from __future__ import annotations

from collections.abc import Iterator

from otel_quant.schema import catalog, semconv
from otel_quant.schema.figures import Metric

_UNITS = {
    "By": "_bytes", "s": "_seconds", "W": "_watts", "Cel": "_celsius", "Hz": "_hertz", "J": "_joules",
    "1": "_ratio",  # on gauges only
    "dB": "_dB",
}  # fmt: skip
_SUFFIXES = {
    "histogram": ("_bucket", "_sum", "_count"),
    "counter": ("_total",),
    "observable_counter": ("_total",),
}
_ATTRIBUTES = frozenset(attribute.name for attribute in catalog.ATTRIBUTES)

OF_JOB = 'job=~"(.+/)?$job"'
"""The chosen services. Prometheus' `job` begins with a service's namespace, where it has one; Loki and
Tempo know it by its name."""
SELECTED = f'{OF_JOB}, instance=~"$process"'
"""The processes of the chosen runs (`panels.board`). One process is one instance."""

RUN_NAME = semconv.RUN_NAME.replace(".", "_")
SEARCHED = f"{RUN_NAME}=~`(?i).*${{search:regex}}.*`"
"""Runs whose names have what is searched for."""
CHOSEN = f"{RUN_NAME}=~`${{run:regex}}`, {SEARCHED}"
"""The runs that they choose: children and ranks have the name of their run. A name may have any
characters; the data sources escape characters of regular expressions only where several can be chosen."""


def renamed(old: str, metric: Metric) -> Iterator[tuple[str, str]]:
    """Yields the series of a metric under a former name, and what their names begin with, each with its present name."""
    yield _stem(old, metric), _stem(metric.name, metric)
    yield from zip(_names(old, metric), _names(metric.name, metric), strict=True)


def prometheus(metric: str) -> tuple[str, ...]:
    """Returns the names of a metric's series: one, or three for a histogram."""
    return _names(metric, catalog.METRIC_BY_NAME[metric])


def _names(name: str, made: Metric) -> tuple[str, ...]:
    return tuple(_stem(name, made) + suffix for suffix in _SUFFIXES.get(made.instrument, ("",)))


def _stem(name: str, made: Metric) -> str:
    return name.replace(".", "_") + _UNITS.get(made.unit, "")


def series(metric: str, matchers: str = "", *, part: str = "") -> str:
    """Returns a selector of the chosen runs' series of a metric; of a histogram, of one part.

    Those with a former name too: runs that an older version has measured.
    """
    made = catalog.METRIC_BY_NAME[metric]
    known = [
        next(n for n in _names(each, made) if n.endswith(part)) for each in (metric, *made.former)
    ]
    chosen = ", ".join(filter(None, (SELECTED, matchers)))
    return (
        f'{{__name__=~"{"|".join(known)}", {chosen}}}' if made.former else f"{known[0]}{{{chosen}}}"
    )


RANGE, SINCE_LAST_POINT = "$__range", "$__rate_interval"
"""The dashboard's time range, and what passes between two points of a chart: at least four minutes."""


def begun(matchers: str = CHOSEN, *, over: str = "") -> str:
    """Returns when each process began its run: the latest, where it had several.

    `topk`, here and wherever something is joined to processes: with two series of one process, as of
    programs that share an id, a join is an error for all runs.
    Over a range, runs count that have been seen at any time of it.
    """
    start = series(semconv.RUN_START, matchers)
    return f"topk by (job, instance) (1, {f'max_over_time({start}[{over}])' if over else start})"


def named(
    values: str, matchers: str = CHOSEN, *, labels: tuple[str, ...] = (), over: str = ""
) -> str:
    """Returns series of processes with the name of the run that each belongs to, and more of its labels.

    The series given have the labels `job` and `instance`.
    """
    join = f"on (job, instance) group_left ({', '.join((RUN_NAME, *labels))})"
    return f"{values} * {join} ({begun(matchers, over=over)} > bool 0)"


def label(attribute: str) -> str:
    """Returns what Prometheus and Loki call an attribute."""
    _check(attribute)
    return attribute.replace(".", "_")


def span(attribute: str) -> str:
    """Returns an attribute of a span in TraceQL."""
    _check(attribute)
    return f"span.{attribute}"


def model(role: str, figure: str) -> str:
    """Returns a model's figure in TraceQL."""
    name = semconv.of_model("<role>", figure)
    mix, dot, _ = figure.partition("precision.")
    _check(semconv.of_model("<role>", f"{mix}precision.<type>") if dot else name)
    return f"span.{name.replace('<role>', role)}"


def _check(attribute: str) -> None:
    if attribute not in _ATTRIBUTES:
        raise KeyError(f"{attribute}: not an attribute of otel_quant.schema.semconv")
