"""Sends profiles over OTLP, with the parts that OpenTelemetry's exporters are made of: there is none for profiles.

A request that could not be sent, for as long as the exporter tries, is not kept: a receiver without profiles
refuses every one, and a recording has them.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from importlib import import_module
from typing import Any, Final

from opentelemetry.instrumentation.utils import suppress_instrumentation

_VARIABLE: Final = "OTEL_EXPORTER_OTLP_PROFILES_"
_TLS: Final = tuple(
    _VARIABLE + name for name in ("CERTIFICATE", "CLIENT_KEY", "CLIENT_CERTIFICATE")
)

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
    protocol = os.environ.get(f"{_VARIABLE}PROTOCOL") or os.environ.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL"
    )
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
    from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2_grpc import (
        ProfilesServiceStub,
    )
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
        ProfilesServiceStub,
        SpanExportResult,
        endpoint,
        None if insecure is None else insecure.lower() == "true",
        of_grpc._get_credentials(None, "", *_TLS) if is_own else None,
        headers,
        float(timeout) if timeout else None,
        of_grpc.environ_to_compression(f"{_VARIABLE}COMPRESSION"),
    )
