"""The graph of an ONNX model, coloured by a figure of its layers: a picture, or node data of Google's Model Explorer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from operator import attrgetter
from typing import Any, Final

from otel_quant.cost import CostError
from otel_quant.cost.graph import GraphNode, node_name, printable, read_graph
from otel_quant.inference.results import InferenceResult, grouped
from otel_quant.views.document import UnitCell
from otel_quant.views.layers_beside import VERDICTS, Beside, Pair
from otel_quant.views.text import cell_text

FIGURES: Final[Mapping[str, tuple[Callable[[Pair], Any], str | None]]] = {
    "time": (lambda pair: pair.after and pair.after.micros * 1e-6, "s"),
    "change": (attrgetter("ratio"), "x"),
    "weights": (lambda pair: pair.after and pair.after.weights, "By"),
    "activations": (lambda pair: pair.after and pair.after.activations, "By"),
    "error": (attrgetter("error"), "dB"),
    "type": (attrgetter("type"), None),
    "verdict": (attrgetter("verdict"), None),
}
"""What a graph may be coloured by: its unit, None of texts."""

_IS_WORSE: Final = frozenset({"change", "error", "verdict"})
_MOST_NODES: Final = 5000
_MOST_BOXES: Final = 60
_LONGEST: Final = 120
_WIDE, _HIGH, _APART = 210, 38, 26
_SHADES: Final = ("#eef3fa", "#c9dbf1", "#94b7e2", "#4f83c4", "#1f4f96")
_STYLE: Final = f"""text {{ font: 12px system-ui, sans-serif; fill: #1d2024 }} path {{ fill: none }}
rect, path {{ stroke: #8a9099 }} svg {{ background: #fdfdfc; max-width: 100%; height: auto }} .sNone {{ fill: #fdfdfc }} .s3 + text, .s4 + text {{ fill: #fff }}
{" ".join(f".s{i} {{ fill: {shade} }}" for i, shade in enumerate(_SHADES))}
@media (prefers-color-scheme: dark) {{ svg {{ background: #15171a }} .sNone {{ fill: #15171a }} .title, .sNone + text {{ fill: #e3e5e8 }} }}"""


def graph_text(result: InferenceResult, name: str, *, is_picture: bool) -> str:
    """Returns the first model's graph, coloured by a figure of the last one: as SVG, or as JSON by the nodes' names."""
    first, model, (figure, unit) = result.first, result.models[-1], FIGURES[name]
    nodes, beside = read_graph(first.path).nodes, Beside(first, model)
    title = f"{name} of {model.path}"
    layers, edges = _layers(nodes, set(beside.names))
    shades = reversed(_SHADES) if name == "error" else _SHADES
    if not is_picture:
        known = {each: figure(beside.pair(each, [each])) for each in layers}
        gradient = [{"stop": i / 4, "bgColor": shade} for i, shade in enumerate(shades)]
        found = {each: {"value": value} for each, value in known.items() if value is not None}
        return json.dumps({"name": title, "results": found, "gradient": gradient if unit else []})
    if len(nodes) > _MOST_NODES:
        why = f"it has {len(nodes):,} nodes, and a picture takes {_MOST_NODES:,}"
        raise CostError(first.path, why, expected="FILE.json, for Model Explorer")
    boxes = _folded(layers)
    of = {layer: box for box, those in boxes.items() for layer in those}
    values = {box: figure(beside.pair(box, those)) for box, those in boxes.items()}
    ranked: list[Any] = sorted({*values.values()} - {None}, reverse=name == "error")
    ranked = [each for each in VERDICTS if each in ranked] if name == "verdict" else ranked
    shade_of = {value: i * len(_SHADES) // len(ranked) for i, value in enumerate(ranked)}
    shown = {
        box: (cell_text(UnitCell(it, unit) if unit else it), shade_of.get(it))
        for box, it in values.items()
    }
    more = "worse" if name in _IS_WORSE else "more"
    darker = "" if name == "type" else f": the darker, the {more}"
    return _picture(title + darker, shown, {(of[a], of[b]) for a, b in edges if of[a] != of[b]})


def _layers(nodes: Sequence[GraphNode], known: set[str]) -> tuple[list[str], set[tuple[str, str]]]:
    """Returns the layers of a file and what each reads of which; what has no row belongs to what is in front."""
    homes: dict[str, str] = {}
    edges = set[tuple[str, str]]()
    for node in nodes:
        front = [homes[each] for each in node.inputs if each in homes]
        name = printable(node_name(node), _LONGEST)
        if own := name if name in known else next(iter(front), ""):
            homes |= dict.fromkeys(node.outputs, own)
            edges |= {(each, own) for each in front if each != own}
    return list(dict.fromkeys(homes.values())), edges


def _folded(layers: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """Returns layers by module, as deep as there is room for."""
    parts = {name: [each for each in re.split(r"[/.]", name) if each] for name in layers}
    depth = max(map(len, parts.values()), default=1)
    while depth > 1 and len({tuple(each[:depth]) for each in parts.values()}) > _MOST_BOXES:
        depth -= 1
    return grouped(layers, lambda name: "/".join(parts[name][:depth]))


def _picture(
    title: str, boxes: Mapping[str, tuple[str, int | None]], edges: set[tuple[str, str]]
) -> str:
    """Returns boxes of texts in shades, each below what it reads."""
    level: dict[str, int] = {}
    for box in boxes:
        level[box] = 1 + max((level[a] for a, b in edges if b == box and a in level), default=-1)
    rows, step = grouped(boxes, level.__getitem__), _HIGH + _APART
    width = max(700, (_WIDE + _APART) * (1 + max(map(len, rows.values()), default=0)))
    at: dict[str, tuple[float, int]] = {}
    for row, those in rows.items():
        left = (width - (len(those) - 1) * (_WIDE + _APART)) / 2
        at |= {box: (left + i * (_WIDE + _APART), 50 + row * step) for i, box in enumerate(those)}
    size = f'width="{width}" viewBox="0 0 {width} {50 + len(rows) * step}"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{_STYLE}</style>']
    lines.append(f'<text class="title" x="{_APART}" y="26">{escape(title)}</text>')
    for (x, y), (to_x, to_y) in ((at[a], at[b]) for a, b in sorted(edges)):
        aside = 0 if to_y - y == step else 0.8 * _WIDE
        bend = f"{x + aside} {y + step} {to_x + aside} {to_y - _APART}"
        lines.append(f'<path d="M{x} {y + _HIGH}C{bend} {to_x} {to_y}"/>')
    for box, (x, y) in at.items():
        text, shade = boxes[box]
        place = f'x="{x - _WIDE / 2}" y="{y}" width="{_WIDE}" height="{_HIGH}"'
        name, tip = box if len(box) <= _HIGH else f"…{box[1 - _HIGH :]}", escape(f"{box}: {text}")
        words = f'{escape(name)}<tspan x="{x}" dy="15">{escape(text)}</tspan>'
        lines.append(f'<g><title>{tip}</title><rect class="s{shade}" rx="4" {place}/>')
        lines.append(f'<text x="{x}" y="{y + 16}" text-anchor="middle">{words}</text></g>')
    return "\n".join((*lines, "</svg>\n"))
