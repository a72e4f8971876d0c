"""Instrumentors: what makes a quantization library report its steps.

A library is a table (:class:`~otel_quant.capture.instruments.hooks.Library`) in ``tables``;
:data:`PACKAGES` lists them. ``hooks``, ``steps``, ``samples``, ``configuration`` and
``model_cost`` are what they have in common, ``quark`` and ``libraries`` what a library has
of its own, and ``processes`` hooks the functions of Python that start child processes.

This is loaded in every launched program, and so imports nothing.
"""

from __future__ import annotations

import _imp
import sys

TYPE_CHECKING = False  # not typing's, which takes a third of Python's own start to load
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import CodeType, ModuleType
    from typing import Final

PACKAGES: Final = {
    "quark": "quark",
    "onnxruntime": "onnxruntime.quantization onnxruntime.transformers",
    "onnxconverter-common": "onnxconverter_common",
    "torch": "torch",
    "torchao": "torchao",
    "transformers": "transformers",
    "diffusers": "diffusers",
    "coremltools": "coremltools",
    "ctranslate2": "ctranslate2",
    "gguf": "gguf",
    "ai-edge-quantizer": "ai_edge_quantizer",
    "compressed-tensors": "compressed_tensors",
    "optimum-onnx": "optimum.onnxruntime",
    "nncf": "nncf",
    "optimum-quanto": "optimum.quanto",
    "hqq": "hqq",
    "neural-compressor": "neural_compressor",
    "llmcompressor": "llmcompressor",
    "auto-round": "auto_round",
    "nvidia-modelopt": "modelopt",
    "gptqmodel": "gptqmodel",
    "bitsandbytes": "bitsandbytes",
    "olive-ai": "olive",
}
"""Every library that otel-quant knows, by the name that users call it: the packages, with blanks between, whose
import sets its hooks, if they are imported to quantize."""


HELD: Final[dict[CodeType, str]] = {}
"""Functions, by their code, that the program may hold from before they were hooked."""

MISSED: Final[set[str]] = set()
"""Those of them that it was seen to call where that was no step."""


class WithoutImportLock:
    """Lets go of the lock under which Python asks finders: a thread that imports the same modules waits for it."""

    def __enter__(self) -> None:
        self._was_held = True
        try:
            _imp.release_lock()
        except RuntimeError:  # a finder that the program itself calls
            self._was_held = False

    def __exit__(self, *_: object) -> None:
        if self._was_held:
            _imp.acquire_lock()


def found_by_others(
    finder: object, fullname: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    """Returns where a module is by the other finders: Python has passed those that it added meanwhile."""
    for other in list(sys.meta_path):
        spec = None if other is finder else other.find_spec(fullname, path, target)
        if spec is not None:
            return spec
    return None
