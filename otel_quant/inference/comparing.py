"""Models beside each other: who runs when, what comes of the times, what is noise, how far outputs are off.

Of a model alone: the table of findings, a row of which is a function that looks for one kind, beside its source.

Each model runs in each round, so that a busy machine hits all alike, and where it has several
processes each of them has rounds of its own.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil, exp, log, log1p, sqrt
from pathlib import Path
from statistics import mean, median, quantiles, stdev
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from otel_quant.inference.results import (
    Accuracy,
    Finding,
    Latency,
    ModelResult,
    OutputError,
    TensorError,
)
from otel_quant.schema.units import share_text, speed_text

OF_PROCESSES: Final = 0.08
"""How far two processes of the same model may differ for as long as they live, however quiet their
rounds (7 % were measured, 5 % with huge pages): less is no difference between models."""

_ERROR_OF_MEDIAN: Final = 1.2533 / 0.6745
"""Standard error of the median of n normal values, times the root of n, for half the distance of
their quartiles: the error of a mean is smaller by the root of pi / 2, and 0.6745 standard deviations are
half the distance."""

_STANDARD_ERRORS: Final = 3
"""A difference is that many standard errors at least: chance alone makes one in 370 comparisons."""

_OF_FEW_ROUNDS: Final[Mapping[int, float]] = {
    3: 21.3, 4: 11.7, 5: 17.3, 6: 8.9, 7: 6.5, 8: 5.7, 9: 5.0, 10: 4.4, 11: 3.9, 12: 3.6, 13: 3.3,
    14: 3.1,
}  # fmt: skip
"""The same where the standard error itself comes from few rounds, of 200,000 draws of normal values. It
does not fall from each number to the next, since quartiles of few values are interpolated. Fewer rounds
than these tell nothing."""

_OF_FEW_PROCESSES: Final[Mapping[int, float]] = {
    3: 19.2, 4: 9.2, 5: 6.6, 6: 5.5, 7: 4.9, 8: 4.5, 9: 4.3, 10: 4.1,
}  # fmt: skip
"""Standard errors of the mean of few processes that chance alone exceeds in one of 370 comparisons:
Student's distribution with one degree of freedom less."""

_SETTLED: Final = 0.01
"""Twice the standard error of a median, as a share of it, at which no more rounds are needed."""

ROUND: Final = 0.2
"""Seconds of a model in a round; torch's own default of a range."""

ROUNDS: Final = 10
"""Rounds of a model, or of each of its processes, if time suffices."""

_FEWEST: Final = 5
"""Rounds of models that are slow, all processes together; fewer could hardly be compared."""

_MOST_RUNS: Final = 1000
"""Runs of a model in a round."""


class Subject(ABC):
    """One model while it is measured."""

    runs_are_known: ClassVar[bool] = True  # Whether each time is of one run

    def __init__(self, name: str) -> None:
        self.name = name
        self.problem = ""  # why it cannot be measured; empty as long as it can
        self.first: Sequence[float] = ()  # seconds of its first calls
        self.warm = 1.0  # seconds of a usual call
        self.processes: list[list[Sequence[float]]] = [[]]  # seconds of calls, by process and round
        self.spent = 0.0  # seconds that the rounds of the newest process took

    @abstractmethod
    def time(self, seconds: float, runs: int | None) -> None:
        """Adds a round: of so many runs, or of so many seconds."""

    def runs_in(self, seconds: float) -> int:
        """Returns how many runs fit into so many seconds, one at least."""
        return min(_MOST_RUNS, ceil(seconds / self.warm))

    def medians(self) -> Sequence[Sequence[float]]:
        """Returns the seconds of a call in each round, by process."""
        return [[median(each) for each in rounds] for rounds in self.processes]

    def rounds(self) -> Sequence[Sequence[float]]:
        """Returns the times in each round of all processes."""
        return [each for rounds in self.processes for each in rounds]


def take_turns(
    subjects: Sequence[Subject], seconds: float, runs: int | None = None, processes: int = 1
) -> None:
    """Has models run in rounds: so many runs in all, or until more would change little or time is over."""
    for subject in subjects:
        subject.spent = 0.0
    number = 0
    while alive := [each for each in subjects if not each.problem]:
        now = None
        if runs is not None:
            if number == min(ROUNDS, runs):
                return
            now = runs * (number + 1) // min(ROUNDS, runs) - runs * number // min(ROUNDS, runs)
        elif _is_enough(alive, number, seconds, processes):
            return
        turn = number % len(alive)
        for subject in [*alive[turn:], *alive[:turn]]:  # the first of a round is after a pause
            began = time.perf_counter()
            subject.time(min(ROUND, seconds / ROUNDS), now)
            subject.spent += time.perf_counter() - began
        number += 1


def _is_enough(alive: Sequence[Subject], number: int, seconds: float, processes: int) -> bool:
    is_over = max(each.spent for each in alive) >= seconds / processes
    if is_over and number >= ceil(_FEWEST / processes):
        return True
    return number >= ROUNDS and all(is_settled(each.medians()[-1], processes) for each in alive)


