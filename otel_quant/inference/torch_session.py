"""PyTorch variants of a model: what the function of a script returns, and the process of one of them."""

from __future__ import annotations

import gc
import os
import random
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from wrapt import register_post_import_hook

from otel_quant.base.fault_boundary import LastResort
from otel_quant.inference.arrays import arrays_in, as_array, leaves, save_arrays
from otel_quant.inference.child import MemoryMark, timed
from otel_quant.inference.results import has_few_bits, tensor_text

SEED: Final = 0  # What random numbers begin with before the script is loaded
_SHOWN: Final = 200
_FORM: Final = "path/to/script.py:function"
_WANTED: Final = (
    "(models, inputs): a mapping of names to torch modules, to functions that make one or to paths "
    "of .onnx files, and what each of them is called with"
)


class VariantsError(Exception):
    """There are no variants to be had from a script; the text is the reason, in one line."""


def load_variants(reference: str) -> tuple[Mapping[str, object], object]:
    """Loads a script, with seeded random numbers; returns its models by name, and their inputs."""
    path, _, name = reference.rpartition(":")
    if not (path and name.isidentifier()):
        problem = f"{reference}: is not a function of a script; expected {_FORM}, or an .onnx file"
        raise VariantsError(problem)
    if not Path(path).is_file():
        raise VariantsError(f"{path}: no such file; expected {_FORM}")
    full = str(Path(path).resolve())
    found = function = None
    given, sys.argv = sys.argv, [path]  # the options of the command are not for it
    try:
        with LastResort() as end:
            random.seed(SEED)
            for library, seed in _SEEDS.items():  # once they are imported, if ever
                register_post_import_hook(seed, library)
            function = getattr(_loaded(Path(full)), name, None)
            found = function() if callable(function) else None
    except SystemExit as error:
        raise VariantsError(
            f"{reference}: the script has ended with exit code {error.code or 0}; expected one that "
            "only defines things when it is imported"
        ) from error
    finally:
        sys.argv = given
    if end.error is not None:
        frames = traceback.extract_tb(end.error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == full]
        at = f" (line {lines[-1]})" if lines else ""
        raise VariantsError(f"{reference} raised {error_text(end.error)}{at}") from end.error
    if not callable(function):
        raise VariantsError(f"{path} has no function {name!r}; expected one that returns {_WANTED}")
    try:
        return _variants(found)
    except ValueError as error:
        raise VariantsError(f"{reference} has returned {error}; expected {_WANTED}") from error


def made(model: object, inputs: object) -> tuple[object, object]:
    """Returns a torch module and its inputs."""
    torch = sys.modules.get("torch")  # a variant without it fails by its own error
    if torch is not None and isinstance(model, torch.nn.Module):
        return model, inputs
    if not callable(model):
        raise VariantsError(
            f"{_shown(model)} is no model; expected a torch module, or a function without arguments "
            "that makes one"
        )
    try:
        found = model()
    except SystemExit as error:
        raise VariantsError(error_text(error)) from error
    if isinstance(found, tuple) and len(found) == 2:
        found, inputs = found
    if not callable(found):
        raise VariantsError(
            f"the function has returned {_shown(found)}; expected a torch module, or a pair of a "
            "module and its inputs"
        )
    return found, inputs


