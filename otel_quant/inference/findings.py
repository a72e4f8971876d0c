"""The table of what goes wrong in models: a row is a function that finds it, beside its source.

`onnx_findings.py` has the rows of onnxruntime, `pytorch/findings.py` those of PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from otel_quant.cost.graph import printable
from otel_quant.inference.results import Finding

_LONGEST: Final = 120

_Evidence = TypeVar("_Evidence")


class Timed(Protocol):
    """A kernel whose time counts for a finding."""

    @property
    def title(self) -> str:
        """Its name in results."""

    @property
    def time(self) -> float:
        """Its time in a run, in microseconds."""


class Found(NamedTuple):
    """Something that a row of the table has found."""

    place: str  # Node of the file, or module
    kernels: Sequence[Timed]  # Those whose time it is
    text: str  # What is wrong, without the share
    remedy: str = ""  # What would change it; empty if nothing is known
    # The same for those of a kind that are so for the same reason; empty for the text
    alike: str = ""


class Findings(Generic[_Evidence]):
    """The rows of a runtime, in the order in which a run is looked at."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, str, Callable[[_Evidence], Iterable[Found]]]] = []

    def row(self, kind: str, source: str) -> Callable[[Any], Any]:
        """Adds a function: the kind of what it finds, and where what is said of it can be read."""

        def add(find: Callable[[_Evidence], Iterable[Found]]) -> Any:
            self._rows.append((kind, source, find))
            return find

        return add

    def of(self, evidence: _Evidence, whole: float) -> tuple[Finding, ...]:
        """Returns what went wrong in a run, what took longest first, with its share of the time."""
        found = [
            _finding(kind, source, each, whole or 1.0)
            for kind, source, find in self._rows
            for each in find(evidence)
        ]
        return tuple(sorted(found, key=lambda each: -each.micros))


def _finding(kind: str, source: str, found: Found, whole: float) -> Finding:
    micros = sum(kernel.time for kernel in found.kernels)
    percent = 100 * micros / whole
    share = f"{percent:.2f} %" if percent < 1 else f"{percent:.1f} %"
    wanted = f"; wanted: {found.remedy}" if found.remedy else ""
    return Finding(
        kind,
        printable(found.place, _LONGEST),
        f"{found.text} ({share} of the time){wanted}",
        found.remedy,
        micros,
        micros / whole,
        tuple(printable(kernel.title, _LONGEST) for kernel in found.kernels),
        source,
        printable(found.alike or found.text),
    )
