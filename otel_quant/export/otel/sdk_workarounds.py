"""Workarounds for faults of OpenTelemetry's SDK and exporters: all of them, and nothing else.

They are applied when a run begins and undone by ``QuantInstrumentor().uninstrument()``. For each,
``tests/integration/export/test_sdk_workarounds.py`` runs the SDK alone and fails once the fault is gone:
then delete the record here, and the code that it names.

The SDK's own means come first. An id generator can be given to a provider only by who makes it, or
in ``OTEL_PYTHON_ID_GENERATOR``, which is read before any instrumentor is loaded; a tracer keeps a
copy of its provider's. So the public methods of the SDK's default generator are replaced, which
holds for every provider and leaves a generator that the user has chosen as it is.
"""

from __future__ import annotations

import functools
import gc
import os
import random
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any, Final

import wrapt

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.schema.dataclass import dataclass

_OWN: Final = random.Random()  # noqa: S311 - of identifiers, as the SDK makes them
"""A generator that no program seeds. To ask the system for each number takes seven times as long."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_OWN.seed)  # else a child would repeat its parent's numbers

_GLOBAL: Final = getattr(random.random, "__self__", random)
"""Python's global generator, whose methods the functions of `random` are."""

_MOST_OBJECTS: Final = 20_000  # Objects that are looked at before a search is given up
_EXPORTER: Final = "opentelemetry.exporter.otlp."
_SEEN: Final = "1.38.0 to 1.45.2"
_SDK: Final = f"opentelemetry-sdk {_SEEN}"
_ISSUES: Final = "https://github.com/open-telemetry/opentelemetry-python/issues/"
_NO_REPORT: Final = "no report known on 2026-11-21"
Replacement = tuple[Any, str, Any]  # Holder, name of its attribute, and what is to be there


def _own_ids(module: ModuleType) -> Iterator[Replacement]:
    generator = module.RandomIdGenerator
    yield generator, "generate_span_id", lambda self: _OWN.getrandbits(64) or 1
    yield generator, "generate_trace_id", lambda self: _OWN.getrandbits(128) or 1


def _own_numbers(module: ModuleType) -> Iterator[Replacement]:
    for name, value in vars(module).items():
        if value is random:
            yield module, name, _OWN
        elif getattr(value, "__self__", None) is _GLOBAL:
            yield module, name, getattr(_OWN, value.__name__)


@dataclass(frozen=True)
class Workaround:
    """A fault in a package of OpenTelemetry's, and what is done about it."""

    name: str  # What the tests call it
    fault: str  # What happens without the workaround
    versions: str  # Package, and the versions that were seen to have the fault
    report: str  # Where it has been reported
    remedy: str  # What is done
    # Modules in which attributes are replaced, now or when they are imported
    modules: tuple[str, ...] = ()
    # Which attributes, given such a module
    replacements: Callable[[ModuleType], Iterable[Replacement]] = lambda module: ()


RECORDS: Final = (
    Workaround("identifiers",
        "The default id generator draws from Python's global generator: a program that seeds it "
        "gets other numbers when it has spans, and the same trace identifiers in each run.",
        _SDK, _ISSUES + "4376", "The generator's two public methods draw from a generator of ours.",
        ("opentelemetry.sdk.trace.id_generator",), _own_ids),
    Workaround("exemplars",
        "Exemplars of counters are chosen with Python's global generator, one draw a measurement.",
        _SDK, _NO_REPORT, "The module of the reservoirs draws from a generator of ours.",
        ("opentelemetry.sdk.metrics._internal.exemplar.exemplar_reservoir",), _own_numbers),
    # Its last three modules are from before there was one for all of HTTP.
    Workaround("pauses",
        "OTLP exporters draw the pause before the next attempt from Python's global generator, on "
        "threads of their own; over HTTP since 1.45 at each export, needed or not.",
        f"opentelemetry-exporter-otlp-proto-http and -grpc {_SEEN}", _NO_REPORT,
        "The modules of the exporters draw from a generator of ours.",
        (f"{_EXPORTER}common.http", f"{_EXPORTER}proto.grpc.exporter", f"{_EXPORTER}proto.http.trace_exporter",
         f"{_EXPORTER}proto.http.metric_exporter", f"{_EXPORTER}proto.http._log_exporter"), _own_numbers),
    Workaround("connections",
        "A forked child sends over its parent's keep-alive connections. Each may read answers that "
        "were meant for the other; over TLS the server finds a bad record and drops the connection.",
        f"opentelemetry-exporter-otlp-proto-http {_SEEN}", _ISSUES + "4994",
        "The child closes its copies: close_inherited_connections()."),
    Workaround("forks",
        "A child that is forked during an export inherits locks that are never released, and "
        "channels of gRPC in the middle of a call: its own exports wait for ever.",
        _SDK, _ISSUES + "3307",
        "A fork waits for a flush of ours that is in progress, and otherwise for nothing: Delivery.before_fork()."),
    Workaround("exit",
        "The SDK's shutdown at exit waits for each exporter in turn, as long as the exporter "
        "takes; OTEL_BSP_EXPORT_TIMEOUT and OTEL_BLRP_EXPORT_TIMEOUT have no effect.",
        _SDK, _ISSUES + "4555",
        "Providers whose exporters have not answered in time are not shut down at exit: Delivery.abandon()."),
)  # fmt: skip


