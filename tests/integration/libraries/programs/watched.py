"""What the programs of this folder share: a tiny language model, progress in words, and to quantize watched and not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import otel_quant
from otel_quant.schema import semconv
from otel_quant.schema.events import Event, Sink
from otel_quant.schema.readings import Count, Counts, StepInfo


class Progress(Sink):
    """Writes each sample and layer that a step begins, as a sink receives it: ``Calibration: sample 1 of 3``."""

    name = "progress"

    def __init__(self) -> None:
        # Not above: a program that only imports this pays nothing.
        from otel_quant.capture.runtime import RUNTIME

        self.counts: dict[int, Counts] = {}
        self.path = Path("progress.txt").absolute()
        RUNTIME.recorder.add_sink(self)

    def progress_expected(self, event: Event) -> None:
        assert event.step is not None
        self.counts[event.step.index] = Counts(event.counts)

    def counted(self, step: StepInfo, unit: str, count: int) -> None:
        counts = self.counts.setdefault(step.index, Counts())
        done, total = counts.get(unit, Count())
        counts[unit] = Count(done + count, total)
        with self.path.open("a") as file:
            file.write(f"{step.label}: {Counts({unit: counts[unit]})}\n")


def write_tiny(size: int = 64) -> None:
    """Writes a language model of two layers to the folder ``tiny``."""
    import torch
    import transformers

    torch.manual_seed(3)
    tiny = transformers.LlamaConfig(
        hidden_size=size, intermediate_size=2 * size, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, vocab_size=32, max_position_embeddings=64,
    )  # fmt: skip
    transformers.LlamaForCausalLM(tiny).save_pretrained("tiny")


def in_every_way(
    ways: Iterable[Callable[[], Any]],
    is_same: Callable[[Any, Any], bool],
    quantized: Callable[[Callable[[], Any]], Any] = lambda way: way(),
) -> None:
    """Quantizes in every way, first watched and then not: the results have to be equal."""
    watched = []
    for way in ways:
        with otel_quant.step(way.__name__):
            watched.append((way, quantized(way)))
    otel_quant.QuantInstrumentor().uninstrument()
    for way, before in watched:
        assert is_same(quantized(way), before), way


def same_weights(after: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether two sets of named tensors are equal."""
    import torch

    def comparable(each: torch.Tensor) -> torch.Tensor:
        # FP8 has no comparison of its own
        return each.float() if each.is_floating_point() else each

    pairs = zip(after.values(), before.values(), strict=True)
    return list(after) == list(before) and all(
        torch.equal(comparable(one), comparable(other)) for one, other in pairs
    )


PLANTED = ("nothing", "dead", "nan", "late")


class Found(Sink):
    """What is wrong with the calibrations that ended, and how many layers were told of."""

    name = "found"

    def __init__(self) -> None:
        self.findings: list[str] = []
        self.layers = 0

    def step_ended(self, event: Event) -> None:
        self.findings += event.attributes.get(semconv.CALIBRATION_FINDINGS, ())

    def layer_observed(self, event: Event) -> None:
        self.layers += 1


def planted_in(
    way: Callable[[str], Any], is_same: Callable[[Any, Any], bool], every: Iterable[str] = PLANTED
) -> None:
    """Prints what is found where something is wrong with the calibration; results have to be equal without us."""
    from otel_quant.capture.runtime import RUNTIME

    def result_of(planted: str) -> Any:
        try:
            return way(planted)
        except (AssertionError, RuntimeError, ValueError) as error:  # some observers refuse NaN
            if planted != "nan":
                raise
            return {"error": type(error).__name__}

    RUNTIME.recorder.add_sink(sink := Found())
    watched, found = {}, {}
    for planted in every:
        sink.findings, sink.layers = [], 0
        with otel_quant.step("User-Defined"):
            watched[planted] = result_of(planted)
        found[planted] = sink.findings
        assert sink.layers, planted
    otel_quant.QuantInstrumentor().uninstrument()
    for planted, before in watched.items():
        after = result_of(planted)
        # A library may make something else each time, of a layer that nothing reached or by its threads.
        assert is_same(before, after) or not is_same(after, result_of(planted)), planted
    print(json.dumps(found))
