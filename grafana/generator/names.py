"""What Prometheus, Tempo and Loki call the names of `otel_quant.telemetry.semconv`.

A query is put together from these and nothing else, so a name that is not in the contract
fails while the dashboards are made. A test against a real Prometheus holds that it makes of
each metric what `prometheus` returns.
"""

from __future__ import annotations

import re

from otel_quant.telemetry import catalog

_UNITS = {"By": "_bytes", "s": "_seconds", "1": "_ratio"}  # the last on gauges only
_SUFFIXES = {
    "histogram": ("_bucket", "_sum", "_count"),
    "counter": ("_total",),
    "observable_counter": ("_total",),
}
_ATTRIBUTES = frozenset(attribute.name for attribute in catalog.ATTRIBUTES)

SELECTED = 'job=~"$job", instance=~"$instance"'
"""The runs that the dashboard's variables choose. One process is one instance."""


def prometheus(metric: str) -> tuple[str, ...]:
    """Returns the names of a metric's series: one, or three for a histogram."""
    made = catalog.METRIC_BY_NAME[metric]
    base = metric.replace(".", "_") + _UNITS.get(made.unit, "")
    return tuple(base + suffix for suffix in _SUFFIXES.get(made.instrument, ("",)))


def series(metric: str, matchers: str = "", *, part: str = "") -> str:
    """Returns a selector of the chosen runs' series of a metric.

    Args:
        metric: Name in the contract.
        matchers: Further matchers.
        part: `bucket`, `sum` or `count` of a histogram.
    """
    names = prometheus(metric)
    name = next(n for n in names if n.endswith(part)) if part else names[0]
    return f"{name}{{{', '.join(filter(None, (SELECTED, matchers)))}}}"


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
    name = f"quant.model.<role>.{figure}"
    _check("quant.model.<role>.precision.<type>" if figure.startswith("precision.") else name)
    full = name.replace("<role>", role)
    return f"span.{full}" if re.fullmatch(r"[\w.]+", full) else f'span."{full}"'


def _check(attribute: str) -> None:
    if attribute not in _ATTRIBUTES:
        raise KeyError(f"{attribute}: not an attribute of otel_quant.telemetry.semconv")
