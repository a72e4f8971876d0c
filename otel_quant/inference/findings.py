"""The table of findings: a row is a function that looks for one kind of defect, beside its source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from otel_quant.inference.results import Finding, ModelResult, alike_inputs
from otel_quant.schema.units import share_text, speed_text

_LONGEST: Final = 120

_WORTH: Final = 0.01
"""Share of the time below which a finding is left out, unless its row has another: accuracy counts at any."""

_Evidence = TypeVar("_Evidence")


class _Timed(Protocol):
    """A kernel whose time counts for a finding: its name in results, and microseconds of a run."""

    @property
    def title(self) -> str: ...
    @property
    def time(self) -> float: ...


class Found(NamedTuple):
    """Something that a row of the table has found."""

    place: str  # Node of the file, or module
    kernels: Sequence[_Timed]  # Those whose time it is
    text: str  # What is wrong, without the share
    remedy: str = ""  # What would change it; empty if nothing is known
    rewrites: str = ""  # Kinds of rewrites of ``otel-quant fix`` that write that
    # The text for several findings of a kind with the same reason; empty for `text`
    alike: str = ""

    def finding(self, kind: str, source: str, whole: float, accuracy: bool) -> Finding:
        """Returns the finding, with its share, if it has kernels, of the time of all kernels in microseconds."""
        from otel_quant.cost.graph import printable  # nothing that the process of a model needs

        micros = sum(kernel.time for kernel in self.kernels)
        share = micros / whole
        fix = f"; fix: {self.remedy}" if self.remedy else ""
        of_time = f" ({share_text(share)} of the time)" if self.kernels else ""
        text = f"{self.text}{of_time}{fix}"
        names = tuple(printable(kernel.title, _LONGEST) for kernel in self.kernels)
        place, alike = printable(self.place, _LONGEST), printable(self.alike or self.text)
        what = kind, place, text, self.remedy, micros, share, names, source
        return Finding(*what, alike, accuracy, self.rewrites)


class Findings(Generic[_Evidence]):
    """The rows of a runtime, in the order in which a run is looked at."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, str, float, bool, Callable[[_Evidence], Iterable[Found]]]] = []

    def row(
        self, kind: str, source: str, least: float = _WORTH, *, accuracy: bool = False
    ) -> Callable[[Any], Any]:
        """Adds a function: the kind of what it finds, the source that documents it, the least share that counts."""

        def add(find: Callable[[_Evidence], Iterable[Found]]) -> Any:
            self._rows.append((kind, source, 0.0 if accuracy else least, accuracy, find))
            return find

        return add

    def of(self, evidence: _Evidence, whole: float) -> tuple[Finding, ...]:
        """Returns the findings of a run: those about accuracy, then what took longest, with its share of the time."""
        made: list[Finding] = []
        for kind, source, least, accuracy, find in self._rows:
            found = [each.finding(kind, source, whole or 1.0, accuracy) for each in find(evidence)]
            shares: dict[str, float] = defaultdict(float)  # those with one reason count together
            for each in found:
                shares[each.alike] += each.share
            made += [each for each in found if shares[each.alike] >= least]
        return tuple(sorted(made, key=lambda each: (not each.is_about_accuracy, -each.micros)))


def with_slower(models: Sequence[ModelResult]) -> tuple[ModelResult, ...]:
    """Adds to each model that is slower than the first that it is."""
    return tuple(replace(it, findings=(*_slower(it, models[0]), *it.findings)) for it in models)


def _slower(model: ModelResult, first: ModelResult) -> Iterator[Finding]:
    own, other = model.latency, first.latency
    if model is first or alike_inputs(model.inputs) != alike_inputs(first.inputs):
        return
    if own is None or other is None or not (own.is_apart and own.ratio and own.ratio > 1):
        return
    name = "the float model" if first.role == "float" else "the first model"
    how = f"where rounds differ by {share_text(own.noise)} ({name}'s by {share_text(other.noise)})"
    how = "by CPU time" if own.is_by_cpu else how
    text = f"it is {'at least ' * own.is_at_least}{speed_text(own.ratio)} than {name}, {how}"
    if model.converting:
        text += f"; {share_text(model.converting)} of the time of its kernels only converts"
    longer = 1 - 1 / own.ratio
    micros, source = 1e6 * own.median * longer, "docs/inference.md"
    yield Finding("slower", "(model)", text, "", micros, longer, (), source, "slower")
