"""Sink that sends the stacks of steps as profiles, OpenTelemetry's signal for them, which is in development.

Loaded only where OTEL_QUANT_PROFILES asks for it. Profiles leave at the end of a run, in one request: short steps
of a name share a tree of stacks, and the trees of a run are bounded, while its steps are not.

They are sent over OTLP, with the parts that OpenTelemetry's exporters are made of: there is none for profiles. A
request that could not be sent, for as long as the exporter tries, is not kept: a receiver without profiles refuses
every one, and a recording has them.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import deque
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from opentelemetry.instrumentation.utils import suppress_instrumentation

from otel_quant.export.otel.service_name import resource_without_sdk
from otel_quant.export.otel.spans import SpanIds
from otel_quant.schema import semconv
from otel_quant.schema.code_lines import Amounts, Node, Place
from otel_quant.schema.dataclass import dataclass
from otel_quant.schema.events import Attributes, Event, Sink, identity_of, run_ids_of
from otel_quant.schema.readings import StepInfo
from otel_quant.version import VERSION

_MEASURES: Final[tuple[tuple[str, str, str, Callable[[Amounts], int]], ...]] = (
    ("time", "nanoseconds", "wall", lambda seen: seen.time),
    ("growth", "bytes", "memory", lambda seen: seen.grown),
)
"""Type and unit of a profile's values, type of its period, and the value at a line. Pyroscope names a profile by
the type of its period."""


@dataclass(slots=True)
class _Step:
    attributes: Attributes
    ids: SpanIds | None
    began_ns: int
    lasted_ns: int | None = None  # None while it is open


class ProfilesSink(Sink):
    """One profile of time and one of memory growth for each step, linked to the step's span."""

    name = "profiles"

    def __init__(
        self, send: Callable[[Any], None], ids_of: Callable[[StepInfo | None], SpanIds | None]
    ) -> None:
        self._send, self._ids_of = send, ids_of
        self.forget()

    def forget(self) -> None:
        """Drops the parent's steps."""
        self._steps: dict[int, _Step] = {}
        self._resource: Attributes | None = None  # The resource of the run's span

    def receive(self, event: Event) -> None:
        """Notes the steps; sends their profiles at the end of the run, or of a worker's task."""
        step, seen = event.step, event.stacks or {}
        match event.kind:
            case "run.started":
                self.forget()
            case "step.started" if step is not None:
                if self._resource is None and (of_run := self._ids_of(None)) is not None:
                    self._resource = of_run.resource
                known = {**run_ids_of(event.run), **identity_of(step)}
                self._steps[step.index] = _Step(known, self._ids_of(step), event.time_ns)
            case "step.ended" if step is not None and step.index in self._steps:
                self._steps[step.index].lasted_ns = event.lasted_ns
            case "reading.taken":
                for index, ended in list(self._steps.items()):
                    if ended.lasted_ns is not None and index not in seen:
                        del self._steps[index]  # it was too short to be seen
            case "run.reported" | "run.ended" | "run.killed":
                request = _Request(self._resource or resource_without_sdk())
                for index, root in list(seen.items()):
                    # Once: what a later task of a worker adds to a step of an earlier one is not sent.
                    if (each := self._steps.pop(index, None)) is not None:
                        request.add(each, root, event.time_ns)
                if request.profiles:
                    self._send(request.message)


class _Request:
    """A request being made; its tables have each text, line and stack once."""

    def __init__(self, resource: Attributes) -> None:
        from opentelemetry.exporter.otlp.proto.common import _internal as encoding
        from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2

        self._encoded = encoding._encode_value
        self.message = profiles_service_pb2.ExportProfilesServiceRequest()
        of_resource = self.message.resource_profiles.add(schema_url=semconv.SCHEMA_URL)
        of_resource.resource.attributes.extend(encoding._encode_attributes(resource))
        of_scope = of_resource.scope_profiles.add(schema_url=semconv.SCHEMA_URL)
        of_scope.scope.name, of_scope.scope.version = semconv.SCOPE, VERSION
        self.profiles: Any = of_scope.profiles
        self._known: dict[str, dict[object, int]] = {}
        for table in ("mapping", "location", "function", "link", "attribute", "stack"):
            self._row(table, None)  # the first of each stands for none
        self._text("")

    def add(self, step: _Step, root: Node, now_ns: int) -> None:
        """Adds the profiles of a step."""
        attributes, link = step.attributes, 0
        if (ids := step.ids) is not None:
            trace_id, span_id = bytes.fromhex(ids.trace_id), bytes.fromhex(ids.span_id)
            link = self._row("link", span_id, trace_id=trace_id, span_id=span_id)
        of_step = {name: self._attribute(name, value) for name, value in attributes.items()}
        for kind, unit, period, value_of in _MEASURES:
            values = ((lines, value_of(node.own)) for lines, node in root.walk())
            seen = [(lines, value) for lines, value in values if value]
            if not seen:
                continue
            # The same each time that a recording is sent.
            key = f"{attributes[semconv.RUN_ID]} {attributes[semconv.STEP_INDEX]} {kind}"
            kind_at, unit_at, period_at = map(self._text, (kind, unit, period))
            profile = self.profiles.add(
                profile_id=hashlib.blake2b(key.encode(), digest_size=16).digest(),
                time_unix_nano=step.began_ns,
                duration_nano=step.lasted_ns or max(0, now_ns - step.began_ns),
                sample_type={"type_strindex": kind_at, "unit_strindex": unit_at},
                period_type={"type_strindex": period_at, "unit_strindex": unit_at},
                period=1,
                attribute_indices=of_step.values(),
            )
            for lines, value in seen:
                locations = [self._location(line) for line in reversed(lines)]
                profile.samples.add(
                    stack_index=self._row("stack", lines, location_indices=locations),
                    values=[value],
                    link_index=link,
                    # Here too: a store that makes profiles of pprof of these keeps no others.
                    attribute_indices=[of_step[semconv.STEP_NAME]],
                )

    def _location(self, place: Place) -> int:
        name = self._text(place.function if place.file else place.text)
        file = self._text(place.file)
        fields = {"name_strindex": name, "system_name_strindex": name, "filename_strindex": file}
        function = self._row("function", (name, file), **fields)
        line = {"function_index": function, "line": place.line}
        return self._row("location", place, lines=[line])

    def _attribute(self, name: str, value: Any) -> int:
        fields = {"key_strindex": self._text(name), "value": self._encoded(value)}
        return self._row("attribute", (name, value), **fields)

    def _row(self, table: str, key: object, **fields: Any) -> int:
        known = self._known.setdefault(table, {})
        if key not in known:
            getattr(self.message.dictionary, f"{table}_table").add(**fields)
        return known.setdefault(key, len(known))

    def _text(self, text: str) -> int:
        known = self._known.setdefault("string", {})
        if text not in known:
            # A name of a file need not be text.
            self.message.dictionary.string_table.append(text.encode("utf-8", "replace").decode())
        return known.setdefault(text, len(known))


