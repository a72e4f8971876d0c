"""Sink that sends the stacks of steps as profiles, OpenTelemetry's signal for them, which is in development.

Loaded only where OTEL_QUANT_PROFILES asks for it. Profiles leave at the end of a run, in one request: short steps
of a name share a tree of stacks, and the trees of a run are bounded, while its steps are not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.common._internal import _encode_attributes, _encode_value
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import (
    ExportProfilesServiceRequest,
)

from otel_quant.export.otel.service_name import resource_without_sdk
from otel_quant.export.otel.spans import SpanIds
from otel_quant.schema import semconv
from otel_quant.schema.events import Attributes, Event, Sink, identity_of, run_ids_of
from otel_quant.schema.records import RunInfo, StepInfo
from otel_quant.schema.stacks import OTHER, OTHER_STEPS, OUTSIDE, Amounts, Node, Place
from otel_quant.version import VERSION

_MEASURES: Final[tuple[tuple[str, str, str, Callable[[Amounts], int]], ...]] = (
    ("time", "nanoseconds", "wall", lambda seen: seen.time),
    ("growth", "bytes", "memory", lambda seen: seen.grown),
)
"""Type and unit of a profile's values, type of its period, and the value at a line. Pyroscope names a profile by
the type of its period."""

_NOT_STEPS: Final = {OTHER_STEPS: "other steps", OUTSIDE: "outside of steps"}


@dataclass(slots=True)
class _Step:
    attributes: Attributes
    began_ns: int
    lasted_ns: int | None = None  # None while it is open
    ids: SpanIds | None = None


class ProfilesSink(Sink):
    """One profile of time and one of memory growth for each step, linked to the step's span."""

    name = "profiles"

    def __init__(
        self,
        send: Callable[[ExportProfilesServiceRequest], object],
        ids_of: Callable[[StepInfo | None], SpanIds | None],
    ) -> None:
        self._send, self._ids_of = send, ids_of
        self._resource: Attributes | None = None  # That of the run's span
        self._steps: dict[int, _Step] = {}
        self._sent: set[int] = set()

    def run_started(self, event: Event) -> None:
        """Begins with no steps."""
        self.forget()

    def step_started(self, event: Event) -> None:
        """Notes the step's span."""
        step = event.step
        if step is not None:
            if self._resource is None and (of_run := self._ids_of(None)) is not None:
                self._resource = of_run.resource
            known = _Step(identity_of(step), event.time_ns, ids=self._ids_of(step))
            self._steps[step.index] = known

    def step_ended(self, event: Event) -> None:
        """Notes how long the step lasted."""
        if event.step is not None and (known := self._steps.get(event.step.index)) is not None:
            known.lasted_ns = event.lasted_ns

    def reading_taken(self, event: Event) -> None:
        """Drops steps that have ended and have no tree: they were too short to be seen."""
        seen = event.stacks.steps if event.stacks is not None else {}
        for index, known in list(self._steps.items()):
            if known.lasted_ns is not None and index not in seen:
                del self._steps[index]

    def run_reported(self, event: Event) -> None:
        """Sends the profiles of a worker's task: the worker may be terminated before its run ends."""
        self._send_profiles(event)

    def run_ended(self, event: Event) -> None:
        """Sends all profiles that have not been sent."""
        for index, words in _NOT_STEPS.items():
            known = {semconv.STEP_NAME: words}
            self._steps[index] = _Step(known, event.began_ns, event.lasted_ns)
        self._send_profiles(event)

    def run_killed(self, event: Event) -> None:
        """Sends the profiles of a recorded run that has not ended."""
        self.run_ended(event)

    def forget(self) -> None:
        """Drops the parent's steps."""
        self._resource, self._steps, self._sent = None, {}, set()

    def _send_profiles(self, event: Event) -> None:
        trees = event.stacks.steps if event.stacks is not None else {}
        request = _Request(self._resource or resource_without_sdk(), event.run)
        for index, root in list(trees.items()):
            known = self._steps.get(index)
            if known is not None and index not in self._sent:
                self._sent.add(index)
                request.add(index, known, root, event.time_ns)
        if request.profiles:
            self._send(request.message)


