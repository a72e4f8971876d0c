"""Quantized ONNX files pass; a layer that was forgotten, broken scales and files of weights that are not whole are found."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from otel_quant.auditing.audit import audit
from otel_quant.auditing.checkpoint import AuditError
from otel_quant.capture.instruments.model_cost import cost_models

UP: Final = "/layers.2/up/MatMul"
Parts = dict[str, Any]


def parts(kind: str) -> tuple[list[Any], Parts]:
    """Returns the nodes and constants of four layers of two MatMuls each, quantized in one of the usual ways."""
    nodes, constants, value = [], {}, "x"
    for name in (f"/layers.{at}/{part}/MatMul" for at in range(4) for part in ("up", "down")):
        made, weight = f"{name}.out", f"{name}.weight"
        if kind == "nbits":
            constants[weight] = np.zeros((64, 2, 16), np.uint8)
            constants[f"{name}.scale"] = np.full(128, 0.01, np.float32)
            how = {"K": 64, "N": 64, "bits": 4, "block_size": 32, "domain": "com.microsoft"}
            inputs = [value, weight, f"{name}.scale"]
            nodes.append(helper.make_node("MatMulNBits", inputs, [made], f"{name}_Q4", **how))
        else:
            constants[weight] = np.zeros((64, 64), np.int8)
            constants[f"{name}.scale"] = np.full(64, 0.01, np.float32)
            constants[f"{name}.zero"] = np.zeros(64, np.int8)
            inputs = [weight, f"{name}.scale", f"{name}.zero"]
            nodes.append(helper.make_node("DequantizeLinear", inputs, [f"{name}.w"], axis=1))
            nodes.append(helper.make_node("MatMul", [value, f"{name}.w"], [made], name))
        value = made
    return nodes, constants


def write(path: Path, nodes: list[Any], constants: Parts, *, is_outside: bool = False) -> Path:
    floats = [
        helper.make_tensor_value_info(each, TensorProto.FLOAT, [1, 64])
        for each in ("x", nodes[-1].output[0])
    ]
    tensors = [numpy_helper.from_array(each, name) for name, each in constants.items()]
    graph = helper.make_graph(nodes, "g", floats[:1], floats[1:], tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    onnx.save(model, path, save_as_external_data=is_outside, location="w.bin", size_threshold=0)
    return path


def in_float(nodes: list[Any], constants: Parts) -> None:
    at = next(at for at, each in enumerate(nodes) if each.name.startswith(UP))
    inputs = [nodes[at].input[0], f"{UP}.weight"]
    nodes[at] = helper.make_node("MatMul", inputs, nodes[at].output, UP)
    constants[f"{UP}.weight"] = np.zeros((64, 64), np.float32)


def scales(values: Any) -> Callable[[list[Any], Parts], None]:
    return lambda nodes, constants: constants.update(
        {f"{UP}.scale": np.asarray(values, np.float32)}
    )


PLANTED: Final = {
    "forgotten": ("qdq", in_float, f"forgotten {UP} is float32, and others like it are int8"),
    "forgotten beside operators on integers": (
        "nbits",
        in_float,
        f"forgotten {UP} is float32, and others like it are int4",
    ),
    "scales too few": (
        "qdq",
        scales([0.01] * 63),
        f"shape {UP} has 63 scales where 1 or 64 are expected",
    ),
    "scales of other blocks": (
        "nbits",
        scales([0.01] * 64),
        f"shape {UP} has 64 scales where 128 are expected",
    ),
    "a NaN": ("qdq", scales([np.nan] + [0.01] * 63), f"scale {UP}.scale has NaN values: 1 of 64"),
    "zero": ("nbits", scales([0.0] * 128), f"scale {UP}.scale has zero values: all"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_of_a_layer_is_found(name: str, tmp_path: Path) -> None:
    kind, change, expected = PLANTED[name]
    nodes, constants = parts(kind)
    change(nodes, constants)
    found = audit(write(tmp_path / "m.onnx", nodes, constants))
    assert [f"{each.kind} {each.where} {each.what}" for each in found.problems] == [expected]
    assert not found.passed


@pytest.mark.parametrize(
    ("rounds", "type_"),
    [
        ("ExtendedDequantizeLinear", "int8"),
        ("BFPQuantizeDequantize", "block float"),
        ("MXQuantizeDequantize", "microscaling"),
    ],
)
def test_what_amd_quarks_own_operators_round_is_quantized(
    rounds: str, type_: str, tmp_path: Path
) -> None:
    nodes, constants = parts("qdq")
    for node in nodes:
        if node.op_type == "DequantizeLinear":
            node.op_type = rounds
            if type_ != "int8":
                constants[node.input[0]] = np.zeros((64, 64), np.float32)
                del node.input[1:]
    found = audit(write(tmp_path / "m.onnx", nodes, constants))
    assert (found.passed, {each.type for each in found.of_state("quantized")}) == (True, {type_})


@pytest.mark.parametrize("is_outside", [False, True], ids=["inside", "outside"])
@pytest.mark.parametrize(("kind", "type_"), [("qdq", "int8"), ("nbits", "int4")])
def test_a_good_file_passes(kind: str, type_: str, is_outside: bool, tmp_path: Path) -> None:
    write(tmp_path / "m.onnx", *parts(kind), is_outside=is_outside)
    found = audit(tmp_path)
    assert found.answer.startswith(
        f"no fault found, without a configuration to compare with: 8 of 8 layers {type_}, "
    )
    assert found.passed
    assert found.scales.bytes == found.scales.of == 8 * 4 * (64 if kind == "qdq" else 128)


def test_what_was_left_in_float_on_purpose_is_said_so(tmp_path: Path) -> None:
    nodes, constants = parts("qdq")
    in_float(nodes, constants)
    found = audit(write(tmp_path / "m.onnx", nodes, constants), left_out=["*layers.2/up*"])
    assert (found.passed, [each.name for each in found.of_state("left out")]) == (True, [UP])


def test_weights_outside_that_are_gone_cut_or_elsewhere_are_found(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", *parts("qdq"), is_outside=True)
    data = tmp_path / "w.bin"
    os.truncate(data, data.stat().st_size - 10)
    assert audit(path).answer.startswith("w.bin is truncated: 10 B are missing at its end; ")
    data.unlink()
    assert audit(path).answer.startswith("w.bin is not there, with 24 tensors in it; ")
    path.write_bytes(path.read_bytes().replace(b"w.bin", b"../wb"))
    assert audit(path).answer.startswith("../wb is outside of the model's folder; ")
    os.truncate(path, 500)
    with pytest.raises(AuditError, match="truncated or damaged"):
        audit(path)


def test_what_is_wrong_is_an_attribute_of_the_model_that_a_run_has_written(tmp_path: Path) -> None:
    def found(role: str, paths: bool, *left_out: str) -> list[object]:
        models = [(role, str(path))]
        [model] = cost_models(models, time_limit=60, paths=paths, left_out=left_out)
        names = ("problem_count", "problems", "answer")
        return [model.figures.get(f"audit.{name}") for name in names]

    nodes, constants = parts("qdq")
    path = write(tmp_path / "m.onnx", nodes, constants)
    assert found("quantized", True) == [0, None, audit(path).answer]
    in_float(nodes, constants)
    write(path, nodes, constants)
    problem = f"{UP} is float32, and others like it are int8"
    assert found("quantized", True) == [1, (problem,), audit(path).answer]
    assert found("quantized", False) == [1, None, None]
    assert found("float", True) == [None] * 3
    assert found("quantized", True, UP)[0] == 0  # as OTEL_QUANT_EXCLUDE has it
