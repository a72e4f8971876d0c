"""Nodes to leave in float as the option of the tool that has made the model, to be pasted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

_TOOLS: Final[Mapping[str, str]] = {
    "onnx.quantize": "for quantize_static: nodes_to_exclude=",
    "quark.onnx": "for QConfig (a QuantizationConfig calls it nodes_to_exclude): exclude=",
    "pytorch": "for the QConfigMapping of prepare_fx: ",
}
"""Producer of a file -> what its option is for, and its beginning."""


def _module(node: str) -> str:
    """Returns the path of the module that torch's exporter has named a node after; empty if it does not tell."""
    found: list[str] = []
    for part in node.strip("/").split("/")[:-1]:
        if found and part.startswith(f"{found[-1]}."):
            found.pop()
        found.append(part)
    return ".".join(found)


def option_of(
    producer: str, nodes: Sequence[str], kinds: Sequence[str], disabled: Sequence[str]
) -> Iterator[str]:
    """Yields the lines for a script; ``kinds`` are the operators of which all nodes stay in float."""
    listed = json.dumps(nodes, ensure_ascii=False)
    if producer == "pytorch":
        modules = dict.fromkeys(filter(None, map(_module, nodes)))
        listed = "".join(f".set_module_name({json.dumps(name)}, None)" for name in modules)
    yield f"{_TOOLS.get(producer, 'for the quantizer, which the file does not name: ')}{listed}"
    if kinds:
        yield f"or, since these are all of their kind: op_types_to_quantize without {', '.join(kinds)}"
    if disabled:
        yield (
            "where the model is loaded, since onnxruntime would quantize some of them again: "
            f"InferenceSession(path, disabled_optimizers={json.dumps(disabled)})"
        )
