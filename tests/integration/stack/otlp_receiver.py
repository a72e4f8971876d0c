"""What Tempo is to a Collector, without Tempo: takes OTLP over gRPC and keeps the spans."""

from __future__ import annotations

import threading
from collections.abc import Collection
from concurrent import futures
from dataclasses import dataclass, field

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1 import trace_pb2

FAILED = trace_pb2.Status.STATUS_CODE_ERROR


@dataclass(frozen=True)
class Received:
    """One span as it came.

    Attributes:
        trace: Trace id in hexadecimal.
        name: Name of the span.
        span: The whole of it.
    """

    trace: str
    name: str
    span: trace_pb2.Span


@dataclass
class Receiver(trace_service_pb2_grpc.TraceServiceServicer):
    """An OTLP receiver on a port that it can leave and come back to."""

    port: int
    spans: list[Received] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    server: grpc.Server | None = None

    def Export(
        self,
        request: trace_service_pb2.ExportTraceServiceRequest,
        context: grpc.ServicerContext,
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        with self.lock:
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        self.spans.append(Received(span.trace_id.hex(), span.name, span))
        return trace_service_pb2.ExportTraceServiceResponse()

    def start(self) -> None:
        self.server = grpc.server(futures.ThreadPoolExecutor(4))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self.server)
        self.server.add_insecure_port(f"127.0.0.1:{self.port}")
        self.server.start()

    def stop(self) -> None:
        if self.server is not None:
            self.server.stop(0).wait()
            self.server = None

    def names(self, trace: str) -> list[str]:
        """Returns the names of a trace's spans, sorted."""
        with self.lock:
            return sorted(span.name for span in self.spans if span.trace == trace)

    def find(self, *names: str, told: Collection[str] = ()) -> Received | None:
        """Returns a span of a trace that holds a failed span of each name but the first.

        Args:
            names: The span's own name, then those of failed spans beside it.
            told: Traces that do not count.
        """
        with self.lock:
            failed = {(s.trace, s.name) for s in self.spans if s.span.status.code == FAILED}
            for span in self.spans:
                found = span.name == names[0] and span.trace not in told
                if found and all((span.trace, name) in failed for name in names[1:]):
                    return span
        return None
