"""Errors that programs which quantize often end with, and what helps: each was tried, and has its source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from otel_quant.launcher.surroundings import SHARED_MEMORY, Disk
from otel_quant.recordings.model import Advice
from otel_quant.schema.units import size


class KnownError(NamedTuple):
    """An error, and what helps."""

    error: str  # Pattern in the exception's class and message
    text: str  # A sentence, with `{operators}` where the model's own ones may be the reason
    source: str  # Where that is known from


KNOWN_ERRORS: Final = (
    KnownError(r"Incomplete symbolic shape inference",
        "Call quant_pre_process with skip_symbolic_shape=True: ONNX's own shape inference is still done.{operators}",
        "ONNX Runtime, onnxruntime.quantization.shape_inference: quant_pre_process"),
    KnownError(r"before the\s+current process has finished its\s+bootstrapping phase",
        'Put what starts the processes below `if __name__ == "__main__":` in the script: each new process imports it, and runs it again.',
        "Python, multiprocessing: Safe importing of main module"),
    KnownError(r"Can't (pickle|get) (local object|<function|attribute)|cannot pickle|[cC]an't pickle|attribute lookup .* failed",
        "Give to other processes only functions and classes that stand at the top of a module, no lambda, function within a function, or open session.",
        "Python, pickle: What can be pickled and unpickled"),
)  # fmt: skip


def advice_on(error: str, model: str, full: Sequence[Disk]) -> Iterator[Advice]:
    """Yields what helps against an exception, of a program with a model's file, where some disks were full."""
    for row in KNOWN_ERRORS:
        if re.search(row.error, error):
            found = _operators_of(model) if "{operators}" in row.text else ""
            yield Advice(text=row.text.replace("{operators}", found), source=row.source)
    for disk in full:
        if "temporary files" in disk.places:
            how = f"Set TMPDIR to a folder on a disk with more room than {size(disk.size)}, which temporary files have now."
        elif disk.places == SHARED_MEMORY:
            how = f"Give shared memory (/dev/shm) more room than {size(disk.size)}: docker run --shm-size, Kubernetes an emptyDir with medium Memory."
            if "torch" in error or "DataLoader" in error:
                how += " Or load samples with num_workers=0, fewer workers or smaller batches: workers hand over their batches in it."
        else:
            how = f"Write to a disk with more room, or make some: {disk.places} had {size(disk.free)} of {size(disk.size)}."
        yield Advice(text=how, source="this recording: room on disks")


def _operators_of(model: str) -> str:
    """Returns, as a sentence, which operators of a model no standard has; empty if all are known."""
    from otel_quant.cost import CostError, analyze  # only now: few programs end so

    try:
        names = analyze(model).op_counts if model else {}
    except CostError:
        return ""
    known = "com.microsoft", "ai.onnx"
    own = [name for name in names if ":" in name and not name.startswith(known)]
    return f" It cannot know the shapes of {', '.join(own)}." if own else ""