# --- how they are sent --------------------------------------------------------------------

_VARIABLE: Final = "OTEL_EXPORTER_OTLP_PROFILES_"
_TLS: Final = tuple(_VARIABLE + it for it in ("CERTIFICATE", "CLIENT_KEY", "CLIENT_CERTIFICATE"))

_NEEDED: Final = (
    "opentelemetry.exporter.otlp.common.http",
    "opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2",
)
"""Modules that older packages do not have."""


class ProfilesProvider:
    """Stands for a provider of profiles, so that they are delivered as the other signals are."""

    def __init__(self) -> None:
        self._exporter = exporter()
        self._requests: deque[Any] = deque()
        self._is_refused = False
        self._sending = threading.Lock()

    def add(self, request: Any) -> None:
        """Takes a request; it is sent at the next flush."""
        self._requests.append(request)

    def force_flush(self) -> bool:
        """Sends what there is. The exporter logs why it could not; nothing is sent after that."""
        with self._sending, suppress_instrumentation():
            while self._requests:
                request = self._requests.popleft()
                self._is_refused = self._is_refused or not self._exporter.export(request)
        return True

    def shutdown(self) -> None:
        """Does nothing: nothing is left after a flush."""


def exporter() -> Any:
    """Returns the exporter of the protocol that the environment names; its `export` returns whether it was sent."""
    of_all = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = os.environ.get(f"{_VARIABLE}PROTOCOL") or of_all
    try:
        # All now: at the exit of the interpreter, where profiles are made, not every module can be loaded.
        for module in _NEEDED:
            import_module(module)
        return _OverHttp() if protocol == "http/protobuf" else _over_grpc()
    except (ImportError, TypeError) as error:
        needed = "profiles need opentelemetry-exporter-otlp 1.45 or newer"
        raise ImportError(f"{needed}: {error}") from error


class _OverHttp:
    def __init__(self) -> None:
        from opentelemetry.exporter.otlp.common.http import _OTLPHTTPClient
        from opentelemetry.exporter.otlp.proto.http import _common

        known: Any = _common  # its types name the other signals only
        self._endpoint = known._resolve_endpoint(f"{_VARIABLE}ENDPOINT", "v1development/profiles")
        client: Any = _OTLPHTTPClient  # likewise
        self._client = client(
            known._build_transport(*[None] * 3, *_TLS, session=known._load_session_from_envvar("")),
            self._endpoint,
            "profiles",
            known._resolve_timeout(f"{_VARIABLE}TIMEOUT"),
            known._resolve_compression(f"{_VARIABLE}COMPRESSION"),
            known._resolve_headers(None, f"{_VARIABLE}HEADERS"),
        )

    def export(self, request: Any) -> bool:
        return bool(self._client.export(request.SerializeToString()).success)


def _over_grpc() -> Any:
    from opentelemetry.exporter.otlp.proto.grpc import exporter as of_grpc
    from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2_grpc
    from opentelemetry.sdk.trace.export import SpanExportResult

    class Exporter(of_grpc.OTLPExporterMixin[Any, Any, Any, Any]):
        _exporting = "profiles"

        def _translate_data(self, data: Any) -> Any:
            return data

        def _count_data(self, data: Any) -> int:
            return len(data.resource_profiles)

        def export(self, request: Any) -> bool:
            return self._export(request) is SpanExportResult.SUCCESS

    endpoint, insecure, timeout, headers = (
        os.environ.get(_VARIABLE + name) for name in ("ENDPOINT", "INSECURE", "TIMEOUT", "HEADERS")
    )
    is_own = insecure != "true" and _TLS[0] in os.environ
    return Exporter(
        profiles_service_pb2_grpc.ProfilesServiceStub, SpanExportResult, endpoint,
        None if insecure is None else insecure.lower() == "true",
        of_grpc._get_credentials(None, "", *_TLS) if is_own else None, headers,
        float(timeout) if timeout else None,
        of_grpc.environ_to_compression(f"{_VARIABLE}COMPRESSION"),
    )  # fmt: skip
