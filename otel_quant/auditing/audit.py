"""Audits a model that was written: whether it is what its configuration says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Final

from otel_quant.auditing.asked import asked_of
from otel_quant.auditing.checkpoint import AuditError, read_checkpoint
from otel_quant.auditing.layers import CheckpointLayers
from otel_quant.auditing.onnx_layers import OnnxLayers
from otel_quant.auditing.results import Audit, Problems
from otel_quant.auditing.scales import check_scales
from otel_quant.schema.units import counted

_MOST_FOLDERS: Final = 100
_TICK: Final = 0.02  # Seconds by which the times of files may be behind the clock


def written_in(place: str | PathLike[str], since: float) -> Iterator[str]:
    """Yields the models that were written since a time: of a folder or those in it, or a file."""
    top = Path(place)
    inner = islice(top.iterdir(), _MOST_FOLDERS) if top.is_dir() else ()
    for own in (top, *sorted(filter(Path.is_dir, inner))):
        files = [own, *own.glob("*.safetensors"), *own.glob("*.onnx")]
        if any(it.stat().st_mtime >= since - _TICK for it in files if it.is_file()):
            yield str(own)


def audit(
    path: str | PathLike[str],
    against: str | PathLike[str] | None = None,
    *,
    weights: bool = False,
    left_out: Sequence[str] = (),
    seconds: float | None = None,
) -> Audit:
    """Audits a quantized model that was written, as ``otel-quant audit`` does.

    Args:
        path: A folder, a safetensors file, its index, or an ONNX file.
        against: The float model, which has what must not be missing; of ONNX its size is compared.
        weights: Whether to read all weights too, and compare them with those of the float model.
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
    is_onnx = model.is_dir() and not any(model.glob("*.safetensors*"))
    onnx = sorted(model.glob("*.onnx")) if is_onnx else []
    if len(onnx) > 1:
        raise AuditError(f"{model}: has {len(onnx)} ONNX files; expected the path of one")
    found: CheckpointLayers | OnnxLayers
    if onnx or model.suffix == ".onnx":
        found = OnnxLayers(onnx[0] if onnx else model, asked_of({}, left_out), problems)
    else:
        found = CheckpointLayers(read_checkpoint(model, problems), left_out, problems)
    before = None
    if against is not None and isinstance(found, CheckpointLayers):
        floats = read_checkpoint(Path(against), Problems())
        if not floats.tensors:
            raise AuditError(f"{against}: has no tensors; expected the float model as safetensors")
        if weights and find_spec("numpy") is None:
            raise AuditError("numpy is not installed; expected: pip install otel-quant[inference]")
        found.compare(floats, weights=weights)
        before = floats.bytes
    elif against is not None:
        before = OnnxLayers(Path(against), asked_of({}), Problems()).bytes
    _check_quantized(found, problems, is_folder=model.is_dir())
    known, size = found.asked.known, found.bytes
    read = check_scales(found.scales, problems, seconds)
    layers, wrong = found.layers if known else [], problems.worst_first()
    sizes = size, size - found.excess, before
    return Audit(str(path), found.asked.method, known, layers, wrong, *sizes, read)


def _check_quantized(
    found: CheckpointLayers | OnnxLayers, problems: Problems, *, is_folder: bool
) -> None:
    """Adds that no layer is quantized, or that the configuration does not say that some are."""
    quantized = sum(each.state == "quantized" for each in found.layers)
    method = found.asked.method
    if found.asked.known and found.layers and not quantized:
        asks = f"; its configuration asks for {method}" if method else ""
        problems.add("forgotten", "the model", f"has no quantized layer{asks}")
    if isinstance(found, CheckpointLayers) and found.config and quantized and not method:
        what = f"has no quantization_config, and {counted(quantized, 'layer')} quantized"
        if is_folder:  # of one of several files it may be another's
            problems.add("configuration", "config.json", what)
