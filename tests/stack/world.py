"""What the dashboards' queries are asked of, and how Grafana asks."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fixtures.otlp_messages import Span
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.stack import traceql
from tests.stack.conftest import tempo_binary
from tests.stack.grafana_panels import Shown, show
from tests.stack.processes import (
    CONFIGS,
    JOB,
    Backends,
    Collector,
    Webhook,
    alertmanager,
    collector,
    fetch,
    loki,
    prometheus,
    queries,
    tempo,
)
from tests.unit.stack.dashboards import GRAFANA, QUERIES, Query, load

EXPORTS = 60
"""Seconds between two exports: the interval that the data source is said to have."""


def escaped(value: str) -> str:
    """Returns a variable's value as Grafana writes it where a regular expression is asked for."""
    return value if value == ".+" else re.sub(r"([\\^$*+?.()|\[\]{}/])", r"\\\1", value)


def quoted(value: str) -> str:
    """Returns a value as Grafana's data source writes it between double quotes."""
    return escaped(value).replace("\\/", "/").replace("\\", "\\\\")


def as_choice(value: str | Sequence[str]) -> str:
    """Returns a variable's value, or several, as Grafana's data source writes them between double quotes."""
    return quoted(value) if isinstance(value, str) else f"({'|'.join(map(quoted, value))})"


def as_text(metric: Mapping[str, str], value: tuple[float, str]) -> str:
    """Returns a result as Grafana's data source writes it for the choice of a variable."""
    labels = ",".join(f'{key}="{each}"' for key, each in metric.items())
    return f"{{{labels}}} {value[1]} {value[0] * 1000:.0f}"


