"""Writes a model again with the shapes that were inferred.

Viewers and compilers for accelerators want the shapes in the file, and onnx's own inference stops at
onnxruntime's operators. The only module of the package that needs ``onnx``, which holds the whole file
in memory; external data stays where it is and need not be there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from otel_quant.base.files import replace_whole
from otel_quant.cost import dtypes
from otel_quant.cost.operation import Shape
from otel_quant.cost.results import ModelCost
from otel_quant.cost.structure import CostError, printable


def write_with_shapes(
    model: str | os.PathLike[str], cost: ModelCost, target: str | os.PathLike[str]
) -> None:
    """Writes a model with the shapes of all tensors of its main graph for which they are known.

    The shapes of its inputs and results are written too: they are those of ``cost``.

    Args:
        model: The model's file, not changed; of at most 2 GB, external data apart.
        cost: What :func:`otel_quant.cost.analyze` gave for it, with ``tensors=True``.
        target: Where to write; what is there is replaced.

    Raises:
        CostError: A length was assumed or overridden, so that the shapes would be wrong; the
            target would lose the model's external data; a file cannot be read or written; or
            ``onnx`` is not installed.
    """
    path, out = Path(model), Path(target)
    _refuse(path, out, cost)
    try:
        import onnx
        from google.protobuf.message import Error as ProtobufError
    except ImportError as error:
        raise CostError(
            os.fspath(target),
            f"cannot be written: {error}",
            expected="pip install 'otel-quant[onnx]'",
        ) from error
    try:
        read = onnx.load(path, load_external_data=False)
        _declare(read.graph, cost)
        replace_whole(out, read.SerializeToString())
    except OSError as error:
        raise CostError(
            os.fspath(target), f"cannot be written: {error.strerror}", expected="a place for a file"
        ) from error
    except ProtobufError as error:  # the model has more than 2 GB
        raise CostError(os.fspath(model), f"onnx cannot read or write it: {error}") from error


def _refuse(path: Path, out: Path, cost: ModelCost) -> None:
    if cost.tensors is None:
        raise CostError(cost.path, "its tensors are not listed", expected="tensors=True")
    if cost.assumed:
        first = cost.assumed[0]
        raise CostError(
            cost.path,
            f"the length {printable(first.name)} = {first.length} is assumed, which would not be "
            "true of every run",
            expected=f"{first.option} or another length",
        )
    if cost.overridden_dims:
        raise CostError(
            cost.path,
            f"the length {printable(next(iter(cost.overridden_dims)))} is not the model's own",
            expected="the lengths that the model fixes",
        )
    if out.exists() and out.samefile(path):
        raise CostError(os.fspath(out), "is the model itself", expected="another file")
    external = cost.file_bytes > path.stat().st_size
    if external and path.resolve().parent != out.resolve().parent:
        raise CostError(
            os.fspath(out),
            "is not where the model's external data lies",
            expected=f"a file in {path.resolve().parent}",
        )


def _declare(graph: Any, cost: ModelCost) -> None:
    """Puts the known shapes into an ``onnx.GraphProto``."""
    known: dict[str, tuple[int, Shape | None]] = {
        tensor.name: (dtypes.code_of(tensor.dtype), tensor.shape)
        for tensor in cost.tensors or ()
        if not tensor.in_body
    }
    # The type of an input is the declared one.
    known |= {name: (dtypes.UNKNOWN, shape) for name, shape in cost.input_shapes.items()}
    declared = {info.name: info for info in (*graph.input, *graph.output, *graph.value_info)}
    for name, (dtype, shape) in known.items():
        info = declared.get(name)
        if shape is None or (info is None and not dtype):
            continue
        if info is None:
            info = graph.value_info.add(name=name)
        if info.type.WhichOneof("value") not in (None, "tensor_type"):
            continue
        tensor = info.type.tensor_type
        tensor.elem_type = tensor.elem_type or dtype
        if tensor.HasField("shape") and len(tensor.shape.dim) != len(shape):
            continue
        tensor.shape.SetInParent()
        for i, length in enumerate(shape):
            dim = tensor.shape.dim[i] if i < len(tensor.shape.dim) else tensor.shape.dim.add()
            if length is not None:
                dim.dim_value = length
