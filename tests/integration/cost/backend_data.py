"""onnx's own backend test data: small models with recorded inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, numpy_helper

from otel_quant.cost import InputSpec

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
MAX_KEPT = 2048


@dataclass(frozen=True)
class Recorded:
    """One model of the test data.

    ``outputs`` has None for what is no tensor.
    """

    path: Path
    feeds: dict[str, np.ndarray]
    specs: dict[str, InputSpec]
    outputs: list[TensorProto | None]


def light_models() -> list[Path]:
    """Topologies of the model zoo with their weights made in the graph."""
    return sorted((DATA / "light").glob("*.onnx"))


def recorded_models() -> Iterator[Recorded]:
    """Every model with a recorded run whose inputs are all tensors."""
    for path in sorted(DATA.glob("*/*/model.onnx")):
        folder = path.parent / "test_data_set_0"
        model = onnx.load(path)
        static = {tensor.name for tensor in model.graph.initializer}
        feeds: dict[str, np.ndarray] = {}
        specs: dict[str, InputSpec] = {}
        for i, info in enumerate(model.graph.input):
            tensor = _tensor(folder / f"input_{i}.pb") if _is_tensor(info) else None
            if tensor is None:
                break
            array = numpy_helper.to_array(tensor)
            feeds[info.name] = array
            if info.name not in static:
                kept = array.size <= MAX_KEPT and array.dtype.kind in "iufb"
                data = tuple(array.flatten().tolist()) if kept else None
                specs[info.name] = InputSpec(tuple(array.shape), data=data)
        else:
            outputs = [
                _tensor(folder / f"output_{i}.pb") if _is_tensor(info) else None
                for i, info in enumerate(model.graph.output)
            ]
            yield Recorded(path, feeds, specs, outputs)


def _is_tensor(info: onnx.ValueInfoProto) -> bool:
    return bool(info.type.HasField("tensor_type"))


def _tensor(path: Path) -> TensorProto | None:
    if not path.exists():
        return None
    tensor = TensorProto()
    try:
        tensor.ParseFromString(path.read_bytes())
    except DecodeError:
        return None
    return tensor
