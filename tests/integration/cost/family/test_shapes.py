"""Shapes, types and folded elements equal the results of a real run, or are unknown."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.inliner import inline_local_functions

from otel_quant.cost import InputSpec
from otel_quant.cost.inputs import bind_inputs
from otel_quant.cost.model_reader import read_model
from otel_quant.cost.operation import Value
from otel_quant.cost.operators import all_operators
from otel_quant.cost.walk import Walk
from tests.integration.cost import reference
from tests.integration.cost.backend_data import light_models, recorded_models
from tests.integration.cost.exporting import Case
from tests.integration.cost.family.models import FAMILY
from tests.unit.cost import operator_case
from tests.unit.cost.microsoft_cases import MICROSOFT


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


def same(value: Value, array: np.ndarray) -> list[str]:
    """Returns in what the walk's view of a tensor differs from the real one."""
    wrong = []
    shape = array.shape if value.shape is None else value.shape
    if len(shape) != array.ndim or any(
        dim not in (None, real) for dim, real in zip(shape, array.shape, strict=True)
    ):
        wrong.append(f"{value.name}: shape {shape}, really {array.shape}")
    if value.dtype not in (0, reference.element_type(array)):
        wrong.append(f"{value.name}: type {value.dtype}, really {array.dtype}")
    if value.data is not None and value.shape == array.shape and array.dtype.kind in "iufb":
        for mine, real in zip(value.data, array.flatten().tolist(), strict=True):
            if mine is None or mine == real or (math.isnan(mine) and math.isnan(real)):
                continue
            if not math.isclose(mine, real, rel_tol=1e-6):
                wrong.append(f"{value.name}: element {mine}, really {real}")
                break
    return wrong


@pytest.mark.parametrize("name", FAMILY)
def test_every_tensor_of_the_family_has_the_shape_that_onnxruntime_computes(
    family: Callable[[str], Case], name: str
) -> None:
    case = family(name)
    values, _ = walk(case.path, case.given)
    real = reference.real_results(inline_local_functions(onnx.load(case.path)), case.feeds)
    compared = [key for key in real if key in values and isinstance(real[key], np.ndarray)]
    assert len(compared) >= 5
    assert [fault for key in compared for fault in same(values[key], real[key])] == []
    unknown = [key for key in compared if values[key].size is None]
    assert unknown == []


@pytest.mark.parametrize("path", light_models(), ids=lambda path: path.stem)
def test_every_tensor_of_the_zoo_topologies_has_the_shape_that_onnxruntime_computes(
    path: object,
) -> None:
    model = onnx.load(str(path))
    static = {tensor.name for tensor in model.graph.initializer}
    feeds = {
        info.name: np.zeros(
            tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim), np.float32
        )
        for info in model.graph.input
        if info.name not in static
    }
    values, _ = walk(path, {})
    real = reference.real_results(model, feeds)
    assert [fault for key in real if key in values for fault in same(values[key], real[key])] == []
    assert [key for key in real if key in values and values[key].size is None] == []


def test_every_result_of_the_backend_test_data_has_the_recorded_shape() -> None:
    wrong: list[str] = []
    exact = 0
    unknown: set[str] = set()
    for case in recorded_models():
        _, outputs = walk(case.path, case.specs)
        for value, tensor in zip(outputs, case.outputs, strict=True):
            if tensor is None:
                continue
            shape = tuple(tensor.dims)
            if value.dtype not in (0, tensor.data_type):
                wrong.append(f"{case.path.parent.name}: type {value.dtype}")
            if value.size is None:
                kinds = {node.op_type for node in onnx.load(case.path).graph.node}
                unknown |= kinds if kinds <= all_operators().keys() else set()
            if value.shape is not None and None not in value.shape:
                exact += 1
                array = numpy_helper.to_array(tensor)
                if value.shape != shape:
                    wrong.append(f"{case.path.parent.name}: {value.shape}, really {shape}")
                elif array.dtype.kind in "iufb" and np.isfinite(array).all():
                    wrong += [f"{case.path.parent.name}: {fault}" for fault in same(value, array)]
    assert wrong == []
    assert exact > 1850
    assert not {"Reshape", "Conv", "MatMul", "Slice", "Resize", "Gather", "LSTM", "If"} & unknown


@pytest.mark.parametrize("case", MICROSOFT.values(), ids=MICROSOFT)
def test_results_of_operators_in_onnxruntimes_domain_are_those_that_it_makes(
    case: operator_case.Case, tmp_path: Path
) -> None:
    model = operator_case.model_of(case)
    first = case.operands[0]
    assert first is not None
    real = reference.real_results(model, {"i0": first})
    onnx.save(model, tmp_path / "m.onnx")
    values, _ = walk(tmp_path / "m.onnx", {})
    assert [values[key].shape for key in values] == [real[key].shape for key in values]
    assert [fault for key in values for fault in same(values[key], real[key])] == []
