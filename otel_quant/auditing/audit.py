"""Audits a model that was written: whether it is what its configuration says."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from otel_quant.auditing.asked import asked_of
from otel_quant.auditing.checkpoint import AuditError, read_checkpoint
from otel_quant.auditing.layers import CheckpointLayers
from otel_quant.auditing.onnx_layers import OnnxLayers
from otel_quant.auditing.results import Audit, Problems
from otel_quant.auditing.scales import check_scales


def audit(
    path: str | PathLike[str],
    against: str | PathLike[str] | None = None,
    *,
    left_out: Sequence[str] = (),
    seconds: float | None = None,
) -> Audit:
    """Audits a quantized model that was written, as ``otel-quant audit`` does.

    Args:
        path: A folder, a safetensors file, its index, or an ONNX file.
        against: The float model, which has what must not be missing.
        left_out: Names or patterns (``*.gate``) of layers that were left in float on purpose.
        seconds: Time after which no more scales are read; None for all.

    Returns:
        What was found; ``passed`` and ``answer`` have the verdict.

    Raises:
        AuditError: There is no model.
    """
    model, problems = Path(path), Problems()
    if not model.exists():
        raise AuditError(f"{model}: does not exist; expected a folder, *.safetensors or *.onnx")
    files = (
        sorted(model.glob("*.onnx"))
        if model.is_dir() and not any(model.glob("*.safetensors*"))
        else [model]
    )
    if len(files) > 1:
        raise AuditError(f"{model}: has {len(files)} ONNX files; expected the path of one")
    floats = (
        None
        if against is None or Path(against).suffix == ".onnx"
        else read_checkpoint(Path(against), Problems())
    )
    found: CheckpointLayers | OnnxLayers
    if files and files[0].suffix == ".onnx":
        asked = asked_of({}, left_out)
        found = OnnxLayers(files[0], asked, problems)
        size = found.bytes
    else:
        checkpoint = read_checkpoint(model, problems)
        asked, size = asked_of(checkpoint.quantization, left_out), checkpoint.bytes
        found = CheckpointLayers(checkpoint, asked, problems if asked.known else Problems())
        if floats is not None:
            found.compare(floats)
    if asked.known and not any(each.state == "quantized" for each in found.layers):
        wanted = f"asks for {asked.method}" if asked.method else "asks for nothing"
        problems.add(
            "forgotten", "the model", f"has no quantized layer; its configuration {wanted}"
        )
    read = check_scales(found.scales, problems, seconds)
    return Audit(
        str(path),
        asked.method,
        asked.known,
        found.layers if asked.known else [],
        problems.worst_first(),
        size,
        size - found.excess,
        floats.bytes if floats is not None else None,
        read,
    )
