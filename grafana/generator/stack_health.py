"""The row on the stack itself: whether what the runs send arrives and is kept."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from grafana.generator import panels

TITLE = "Health of the stack"
_QUEUE = "otelcol_exporter_queue"
_SIGNALS = ("spans", "metric_points", "log_records")


def row() -> dashboard.Row:
    """Returns the row, closed."""
    return panels.row(
        TITLE,
        panels.timeline(
            "Servers",
            "Whether Prometheus could ask each server for its own metrics. A store that is down keeps the Collector's queue growing; nothing is lost before it is full.",
            panels.promql("max by (job) (up)", "{{job}}"),
        ).mappings([panels.value_map({"0": ("down", panels.RED), "1": ("up", panels.GREEN)})]),
        panels.chart(
            "Queues of the Collector",
            "How full the queue to each store is. One that grows: its store is down or too slow. At 100 % data are refused.",
            "percentunit",
            panels.promql(f"max by (exporter) ({_QUEUE}_size) / (max by (exporter) ({_QUEUE}_capacity) > 0)", "{{exporter}}"),
        ).max(1),
        panels.chart(
            "Refused by the Collector",
            "Spans, points and log records that the Collector did not take, because its memory limit was reached. The SDK tries again for a while; see docs/scaling.md for the limit.",
            "cps",
            *(
                panels.promql(f"sum(rate(otelcol_receiver_refused_{signal}[$__rate_interval]))", signal, signal)
                for signal in _SIGNALS
            ),
        ),
        panels.chart(
            "Dropped by the Collector",
            "What a store refused for good, or what found the queue full: it is lost. The Collector's own log has the reason.",
            "cps",
            *(
                panels.promql(
                    # The Collector has no such counter before the first failure.
                    f"((sum(rate(otelcol_exporter_send_failed_{signal}[$__rate_interval])) or vector(0))"
                    f" + (sum(rate(otelcol_exporter_enqueue_failed_{signal}[$__rate_interval])) or vector(0)))"
                    f' and on () (max(up{{job="otelcol"}}) == 1)',
                    signal, signal,
                )
                for signal in _SIGNALS
            ),
        ).no_value("No metrics of the Collector"),
    )  # fmt: skip
