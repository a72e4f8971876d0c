"""Applies remedies to a model until none changes anything, and says what onnxruntime is expected to run then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import onnx

from otel_quant.cost import InputSpec, analyze
from otel_quant.inference.fix.edited_graph import EditedGraph, save
from otel_quant.inference.fix.remedies import REMEDIES, Judged
from otel_quant.inference.onnx_session import EXACT_SUMS

__all__ = ["REMEDIES", "IntegerForecast", "Rewritten", "forecast_of", "rewritten"]


class IntegerForecast(NamedTuple):
    """What onnxruntime is expected to do with the quantized contractions of a model."""

    integers: int  # How many run in integers
    contractions: int  # All of them
    obstacles: tuple[str, ...] = ()  # What is in the way of the others


class Rewritten(NamedTuple):
    """A model with rewrites of some kinds."""

    model: Any  # An ``onnx.ModelProto``; weights beside the file stay there
    nodes: Mapping[str, Sequence[str]]  # Those that were changed, by kind
    forecast: IntegerForecast

    @property
    def disables(self) -> tuple[str, ...]:
        """Optimizers that its session is to be without."""
        return ("WeightBiasQuantization",) if "session" in self.nodes else ()

    @property
    def session(self) -> Mapping[str, Any]:
        """What its session is to have, as a file beside it and a :class:`FixResult` have it."""
        config = EXACT_SUMS if "sums" in self.nodes else {}
        known = {"disabled_optimizers": self.disables, "session_config": config}
        return {name: each for name, each in known.items() if each}


def forecast_of(
    model: Any, inputs: Mapping[str, InputSpec], dims: Mapping[str, int]
) -> IntegerForecast:
    """Returns the forecast of an ``onnx.ModelProto``."""
    cost = analyze(model, inputs=inputs, dims=dims)
    in_float = sum(sum(each.ops.values()) for each in cost.in_float)
    texts = tuple(each.text for each in cost.in_float)
    every = cost.quantized_contractions
    return IntegerForecast(every - in_float, every, texts)


def rewritten(
    model: Any, folder: Path, kinds: Sequence[str], inputs: Mapping[str, InputSpec],
    dims: Mapping[str, int],
) -> Rewritten:  # fmt: skip
    """Applies the remedies of some kinds to a copy of a model, again and again, until none changes anything."""
    copy = type(model)()
    copy.CopyFrom(model)
    nodes: dict[str, dict[str, None]] = {}
    graph, judged = EditedGraph(copy, folder), Judged(copy, inputs, dims)
    has_changed = True
    while has_changed:
        has_changed = False
        for remedy in [each for each in REMEDIES if each.kind in kinds]:
            if remedy.is_last and has_changed:
                continue
            changed = [node.name or node.output[0] for node in remedy.rewrite(graph, judged)]
            if changed:
                known = nodes.setdefault(remedy.kind, {})
                has_changed |= not known.keys() >= set(changed)  # else two would take turns
                known.update(dict.fromkeys(changed))
                copy = graph.finished()
                graph, judged = EditedGraph(copy, folder), Judged(copy, inputs, dims)
    found = {kind: list(each) for kind, each in nodes.items()}
    return Rewritten(copy, found, forecast_of(copy, inputs, dims))


def write_own_weights(path: str, to: Path) -> bool:
    """Writes a copy of a model in which sums of 32 bits are possible everywhere; returns whether there is anything to do."""
    found = rewritten(onnx.load(path), Path(path).parent, ["sums"], {}, {})
    if found.nodes:
        save(found.model, to)
    return bool(found.nodes)