def latency(own: Subject, beside: Subject | None) -> Latency:
    """Sums up the times of a model."""
    times = [time for each in own.rounds() for time in each]
    # With a single run, each figure is that run.
    tenths = quantiles(times, n=10, method="inclusive") if len(times) > 1 else times
    processes = tuple(map(median, own.medians()))
    ratio, is_apart = compared(own.medians(), beside.medians()) if beside else (None, None)
    return Latency(
        without_extremes(processes),
        tenths[0],
        tenths[-1],
        len(times) if own.runs_are_known else None,
        own.first[0] if own.first else None,
        noise([median(each) for each in own.rounds()]),
        ratio,
        is_apart,
        processes,
    )


def compared(
    medians: Sequence[Sequence[float]], others: Sequence[Sequence[float]]
) -> tuple[float, bool]:
    """Returns the ratio of a model's times to another's, round by round, and whether it is more than noise."""
    pairs = [zip(*each, strict=False) for each in zip(medians, others, strict=False)]
    ratios = [[one / other for one, other in each] for each in pairs]
    if len(ratios) < min(_OF_FEW_PROCESSES):
        return _compared_rounds([each for process in ratios for each in process])
    logs = [median(map(log, each)) for each in ratios]
    difference, root = without_extremes(logs), sqrt(len(logs))
    errors = _OF_FEW_PROCESSES[min(len(logs), max(_OF_FEW_PROCESSES))]
    is_real = abs(mean(logs)) > errors * stdev(logs) / root
    return exp(difference), is_real and abs(difference) > log1p(OF_PROCESSES) / root


def _compared_rounds(ratios: Sequence[float]) -> tuple[float, bool]:
    ratio = median(ratios)
    if len(ratios) < min(_OF_FEW_ROUNDS):
        return ratio, False
    tenths = quantiles(ratios, n=10, method="inclusive")
    rounds_agree = tenths[0] > 1 or tenths[-1] < 1
    low, _, high = quantiles(map(log, ratios), n=4, method="inclusive")
    error = _ERROR_OF_MEDIAN * (high - low) / 2 / sqrt(len(ratios))
    errors = _OF_FEW_ROUNDS.get(len(ratios), _STANDARD_ERRORS)
    return ratio, rounds_agree and abs(log(ratio)) > max(log1p(OF_PROCESSES), errors * error)


def noise(medians: Sequence[float]) -> float:
    """Returns half the distance of the quartiles as a share of the median."""
    if len(medians) < 2:
        return 0.0
    low, middle, high = quantiles(medians, n=4, method="inclusive")
    return (high - low) / 2 / middle


def is_settled(medians: Sequence[float], processes: int) -> bool:
    """Returns whether more rounds would change the median of all of a model's rounds by little."""
    error = _ERROR_OF_MEDIAN * noise(medians) / sqrt(len(medians) * processes)
    return 2 * error <= _SETTLED


