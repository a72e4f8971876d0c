"""What the dashboards' queries are asked of, and how Grafana asks."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.fixtures.otlp_receiver import Span
from tests.stack import traceql
from tests.stack.conftest import JOB
from tests.stack.processes import Backends, fetch
from tests.stack.webhook import Webhook
from tests.unit.stack.dashboards import Query

RATE_INTERVAL = "240s"
"""Grafana's for the interval that the data source is said to have: four of it."""


def escaped(value: str) -> str:
    """Returns a variable's value as Grafana writes it where a regular expression is asked for."""
    return value if value == ".+" else re.sub(r"([\\^$*+?.()|\[\]{}])", r"\\\1", value)


@dataclass(frozen=True)
class World:
    """What the queries are asked of.

    Attributes:
        ports: Where the stores listen.
        began: Seconds since the epoch before the first run.
        spans: What the Collector sent where there is no Tempo; None where there is.
        killed: The killed run's trace, from its first checkpoint.
        killed_at: Seconds since the epoch when it was killed.
        good: The good run's trace.
        instance: The good run's service.instance.id.
        names: Names of the runs, by service.instance.id.
        webhook: Whom Alertmanager tells; None without one.
    """

    ports: Backends
    began: float
    spans: list[Span] | None
    killed: str = ""
    killed_at: float = 0.0
    good: str = ""
    instance: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    webhook: Webhook | None = None

    def ask(self, query: Query, at: float | None = None, **variables: str) -> list[Any]:
        """Returns the rows or series that a query gives, as Grafana would ask it.

        Args:
            query: The query.
            at: The moment that Prometheus is to take for now.
            variables: Values of the dashboard's variables; all runs where there are none.
        """
        text = self.filled(query, variables)
        now = at or time.time()
        if query.ref == "variable":
            return self.values(text)
        if query.store == "prometheus":
            url = f"http://127.0.0.1:{self.ports.prometheus}/api/v1/query"
            if query.instant:
                answer = fetch(url, query=text, time=now)
            else:
                answer = fetch(f"{url}_range", query=text, start=self.began, end=now, step=5)
            return answer["data"]["result"]
        if query.store == "loki":
            url = f"http://127.0.0.1:{self.ports.loki}/loki/api/v1/query_range"
            if query.instant:
                url = url.removesuffix("_range")
            answer = fetch(url, query=text, start=int(self.began), end=int(now + 1), limit=1000)
            return answer["data"]["result"]
        url = f"http://127.0.0.1:{self.ports.tempo}/api"
        if self.spans is not None:
            return traceql.answer(text, list(self.spans))
        # Tempo refuses a part of its own search that would begin and end in one second.
        window = {"start": int(self.began) - 1, "end": int(now + 1)}
        if text == self.good:
            return fetch(f"{url}/v2/traces/{text}")["trace"]["resourceSpans"]
        return fetch(f"{url}/search", q=text, limit=1000, spss=1000, **window).get("traces", [])

    def filled(self, query: Query, variables: Mapping[str, str]) -> str:
        """Returns a query's text with values for Grafana's variables."""
        text = query.text
        every = dict.fromkeys(("job", "run", "instance", "step", "baseline", "model"), ".+")
        given = {**every, **variables}
        for name, value in {
            "$__rate_interval": RATE_INTERVAL,
            "$__interval": "5s",
            "$__range": "1h",
            # Loki's is the whole range in a query for one moment.
            "$__auto": "1h" if query.instant else "1m",
            "${trace}": self.good,
            "${__trace.traceId}": self.good,
            '${__span.tags["service.name"]}': JOB,
            '${__span.tags["service.instance.id"]}': self.instance,
            **{f"${{{name}:regex}}": escaped(value) for name, value in given.items()},
            **{f"${name}": value for name, value in given.items()},
        }.items():
            text = text.replace(name, value)
        assert "$" not in text, text
        return text

    def values(self, query: str) -> list[str]:
        """Returns what `label_values(selector, label)` or `query_result(query)` gives."""
        if query.startswith("query_result("):
            url = f"http://127.0.0.1:{self.ports.prometheus}/api/v1/query"
            found = fetch(url, query=query[len("query_result(") : -1], time=time.time())
            return [each["metric"]["quant_run_name"] for each in found["data"]["result"]]
        selector, label = query.removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
        url = f"http://127.0.0.1:{self.ports.prometheus}/api/v1/label/{label}/values"
        return fetch(url, **{"match[]": selector})["data"]
