"""How often variants are measured, and what comes of their times; by entries whose times are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest

from otel_quant.inference import measure, rounds
from otel_quant.inference.measure import bench
from otel_quant.inference.model_process import ModelProcess
from otel_quant.inference.results import Accuracy, Latency, MemoryUse, ModelResult, OutputError
from otel_quant.inference.subjects import InProcess, Options

OPTIONS = Options(seconds=20.0)


def call(median: float, noise: float, **more: Any) -> Latency:
    """Returns the times of a variant whose rounds all take as long."""
    p10, p90 = (pytest.approx(more.pop(name, median)) for name in ("p10", "p90"))
    return Latency(median, p10, p90, first=0.5, noise=noise, **more)


class Known(InProcess):
    """A variant whose times, in seconds, are known; its process is never started."""

    kind = "torch"
    runs_are_known = False

    def __init__(
        self,
        name: str,
        clock: list[float],  # of one, which goes on while the variant is made and timed
        took: list[str],  # the order in which variants are made and timed
        making: float = 1.0,
        rounds: Sequence[float] = (0.01,),  # a call in each round, over and over
        spent: float = 0.25,  # on a round
        fails: tuple[int, str] = (0, ""),  # in which process, and at what
    ) -> None:
        super().__init__(name, ModelProcess("torch", huge_pages=False))
        self.providers, self.fed = ("cpu",), {"x": "float32 2 (checksum 0)"}
        self.first = [0.5, rounds[0], 0.0]
        self._clock, self._took, self._fails = clock, took, fails
        self._making, self._spent = making, spent
        self._rounds = rounds
        self.at_end: Mapping[str, int | None] = {"process": 200, "gpu": None}

    def _passes(self, what: str, seconds: float) -> bool:
        self._clock[0] += seconds
        self._took.append(f"{what} {self.name}")
        if self._fails == (len(self.processes), what):
            self.problem = f"{what} failed"
        return not self.problem

    def prepare(self) -> None:
        self._make()
        self.marks = [{"process": 300, "gpu": None}]

    def _make(self) -> Any:
        self._passes("make", self._making)

    def time(self, seconds: float, runs: int | None) -> None:
        if self._passes("time", self._spent):
            usual = self._rounds[len(self.processes[-1]) % len(self._rounds)]
            self.processes[-1].append([usual])

    def finish(self) -> None:
        if not self.problem:
            self._took.append(f"finish {self.name}")
            self.marks.append(self.at_end)

    def mark_again(self) -> None:
        pass

    def time_early(self, seconds: float) -> None:
        given = self.no_outputs
        super().time_early(seconds)
        self.no_outputs = given


class Bench:
    """Measures variants whose times are known."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.clock, self.took = [0.0], list[str]()
        self._patch = patch
        clock = SimpleNamespace(perf_counter=lambda: self.clock[0])
        for module in (measure, rounds):
            patch.setattr(module, "time", clock)

    def entry(self, name: str, **more: Any) -> Known:
        return Known(name, self.clock, self.took, **more)

    def run(self, *entries: InProcess, **options: Any) -> Any:
        self._patch.setattr(measure, "_variants", lambda *_: entries)
        return bench((), replace(OPTIONS, **options), "otel-quant bench")


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


NOISY = (0.01, 0.02, 0.03, 0.015)


@pytest.mark.parametrize(
    ("processes", "variants", "rounds"),
    [
        (None, {"a": {}, "b": {}}, {"a": [10] * 5, "b": [10] * 5}),
        (None, {"a": {"making": 60.0}}, {"a": [10] * 5}),
        (None, {"a": {"making": 61.0}}, {"a": [10]}),
        (None, {"a": {}, "b": {"making": 61.0}}, {"a": [10] * 5, "b": [10]}),
        (2, {"a": {"making": 61.0}}, {"a": [10] * 2}),
        (1, {"a": {}}, {"a": [10]}),
        # As many as the time allows: each process has its share, and all together five at least.
        (None, {"a": {"rounds": NOISY}}, {"a": [16] * 5}),
        (None, {"a": {}, "b": {"rounds": NOISY}}, {"a": [16] * 5, "b": [16] * 5}),
        (1, {"a": {"rounds": NOISY}}, {"a": [80]}),
        (None, {"a": {"spent": 1.0}}, {"a": [4] * 5}),
        (None, {"a": {"spent": 30.0}}, {"a": [1] * 5}),
        (3, {"a": {"spent": 30.0}}, {"a": [2] * 3}),
        (1, {"a": {"spent": 30.0}}, {"a": [5]}),
        (None, {"a": {"spent": 30.0, "making": 61.0}}, {"a": [5]}),
        # One that fails does not cost the others rounds, nor has them take more.
        (None, {"a": {"rounds": NOISY}, "b": {"making": 61.0, "fails": (1, "make")}}, {"a": [16] * 5}),
        (None, {"a": {"fails": (1, "make")}, "b": {"fails": (1, "make")}}, {}),
        (None, {"a": {}, "b": {"fails": (1, "time")}}, {"a": [10] * 5}),
        (None, {"a": {}, "b": {"fails": (3, "make")}}, {"a": [10] * 5}),
        (None, {"a": {}, "b": {"fails": (3, "time")}}, {"a": [10] * 5}),
    ],
)  # fmt: skip
def test_each_variant_has_as_many_processes_and_rounds_as_there_is_time_for(
    processes: int | None,
    variants: Mapping[str, Mapping[str, Any]],
    rounds: Mapping[str, list[int]],
    known: Bench,
) -> None:
    entries = [known.entry(name, **more) for name, more in variants.items()]
    known.run(*entries, processes=processes)
    found = {each.name: list(map(len, each.processes)) for each in entries if not each.problem}
    assert found == rounds


