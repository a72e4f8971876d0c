"""Compares what onnxruntime runs on integers with the rules in otel_quant/cost/runtimes.py.

    .venv/bin/python scripts/onnxruntime_rules.py         the onnxruntime that is installed there
    python3 scripts/onnxruntime_rules.py 1.31.1 1.32.0    each in an environment of its own
    python3 scripts/onnxruntime_rules.py newest           likewise

Quantized contractions are built in every form, run by a default session, as on x86-64 and as on Arm
(one option has another default there), and read from the profile. It prints what was run of each
form; the exit code is 1 if something is not as expected.

.github/workflows/libraries.yml does so every week with the newest onnxruntime. Where a release runs
something else, `VERSIONS` gets a row; where it does not, `NEWEST` is set to it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Final, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from otel_quant.cost.graph import ModelGraph, Onnxruntime, runtime_here
from otel_quant.cost.operators import operator_of
from otel_quant.cost.runtimes import FLOAT16
from scripts.workspace import uv

_WEIGHTS: Final[Mapping[str, tuple[int, ...]]] = {
    "Conv": (16, 32, 1, 1),
    "Gemm": (32, 16),
    "MatMul": (32, 16),
}
"""Shapes of weights; 32 numbers are summed up for each of 16 output channels."""

_OF_MATRIX: Final = {
    "one, unlike others": ((), {}),
    "vector": ((1,), {}),
    "channels": ((16,), {"axis": 1}),
    "channels from the end": ((16,), {"axis": -1}),
    "rows": ((32,), {"axis": 0}),
    "blocks": ((2, 16), {"axis": 0, "block_size": 16}),
    "blocks of 8": ((4, 16), {"axis": 0, "block_size": 8}),
    "blocks across": ((32, 1), {"axis": 1, "block_size": 16}),
}
_OF_IMAGE: Final = {
    "one, unlike others": ((), {}),
    "channels": ((16,), {"axis": 0}),
    "rows": ((32,), {"axis": 1}),
    "blocks": ((16, 2, 1, 1), {"axis": 1, "block_size": 16}),
}
_SCALES: Final[Mapping[str, Mapping[str, tuple[tuple[int, ...], Mapping[str, int]]]]] = {
    "Conv": _OF_IMAGE, "Gemm": _OF_MATRIX, "MatMul": _OF_MATRIX,
}  # fmt: skip
"""Shapes of the scales of a weight, and attributes of its DequantizeLinear."""

_ATTRIBUTES: Final = {"transA": 1, "transB": 1, "alpha": 2.0, "beta": 2.0}


class Form(NamedTuple):
    """A quantized contraction in one of the ways in which a file may have it."""

    kind: str
    x: str = "uint8"  # Type of its activations; float for ones that are not quantized
    w: str = "int8"  # Type of its weight; ``activation`` for a second activation, float for an excluded layer's
    y: str = "uint8"  # Type of its result; float for one that is not quantized
    scales: str = "one"  # Of its weight: one, or a key of ``_SCALES``
    bias: str = ""  # Type of its bias: int8, int32 or float; empty for none
    zero_points: bool = True  # Whether they are there where they are 0
    shared: str = ""  # What a Neg reads too: x, w or y
    then: str = ""  # Operators behind it
    attribute: str = (
        ""  # One of ``_ATTRIBUTES``, for a Gemm; of a MatMul 3-D for operands of three dimensions
    )

    # Between it and a DequantizeLinear: Identity, Transpose or Reshape of its weight, Pad of its activations
    between: str = ""
    half: bool = False  # Whether its scales, and all floats, are float16

    @property
    def title(self) -> str:
        """The form in words."""
        more = [
            "" if self.scales == "one" else f"scales: {self.scales}",
            self.bias and f"bias {self.bias}",
            "" if self.zero_points else "no zero points",
            self.shared and f"{self.shared} shared",
            self.then and f"then {self.then}",
            self.attribute,
            self.between and f"{self.between} between",
            "float16" * self.half,
        ]
        return ", ".join(filter(None, [f"{self.kind} {self.x} x {self.w} -> {self.y}", *more]))


_EIGHT: Final = ("int8", "uint8")


def forms() -> Iterator[Form]:
    """Yields all forms."""
    for kind, scales in _SCALES.items():
        for x, w, y in product(_EIGHT, _EIGHT, (*_EIGHT, "uint16", "float")):
            yield Form(kind, x, w, y)
        for x, scale, y in product(_EIGHT, scales, ("uint8", "float")):
            yield Form(kind, x, y=x if y != "float" else y, scales=scale)
        for x, w, scale in product(_EIGHT, ("int4", "uint4", "int16"), ("one", "blocks")):
            yield Form(kind, x, w, scales=scale)
        narrow = ("int8", "uint8", "int4", "uint4", "int16")
        for x, w, y in product(("float", "int16", "uint16"), narrow, ("float", "uint8", "int16")):
            yield Form(kind, x, w, y, "channels")
        for x, w, scale in product(("float", "uint16"), ("int8", "int4"), ("one", *scales)):
            yield Form(kind, x, w, "float", scale)
        for x in (*_EIGHT, "uint16", "float"):
            y = x if x in _EIGHT else "float"
            yield Form(kind, x, y=y, zero_points=False, scales="channels")
            yield from (Form(kind, x, y=y, shared=each, scales="channels") for each in "xwy")
            for then, behind in product(("Relu", "Neg"), (x, "float")):
                yield Form(kind, x, y=behind, then=then, scales="channels")
            for bias, behind in product(("int8", "int32", "float"), (y, "float")):
                if kind != "MatMul":
                    yield Form(kind, x, y=behind, bias=bias, scales="channels")
            if x != "float":
                yield from _of_float_weights(kind, x, y)
                yield from (Form(kind, x, y=each, then="Identity") for each in (y, "float"))
                yield from (Form(kind, x, y=each, half=True) for each in (y, "float"))
            between = ("Pad",) if kind == "Conv" else ()
            between = ("Identity", "Transpose", "Reshape", *between)
            for each, scale, behind in product(between, ("one", "channels"), (y, "float")):
                # A Reshape would tear the channels of an image apart.
                if x in _EIGHT and (kind, each, scale) != ("Conv", "Reshape", "channels"):
                    yield Form(kind, x, y=behind, scales=scale, between=each)
            if kind == "MatMul":
                yield from _with_an_addition(x, y)
            if kind == "Gemm":
                for each in _ATTRIBUTES:
                    yield Form(kind, x, y=y, attribute=each, bias="int32" if each == "beta" else "")
            if kind != "Conv" and x != "float":
                yield from (Form(kind, x, "activation", behind) for behind in (*_EIGHT, "float"))


def _of_float_weights(kind: str, x: str, y: str) -> Iterator[Form]:
    """Yields layers that were left in float between quantized ones."""
    biases = ("",) if kind == "MatMul" else ("", "float", "int32")
    shared = [("", ""), ("x", ""), ("w", ""), ("y", ""), ("", "Relu")]
    for bias, behind, (each, then) in product(biases, (y, "float"), shared):
        yield Form(kind, x, "float", behind, bias=bias, shared=each, then=then)
    for each in _ATTRIBUTES if kind == "Gemm" else ():
        yield Form(kind, x, "float", y, bias="float", attribute=each)


def _with_an_addition(x: str, y: str) -> Iterator[Form]:
    """Yields products with a bias behind them, of which onnxruntime makes a Gemm."""
    weights = {"int8": "channels", "int4": "channels", "float": "one"}
    # In int8 and three dimensions 1.32 makes a QuantizeLinear of two types, and fails.
    ranks = ("",) if x == "int8" else ("", "3-D")
    for w, behind, each, rank in product(weights, (y, "float"), ("", "y", "w"), ranks):
        scales = weights[w]
        yield Form("MatMul", x, w, behind, scales, shared=each, then="Add", attribute=rank)
    for w, behind, rank in product(weights, (y, "float"), ranks):
        yield Form("MatMul", x, w, behind, weights[w], then="Add Relu", attribute=rank)
    for behind, each, rank in product((y, "float"), ("", "y"), ranks):
        yield Form("MatMul", x, "activation", behind, shared=each, then="Add", attribute=rank)


def built(form: Form) -> Any:
    """Returns a form as an ``onnx.ModelProto``."""
    from onnx import TensorProto, helper

    nodes: list[Any] = []
    tensors: dict[str, Any] = {}
    floats = "float16" if form.half else "float"

    def tensor(name: str, dtype: str, dims: tuple[int, ...], value: float) -> str:
        code = getattr(TensorProto, (floats if dtype == "float" else dtype).upper())
        tensors[name] = helper.make_tensor(name, code, dims, [value] * prod(dims))
        return name

    def node(kind: str, *operands: str, **attributes: Any) -> str:
        result = f"{kind}_{len(nodes)}"
        nodes.append(helper.make_node(kind, operands, [result], name=result, **attributes))
        return result

    def scaled(dtype: str, dims: tuple[int, ...], zero: int, value: float = 0.5) -> list[str]:
        name = f"{dtype}_{'x'.join(map(str, dims))}_{value}"
        scale = tensor(f"scale_{name}", "float", dims, value)
        return [
            scale,
            *([tensor(f"zero_{name}", dtype, dims, zero)] if zero or form.zero_points else []),
        ]

    def converted(value: str, dtype: str) -> str:
        if dtype == "float":
            return value
        zero = (3 if dtype == "uint8" else 0) if form.zero_points else 0
        how = scaled(dtype, (), zero)
        given = {} if len(how) > 1 else {"output_dtype": getattr(TensorProto, dtype.upper())}
        return node("DequantizeLinear", node("QuantizeLinear", value, *how, **given), *how)

    shape: tuple[int, ...] = (1, 32, 4, 4) if form.kind == "Conv" else (4, 32)
    shape = (2, 4, 32) if form.attribute == "3-D" else shape
    weight = _WEIGHTS[form.kind][:: -1 if form.attribute == "transB" else 1]
    inputs = {"x": shape[::-1] if form.attribute == "transA" else shape}
    x = converted("x", form.x)
    if form.w == "activation":
        inputs["x2"] = weight
        w = converted("x2", form.x)
    else:
        dims, how = _SCALES[form.kind].get(form.scales, ((), {}))
        stored = weight
        if form.between == "Transpose":
            stored, how = (
                (weight[1], weight[0], *weight[2:]),
                {"axis": 1 - how.get("axis", 0)} if how else {},
            )
        elif form.between == "Reshape":
            stored, how = (
                (2, weight[0] // 2, *weight[1:]),
                {"axis": 2} if how and form.kind != "Conv" else {},
            )
        weights = tensor("w", form.w, stored, 1)
        # onnxruntime makes constants of one element one if they are equal, and so others may read it.
        value = 0.25 if form.scales == "one, unlike others" else 0.5
        w = weights
        if form.w != "float":
            w = node("DequantizeLinear", weights, *scaled(form.w, dims, 0, value), **how)
    if form.between == "Identity":
        w = node("Identity", w)
    elif form.between == "Transpose":
        w = node("Transpose", w, perm=[1, 0, *range(2, len(weight))])
    elif form.between == "Reshape":
        tensors["lengths"] = helper.make_tensor(
            "lengths", TensorProto.INT64, (len(weight),), weight
        )
        w = node("Reshape", w, "lengths")
    elif form.between == "Pad":
        x = node("Pad", x, tensor("pads", "int64", (8,), 0))
    operands = [x, w]
    if form.bias == "float":
        operands.append(tensor("b", "float", (16,), 1))
    elif form.bias:
        integers = tensor("b", form.bias, (16,), 1)
        operands.append(node("DequantizeLinear", integers, *scaled(form.bias, (), 0)))
    given = {name: value for name, value in _ATTRIBUTES.items() if name == form.attribute}
    made = node(form.kind, *operands, **given)
    result = made
    for kind in form.then.split():
        result = node(
            kind, result, *([tensor("added", "float", (16,), 1)] if kind == "Add" else [])
        )
    result = converted(result, form.y)
    outputs = [node("Tanh", result)]
    if form.shared:
        outputs.append(node("Neg", {"x": x, "w": w, "y": made}[form.shared]))
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info(name, getattr(TensorProto, floats.upper()), dims)
            for name, dims in inputs.items()
        ],
        [
            helper.make_tensor_value_info(name, getattr(TensorProto, floats.upper()), None)
            for name in outputs
        ],
        list(tensors.values()),
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def seen(path: Path, *, arm: bool) -> str:
    """Returns what a default session runs of a model: integers, weights, float, or that it fails."""
    import numpy
    import onnxruntime
    from onnxruntime.capi.onnxruntime_pybind11_state import Fail, RuntimeException

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.enable_profiling = True
    options.profile_file_prefix = str(path.with_suffix(""))
    if arm:
        options.add_session_config_entry("session.qdqisint8allowed", "1")
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        given = session.get_inputs()
        types = {"tensor(float)": numpy.float32, "tensor(float16)": numpy.float16}
        feeds = {item.name: numpy.ones(item.shape, types[item.type]) for item in given}
        session.run(None, feeds)
    except (Fail, RuntimeException):
        return "fails"
    events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    kernels = {event["args"]["op_name"] for event in events if "op_name" in event.get("args", {})}
    if "MatMulNBits" in kernels:
        return "weights"
    return "float" if kernels & _IN_FLOAT else "integers"


_IN_FLOAT: Final = {"Conv", "FusedConv", "Gemm", "FusedGemm", "MatMul", "FusedMatMul"}


def expected(path: Path, runtime: Onnxruntime) -> str:
    """Returns the same as the rules have it."""
    graph = ModelGraph(str(path), {}, {}, runtime)
    op = next(op for op in graph.ops if op.kind in _WEIGHTS)
    if op in graph.fused.obstacles:
        return "fails" if graph.fused.obstacles[op][0].reason.endswith("fails") else "float"
    if op in graph.fused.by_weights:
        return "weights"
    return "integers" if op in graph.fused.on_integers else "float"


def compared(runtime: Onnxruntime) -> Iterator[tuple[Form, str, str]]:
    """Yields each form, with what is seen of it and what is expected."""
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        for form in forms():
            path = Path(folder, "form.onnx")
            onnx.save(built(form), path)
            yield form, seen(path, arm=runtime.arm), expected(path, runtime)


def half_kernels() -> set[str]:
    """Returns the contractions that the CPU provider has a kernel for in float16."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    found = {
        f"{kernel.domain}:{kernel.op_name}".removeprefix(":")
        for kernel in state.get_all_opkernel_def()
        if kernel.provider == "CPUExecutionProvider"
        for name in ("T", "T1")
        if "tensor(float16)" in kernel.type_constraints.get(name, ())
    }
    return {name for name in found if operator_of(name).contraction is not None}


def main(versions: list[str]) -> int:
    """Compares the versions that are named, or the one that is installed."""
    if versions:
        asked = ["onnxruntime" if each == "newest" else f"onnxruntime=={each}" for each in versions]
        codes = [
            subprocess.run(
                [*uv(), "run", "--no-project", "--isolated", "--refresh-package", "onnxruntime",
                 "--with", each, "--with", "onnx", "python", __file__],
            ).returncode
            for each in asked
        ]  # fmt: skip
        return max(codes)
    different = 0
    for runtime in (runtime_here()._replace(arm=arm) for arm in (False, True)):
        print(f"\n{runtime.title}")
        for form, found, expected in compared(runtime):
            different += found != expected
            print(f"{form.title:60} {found}{f'  EXPECTED: {expected}' * (found != expected)}")
    for name in half_kernels() ^ FLOAT16 if not runtime_here().arm else ():
        different += 1
        print(f"{name} in float16: EXPECTED otherwise")
    print(f"\n{different} of the forms were not run as expected")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
