"""Sends many runs at once, each of them a process of its own with what every run sends."""

from __future__ import annotations

import time
from collections.abc import Mapping

import grpc
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc as logs_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as traces_grpc
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_quant.schema import semconv

PROGRAMS = 12
MODELS = ("resnet50", "bert", "opt-125m")
MIB = 1 << 20
RUNS_AT_A_TIME = 100


def names(count: int) -> list[str]:
    """Returns the names of the runs, the oldest first."""
    return [f"program-{n % PROGRAMS} {MODELS[n % len(MODELS)]} run {n:04}" for n in range(count)]


def send(
    port: int,
    count: int,
    *,
    steps: int = 1,
    ranks_share_an_id: bool = False,
    seconds_ago: float = 0,
    suffix: str = "",
) -> None:
    """Sends that many runs, each a second older than the next, to a Collector; or so many ranks of one."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stubs = (
            metrics_grpc.MetricsServiceStub(channel),
            logs_grpc.LogsServiceStub(channel),
            traces_grpc.TraceServiceStub(channel),
        )
        now = time.time_ns() - round(seconds_ago * 1e9)
        for first in range(0, count, RUNS_AT_A_TIME):
            requests = (
                metrics.ExportMetricsServiceRequest(),
                logs.ExportLogsServiceRequest(),
                traces.ExportTraceServiceRequest(),
            )
            for number in range(first, min(first + RUNS_AT_A_TIME, count)):
                name = names(count)[0 if ranks_share_an_id else number] + suffix
                process = "pod-7.main" if ranks_share_an_id else f"process-{number}{suffix}"
                began_ns = now - (count - number) * 10**9
                _add(*requests, number, name, process, steps, began_ns, now)
            for stub, request in zip(stubs, requests, strict=True):
                stub.Export(request, timeout=60)


def _add(
    measured: metrics.ExportMetricsServiceRequest,
    logged: logs.ExportLogsServiceRequest,
    traced: traces.ExportTraceServiceRequest,
    number: int,
    name: str,
    process: str,
    steps: int,
    began_ns: int,
    now_ns: int,
) -> None:
    program, model, *_ = name.split()
    resource = Resource(
        attributes=_pairs({"service.name": program, "service.instance.id": process})
    )
    of_run = {semconv.RUN_NAME: name}
    trace_id, span_id = number.to_bytes(15, "big") + b"\1", number.to_bytes(7, "big") + b"\1"
    ended_ns = began_ns + 5 * 10**8

    points = measured.resource_metrics.add(resource=resource).scope_metrics.add()
    start = of_run | {
        semconv.INPUT_NAME: model,
        semconv.CALIBRATION_METHOD: "Percentile",
        semconv.RUN_TRACE_ID: trace_id.hex(),
        semconv.RUN_RANK: number,
    }
    for metric, value, attributes, unit in (
        (semconv.RUN_START, began_ns / 1e9, start, "s"),
        (semconv.RUN_LAST_SEEN, ended_ns / 1e9, of_run, "s"),
        (semconv.RUN_END, ended_ns / 1e9, of_run, "s"),
        (semconv.RUN_MEMORY_PEAK, 800 * MIB, of_run, "By"),
        (semconv.RUN_MEMORY_USAGE, 700 * MIB, {}, "By"),
        (semconv.RUN_MEMORY_LIMIT, 1000 * MIB, {}, "By"),
    ):
        gauge = points.metrics.add(name=metric, unit=unit).gauge
        gauge.data_points.add(as_double=value, time_unix_nano=now_ns, attributes=_pairs(attributes))

    records = logged.resource_logs.add(resource=resource).scope_logs.add()
    kind = dict.fromkeys((semconv.STEP_KIND, semconv.STEP_NAME), "Calibration")
    taken: list[tuple[str, str, dict[str, str | int], int]] = [("Start", "start", {}, began_ns)]
    for index in range(steps):
        step = kind | {semconv.STEP_INDEX: index}
        taken.append(("Calibration Start", "start", step, began_ns + index))
        taken.append(("Calibration End", "end", step, ended_ns + index))
    taken.append(("End", "end", {}, ended_ns + steps))
    for sequence, (checkpoint, phase, of_step, at) in enumerate(taken):
        attributes = of_run | of_step | {
            semconv.CHECKPOINT_NAME: checkpoint,
            semconv.CHECKPOINT_PHASE: phase,
            semconv.CHECKPOINT_SEQUENCE: sequence,
            semconv.CHECKPOINT_MEMORY: 600 * MIB,
        }  # fmt: skip
        records.log_records.add(
            time_unix_nano=at, body=AnyValue(string_value=checkpoint),
            attributes=_pairs(attributes), trace_id=trace_id, span_id=span_id,
        )  # fmt: skip

    traced.resource_spans.add(resource=resource).scope_spans.add().spans.add(
        trace_id=trace_id, span_id=span_id, name=semconv.ROOT_SPAN,
        start_time_unix_nano=began_ns, end_time_unix_nano=ended_ns,
        attributes=_pairs({**of_run, semconv.MEMORY_PEAK: 800 * MIB}),
    )  # fmt: skip


def _pairs(attributes: Mapping[str, str | int]) -> list[KeyValue]:
    def typed(value: str | int) -> AnyValue:
        is_number = isinstance(value, int)
        return AnyValue(int_value=value) if is_number else AnyValue(string_value=value)

    return [KeyValue(key=key, value=typed(value)) for key, value in attributes.items()]