def test_time_to_load_the_script_is_time_to_make_its_first_variant(known: Bench) -> None:
    entry = known.entry("a", making=1.0)
    entry.loading = 59.5
    known.run(entry)
    assert len(entry.processes) == 1


def test_variants_run_in_turn_and_each_is_the_first_of_a_round_in_its_turn(known: Bench) -> None:
    known.run(known.entry("a", spent=30.0), known.entry("b", spent=30.0), processes=3)
    in_turn = ["time a", "time b", "time b", "time a"]
    early = [f"{what} {name}" for name in "ab" for what in ("make", "time")]
    again = ["make a", "make b", *in_turn]
    assert known.took == [*early, *in_turn, "finish a", "finish b", *again, *again]


def test_in_sequential_mode_a_variant_runs_all_its_processes_before_the_next(known: Bench) -> None:
    known.run(
        known.entry("a", spent=30.0), known.entry("b", spent=30.0), processes=3, one_by_one=True
    )
    again = ["make {0}", "time {0}", "time {0}"]
    wanted = ["make {0}", "time {0}", "time {0}", "time {0}", "finish {0}", *again, *again]
    assert known.took == [each.format(name) for name in "ab" for each in wanted]


def test_the_result_of_a_variant_follows_from_its_times_and_memory(known: Bench) -> None:
    base, other = known.entry("base"), known.entry("other", rounds=(0.02,))
    base.facts = {"torch": "2.9", "GPU": "", "threads of torch": "2"}
    other.facts = {"torch": "2.9", "GPU": "", "threads of torch": "4"}
    other.disk, other.quantize, other.compile, other.is_quantized = 7, 0.25, 0.5, True
    base.outputs = {"one": np.array([3.0, 4.0]), "two": np.array([1.0, 1.0])}
    other.outputs = {"one": np.array([3.0, 4.0]), "two": np.array([1.0, 1.5])}
    other.at_end, inputs = {"process": 200, "gpu": 1000}, {"x": "float32 2"}
    result = known.run(base, other)
    error = OutputError("two", pytest.approx(9.0309), pytest.approx(0.98058), 0.5)
    assert result.models == (
        ModelResult(
            "base", kind="torch", providers=("cpu",), inputs=inputs, facts=base.facts,
            latency=call(0.01, 0.0, processes=(0.01,) * 5),
            memory=MemoryUse(200, 300), compile=pytest.approx(0.49),
        ),
        ModelResult(
            "other", kind="torch", providers=("cpu",), inputs=inputs, facts=other.facts,
            latency=call(0.02, 0.0, ratio=pytest.approx(2), is_apart=True, processes=(0.02,) * 5),
            memory=MemoryUse(200, 300, weights_on_disk=7, gpu=1000), quantize=0.25,
            compile=pytest.approx(0.98), accuracy=Accuracy((ANY, error)), is_quantized=True,
        ),
    )  # fmt: skip
    settings = dict(result.settings)
    assert settings.pop("memory").startswith("in ")
    assert settings == {"rounds": "50, the variants in turn", "processes": "5 of each variant"}
    assert (result.process_spread, result.runtime, result.version) == (0.0, "torch", "2.9")
    assert result.models[1].accuracy.worst == error
    assert known.run(known.entry("a"), processes=1).process_spread is None
    assert (result.baseline, result.command) == ("base", "otel-quant bench")


def test_a_variant_with_fewer_processes_is_named_and_compared_with_them(known: Bench) -> None:
    slow = known.entry("slow", making=61.0, rounds=(0.02,))
    result = known.run(known.entry("base"), slow, one_by_one=True)
    assert result.settings["processes"] == "5 of each variant, 1 of slow"
    assert result.settings["rounds"] == ("50, one variant after the other")
    found = result.models[1].latency
    assert (found.speedup, found.is_apart, found.processes) == (pytest.approx(0.5), True, (0.02,))


def test_a_variant_without_a_baseline_has_only_its_own_values(known: Bench) -> None:
    failed = known.entry("base", fails=(2, "time"))
    result = known.run(failed, known.entry("other"))
    base, other = result.models
    assert base == ModelResult("base", "time failed", kind="torch")
    assert known.took.count("make base") == 2
    assert other.latency == call(0.01, 0.0, processes=(0.01,) * 5)
    assert other.accuracy == Accuracy(problem="base was not measured")


@pytest.mark.parametrize(
    ("base", "other", "problem"),
    [
        ({"fed": {"x": "float32 2 (checksum 1)"}}, {}, "it has other inputs than base"),
        ({"outputs": {"two": np.array([1.0])}}, {"outputs": {"two": np.array([np.nan])}},
         "output 'two' has values that are not finite"),
        ({"no_outputs": "no tensors"}, {}, "there are no outputs of base: no tensors"),
        ({"outputs": {}}, {"no_outputs": "it is"}, "there are no outputs of other: it is"),
    ],
)  # fmt: skip
def test_an_unknown_accuracy_has_a_reason(
    base: Mapping[str, Any], other: Mapping[str, Any], problem: str, known: Bench
) -> None:
    entries = known.entry("base"), known.entry("other")
    for entry, changed in zip(entries, (base, other), strict=True):
        for name, value in changed.items():
            setattr(entry, name, value)
    accuracy = known.run(*entries).models[1].accuracy
    assert (accuracy.worst, accuracy.problem) == (None, problem)


def test_a_result_without_any_measured_variant_has_no_noise(known: Bench) -> None:
    result = known.run(known.entry("a", fails=(1, "make")))
    assert result.settings["processes"] == ""
    assert result.noise is None
