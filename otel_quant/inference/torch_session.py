"""The process of a PyTorch variant: makes it, calls it, and measures itself."""

from __future__ import annotations

import gc
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from otel_quant.base.fault_boundary import LastResort
from otel_quant.inference.accuracy import arrays_in, as_array
from otel_quant.inference.child import MemoryMark, timed
from otel_quant.inference.results import tensor_text
from otel_quant.inference.torch_models import has_quantized_weights
from otel_quant.inference.variants import (
    SEED,
    VariantsError,
    arguments,
    error_text,
    load_variants,
    made,
    onnx_path,
)

_FIRST_CALLS: Final = 3
"""Calls before the timed ones; some compilers work in more than the first."""


class Session:
    """One variant of a script; its parent asks for its methods in this order."""

    def __init__(self, _: Path) -> None:
        self._models: dict[str, object] = {}
        self._inputs: Any = None
        self._call: Callable[[], Any] = lambda: None
        self._model: Any = None
        self._timer: Any = None
        self._mark = MemoryMark()

    def load(self, reference: str) -> Any:
        """Loads the script and says which variants it has, and what they are called with."""
        found = load_variants(reference)
        self._models, self._inputs = dict(found.models), found.inputs
        return {
            "onnx": {name: onnx_path(model) for name, model in self._models.items()},
            "fed": [
                f"{name} {tensor_text(each.dtype, each.shape)} "
                f"(checksum {zlib.crc32(each.tobytes()):08x})"
                for name, each in arrays_in(self._inputs, "input")
            ],
        }

    def save_inputs(self, path: str, names: list[str]) -> str:
        """Writes the inputs for an ONNX file: by their names, or else in the order of its own."""
        import numpy as np

        by_place, by_name = arguments(self._inputs)
        if len(by_place) > len(names):
            return f"the script has {len(by_place)} inputs; the file takes {len(names)}"
        given = {**dict(zip(names, by_place, strict=False)), **by_name}
        with LastResort() as end:
            np.savez(path, **{name: as_array(each) for name, each in given.items()})
        return "" if end.error is None else error_text(end.error)

    def make(self, name: str, threads: int | None) -> Any:
        """Makes the variant and lets go of the others."""
        import torch
        from torch.utils.benchmark import Timer

        if threads is not None:
            torch.set_num_threads(threads)
        model = self._models[name]
        self._models = {}
        began = time.perf_counter()
        self._model, inputs = made(model, self._inputs)
        took = time.perf_counter() - began
        args, kwargs = arguments(inputs)
        call = self._model
        self._call = lambda: call(*args, **kwargs)
        torch.set_grad_enabled(False)
        self._timer = Timer(
            "call(*args, **kwargs)",
            globals={"call": call, "args": args, "kwargs": kwargs},
            num_threads=torch.get_num_threads(),
        )
        return {
            "took": None if model is call else took,
            "provider": "cuda" if _gpus() else "cpu",
            "facts": {
                "torch": torch.__version__,
                "threads of torch": str(torch.get_num_threads()),
                "GPU": torch.cuda.get_device_name() if _gpus() else "",
            },
        }

    def first(self) -> list[float]:
        """Calls it for the first times; returns the seconds of each call."""
        from torch.utils.benchmark.utils.timer import timer as clock  # waits for a GPU

        found = timed(self._call, _FIRST_CALLS, clock)
        gc.collect()
        return found

    def marks(self, resets: bool) -> Any:
        """Returns the marks of the highest memory in bytes, and sets them back."""
        import torch

        gpus = _gpus()
        gpu = sum(map(torch.cuda.max_memory_allocated, gpus)) or None
        for each in gpus if resets else ():
            torch.cuda.reset_peak_memory_stats(each)
        return {"process": self._mark.take(resets), "gpu": gpu}

    def time(self, seconds: float) -> list[float]:
        """Runs it for so long; returns the seconds of a call in each block."""
        found: list[float] = self._timer.blocked_autorange(min_run_time=seconds).times
        return found

    def outputs(self, path: str) -> list[str]:
        """Writes the outputs of a call, ``a0``, ``a1`` and so on; returns their names."""
        import numpy as np
        import torch

        torch.manual_seed(SEED)
        found = list(arrays_in(self._call(), "output"))
        np.savez(path, **{f"a{i}": each for i, (_, each) in enumerate(found)})
        return [name for name, _ in found]

    def weights(self) -> Any:
        """Returns the bytes of the saved state dict and whether it is quantized; None if unknown."""
        import torch

        counting: Any = _Counting()
        with LastResort() as saved:
            torch.save(self._model.state_dict(), counting)
        is_quantized = None
        with LastResort():
            is_quantized = has_quantized_weights(self._model)
        return {
            "bytes": None if saved.error is not None else int(counting.bytes),
            "is_quantized": is_quantized,
        }


class _Counting:
    """A file of which only the size is kept."""

    def __init__(self) -> None:
        self.bytes = 0

    def write(self, data: Any) -> int:
        self.bytes += len(data)
        return len(data)

    def flush(self) -> None: ...


def _gpus() -> Sequence[int]:
    """Returns the GPUs if the variant uses any."""
    import torch

    cuda: Any = torch.cuda  # not all of it has types
    return range(cuda.device_count() if cuda.is_initialized() else 0)


def text_of(error: Exception) -> str:
    """Returns an error as its parent is told it."""
    return str(error) if isinstance(error, VariantsError) else error_text(error)
