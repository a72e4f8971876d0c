"""Reads the structure of a ModelProto that the caller has in memory.

Piece by piece, so that a model of several gigabytes is neither copied nor has to fit into
one protobuf message (two gigabytes at most). No import of onnx: the object brings its own
methods.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any, Final

from otel_quant.cost.errors import CostError
from otel_quant.cost.reader.model_reader import ModelReader
from otel_quant.cost.reader.wire import Reader
from otel_quant.cost.structure import Model

SOURCE: Final = "<ModelProto>"

_BIG: Final = 1 << 16
"""Bytes from which an initializer is not serialized with its payload."""


def structure_of(proto: Any, deadline: float | None = None) -> Model:
    """Returns the structure of an ``onnx.ModelProto``."""
    if not (hasattr(proto, "graph") and hasattr(proto, "SerializeToString")):
        raise CostError(
            f"<{type(proto).__name__}>",
            "is not a model",
            expected="a path, bytes or an onnx.ModelProto",
        )
    light = type(proto)()
    for name in ("ir_version", "producer_name"):
        setattr(light, name, getattr(proto, name))
    light.opset_import.extend(proto.opset_import)
    light.functions.extend(proto.functions)
    graph = light.graph
    for name in ("node", "input", "output", "value_info", "sparse_initializer"):
        getattr(graph, name).extend(getattr(proto.graph, name))
    for tensor in proto.graph.initializer:
        if tensor.ByteSize() < _BIG:
            graph.initializer.append(tensor)
            continue
        kept = graph.initializer.add()
        kept.name = tensor.name
        kept.data_type = tensor.data_type
        kept.data_location = tensor.data_location
        kept.dims.extend(tensor.dims)
        kept.external_data.extend(tensor.external_data)
    data = light.SerializeToString()
    model = ModelReader(Reader(BytesIO(data), SOURCE, len(data), deadline)).model()
    return Model(
        SOURCE, model.graph, model.functions, model.opsets, model.producer, proto.ByteSize()
    )
