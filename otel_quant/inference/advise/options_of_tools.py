"""A list of nodes as the option of the tool that has made the model, to be pasted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final


def _module(node: str) -> str:
    """Returns the path of the module that torch's exporter has named a node after."""
    found: list[str] = []
    for part in node.strip("/").split("/")[:-1]:
        if found and part.startswith(f"{found[-1]}."):
            found.pop()
        found.append(part)
    return ".".join(found)


def _torch(nodes: Sequence[str]) -> str:
    names = dict.fromkeys(filter(None, map(_module, nodes)))
    return "\n".join(f"qconfig_mapping.set_module_name({json.dumps(name)}, None)" for name in names)


def _listed(option: str) -> Callable[[Sequence[str]], str]:
    return lambda nodes: f"{option}={json.dumps(nodes, indent=4, ensure_ascii=False)},"


_TOOLS: Final[Mapping[str, tuple[str, str, Callable[[Sequence[str]], str]]]] = {
    "onnx.quantize": ("onnxruntime's quantizer", "quantize_static", _listed("nodes_to_exclude")),
    "quark.onnx": (
        "AMD Quark", "QConfig; nodes_to_exclude of a QuantizationConfig", _listed("exclude")
    ),
    "pytorch": ("PyTorch", "its QConfigMapping, before prepare_fx", _torch),
}  # fmt: skip
"""Producer of a file -> the tool, where its option belongs, and the option."""


def option_of(
    producer: str, nodes: Sequence[str], disabled: Sequence[str]
) -> tuple[str, tuple[str, ...]]:
    """Returns the tool that has made a model, and the lines for its script."""
    tool, place, written = _TOOLS.get(
        producer, ("", "the nodes, for the option of what quantizes", _listed("nodes"))
    )
    lines = [f"# {place}", *written(nodes).splitlines()]
    if disabled:
        lines += [
            "# and where the model is loaded, else onnxruntime quantizes some of them again",
            f"onnxruntime.InferenceSession(path, disabled_optimizers={json.dumps(disabled)})",
        ]
    return tool, tuple(lines)
