"""What shape inference finds of each tensor of a main graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from otel_quant.cost import InputSpec
from otel_quant.cost.inputs import bind_inputs
from otel_quant.cost.model_reader import read_model
from otel_quant.cost.operation import Value
from otel_quant.cost.walk import Walk


def walk(
    path: Path, given: Mapping[str, Sequence[int] | InputSpec]
) -> tuple[dict[str, Value], list[Value]]:
    """Returns every value by name, and the outputs; declared shapes are not looked at."""
    model = read_model(path)
    bound = bind_inputs(model.graph, given, str(path))
    # As if a length were changed, so that what the model declares is not believed.
    walked = Walk(model, bound._replace(overridden={"": (0, 0)}))
    values = {
        name: value
        for op in walked.ops
        for name, value in zip(op.node.outputs, op.outputs, strict=True)
    }
    return values, walked.outputs
