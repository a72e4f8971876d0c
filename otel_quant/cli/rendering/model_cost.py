"""Prints the static cost of models from a profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from otel_quant.cli.rendering.table import printable

_MIB: Final = 1 << 20
_PRECISION: Final = "precision."


def cost_text(cost: Mapping[str, object]) -> str:
    """Returns the cost of one model, one line for each figure.

    Args:
        cost: An entry of a profile's ``onnx_model_cost``: bytes, counts, and shares
            from 0 to 1.

    Returns:
        Lines with line breaks. A key that this version does not know is shown unchanged.
    """
    heading = cost.get("role") or cost.get("path") or "model"
    lines = [
        _line(key, value)
        for key, value in cost.items()
        if key != "role" and not isinstance(value, dict)
    ]
    width = max((len(name) for name, _ in lines), default=0)
    return f"model cost: {printable(str(heading))}\n" + "".join(
        f"{printable(f'{name:{width}}  {figure}')}\n" for name, figure in lines
    )


def _line(key: str, value: object) -> tuple[str, str]:
    if key.startswith(_PRECISION):
        return f"contractions in {key.removeprefix(_PRECISION)}", _share(value)
    name, shown = _FIGURES.get(key, (key, _unchanged))
    return name, shown(value)


def _count(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else _unchanged(value)


def _mebibytes(value: object) -> str:
    if isinstance(value, int) and value < 1 << 64:  # a larger integer may not fit into a float
        return f"{value / _MIB:,.2f} MiB"
    return _unchanged(value)


def _share(value: object) -> str:
    return f"{100 * value:.2f} %" if isinstance(value, int | float) else _unchanged(value)


def _unchanged(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)


_FIGURES: Final[Mapping[str, tuple[str, Callable[[object], str]]]] = {
    "size": ("file and external data", _mebibytes),
    "params": ("parameters", _count),
    "macs": ("MACs", _count),
    "macs_contraction": ("MACs of contractions", _count),
    "backward_macs": ("backward MACs", _count),
    "weight_bytes": ("weights", _mebibytes),
    "memory": ("memory", _mebibytes),
    "peak_activation_bytes": ("peak of activations", _mebibytes),
    "nodes": ("nodes", _count),
    "qdq_nodes": ("(De)QuantizeLinear nodes", _count),
    "max_memory_node": ("node with the most memory", _unchanged),
    "integer_mac_share": ("contractions in integers", _share),
    "input_shapes": ("shapes of inputs", _unchanged),
    "assumed": ("assumed lengths", _unchanged),
    "uncosted_ops": ("nodes without known MACs", _unchanged),
}
"""Key in the file -> its name, the same as in ``otel-quant cost``, and its format."""
