"""Prints the static cost of models from a profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from otel_quant.views.former_document import Facts
from otel_quant.views.text import listed

_MIB: Final = 1 << 20
_RATIO: Final = "_ratio"
_SIZES: Final = ("size", "weight_bytes")
_PRECISION: Final = "precision."


def with_ratios(costs: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """Returns costs, each quantized model with the ratio of its sizes to those of its float model."""
    found: list[dict[str, object]] = []
    before: Mapping[str, object] = {}
    for cost in costs:
        entry = dict(cost)
        if cost.get("role") == "float":
            before = cost
        elif cost.get("role") == "quantized":
            for key in _SIZES:
                now, then = cost.get(key), before.get(key)
                if isinstance(now, int) and isinstance(then, int) and 0 < then < 1 << 64 > now:
                    entry[key + _RATIO] = round(now / then, 4)
        found.append(entry)
    return found


def cost_facts(cost: Mapping[str, object]) -> Facts:
    """Returns the cost of one model, with one row for each figure."""
    heading = cost.get("role") or cost.get("path") or "model"
    hidden = {"role", *(key + _RATIO for key in _SIZES)}
    rows = []
    for key, value in cost.items():
        if key in hidden or isinstance(value, dict):
            continue
        name, text = _line(key, value)
        ratio = cost.get(key + _RATIO)
        rows.append((name, f"{text}, {_share(ratio)} of the float model's" if ratio else text))
    return Facts(tuple(rows), f"model cost: {heading}")


def _line(key: str, value: object) -> tuple[str, str]:
    if key.startswith(_PRECISION):
        return f"contractions in {key.removeprefix(_PRECISION)}", _share(value)
    name, shown = _FIGURES.get(key, (key, listed))
    return name, shown(value)


def _count(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else listed(value)


def _mebibytes(value: object) -> str:
    if isinstance(value, int) and value < 1 << 64:  # a larger integer may not fit into a float
        return f"{value / _MIB:,.2f} MiB"
    return listed(value)


def _share(value: object) -> str:
    return f"{100 * value:.2f} %" if isinstance(value, int | float) else listed(value)


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
    "max_memory_node": ("node with the most memory", listed),
    "integer_mac_share": ("contractions in integers", _share),
    "input_shapes": ("shapes of inputs", listed),
    "assumed": ("assumed lengths", listed),
    "uncosted_ops": ("nodes without known MACs", listed),
}
"""Key in the file -> its name, the same as in ``otel-quant cost``, and its format."""
