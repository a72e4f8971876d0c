"""The number that papers quote is right: counted a second time from first principles."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import pytest
from onnx.inliner import inline_local_functions

from otel_quant.cost import analyze
from tests.integration.cost import reference
from tests.integration.cost.backend_data import DATA
from tests.integration.cost.exporting import Case
from tests.integration.cost.family.models import FAMILY

WITH_BODIES = {
    # five iterations of [4, 8] x [8, 8], then the more expensive branch, [4, 8] x [8, 6]
    "control_flow": 5 * 4 * 8 * 8 + 4 * 8 * 6
}


@pytest.mark.parametrize("name", FAMILY)
def test_contractions_equal_the_count_on_real_shapes(
    family: Callable[[str], Case], name: str
) -> None:
    case = family(name)
    cost = analyze(case.path, inputs=case.given)
    model = inline_local_functions(onnx.load(case.path))
    if reference.subgraph_free(model.graph):
        expected = reference.contraction_macs(model, reference.real_results(model, case.feeds))
    else:
        expected = WITH_BODIES[name]
    assert expected > 0
    assert cost.macs_contraction == expected
    assert (cost.assumed, cost.uncosted_ops, cost.unsized_tensors) == ((), {}, 0)
    assert sum(cost.precision.values()) == pytest.approx(1.0)


def test_resnet50_has_4_089_million_macs() -> None:
    cost = analyze(DATA / "light" / "light_resnet50.onnx")
    assert round(cost.macs_contraction / 1e9, 3) == 4.089


@pytest.mark.parametrize(
    ("name", "expected"),
    [("cnn", {"float32": 1.0}), ("half", {"float16": 1.0}), ("qdq", {"int8": 1.0})],
)
def test_the_execution_precision_of_contractions_is_found(
    family: Callable[[str], Case], name: str, expected: dict[str, float]
) -> None:
    case = family(name)
    assert analyze(case.path).precision == expected


@pytest.mark.parametrize(
    ("name", "kind", "operators"),
    [
        ("qoperator", "int8", {"QLinearConv", "QLinearMatMul", "QGemm"}),
        ("dynamic_int8", "int8", {"MatMulInteger"}),
        ("four_bit", "int4 weight-only", {"MatMulNBits"}),
    ],
)
def test_the_quantized_share_is_the_share_of_quantized_operators(
    family: Callable[[str], Case], name: str, kind: str, operators: set[str]
) -> None:
    case = family(name)
    model = onnx.load(case.path)
    results = reference.real_results(model, case.feeds)
    shapes = reference.known_shapes(model, results)
    macs = {True: 0, False: 0}
    for node in model.graph.node:
        macs[node.op_type in operators] += reference.node_macs(node, shapes, results)
    cost = analyze(case.path)
    assert cost.precision == pytest.approx(
        {kind: macs[True] / sum(macs.values()), "float32": macs[False] / sum(macs.values())}
    )


def test_a_model_in_memory_costs_what_its_file_costs(family: Callable[[str], Case]) -> None:
    case = family("bert_static")
    model = onnx.load(case.path)
    from_file = analyze(case.path).to_json_dict()
    from_proto = analyze(model).to_json_dict()
    from_bytes = analyze(case.path.read_bytes()).to_json_dict()
    assert from_file.pop("path") == str(case.path)
    assert from_proto.pop("path") == "<ModelProto>"
    assert from_bytes.pop("path") == "<bytes>"
    assert from_proto == from_file
    assert from_bytes == from_file
    assert model == onnx.load(case.path)


def test_parameters_are_the_elements_of_the_static_tensors(family: Callable[[str], Case]) -> None:
    for name in ("cnn", "bert_static", "swin", "qdq", "external", "half"):
        case = family(name)
        cost = analyze(case.path)
        assert cost.params == reference.parameters(onnx.load(case.path)), name


def test_external_data_need_not_exist(family: Callable[[str], Case], tmp_path: object) -> None:
    case = family("external")
    with_data = analyze(case.path)
    weights = case.path.parent / "weights.bin"
    size = weights.stat().st_size
    assert with_data.file_bytes == case.path.stat().st_size + size
    alone = case.path.with_name("alone") / case.path.name
    alone.parent.mkdir(exist_ok=True)
    alone.write_bytes(case.path.read_bytes())
    without = analyze(alone)
    assert without.macs == with_data.macs
    assert without.weight_bytes == with_data.weight_bytes
    assert abs(without.file_bytes - with_data.file_bytes) < 4096 * 40  # padding of the last tensor
