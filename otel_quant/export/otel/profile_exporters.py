"""Sends profiles over OTLP: with the parts that OpenTelemetry's exporters are made of, and the settings that these read.

The SDK has no provider of profiles. :class:`ProfilesProvider` stands for it, so that they are delivered as the other
signals are. A request that an exporter could not send, for as long as it tries, is not kept: a receiver without profiles
refuses every one, and a recording has them.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from opentelemetry.instrumentation.utils import suppress_instrumentation

_VARIABLE: Final = "OTEL_EXPORTER_OTLP_PROFILES_{}"
_CERTIFICATE, _KEY, _CLIENT_CERTIFICATE = map(
    _VARIABLE.format, ("CERTIFICATE", "CLIENT_KEY", "CLIENT_CERTIFICATE")
)
_CREDENTIALS: Final = "OTEL_PYTHON_EXPORTER_OTLP_{}_PROFILES_CREDENTIAL_PROVIDER"


class ProfilesProvider:
    """Keeps requests until they are flushed."""

    def __init__(self) -> None:
        # Modules are loaded now, in the thread of the program: at the exit of the interpreter some cannot be. An
        # exporter is made when it is needed, so that a forked child has none of its parent's.
        self._make = exporter_factory()
        self._exporter: Any = None
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
                if not self._is_refused:
                    self._exporter = self._exporter or self._make()
                    self._is_refused = self._exporter.export(request).name == "FAILURE"
        return True

    def shutdown(self) -> None:
        """Does nothing: nothing is left after a flush."""


def exporter_factory() -> Callable[[], Any]:
    """Returns what makes the exporter of the protocol that the environment names."""
    try:
        import opentelemetry.exporter.otlp.common.http
        import opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2  # noqa: F401

        name = "OTEL_EXPORTER_OTLP_PROTOCOL"
        protocol = os.environ.get(_VARIABLE.format("PROTOCOL")) or os.environ.get(name)
        return _over_http() if protocol == "http/protobuf" else _over_grpc()
    except ImportError as error:
        raise ImportError(
            f"profiles need opentelemetry-exporter-otlp 1.45 or newer: {error}"
        ) from error


def _over_http() -> Callable[[], Any]:
    from opentelemetry.exporter.otlp.common.http import _OTLPHTTPClient
    from opentelemetry.exporter.otlp.proto.http import _common
    from opentelemetry.sdk.trace.export import SpanExportResult

    class Exporter:
        def __init__(self) -> None:
            variable = _VARIABLE.format
            # Their types name the other signals only.
            path: Any = "v1development/profiles"
            kind: Any = "profiles"
            provider: Any = _CREDENTIALS.format("HTTP")
            self._endpoint = _common._resolve_endpoint(variable("ENDPOINT"), path)
            self._client = _OTLPHTTPClient(
                _common._build_transport(
                    None,
                    None,
                    None,
                    _CERTIFICATE,
                    _KEY,
                    _CLIENT_CERTIFICATE,
                    session=_common._load_session_from_envvar(provider),
                ),
                self._endpoint,
                kind,
                _common._resolve_timeout(variable("TIMEOUT")),
                _common._resolve_compression(variable("COMPRESSION")),
                _common._resolve_headers(None, variable("HEADERS")),
            )

        def export(self, request: Any) -> SpanExportResult:
            sent = self._client.export(request.SerializeToString())
            return SpanExportResult.SUCCESS if sent.success else SpanExportResult.FAILURE

    return Exporter


def _over_grpc() -> Callable[[], Any]:
    from opentelemetry.exporter.otlp.proto.grpc import exporter as grpc_exporter
    from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2_grpc import (
        ProfilesServiceStub,
    )
    from opentelemetry.sdk.trace.export import SpanExportResult

    class Exporter(grpc_exporter.OTLPExporterMixin[Any, Any, Any, Any]):
        _exporting = "profiles"

        def __init__(self) -> None:
            def value(name: str) -> str | None:
                return os.environ.get(_VARIABLE.format(name)) or None

            insecure, timeout, credentials = value("INSECURE"), value("TIMEOUT"), None
            is_insecure = None if insecure is None else insecure.lower() == "true"
            if not is_insecure and value("CERTIFICATE"):
                credentials = grpc_exporter._get_credentials(
                    None, _CREDENTIALS.format("GRPC"), _CERTIFICATE, _KEY, _CLIENT_CERTIFICATE
                )
            super().__init__(
                ProfilesServiceStub,
                SpanExportResult,
                value("ENDPOINT"),
                is_insecure,
                credentials,
                value("HEADERS"),
                None if timeout is None else float(timeout),
                grpc_exporter.environ_to_compression(_VARIABLE.format("COMPRESSION")),
            )

        def _translate_data(self, data: Any) -> Any:
            return data

        def _count_data(self, data: Any) -> int:
            return len(data.resource_profiles)

        def export(self, request: Any) -> Any:
            return self._export(request)

    return Exporter
