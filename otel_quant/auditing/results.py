"""What an audit has found, and what it comes to in a sentence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from otel_quant.schema.units import counted, share_text, size

KINDS: Final = "file shard missing shape scale forgotten configuration doubled orphaned size note"
"""The kinds of problems, the worst first; a note is none."""

_NUMBER: Final = re.compile(r"(?<![^._/-])\d+(?![^._/-])")
_NEAR: Final = 0.02  # Share of the forecast by which a size may differ from it
_MOST_NAMED: Final = 3
_MOST_SENT: Final = 10


def pattern_of(name: str) -> str:
    """Returns a name with ``*`` for its numbers: one for all layers."""
    return _NUMBER.sub("*", name)


class AuditProblem(NamedTuple):
    """One thing that is wrong, of all tensors, layers or files that have it."""

    kind: str  # One of `KINDS`
    where: str  # The name of the only one; or with ``*`` for numbers, and how many there are
    what: str  # What is wrong
    fails: bool  # Whether the model does not pass because of it
    names: Sequence[str]  # Of each


class Problems:
    """Collects what is wrong, folded: one line for what all layers have."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], list[str]] = {}

    def add(self, kind: str, name: str, what: str) -> None:
        """Adds a problem of a tensor, a layer or a file; a ``note`` is no fault."""
        self._found.setdefault((kind, pattern_of(name), what), []).append(name)

    def worst_first(self) -> list[AuditProblem]:
        """Returns all, the worst kind first, and of a kind those of most names."""
        found = [
            AuditProblem(kind, _where(pattern, names), what, kind != "note", names)
            for (kind, pattern, what), names in self._found.items()
        ]
        return sorted(found, key=lambda it: (KINDS.index(it.kind), -len(it.names)))


def _where(pattern: str, names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{pattern} ({len(names):,})"


LayerState: TypeAlias = Literal["quantized", "left out", "forgotten", "missing"]


class AuditedLayer(NamedTuple):
    """A linear layer or a convolution."""

    name: str
    state: LayerState
    type: str = ""  # What its weights are stored in
    shape: tuple[int, ...] = ()  # Of its weights; of a checkpoint outputs and inputs
    elements: int = 0  # Weights
    bytes: int = 0  # With scales and zero points
    sqnr: float | None = None  # Signal to quantization noise in dB, against the float model


class ScalesRead(NamedTuple):
    """How much of the scales was looked at."""

    bytes: int = 0
    of: int = 0
    why: str = ""  # Why not all


class Audit(NamedTuple):
    """What was found in a model."""

    path: str
    layout: str  # How it lays out quantized weights; empty where no configuration says so
    is_known: bool  # Whether that layout is one that can be checked
    layers: Sequence[AuditedLayer]
    problems: Sequence[AuditProblem]  # The worst first
    bytes: int  # Of its files
    forecast_bytes: int  # What they would take if all were as it was asked for
    float_bytes: int | None  # Of the float model that it was compared with
    scales: ScalesRead

    @property
    def passed(self) -> bool:
        """Whether nothing makes the model another one than was asked for."""
        return self.is_known and not any(each.fails for each in self.problems)

    def of_state(self, state: str) -> list[AuditedLayer]:
        """Returns the layers of a state."""
        return [each for each in self.layers if each.state == state]

    @property
    def answer(self) -> str:
        """What it comes to, in one sentence without its full stop."""
        if not self.is_known:
            return f"not audited: the layout {self.layout!r} is not known; {size(self.bytes)}"
        if self.passed:
            return f"{'as configured' if self.layout else 'no fault found, without a configuration to compare with'}: {self._summary()}"
        first, more = self.problems[0], sum(each.fails for each in self.problems) - 1
        rest = f", and {counted(more, 'other problem')}" * bool(more)
        return f"{first.where} {first.what}{rest}; {self._summary()}"

    def figures(self, *, paths: bool) -> dict[str, int | str | tuple[str, ...]]:
        """Returns the values that telemetry has of this audit, by the end of their names; without `paths`, only the number of problems."""
        wrong = tuple(f"{each.where} {each.what}" for each in self.problems if each.fails)
        found = {"audit.problem_count": len(wrong)} if self.is_known else {}
        told = {"audit.problems": wrong[:_MOST_SENT]} if wrong else {}
        return {**found, "audit.answer": self.answer, **told} if paths else {**found}

    def _summary(self) -> str:
        done, left = self.of_state("quantized"), self.of_state("left out")
        types = Counter(each.type for each in done)
        mix = ", ".join(f"{count:,} {name}" for name, count in types.most_common())
        words = next(iter(types)) if len(types) == 1 else "quantized" + f" ({mix})" * bool(mix)
        parts = [f"{len(done):,} of {counted(len(self.layers) - len(left), 'layer')} {words}"]
        if names := folded(each.name for each in left):
            more = f" and {len(names) - _MOST_NAMED:,} more" * (len(names) > _MOST_NAMED)
            parts.append(f"{', '.join(names[:_MOST_NAMED])}{more} left out")
        is_near = abs(self.bytes - self.forecast_bytes) <= _NEAR * self.forecast_bytes
        forecast = " as forecast" if is_near else f", not {size(self.forecast_bytes)}"
        parts.append(f"{size(self.bytes)}{forecast}")
        if self.float_bytes:
            parts.append(f"{share_text(self.bytes / self.float_bytes)} of the float model")
        read, of, why = self.scales
        if of and why:
            parts.append(f"{share_text(read / of)} of its scales were read")
        return ", ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Returns all of it for programs, as JSON has it."""
        return {
            **self._asdict(),
            "passed": self.passed,
            "answer": self.answer,
            "layers": [each._asdict() for each in self.layers],
            "problems": [each._asdict() for each in self.problems],
            "scales": self.scales._asdict(),
        }


def folded(names: Iterable[str]) -> list[str]:
    """Returns names, those as one that differ in numbers only, with how many there are."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(pattern_of(name), []).append(name)
    return [_where(pattern, own) for pattern, own in found.items()]
