"""Variants of a model, as a function of the user's script returns them."""

from __future__ import annotations

import os
import random
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from wrapt import register_post_import_hook

from otel_quant.base.fault_boundary import LastResort

SEED: Final = 0
"""What random numbers begin with before the script is loaded."""

_SHOWN: Final = 200
_FORM: Final = "path/to/script.py:function"
_WANTED: Final = (
    "(models, inputs): a mapping of names to torch modules, to functions that make one or to paths "
    "of .onnx files, and what each of them is called with"
)


class VariantsError(Exception):
    """There are no variants to be had from a script; the text says why, in one line."""


@dataclass(frozen=True, slots=True)
class Variants:
    """What the function of a script has returned."""

    # By name a torch module, a function without arguments that makes one, or the path of an .onnx
    # file
    models: Mapping[str, object]
    inputs: object  # What a model is called with: see :func:`arguments`


def load_variants(reference: str) -> Variants:
    """Loads a script and calls its function.

    The script's folder is importable, and its ``__name__`` is its file's without the suffix. The
    random numbers of Python, numpy and torch are seeded before, so that a script that draws some
    has the same in each process; what it seeds itself counts.
    """
    path, colon, name = reference.rpartition(":")
    if not (colon and path and name.isidentifier()):
        raise VariantsError(
            f"{reference}: is not a function of a script; expected {_FORM}, or an .onnx file"
        )
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
    import torch

    if isinstance(model, torch.nn.Module):
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
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = " ".join(lines[: 2 if lines[:1] and lines[0].endswith(":") else 1])
    return f"{type(error).__name__}: {_cut(said)}" if said else type(error).__name__


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


def _variants(found: object) -> Variants:
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
        if not (callable(model) or (onnx_path(model) or "").endswith(".onnx")):
            raise ValueError(f"{_shown(model)} as model {name!r}")
    return Variants(dict(models), inputs)


def _shown(value: object) -> str:
    if value is None or isinstance(value, str | int | float):
        return _cut(repr(value))
    return f"a {type(value).__name__}"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
