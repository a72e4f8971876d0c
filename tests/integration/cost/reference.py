"""What onnxruntime really produces, and a count of contractions from first principles.

Nothing here uses the code under test: shapes are taken from the arrays that come out of a
run with every node's results exposed and no optimization, and the count follows each
operator's definition on them.
"""

from __future__ import annotations

from math import prod

import numpy as np
import onnx
import onnxruntime as ort
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper

Shapes = dict[str, tuple[int, ...]]


def real_results(model: ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Runs a model unoptimised; returns every tensor of its main graph."""
    exposed = ModelProto()
    exposed.CopyFrom(model)
    have = {value.name for value in exposed.graph.output}
    for node in model.graph.node:
        for name in node.output:
            if name and name not in have:
                exposed.graph.output.append(onnx.ValueInfoProto(name=name))
                have.add(name)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(
        exposed.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in session.get_outputs()]
    values = session.run(names, feeds)
    return dict(zip(names, values, strict=True)) | dict(feeds)


def element_type(array: np.ndarray) -> int:
    """Returns ONNX's code of an array's type."""
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


def known_shapes(model: ModelProto, results: dict[str, np.ndarray]) -> Shapes:
    """Returns the shapes of everything in the main graph, constants included."""
    shapes = {name: np.shape(value) for name, value in results.items()}
    for tensor in model.graph.initializer:
        shapes[tensor.name] = tuple(tensor.dims)
    return shapes


def attributes(node: NodeProto) -> dict[str, object]:
    return {item.name: helper.get_attribute_value(item) for item in node.attribute}


def contraction_macs(model: ModelProto, results: dict[str, np.ndarray]) -> int:
    """Counts the multiply-adds of all contractions in the main graph."""
    shapes = known_shapes(model, results)
    return sum(node_macs(node, shapes, results) for node in model.graph.node)


def node_macs(node: NodeProto, shapes: Shapes, results: dict[str, np.ndarray]) -> int:
    """Counts the multiply-adds of one contraction; 0 for any other node."""
    given = attributes(node)
    x = [shapes.get(name, ()) if name else None for name in node.input]
    y = shapes.get(node.output[0], ()) if node.output else ()
    kind = node.op_type
    if kind in ("Conv", "FusedConv", "ConvInteger", "QLinearConv"):
        filters = x[3] if kind == "QLinearConv" else x[1]
        assert filters is not None
        in_per_group, window = filters[1], prod(filters[2:])
        images, channels, places = y[0], y[1], prod(y[2:])
        return images * channels * places * in_per_group * window
    if kind == "ConvTranspose":
        assert x[0] is not None
        assert x[1] is not None
        images, in_channels, places = x[0][0], x[0][1], prod(x[0][2:])
        return images * places * in_channels * x[1][1] * prod(x[1][2:])
    if kind in ("MatMul", "MatMulInteger", "DynamicQuantizeMatMul", "MatMulIntegerToFloat"):
        return _product(x[0], x[1])
    if kind == "QLinearMatMul":
        return _product(x[0], x[3])
    if kind == "FusedMatMul":
        left, right = x[0], x[1]
        assert left is not None
        assert right is not None
        left = (*left[:-2], left[-1], left[-2]) if given.get("transA") else left
        right = (*right[:-2], right[-1], right[-2]) if given.get("transB") else right
        return _product(left, right)
    if kind in ("Gemm", "FusedGemm", "QGemm"):
        assert x[0] is not None
        inner = x[0][0] if given.get("transA") else x[0][1]
        return y[0] * y[1] * inner
    if kind == "MatMulNBits":
        assert x[0] is not None
        return prod(x[0][:-1]) * int(given["K"]) * int(given["N"])
    if kind in ("LSTM", "GRU", "RNN"):
        return _recurrent(kind, x, given)
    if kind == "Attention" and node.domain == "com.microsoft":
        assert x[0] is not None
        assert x[1] is not None
        batch, length, width = x[0]
        hidden = x[1][1] // 3
        return batch * length * width * 3 * hidden + 2 * batch * length * length * hidden
    return 0


def _product(a: tuple[int, ...] | None, b: tuple[int, ...] | None) -> int:
    """Multiply-adds of numpy's matmul, by asking numpy for the result's shape."""
    assert a is not None
    assert b is not None
    left = np.broadcast_to(np.zeros((), np.bool_), a)
    right = np.broadcast_to(np.zeros((), np.bool_), b)
    batch = np.broadcast_shapes(a[:-2] if len(a) > 1 else (), b[:-2] if len(b) > 1 else ())
    rows = left.shape[-2] if left.ndim > 1 else 1
    columns = right.shape[-1] if right.ndim > 1 else 1
    return int(prod(batch)) * rows * columns * a[-1]


def _recurrent(kind: str, x: list[tuple[int, ...] | None], given: dict[str, object]) -> int:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    assert x[0] is not None
    assert x[1] is not None
    steps = x[0][0] * x[0][1]
    width = x[0][2]
    directions = x[1][0]
    hidden = int(given["hidden_size"])
    return steps * directions * gates * hidden * (width + hidden)


def subgraph_free(graph: GraphProto) -> bool:
    """Returns whether a graph has no control flow, so that the main graph is all there is."""
    return not any(
        item.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
        for node in graph.node
        for item in node.attribute
    )


def parameters(model: ModelProto) -> int:
    """Returns the elements of a model's static tensors."""
    total = sum(prod(tensor.dims) for tensor in model.graph.initializer)
    for node in model.graph.node:
        if node.op_type == "Constant":
            total += np.size(numpy_helper.to_array(node.attribute[0].t))
    return int(total)