def arguments(inputs: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments of a call by place and by name."""
    if isinstance(inputs, Mapping):
        return (), {str(name): value for name, value in inputs.items()}
    if isinstance(inputs, tuple | list):
        return tuple(inputs), {}
    return (inputs,), {}


def onnx_path(model: object) -> str | None:
    """Returns the path of a variant that is an ONNX file; None if it is something else."""
    return os.fspath(model) if isinstance(model, str | os.PathLike) else None


def error_text(error: BaseException) -> str:
    """Returns an error's class and its first line, with the next where that only announces it."""
    lines = list(filter(None, map(str.strip, str(error).splitlines())))
    announces = "".join(lines[:1]).endswith(":")
    text = " ".join(lines[: 2 if announces else 1])
    return f"{type(error).__name__}: {_cut(text)}" if text else type(error).__name__


_SEEDS: Final[Mapping[str, Callable[[Any], object]]] = {
    "numpy": lambda numpy: numpy.random.seed(SEED),
    "torch": lambda torch: torch.manual_seed(SEED),
}


def _loaded(path: Path) -> ModuleType:
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    sys.modules[path.stem] = module
    code = compile(path.read_bytes(), module.__file__, "exec")
    exec(code, module.__dict__)  # noqa: S102  # the user's program, without a file of bytecode
    return module


def _variants(found: object) -> tuple[Mapping[str, object], object]:
    """Checks what a function has returned; the text of a ValueError is what is wrong with it."""
    if not (isinstance(found, tuple | list) and len(found) == 2):
        raise ValueError(_shown(found))
    models, inputs = found
    if not isinstance(models, Mapping):
        raise ValueError(f"{_shown(models)} as models")
    if not models:
        raise ValueError("no models")
    for name, model in models.items():
        if not isinstance(name, str):
            raise ValueError(f"{_shown(name)} as the name of a model")
        if not (callable(model) or str(onnx_path(model)).endswith(".onnx")):
            raise ValueError(f"{_shown(model)} as model {name!r}")
    return dict(models), inputs


def _shown(value: object) -> str:
    if isinstance(value, str | int | float | None):
        return _cut(repr(value))
    return f"a {type(value).__name__}"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


class _Counting:
    """A file of which only the size is kept."""

    def __init__(self) -> None:
        self.bytes = 0

    def write(self, data: Any) -> int:
        self.bytes += len(data)
        return len(data)

    def flush(self) -> None: ...


_PACKED: Final = ("qweight", "weight_packed")
"""Names of weights that GPTQ and AWQ, and compressed-tensors, pack into numbers of 32 bits."""


def saved_bytes(model: Any) -> int | None:
    """Returns the bytes of a module's state dict as ``torch.save`` writes it; None if it cannot."""
    import torch

    counting: Any = _Counting()
    with LastResort() as saved:
        torch.save(model.state_dict(), counting)
    return None if saved.error is not None else int(counting.bytes)


def has_quantized_weights(model: Any) -> bool | None:
    """Returns whether a module has weights of eight bits or fewer; None for what is no module."""
    import torch

    if not isinstance(model, torch.nn.Module):
        return None
    weights = model.state_dict()
    if any(type(each).__module__.startswith("torchao.") for each in weights.values()):
        return True  # its tensors may pack several numbers into 32 bits
    if any(name.rpartition(".")[2] in _PACKED for name in weights):
        return True
    return any(has_few_bits(str(each.dtype).removeprefix("torch.")) for each in _plain(weights))


def _plain(value: Any) -> Iterator[Any]:
    """Yields the tensors of which something consists."""
    import torch

    for _, each in leaves(value):
        if hasattr(each, "__tensor_flatten__"):
            yield from _plain([getattr(each, name) for name in each.__tensor_flatten__()[0]])
        elif isinstance(each, torch.Tensor):
            yield each


_FIRST_CALLS: Final = 3  # Calls before the timed ones; some compilers work in more than the first


class TorchSession:
    """One variant of a script; its parent asks for its methods in this order."""

    def __init__(self, _: Path) -> None:
        self._models: Mapping[str, object] = {}
        self._inputs: Any = None
        self._call: Callable[[], Any] = lambda: None
        self._model: Any = None
        self._timer: Any = None
        self._mark = MemoryMark()
        self._used: list[float] = []  # seconds of CPU time, at the ends of blocks

    def load(self, reference: str) -> Any:
        """Loads the script and returns which variants it has, and what they are called with."""
        self._models, self._inputs = load_variants(reference)
        fed = {
            name: f"{tensor_text(each.dtype, each.shape)} (checksum {zlib.crc32(each.tobytes()):08x})"
            for name, each in arrays_in(self._inputs, "input")
        }
        onnx = {name: onnx_path(model) for name, model in self._models.items()}
        return {"onnx": onnx, "fed": fed}

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
        has_torch = find_spec("torch") is not None
        if threads is not None and has_torch:
            import torch

            torch.set_num_threads(threads)
        model = self._models[name]
        self._models = {}
        began = time.perf_counter()
        self._model, inputs = made(model, self._inputs)
        took = time.perf_counter() - began
        if not has_torch:
            raise VariantsError("PyTorch is not installed; expected: pip install otel-quant[torch]")
        import torch
        from torch.utils.benchmark import Timer

        args, kwargs = arguments(inputs)
        call, threads = self._model, torch.get_num_threads()
        self._call = lambda: call(*args, **kwargs)
        torch.set_grad_enabled(False)
        names = {"call": call, "args": args, "kwargs": kwargs}
        self._timer = Timer(
            "call(*args, **kwargs)", globals=names, num_threads=threads, timer=self._clock
        )
        provider, gpu = ("cuda", torch.cuda.get_device_name()) if _gpus() else ("cpu", "")
        facts = {"torch": torch.__version__, "threads of torch": str(threads), "GPU": gpu}
        own = None if model is call else took
        return {"took": own, "provider": provider, "threads": threads, "facts": facts}

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

    def time(self, seconds: float) -> dict[str, list[float]]:
        """Runs it for so long; returns the seconds of a call in each block, and those of CPU time."""
        self._used.clear()
        found = self._timer.blocked_autorange(min_run_time=seconds)
        ends = [self._used[-2 * number :][:2] for number in range(len(found.times), 0, -1)]
        cpu = [(after - before) / found.number_per_run for before, after in ends]
        return {"wall": found.times, "cpu": cpu}

    def _clock(self) -> float:
        """Returns the time, and keeps the CPU time of this moment: blocks begin and end with one."""
        from torch.utils.benchmark.utils.timer import timer as clock  # waits for a GPU

        self._used.append(time.process_time())
        return clock()

    def outputs(self, path: str) -> list[str]:
        """Writes the outputs of a call, ``a0``, ``a1`` and so on; returns their names."""
        import torch

        torch.manual_seed(SEED)
        found = dict(arrays_in(self._call(), "output"))
        save_arrays(list(found.values()), path, "fiubc")
        return list(found)

    def weights(self) -> Any:
        """Returns the bytes of the saved state dict and whether it is quantized; None if unknown."""
        is_quantized = None
        with LastResort():
            is_quantized = has_quantized_weights(self._model)
        return {"bytes": saved_bytes(self._model), "is_quantized": is_quantized}


def _gpus() -> Sequence[int]:
    """Returns the GPUs if the variant uses any."""
    import torch

    cuda: Any = torch.cuda  # not all of it has types
    return range(cuda.device_count() if cuda.is_initialized() else 0)


def text_of(error: Exception) -> str:
    """Returns an error as it is sent to the parent."""
    return str(error) if isinstance(error, VariantsError) else error_text(error)