class Workarounds:
    """Applies workarounds in this process, and undoes them."""

    def __init__(self) -> None:
        self.applied = False
        self._registered = False
        # (holder, name, what was there, what is there now), in the order of replacing.
        self._replaced: list[tuple[Any, str, Any, Any]] = []

    def apply(self) -> None:
        """Applies them, unless they are."""
        if self.applied:
            return
        self.applied = True
        for record in RECORDS:
            for module in record.modules:
                if not self._registered:
                    # wrapt cannot unregister a hook, so each is registered once. It is called
                    # when the module is imported, or now if it has been.
                    replace = functools.partial(self._replace, record)
                    wrapt.register_post_import_hook(replace, module)
                elif module in sys.modules:
                    self._replace(record, sys.modules[module])
        self._registered = True

    def undo(self) -> None:
        """Puts back what was there before."""
        self.applied = False
        for holder, name, before, after in reversed(self._replaced):
            if vars(holder).get(name) is after:  # else someone else has replaced it since
                setattr(holder, name, before)
        self._replaced.clear()

    def _replace(self, record: Workaround, module: ModuleType) -> None:
        if not self.applied:
            return
        with FAULTS.kept_in(f"workaround {record.name} in {module.__name__}"):
            for holder, name, after in list(record.replacements(module)):
                self._replaced.append((holder, name, vars(holder)[name], after))
                setattr(holder, name, after)


WORKAROUNDS: Final = Workarounds()  # The workarounds of this process


def close_inherited_connections(providers: Iterable[Any]) -> None:
    """In a forked child, closes its copies of the connections that exporters keep open.

    The parent's connections stay as they are, and the exporters open new ones. Exporters hold
    their session several objects deep, and differently in each release, so it is searched for by
    type, through objects of OpenTelemetry's and containers only.
    """
    requests = sys.modules.get("requests")
    if requests is None or not WORKAROUNDS.applied:
        return  # without requests there is no exporter over HTTP
    for item in objects_within(providers):
        if isinstance(item, requests.Session):
            item.close()


def objects_within(providers: Iterable[Any]) -> Iterator[Any]:
    """Yields what providers are made of: objects of OpenTelemetry, and what these refer to."""
    seen: set[int] = set()
    pending: deque[Any] = deque(providers)
    while pending and len(seen) < _MOST_OBJECTS:
        item = pending.popleft()
        if id(item) in seen:
            continue
        seen.add(id(item))
        yield item
        kind = type(item)
        if kind in (dict, list, tuple) or kind.__module__.partition(".")[0] == "opentelemetry":
            pending.extend(gc.get_referents(item))


def exporters_within(providers: Iterable[Any]) -> list[Any]:
    """Returns the exporters of OpenTelemetry that providers send with."""
    return [
        item
        for item in objects_within(providers)
        # What an exporter sends with has an `export` too, and is nothing that could be flushed.
        if type(item).__module__.startswith("opentelemetry.exporter.")
        and hasattr(item, "export")
        and hasattr(item, "force_flush")
    ]
