"""The models before and after: what quantization bought."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from otel_quant.recordings.model import Recording, number
from otel_quant.schema.units import MB, count_text, counted, cut, share_text, size
from otel_quant.views.report.attributes import value_text
from otel_quant.views.report.tables import Column, PageTable, Row

_ROLES: Final = ("float", "quantized")
_PRECISION: Final = "precision."
_LONGEST_NAME: Final = 120
_LAYERS: Final = 6


@dataclass(frozen=True, slots=True)
class Mix:
    """In which types a model's MACs execute."""

    role: str  # The model's role
    # Type, share in percent and where its part of a bar begins, in percent
    shares: tuple[tuple[str, float, float], ...]
    text: str  # The same in words


@dataclass(frozen=True, slots=True)
class ModelsPart:
    """What a report says of the models."""

    comparison: PageTable  # Their figures side by side
    mixes: tuple[Mix, ...]  # The precision mix of each
    layers: tuple[PageTable, ...]  # Tables of the heaviest layers
    notes: tuple[str, ...]  # What was assumed, left out, or could not be costed


_FIGURES: Final[tuple[tuple[str, str, Callable[[float], str]], ...]] = (
    ("Size of the file", "size", size),
    ("Parameters", "params", count_text),
    ("Weights", "weight_bytes", size),
    ("MACs", "macs", count_text),
    ("MACs of contractions", "macs_contraction", count_text),
    ("Peak of activations", "peak_activation_bytes", size),
    ("Nodes", "nodes", count_text),
    ("QuantizeLinear and DequantizeLinear", "qdq_nodes", count_text),
    ("MACs in int8 or narrower", "integer_mac_share", share_text),
)


def models_of(recording: Recording) -> ModelsPart | None:
    """Returns what is known of the models; None if none was costed.

    The last model of each role counts, as on the run's span.
    """
    every = [model for run in recording.runs for model in run.models]
    if not every:
        return None
    last = {str(model.get("role")): model for model in every}
    roles = [role for role in (*_ROLES, *last) if role in last]
    models = {role: last[role] for role in dict.fromkeys(roles)}
    return ModelsPart(
        _comparison(models),
        tuple(mix for role, model in models.items() if (mix := _mix(role, model)).shares),
        tuple(table for role, model in models.items() for table in _layers(role, model)),
        tuple(_notes(models, len(every))),
    )


def _figures(model: Mapping[str, Any]) -> Mapping[str, Any]:
    figures = model.get("figures")
    return figures if isinstance(figures, Mapping) else {}


def _comparison(models: Mapping[str, Mapping[str, Any]]) -> PageTable:
    has_both = set(_ROLES) <= models.keys()
    headings = {"float": "Before (float)", "quantized": "After (quantized)"}
    columns = [Column("Model", is_text=True)]
    columns += [Column(headings.get(role, cut(role, _LONGEST_NAME))) for role in models]
    columns += [Column("Change")] if has_both else []
    rows = []
    for name, key, shown in _FIGURES:
        values = {role: number(_figures(model), key) for role, model in models.items()}
        if all(value is None for value in values.values()):
            continue
        cells = [name, *("" if value is None else shown(value) for value in values.values())]
        if has_both:
            cells.append(_change(values["float"], values["quantized"]))
        rows.append(Row(tuple(cells)))
    return PageTable(
        "models", "Models before and after", tuple(columns), tuple(rows), is_sortable=False
    )


def _change(before: float | None, after: float | None) -> str:
    if not before or after is None:
        return ""
    if before == after:
        return "the same"
    ratio = f"{after / before:.3g}"
    return "nearly the same" if ratio == "1" else f"x {ratio}"


def _mix(role: str, model: Mapping[str, Any]) -> Mix:
    found = sorted(
        (
            (str(name).removeprefix(_PRECISION), 100 * share)
            for name in _figures(model)
            if str(name).startswith(_PRECISION)
            and (share := number(_figures(model), name)) is not None
        ),
        key=lambda pair: -pair[1],
    )
    shares, begin = [], 0.0
    for kind, share in found:
        shares.append((kind, round(share, 2), round(begin, 2)))
        begin += share
    words = ", ".join(f"{cut(kind, 20)} {share_text(share / 100)}" for kind, share in found)
    return Mix(role, tuple(shares), words)


def _layers(role: str, model: Mapping[str, Any]) -> Iterator[PageTable]:
    nodes = [node for node in model.get("heaviest") or () if isinstance(node, Mapping)]
    for key, caption in (("macs", "most MACs"), ("memory_bytes", "largest memory")):
        known = [node for node in nodes if number(node, key)]
        known.sort(key=lambda node: -(number(node, key) or 0))
        if known:
            yield PageTable(
                f"layers-{role}-{key}",
                f"Layers with the {caption}, {role} model",
                (*_LAYER_COLUMNS, _MACS if key == "macs" else _MEMORY),
                tuple(_layer(node, key) for node in known[:_LAYERS]),
            )


_LAYER_COLUMNS: Final = (
    Column("Layer", is_text=True),
    Column("Operator", is_text=True),
    Column("Type", is_text=True),
)
_MACS: Final = Column("MACs", "M")
_MEMORY: Final = Column("Memory", "MB", title="estimated")


def _layer(node: Mapping[str, Any], key: str) -> Row:
    value = number(node, key) or 0.0
    texts = (
        cut(str(node.get(name, "")), _LONGEST_NAME) for name in ("name", "op_type", "precision")
    )
    figure = f"{value / 1e6:,.1f}" if key == "macs" else f"{value / MB:,.2f}"
    return Row((*texts, figure))


def _notes(models: Mapping[str, Mapping[str, Any]], count: int) -> Iterator[str]:
    for role, model in models.items():
        figures = _figures(model)
        said = [cut(str(model["path"]), _LONGEST_NAME)] if model.get("path") else []
        said += [
            f"{words} {cut(value_text(figures[key]), 300)}"
            for key, words in _SAID.items()
            if figures.get(key)
        ]
        if said:
            yield f"{role.capitalize()} model: {'; '.join(said)}."
        if model.get("error"):
            yield f"The {role} model could not be costed: {cut(str(model['error']), 300)}"
    if count > len(models):
        yield f"{counted(count - len(models), 'earlier model')} left out: the last of each role counts."


_SAID: Final[Mapping[str, str]] = {
    "input_shapes": "for inputs of",
    "assumed": "assumed",
    "uncosted_ops": "without known costs",
}
