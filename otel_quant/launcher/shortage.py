"""Errors that say that memory ran out: the exceptions of the libraries, and their messages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

Where = Literal["host", "gpu"]


@dataclass(frozen=True, slots=True)
class Shortage:
    """An error that means that there was no more memory."""

    error: str  # Pattern of the exception's class, its whole name
    message: str = ""  # Pattern within its message; empty for any
    where: Where | None = "host"  # Whose memory it was; None if the message has to say so


SHORTAGES: Final = (
    # torch.cuda.OutOfMemoryError is an alias of the first; both name the device in the message.
    Shortage(r"torch\.(cuda\.)?OutOfMemoryError", where="gpu"),
    Shortage(r"(\w+\.)*OutOfMemoryError", where=None),
    Shortage(r"(\w+\.)*\w*MemoryError"),
    Shortage(r".*", r"(CUDA|HIP|cuda) (error: )?out of memory|cudaErrorMemoryAllocation", "gpu"),
    Shortage(r".*", r"CU(BLAS|DNN|FFT)_STATUS_ALLOC_FAILED", "gpu"),
    # onnxruntime's arena of any device, torch's allocator of the CPU, and the C++ library.
    Shortage(r".*", r"BFCArena|Failed to allocate memory for requested buffer", None),
    Shortage(r".*", r"DefaultCPUAllocator: (can't|not enough)"),
    Shortage(r".*", r"std::bad_alloc|bad allocation"),
    Shortage(r".*", r"Cannot allocate memory"),
)
"""The first row that fits counts."""

_GPU: Final = re.compile(r"\b(GPU|CUDA|HIP|cuda)\b")


def shortage_in(error: str | None, message: str | None) -> Where | None:
    """Returns whose memory ran out, as an exception says."""
    if error is None:
        return None
    text = message or ""
    for row in SHORTAGES:
        if re.fullmatch(row.error, error) and (not row.message or re.search(row.message, text)):
            return row.where or ("gpu" if _GPU.search(text) else "host")
    return None