@dataclass(frozen=True)
class World:
    """What the queries are asked of."""

    ports: Backends  # Where the stores are asked
    modules: str  # Path of the library that Grafana shows panels with
    began: float  # Seconds since the epoch before the first run
    spans: list[Span] | None  # What the Collector sent where there is no Tempo; None where there is
    killed: str = ""  # The killed run's trace, from its first checkpoint
    killed_at: float = 0.0  # Seconds since the epoch when it was killed
    good: str = ""  # The good run's trace
    instance: str = ""  # The good run's service.instance.id
    # Names of the runs, by service.instance.id
    names: Mapping[str, str] = field(default_factory=dict)
    webhook: Webhook | None = None  # The webhook that Alertmanager calls; None without one

    def ask(
        self, query: Query, at: float | None = None, **variables: str | Sequence[str]
    ) -> list[Any]:
        """Returns the rows or series that a query gives, as Grafana would ask it."""
        text = self.filled(query, variables)
        now = at or time.time()
        if query.ref == "variable":
            return [value for _, value in self.options(text, query.regex)]
        if query.store == "prometheus":
            url = f"http://127.0.0.1:{self.ports.prometheus}/api/v1/query"
            if query.instant:
                answer = fetch(url, query=text, time=now)
            else:
                answer = fetch(
                    f"{url}_range", query=text, start=self.began, end=now, step=self.step
                )
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
        # Tempo refuses a search that begins half a minute ago, to the second.
        window = {"start": int(self.began) - 60, "end": int(now + 1)}
        if text == self.good:
            return fetch(f"{url}/v2/traces/{text}")["trace"]["resourceSpans"]
        return fetch(f"{url}/search", q=text, limit=1000, spss=1000, **window).get("traces", [])

    def metric(self, text: str) -> list[Any]:
        """Returns the series that Prometheus has of an expression now."""
        return self.ask(Query(("test", "metric"), "A", "prometheus", text, instant=True))

    def records(self, text: str) -> list[Any]:
        """Returns the streams that Loki has of an expression."""
        return self.ask(Query(("test", "records"), "A", "loki", text))

    def show(self, dashboard: str, **chosen: str) -> dict[str, Shown]:
        """Returns what the panels of a dashboard show, by title."""
        every = {"job": JOB, "run": "$__all", "instance": "$__all"}
        file = GRAFANA / "dashboards" / f"{dashboard}.json"
        return show(
            file,
            functools.partial(self.ask, process=self.processes(file, **chosen), **chosen),
            self.modules,
            every | chosen,
        )

    def processes(self, dashboard: Path, **chosen: str) -> list[str]:
        """Returns the processes whose series a dashboard asks for."""
        (query,) = (q for q in QUERIES if q.place == (load(dashboard)["title"], "process"))
        return self.ask(query, **chosen)

    @property
    def step(self) -> int:
        """Seconds between two points of a chart that has 300 points for the complete time."""
        return max(5, int(time.time() - self.began) // 300)

    def filled(self, query: Query, variables: Mapping[str, str | Sequence[str]]) -> str:
        """Returns a query's text with values for Grafana's variables."""
        every = dict.fromkeys(
            ("job", "run", "instance", "process", "step", "baseline", "model"), ".+"
        )
        given = {**every, "search": "", "lines": "", **variables}
        range_ = f"{max(3600, int(time.time() - self.began))}s"
        values = {
            "$__rate_interval": f"{max(4 * EXPORTS, self.step + EXPORTS)}s",
            "$__interval": f"{self.step}s",
            "$__range": range_,
            # Loki's is the complete range in a query for one moment.
            "$__auto": range_ if query.instant else f"{max(60, self.step)}s",
            "${trace}": self.good,
            "${__trace.traceId}": self.good,
            '${__span.tags["service.name"]}': JOB,
            '${__span.tags["service.instance.id"]}': self.instance,
            **{f"${{{name}:regex}}": escaped(str(value)) for name, value in given.items()},
            **{f"${name}": as_choice(value) for name, value in given.items()},
        }
        known = re.compile("|".join(map(re.escape, values)))
        rest = re.sub(r'"[^"]*\$1[^"]*"', "", known.sub("", query.text))  # of label_replace
        assert "$" not in rest, query.text
        return known.sub(lambda found: values[found[0]], query.text)

    def options(self, query: str, regex: str) -> list[tuple[str, str]]:
        """Returns what `label_values(selector, label)` or `query_result(query)` offers."""
        if query.startswith("query_result("):
            url = f"http://127.0.0.1:{self.ports.prometheus}/api/v1/query"
            found = fetch(url, query=query[len("query_result(") : -1], time=time.time())
            texts = [as_text(**each) for each in found["data"]["result"]]
        else:
            selector, label = query.removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
            url = f"http://127.0.0.1:{self.ports.prometheus}/api/v1/label/{label}/values"
            texts = fetch(url, **{"match[]": selector})["data"]
        chosen = re.compile(regex[1:-1].replace("(?<", "(?P<") or "(.*)")
        found = [match for text in texts if (match := chosen.search(text))]
        return [(each.groupdict().get("text", each[1]), each[1]) for each in found]


@contextmanager
def stores(
    binaries: Mapping[str, str],
    folder: Path,
    webhook: Webhook | None = None,
    *,
    limited: bool = False,
) -> Iterator[tuple[World, Collector]]:
    """Yields what the queries are asked of, as Grafana is, with nothing in it yet, and the Collector before it.

    Limited, each server has the memory of docker-compose.yml and no more.
    """
    ports = Backends()
    proxy, asked = queries(binaries["caddy"], folder, ports)
    instead = OtlpReceiver(grpc_port=ports.tempo_otlp)
    made = collector(binaries["otelcol-quant"], folder, CONFIGS / "config.yaml", ports)
    servers = [
        prometheus(binaries["prometheus"], folder, ports),
        loki(binaries["loki"], folder, ports),
        made.server,
        proxy,
    ]
    if webhook is not None:
        servers.append(alertmanager(binaries["alertmanager"], folder, ports, webhook.url))
    binary = tempo_binary()
    if binary:
        servers.append(tempo(binary, folder, ports))
    else:
        instead.start()
    spans = None if binary else instead.spans
    modules = str(Path(binaries["package-lock.json"]).parent)
    with ExitStack() as until:
        until.callback(instead.stop)
        for server in servers:
            until.enter_context(server.within_limit() if limited else nullcontext())
            until.callback(server.kill)
            server.start()
        yield World(asked, modules, time.time() - 1, spans, webhook=webhook), made