def without_extremes(values: Sequence[float]) -> float:
    """Returns the mean without the lowest and highest quarter: now and then a process is slow throughout."""
    cut = max(1, len(values) // 4) if len(values) > 2 else 0
    return mean(sorted(values)[cut : len(values) - cut])


# --- outputs ------------------------------------------------------------------------------


def arrays_in(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yields the tensors within a value as arrays of numpy, each with the way to it."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from arrays_in(each, f"{name}.{key}")
    elif isinstance(value, tuple | list):
        for place, each in enumerate(value):
            yield from arrays_in(each, f"{name}.{place}")
    elif hasattr(value, "dtype") and hasattr(value, "shape"):
        yield name, as_array(value)


def as_array(tensor: Any) -> Any:
    """Returns an array of numpy: dequantized, and float32 where numpy does not have the type."""
    import numpy as np

    if not hasattr(tensor, "detach"):
        return np.asarray(tensor)
    import torch

    plain = tensor.detach()
    if plain.is_quantized:
        plain = plain.dequantize()
    if plain.is_floating_point() and plain.dtype not in (torch.float16, torch.float64):
        plain = plain.float()
    return plain.numpy(force=True)


Arrays: TypeAlias = Mapping[str, Any]
"""Arrays of numpy by the names of inputs or outputs; None for what is no array of numbers."""


def saved_arrays(names: Sequence[str], path: Path) -> Arrays:
    """Returns the outputs that the process of a model has saved as ``a0``, ``a1`` and so on."""
    import numpy as np

    with np.load(path) as file:
        return {name: file.get(f"a{i}") for i, name in enumerate(names)}


def compared_outputs(first: Arrays, other: Arrays) -> Accuracy:
    """Compares outputs, by their places if no name is the same."""
    import numpy as np

    found: list[OutputError] = []
    problems = [] if first and other else ["one of the two returns no tensors"]
    if not any(name in first for name in other):
        names = [*other, *list(first)[len(other) :]]
        first = dict(zip(names, first.values(), strict=False))
    for name in dict.fromkeys([*other, *first]):
        a, b = first.get(name), other.get(name)
        if a is None or b is None:
            problems.append(f"only one of the two has an output {name!r}")
        elif a.shape != b.shape:
            problems.append(f"output {name!r} is {list(b.shape)}, not {list(a.shape)}")
        elif a.size:
            found.append(_error(name, a, b, np))
            if found[-1].max_abs is None:
                problems.append(f"output {name!r} has values that are not finite")
    return Accuracy(tuple(found), (), problems[0] if problems else "")


def _error(name: str, expected: Any, actual: Any, np: Any) -> OutputError:
    is_complex = np.iscomplexobj(expected) or np.iscomplexobj(actual)
    kind = np.complex128 if is_complex else np.float64
    a, b = (each.astype(kind).ravel().view(np.float64) for each in (expected, actual))
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return OutputError(name, None, None, None)
    noise, signal = float(((a - b) ** 2).sum()), float((a**2).sum())
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return OutputError(
        name,
        10 * float(np.log10(signal / noise)) if signal and noise else None,
        min(1.0, float(a @ b) / lengths) if lengths else None,
        float(np.abs(a - b).max()),
    )


def tensor_errors(
    found: Mapping[str, Mapping[str, float]], nodes: Mapping[str, str]
) -> tuple[TensorError, ...]:
    """Returns what the debugger has found with the nodes that make the tensors, the worst first."""
    errors = [
        TensorError(name, each.get("own"), each.get("all"), nodes.get(name, ""))
        for name, each in found.items()
    ]
    return tuple(
        sorted(errors, key=lambda each: (each.own if each.all is None else each.all) or 0.0)
    )


# --- findings -------------------------------------------------------------------------------------

_LONGEST: Final = 120

_Evidence = TypeVar("_Evidence")


class Timed(Protocol):
    """A kernel whose time counts for a finding: its name in results, and microseconds of a run."""

    @property
    def title(self) -> str:
        """Its name."""

    @property
    def time(self) -> float:
        """Its microseconds."""


class Found(NamedTuple):
    """Something that a row of the table has found."""

    place: str  # Node of the file, or module
    kernels: Sequence[Timed]  # Those whose time it is
    text: str  # What is wrong, without the share
    remedy: str = ""  # What would change it; empty if nothing is known
    # The text for several findings of a kind with the same reason; empty for `text`
    alike: str = ""


class Findings(Generic[_Evidence]):
    """The rows of a runtime, in the order in which a run is looked at."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, str, Callable[[_Evidence], Iterable[Found]]]] = []

    def row(self, kind: str, source: str) -> Callable[[Any], Any]:
        """Adds a function: the kind of what it finds, and the source that documents it."""

        def add(find: Callable[[_Evidence], Iterable[Found]]) -> Any:
            self._rows.append((kind, source, find))
            return find

        return add

    def of(self, evidence: _Evidence, whole: float) -> tuple[Finding, ...]:
        """Returns the findings of a run, what took longest first, with its share of the time."""
        from otel_quant.cost.graph import printable  # nothing that the process of a model needs

        made = []
        for kind, source, find in self._rows:
            for found in find(evidence):
                micros = sum(kernel.time for kernel in found.kernels)
                share = micros / (whole or 1.0)
                fix = f"; fix: {found.remedy}" if found.remedy else ""
                made.append(
                    Finding(
                        kind,
                        printable(found.place, _LONGEST),
                        f"{found.text} ({share_text(share)} of the time){fix}",
                        found.remedy,
                        micros,
                        share,
                        tuple(printable(kernel.title, _LONGEST) for kernel in found.kernels),
                        source,
                        printable(found.alike or found.text),
                    )
                )
        return tuple(sorted(made, key=lambda each: -each.micros))


def with_slower(models: Sequence[ModelResult]) -> tuple[ModelResult, ...]:
    """Adds to each quantized model that is slower than the first, a float one, that it is."""
    first = models[0]
    return tuple(
        replace(model, findings=(*_slower(model, first), *model.findings))
        if (first.role, model.role) == ("float", "quantized") and model.inputs == first.inputs
        else model
        for model in models
    )


def _slower(model: ModelResult, first: ModelResult) -> Iterator[Finding]:
    own, other = model.latency, first.latency
    if own is None or other is None or not own.is_apart or not own.ratio or own.ratio <= 1:
        return
    text = (
        f"it is {speed_text(own.ratio)} than the float model, where rounds differ by "
        f"{share_text(own.noise)} (the float model's by {share_text(other.noise)})"
    )
    if model.converting:
        text += f"; {share_text(model.converting)} of the time of its kernels only converts"
    longer = 1 - 1 / own.ratio
    micros, source = 1e6 * own.median * longer, "docs/inference.md"
    yield Finding("slower", "(model)", text, "", micros, longer, (), source, "slower")
