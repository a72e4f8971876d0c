"""The fused view of QDQ models is what onnxruntime runs, node for node and byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static

from otel_quant.cost import analyze
from otel_quant.cost.graph import FUSIONS, runtime_here
from scripts.onnxruntime_rules import compared
from tests.fixtures.onnx_builder import Builder, model_of_text
from tests.integration.cost.exporting import samples
from tests.integration.cost.kernels_run import (
    contractions_in_float,
    run_by_default,
    run_by_onnxruntime,
    run_by_the_fused_view,
    said_to_run_in_float,
)

CNN = """
<ir_version: 9, opset_import: ["" : 17]>
net (float[1, 3, 32, 32] x) => (float[1, 10] y) {
   [c1] a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]> (x, w1, b1)
   [r1] ar = Relu (a)
   [pool] p = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]> (ar)
   [c2] c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (p, w2, b2)
   [r2] cr = Clip (c, zero, six)
   [c3] d = Conv <kernel_shape = [1, 1]> (cr, w3, b3)
   [cs] s = Conv <kernel_shape = [1, 1]> (p, w4, b4)
   [add] e = Add (d, s)
   [r3] er = Relu (e)
   [cat] k = Concat <axis = 1> (er, p)
   [avg] v = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (k)
   [gap] g = GlobalAveragePool (v)
   [flat] f = Flatten (g)
   [fc] y = Gemm <transB = 1> (f, w5, b5)
}
"""
CNN_WEIGHTS = {
    "w1": (8, 3, 3, 3), "b1": (8,), "w2": (8, 8, 3, 3), "b2": (8,), "w3": (16, 8, 1, 1),
    "b3": (16,), "w4": (16, 8, 1, 1), "b4": (16,), "w5": (10, 24), "b5": (10,),
}  # fmt: skip

TRANSFORMER = """
<ir_version: 9, opset_import: ["" : 17]>
net (float[1, 8, 32] x) => (float[1, 8, 32] y) {
   [q] q1 = MatMul (x, wq)
   [qb] q2 = Add (q1, bq)
   [qr] q3 = Reshape (q2, heads)
   [qt] q4 = Transpose <perm = [0, 2, 1, 3]> (q3)
   [k] k1 = MatMul (x, wk)
   [kr] k3 = Reshape (k1, heads)
   [kt] k4 = Transpose <perm = [0, 2, 3, 1]> (k3)
   [v] v1 = MatMul (x, wv)
   [vr] v3 = Reshape (v1, heads)
   [vt] v4 = Transpose <perm = [0, 2, 1, 3]> (v3)
   [scores] s = MatMul (q4, k4)
   [scaled] t = Mul (s, scale)
   [soft] u = Softmax <axis = -1> (t)
   [pv] c1 = MatMul (u, v4)
   [ct] c2 = Transpose <perm = [0, 2, 1, 3]> (c1)
   [cr] c3 = Reshape (c2, joined)
   [out] o = MatMul (c3, wo)
   [res] r = Add (o, x)
   [norm] n = LayerNormalization <axis = -1> (r, g, h)
   [up] m1 = MatMul (n, wu)
   [sig] m2 = Sigmoid (m1)
   [silu] m3 = Mul (m1, m2)
   [down] m4 = MatMul (m3, wd)
   [end] y = Add (m4, n)
}
"""
TRANSFORMER_WEIGHTS = {
    "wq": (32, 32), "bq": (32,), "wk": (32, 32), "wv": (32, 32), "scale": (), "wo": (32, 32),
    "g": (32,), "h": (32,), "wu": (32, 128), "wd": (128, 32),
}  # fmt: skip

NETS = {"cnn": (CNN, CNN_WEIGHTS), "transformer": (TRANSFORMER, TRANSFORMER_WEIGHTS)}

U8, S8, U16 = QuantType.QUInt8, QuantType.QInt8, QuantType.QUInt16
SETTINGS: dict[str, dict[str, Any]] = {
    "uint8": {"activation_type": U8},
    "uint8, weights per channel": {"activation_type": U8, "per_channel": True},
    "int8": {"activation_type": S8, "extra_options": {"ActivationSymmetric": True}},
    "uint16": {"activation_type": U16, "extra_options": {"UseQDQContribOps": True}},
    "weights quantized at load": {
        "activation_type": U8,
        "extra_options": {"AddQDQPairToWeight": True},
    },
    "only products": {"activation_type": U8, "op_types_to_quantize": ["Conv", "Gemm", "MatMul"]},
    "a pair for each reader": {"activation_type": U8, "extra_options": {"DedicatedQDQPair": True}},
}


def inputs_of(net: str) -> Any:
    """Three random inputs of a net."""
    shape = (1, 3, 32, 32) if net == "cnn" else (1, 8, 32)
    return samples(
        *({"x": x} for x in np.random.default_rng(0).standard_normal((3, *shape), np.float32))
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to work in: the quantizers write reports where they run."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    for name, (text, weights) in NETS.items():
        tensors = {
            "zero": np.float32(0), "six": np.float32(6),
            "heads": np.array([1, 8, 4, 8]), "joined": np.array([1, 8, 32]),
        }  # fmt: skip
        tensors |= {
            key: np.asarray(random.standard_normal(shape) / 8, np.float32)
            for key, shape in weights.items()
        }
        used = {
            operand for node in onnx.parser.parse_model(text).graph.node for operand in node.input
        }
        model = model_of_text(text, **{key: each for key, each in tensors.items() if key in used})
        onnx.save(model, tmp_path / f"{name}.onnx")
    return tmp_path


@pytest.mark.parametrize("arm", [False, True])
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("net", NETS)
def test_onnxruntime_runs_models_that_it_quantized_as_the_fused_view_expects(
    net: str, settings: str, arm: bool, folder: Path
) -> None:
    path = folder / "qdq.onnx"
    quantize_static(f"{net}.onnx", path, inputs_of(net), weight_type=S8, **SETTINGS[settings])
    assert run_by_the_fused_view(path, arm=arm) == run_by_onnxruntime(path, folder, arm=arm)
    if not arm:
        assert said_to_run_in_float(path) == contractions_in_float(path, folder)


@pytest.mark.parametrize("net", NETS)
def test_both_forms_of_a_quantized_model_have_the_same_peak_in_the_fused_view(
    net: str, folder: Path
) -> None:
    for form in (QuantFormat.QDQ, QuantFormat.QOperator):
        quantize_static(
            f"{net}.onnx",
            f"{form.name}.onnx",
            inputs_of(net),
            quant_format=form,
            activation_type=U8,
            weight_type=S8,
            op_types_to_quantize=None if net == "cnn" else ["MatMul", "Add", "Mul", "Softmax"],
        )
    qdq, qoperator = analyze("QDQ.onnx"), analyze("QOperator.onnx")
    before = analyze(f"{net}.onnx")
    assert qdq.peak_activation_bytes == qoperator.peak_activation_bytes
    assert analyze("QDQ.onnx", view="file").peak_activation_bytes > qdq.peak_activation_bytes
    assert (qdq.macs_contraction, qdq.params) == (
        before.macs_contraction,
        analyze("QDQ.onnx", view="file").params,
    )


SHAPES: dict[str, tuple[list[int], dict[str, Any], list[tuple[str, np.ndarray]]]] = {
    "AveragePool": ([1, 4, 8, 8], {"kernel_shape": [2, 2]}, []),
    "MaxPool": ([1, 4, 8, 8], {"kernel_shape": [2, 2]}, []),
    "GlobalAveragePool": ([1, 4, 8, 8], {}, []),
    "Expand": ([1, 4, 1, 8], {}, [("to", np.array([1, 4, 8, 8]))]),
    "Gather": ([1, 4, 8, 8], {}, [("at", np.array([0]))]),
    "GatherElements": ([1, 4, 8, 8], {}, [("at", np.zeros((1, 4, 8, 8), np.int64))]),
    "Pad": ([1, 4, 8, 8], {}, [("by", np.array([0, 0, 1, 1, 0, 0, 1, 1]))]),
    "ReduceMax": ([1, 4, 8, 8], {"axes": [3]}, []),
    "ReduceMin": ([1, 4, 8, 8], {"axes": [3]}, []),
    "ReduceSum": ([1, 4, 8, 8], {}, [("axes", np.array([3]))]),
    "SpaceToDepth": ([1, 4, 8, 8], {"blocksize": 2}, []),
    "ReduceMean": ([1, 4, 8, 8], {"axes": [3]}, []),
    "Reshape": ([1, 4, 8, 8], {}, [("to", np.array([4, 64]))]),
    "Resize": ([1, 4, 8, 8], {}, [("", np.array(0)), ("by", np.array([1, 1, 2, 2], np.float32))]),
    "Slice": ([1, 4, 8, 8], {}, [("from", np.array([0, 1])), ("to", np.array([1, 3]))]),
    "Split": ([1, 4, 8, 8], {"axis": 1}, []),
    "Squeeze": ([1, 4, 8, 8], {}, [("axes", np.array([0]))]),
    "Tile": ([1, 4, 8, 8], {}, [("by", np.array([1, 2, 1, 1]))]),
    "Unsqueeze": ([1, 4, 8, 8], {}, [("axes", np.array([0]))]),
    "DepthToSpace": ([1, 4, 8, 8], {"blocksize": 2}, []),
}
"""Operand, attributes and constant operands of operators that take some."""

WEIGHTS = {"Conv": [(4, 4, 3, 3), (4,)], "Gemm": [(8, 4), (4,)], "MatMul": [(8, 4)]}
OPERANDS = {
    "Add": 2, "Mul": 2, "Concat": 2, "Where": 2, "Sub": 2, "Div": 2, "Max": 2, "Min": 2, "Pow": 2,
}  # fmt: skip
OTHERS = (
    "Abs", "Clip", "Div", "Elu", "Erf", "Exp", "HardSigmoid", "LogSoftmax", "Max", "Min", "Neg", "Pad",
    "Pow", "ReduceMean", "ReduceSum", "Relu", "SpaceToDepth", "Sqrt", "Sub", "Tanh", "Trilu",
)  # fmt: skip
"""Operators that are not in the table."""

CODES = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "uint16": TensorProto.UINT16}


def alone(kind: str, dtype: str, path: Path, *, quantized: bool = True, opset: int = 17) -> None:
    """Writes QuantizeLinear - DequantizeLinear - operator - the same two again."""
    domain = "com.microsoft" if dtype == "uint16" else ""
    shape, attributes, constants = SHAPES.get(kind, ([1, 4, 8, 8], {}, []))
    if kind == "Gemm":
        shape = [2, 8]
    tensors = {"s": np.float32(0.5), "s2": np.float32(0.25), "z": np.array(3, dtype)}
    nodes: list[onnx.NodeProto] = []

    def node(name: str, op: str, operands: list[str], **settings: Any) -> str:
        qdq = op in ("QuantizeLinear", "DequantizeLinear")
        made = [f"{name}_a", f"{name}_b"] if op == "Split" else [f"{name}_y"]
        nodes.append(
            helper.make_node(
                op, operands, made, name=name, domain=domain if qdq else "", **settings
            )
        )
        return made[0]

    def converted(name: str, source: str) -> str:
        integers = node(f"{name}_q", "QuantizeLinear", [source, "s", "z"])
        return node(f"{name}_dq", "DequantizeLinear", [integers, "s", "z"])

    inputs = ["x", "x2"][: OPERANDS.get(kind, 1)]
    operands = [converted(name, name) for name in inputs]
    for i, dims in enumerate(WEIGHTS.get(kind, ())):
        tensors[f"w{i}"] = np.ones(dims, "int32" if i else "int8")
        tensors[f"z{i}"] = np.array(0, "int32" if i else "int8")
        scale = "s2" if i else "s"
        operands.append(node(f"w{i}_dq", "DequantizeLinear", [f"w{i}", scale, f"z{i}"]))
    if kind == "Where":
        tensors["which"] = np.ones(shape, np.bool_)
        operands.insert(0, "which")
    for name, tensor in constants:
        if name:
            tensors[name] = tensor
        operands.append(name)
    result = node("op", kind, operands, **attributes, **({"axis": 1} if kind == "Concat" else {}))
    results = [result, "op_b"] if kind == "Split" else [result]
    if quantized and kind != "ArgMax":
        results = [converted(f"out{i}", item) for i, item in enumerate(results)]
    code = TensorProto.INT64 if kind == "ArgMax" else TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in inputs],
        [helper.make_tensor_value_info(name, code, None) for name in results],
        [numpy_helper.from_array(np.asarray(tensor), name) for name, tensor in tensors.items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)


@pytest.mark.parametrize("arm", [False, True])
@pytest.mark.parametrize("dtype", CODES)
@pytest.mark.parametrize("kind", [*FUSIONS, *OTHERS])
def test_an_operator_is_fused_where_onnxruntime_fuses_it(
    kind: str, dtype: str, arm: bool, tmp_path: Path
) -> None:
    # Around a MaxPool on 16 bits onnxruntime adds conversions without running it on integers.
    for quantized in (True,) if (kind, dtype) == ("MaxPool", "uint16") else (True, False):
        path = tmp_path / f"{quantized}.onnx"
        alone(kind, dtype, path, quantized=quantized)
        assert run_by_the_fused_view(path, arm=arm) == run_by_onnxruntime(path, tmp_path, arm=arm)


@pytest.mark.parametrize("opset", [13, 21, 25])
def test_operators_are_fused_in_every_version_of_the_operator_set(
    opset: int, tmp_path: Path
) -> None:
    # From version 18 on these take what is an attribute here as an operand, or need another one.
    for kind in FUSIONS.keys() - {"ReduceMax", "ReduceMin", "Split"}:
        path = tmp_path / f"{kind}.onnx"
        alone(kind, "uint8", path, opset=opset)
        assert run_by_the_fused_view(path) == run_by_onnxruntime(path, tmp_path), kind


CHAIN = """
<ir_version: 9, opset_import: ["" : 17]>
net (float[1, 4, 8, 8] x) => (float[1, 4, 8, 8] y)
<float s = {{0.5}}, float s2 = {{0.25}}, uint8 z = {{0}}> {{
   [xq] a = QuantizeLinear (x, s, z)
   [xdq] c = DequantizeLinear (a, s, z)
   [first] d = {} (c)
   [second] e = {} (d)
   [third] f = {} (e)
   [yq] g = QuantizeLinear (f, s2, z)
   [ydq] y = DequantizeLinear (g, s2, z)
}}
"""
POOL = "MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]>"


@pytest.mark.parametrize("first", ["Sigmoid", "Tanh", "Neg"])
@pytest.mark.parametrize("then", [("Relu", POOL), (POOL, "Relu")])
def test_a_relu_beside_a_pooling_runs_as_the_fused_view_expects(
    first: str, then: tuple[str, str], tmp_path: Path
) -> None:
    model = onnx.parser.parse_model(CHAIN.format(first, *then))
    onnx.save(model, tmp_path / "m.onnx")
    assert run_by_the_fused_view(tmp_path / "m.onnx") == run_by_onnxruntime(
        tmp_path / "m.onnx", tmp_path
    )


@pytest.mark.parametrize("arm", [False, True])
def test_contractions_run_as_the_rules_expect_in_every_form(arm: bool) -> None:
    runs = list(compared(runtime_here()._replace(arm=arm)))
    assert [(form.title, seen, said) for form, seen, said in runs if seen != said] == []
    assert {seen for _, seen, _ in runs} == {"integers", "weights", "float", "fails"}


RESIDUAL = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[1, 16, 12, 12] x) => (float[1, 10] y) {
    [conv0] c0 = Conv <pads = [1, 1, 1, 1]> (x, w0, b)
    [norm] n0 = BatchNormalization (c0, one, b, b, one)
    [relu0] r0 = Relu (n0)
    [conv1] c1 = Conv <pads = [1, 1, 1, 1]> (r0, w1, b)
    [clip1] r1 = Clip (c1, low, high)
    [conv2] c2 = Conv <pads = [1, 1, 1, 1]> (r1, w2, b)
    [sum] s = Add (c2, r0)
    [relu2] r2 = Relu (s)
    [conv3] c3 = Conv <pads = [1, 1, 1, 1]> (r2, w3, b)
    [elu] e3 = Elu (c3)
    [pool] g = GlobalAveragePool (e3)
    [flat] f = Flatten (g)
    [fc] z = Gemm (f, wf, b)
    [act] a = Sigmoid (z)
    [mm] m = MatMul (a, wm)
    [add] y = Add (m, bm)
}"""


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_what_follows_a_contraction_of_floats_is_in_its_kernel_where_onnxruntime_has_it_there(
    is_dynamic: bool, tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    shapes = {
        **{f"w{i}": (16, 16, 3, 3) for i in range(4)},
        "wf": (16, 16),
        "wm": (16, 10),
        "bm": (10,),
    }
    weights = {
        name: np.asarray(random.standard_normal(shape) / 9, np.float32)
        for name, shape in shapes.items()
    }
    others = {"b": np.zeros(16), "one": np.ones(16), "low": np.float32(0), "high": np.float32(6)}
    tensors = weights | {name: np.asarray(each, np.float32) for name, each in others.items()}
    path = tmp_path / "net.onnx"
    onnx.save(model_of_text(RESIDUAL, **tensors), path)
    scales = 0
    if is_dynamic:
        quantize_dynamic(path, path, op_types_to_quantize=["MatMul"])
        scales = 2 * 4  # products of two scales, which are a part of the kernels
    made = run_by_the_fused_view(path)
    assert sum(made.values()) - scales == run_by_default(path, tmp_path)
    file = analyze(path, view="file").memory_bytes - analyze(path).memory_bytes
    assert file >= 4 * 16 * 144 * 4  # norm, two Relus, Clip and Add make nothing of their own


def _twice(
    first: tuple[float, int], second: tuple[float, int], dtype: Any, readers: int
) -> Builder:
    """A Conv whose result is quantized twice in a row, and others that read it, their biases of the second scale."""
    graph = Builder([1, 8, 8, 8])

    def conv(value: str, name: str, scale: float) -> str:
        weights = graph.dequantized(graph.weights(f"{name}_w", 8, 8, 3, 3))
        bias = graph.dequantized(graph.constant(f"{name}_b", np.arange(8, dtype=np.int32)), np.int32(0), scale * 0.02)  # fmt: skip
        return graph.node("Conv", [value, weights, bias], name, pads=[1, 1, 1, 1])

    low = np.iinfo(dtype).min
    made = graph.quantized(conv(graph.quantized("x"), "c0", 0.05), dtype(low + first[1]), first[0])
    how = graph.how("again", dtype(low + second[1]), second[0])
    codes = graph.node("QuantizeLinear", [made, *how], "again_Q")
    for i in range(readers):
        value = graph.node("DequantizeLinear", [codes, *how], f"again_DQ{i}")
        graph.output(graph.quantized(conv(value, f"c{i + 1}", second[0])))
    return graph


@pytest.mark.parametrize("readers", [1, 2])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(
    ("first", "second"),
    [((0.05, 128), (0.05, 128)), ((0.05, 128), (0.1, 128)), ((0.05, 128), (0.02, 128)),
     ((0.05, 128), (0.05, 10)), ((0.05, 0), (0.05, 128)), ((0.05, 100), (0.03, 120))],
)  # fmt: skip
def test_what_is_quantized_twice_in_a_row_runs_as_the_rules_expect(
    first: tuple[float, int], second: tuple[float, int], dtype: Any, readers: int, tmp_path: Path
) -> None:
    path = _twice(first, second, dtype, readers).save(tmp_path / "twice.onnx")
    assert said_to_run_in_float(path) == contractions_in_float(path, tmp_path)


@pytest.mark.parametrize("clamp", ["", "Relu"])
@pytest.mark.parametrize("bias", [(16,), (1, 16), (4, 16), (4, 1), (1,)])
@pytest.mark.parametrize("shape", [(4, 8), (2, 4, 8)])
def test_a_matmul_and_an_add_run_as_the_rules_expect(
    shape: tuple[int, ...], bias: tuple[int, ...], clamp: str, tmp_path: Path
) -> None:
    graph = Builder(shape)
    weights = graph.dequantized(graph.weights("w", 8, 16))
    product = graph.node("MatMul", [graph.quantized("x"), weights], "m")
    value = graph.node("Add", [product, graph.weights("b", *bias, dtype=np.float32)], "a")
    value = graph.node(clamp, [value], "r") if clamp else value
    graph.output(graph.quantized(value, np.uint8(0)))
    path = graph.save(tmp_path / "add.onnx")
    ran = contractions_in_float(path, tmp_path)
    assert sum(said_to_run_in_float(path).values()) == sum(ran.values())