class _Request:
    """A request being made; its tables have each string, line and stack once."""

    def __init__(self, resource: Attributes, run: RunInfo) -> None:
        self.message = ExportProfilesServiceRequest()
        self._run = run
        of_resource = self.message.resource_profiles.add()
        of_resource.schema_url = semconv.SCHEMA_URL
        of_resource.resource.attributes.extend(_encode_attributes(resource))
        of_scope = of_resource.scope_profiles.add(schema_url=semconv.SCHEMA_URL)
        of_scope.scope.name, of_scope.scope.version = semconv.SCOPE, VERSION
        self.profiles: Any = of_scope.profiles
        self._known: dict[str, dict[object, int]] = {}
        self._text("")
        for table in ("mapping", "location", "function", "link", "attribute", "stack"):
            self._row(table, None)  # the first of each stands for none

    def add(self, index: int, step: _Step, root: Node, now_ns: int) -> None:
        """Adds the profiles of a step."""
        link = 0
        if (ids := step.ids) is not None:
            span = {"trace_id": bytes.fromhex(ids.trace_id), "span_id": bytes.fromhex(ids.span_id)}
            link = self._row("link", ids.span_id, **span)
        of_step = [
            self._attribute(name, value)
            for name, value in {**run_ids_of(self._run), **step.attributes}.items()
        ]
        # Also of the samples: stores that make pprof's profiles of these know no others.
        name = [self._attribute(semconv.STEP_NAME, step.attributes[semconv.STEP_NAME])]
        lasted_ns = now_ns - step.began_ns if step.lasted_ns is None else step.lasted_ns
        for kind, unit, period, value_of in _MEASURES:
            values = [(lines, value_of(node.own)) for lines, node in root.walk()]
            values.append(((OTHER,), value_of(root.own)))
            if not any(value for _, value in values):
                continue
            # The same each time that a recording is sent.
            id_ = hashlib.blake2b(f"{self._run.id} {index} {kind}".encode(), digest_size=16)
            profile = self.profiles.add(
                profile_id=id_.digest(),
                time_unix_nano=step.began_ns,
                duration_nano=max(0, lasted_ns),
                period=1,
                attribute_indices=of_step,
            )
            for type_, words in (("sample_type", kind), ("period_type", period)):
                shown = getattr(profile, type_)
                shown.type_strindex, shown.unit_strindex = self._text(words), self._text(unit)
            for lines, value in values:
                if value:
                    profile.samples.add(
                        stack_index=self._stack(lines),
                        values=[value],
                        link_index=link,
                        attribute_indices=name,
                    )

    def _stack(self, lines: tuple[Place, ...]) -> int:
        locations = [self._location(line) for line in reversed(lines)]
        return self._row("stack", lines, location_indices=locations)

    def _location(self, place: Place) -> int:
        name = place.function if place.file else place.text
        named = {
            "name_strindex": self._text(name),
            "system_name_strindex": self._text(name),
            "filename_strindex": self._text(place.file),
        }
        function = self._row("function", (name, place.file), **named)
        line = {"function_index": function, "line": place.line}
        return self._row("location", place, lines=[line])

    def _attribute(self, name: str, value: Any) -> int:
        shown = {"key_strindex": self._text(name), "value": _encode_value(value)}
        return self._row("attribute", (name, value), **shown)

    def _row(self, table: str, key: object, **fields: Any) -> int:
        known = self._known.setdefault(table, {})
        if key not in known:
            getattr(self.message.dictionary, f"{table}_table").add(**fields)
        return known.setdefault(key, len(known))

    def _text(self, text: str) -> int:
        known = self._known.setdefault("string", {})
        if text not in known:
            # Names of files need not be text.
            self.message.dictionary.string_table.append(text.encode("utf-8", "replace").decode())
        return known.setdefault(text, len(known))
