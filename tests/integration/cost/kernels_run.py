"""What onnxruntime runs of a model, and what the fused view expects a runtime to run."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from otel_quant.cost import analyze
from otel_quant.cost.execution import executions, memory_views
from otel_quant.cost.fused import fused_kernels
from otel_quant.cost.inputs import bind_inputs
from otel_quant.cost.model_reader import read_model
from otel_quant.cost.runtimes import runtime_here
from otel_quant.cost.walk import Walk

FLOAT_FUSIONS = ("NoopElimination", "SkipLayerNormFusion")
"""What onnxruntime does to float models too, and the view does not have."""

_MOVED = ("q", "dq")
"""Ends of the names of nodes that it inserts where it moves a quantization on."""

_TYPES = {"tensor(float)": np.float32, "tensor(bool)": np.bool_, "tensor(int64)": np.int64}


def run_by_onnxruntime(path: Path, folder: Path, *, arm: bool = False) -> dict[str, int]:
    """Returns the bytes that each node makes, by its name, as onnxruntime's profile has them.

    Two things are left out: what is dequantized from a constant on every run, and second copies
    of a DequantizeLinear that several nodes read. A conversion that it inserts behind a node counts
    as that node's.
    """
    events = _profile(path, folder, arm=arm)
    graph = onnx.load(path).graph
    constants = {tensor.name for tensor in graph.initializer}
    folded: set[str] = set()
    moved: dict[str, str] = {}
    for node in graph.node:
        converts = node.op_type in ("DequantizeLinear", "QuantizeLinear")
        if converts and node.input[0] in constants:
            folded.add(node.name)
            constants.update(node.output)
        moved.update((f"{result}_{kind}", node.name) for result in node.output for kind in _MOVED)
    sizes = {
        re.sub("^fused |/duplicated.*", "", event["name"].removesuffix("_kernel_time")): int(
            event["args"]["output_size"]
        )
        for event in events
    }
    made: dict[str, int] = {}
    for name, size in sizes.items():
        if name not in folded:
            maker = moved.get(name, name)
            made[maker] = made.get(maker, 0) + size
    return made


def run_by_default(path: Path, folder: Path) -> int:
    """Returns the bytes that all nodes make in a default session, changes of layout left out."""
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "default")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    session.run(
        None, {each.name: np.zeros(each.shape, np.float32) for each in session.get_inputs()}
    )
    events = json.loads(Path(session.end_profiling()).read_text())
    ran = (each["args"] for each in events if each["name"].endswith("_kernel_time"))
    return sum(int(each["output_size"]) for each in ran if "Reorder" not in each["op_name"])


def contractions_in_float(path: Path, folder: Path, *, arm: bool = False) -> dict[str, int]:
    """Returns how many Conv, Gemm and MatMul nodes onnxruntime runs in float, by operator."""
    ran = (event["args"].get("op_name", "") for event in _profile(path, folder, arm=arm))
    names = [name.removeprefix("Fused") for name in ran]
    return {name: names.count(name) for name in ("Conv", "Gemm", "MatMul") if name in names}


def _profile(path: Path, folder: Path, *, arm: bool) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    options.log_severity_level = 3
    options.add_session_config_entry("session.qdqisint8allowed", "1" if arm else "0")
    session = onnxruntime.InferenceSession(
        path, options, providers=["CPUExecutionProvider"], disabled_optimizers=list(FLOAT_FUSIONS)
    )
    feeds = {item.name: np.zeros(item.shape, _TYPES[item.type]) for item in session.get_inputs()}
    session.run(None, feeds)
    events = json.loads(Path(session.end_profiling()).read_text())
    return [event for event in events if event["name"].endswith("_kernel_time")]


def run_by_the_fused_view(path: Path, *, arm: bool = False) -> dict[str, int]:
    """Returns the bytes that each node makes, by its name; nodes that make none are left out."""
    model = read_model(path)
    bound = bind_inputs(model.graph, None, str(path))
    walk = Walk(model, bound)
    fused = fused_kernels(walk.ops, walk.outputs, runtime_here()._replace(arm=arm))
    memory = memory_views(walk, fused.kernels)["fused"]
    made = {run.op.name: memory.add(run.op, 0)[0] for run in executions(walk.ops)}
    return {name: size for name, size in made.items() if size != 0}


def said_to_run_in_float(path: Path) -> dict[str, int]:
    """Quantized contractions that run in float according to the report, by operator."""
    found = Counter[str]()
    for each in analyze(path).in_float:
        found.update(each.ops)
    return dict(sorted(found.items()))
