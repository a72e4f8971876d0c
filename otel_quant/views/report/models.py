"""The models before and after: what quantization bought."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from otel_quant.recordings.model import Recording, number
from otel_quant.schema.units import counted, cut
from otel_quant.views.document import Cell, Column, Lines, Quantity, Section, Shares, Table
from otel_quant.views.report.attributes import value_text

_ROLES: Final = ("float", "quantized")
_PRECISION: Final = "precision."
_LONGEST_NAME: Final = 120
_MOST_LAYERS: Final = 6


_FIGURES: Final = (
    ("Size of the file", "size", "By"),
    ("Parameters", "params", "M"),
    ("Weights", "weight_bytes", "By"),
    ("MACs", "macs", "M"),
    ("MACs of contractions", "macs_contraction", "M"),
    ("Peak of activations", "peak_activation_bytes", "By"),
    ("Nodes", "nodes", "M"),
    ("QuantizeLinear and DequantizeLinear", "qdq_nodes", "M"),
    ("MACs in int8 or narrower", "integer_mac_share", "1"),
)


def models_of(recording: Recording) -> Iterator[Section]:
    """Yields what is known of the models; nothing if none was costed.

    The last model of each role counts, as on the run's span.
    """
    every = [model for run in recording.runs for model in run.models]
    if not every:
        return
    last = {str(model.get("role")): model for model in every}
    roles = [role for role in (*_ROLES, *last) if role in last]
    models = {role: last[role] for role in dict.fromkeys(roles)}
    mixes = [_mix(role, model) for role, model in models.items()]
    layers = [table for role, model in models.items() for table in _layers(role, model)]
    yield Section(
        "Models",
        (
            _comparison(models),
            *(mix for mix in mixes if mix.rows),
            Lines(tuple(_notes(models, len(every)))),
            Section("", layers, layout="pairs"),
        ),
    )


def _figures(model: Mapping[str, Any]) -> Mapping[str, Any]:
    figures = model.get("figures")
    return figures if isinstance(figures, Mapping) else {}


def _comparison(models: Mapping[str, Mapping[str, Any]]) -> Table:
    has_both = set(_ROLES) <= models.keys()
    headings = {"float": "Before (float)", "quantized": "After (quantized)"}
    columns = [Column[Any]("Model")]
    columns += [Column(headings.get(role, cut(role, _LONGEST_NAME)), "") for role in models]
    columns += [Column("Change", "")] if has_both else []
    rows = []
    for name, key, unit in _FIGURES:
        values = {role: number(_figures(model), key) for role, model in models.items()}
        if any(value is not None for value in values.values()):
            cells: list[Cell] = [name, *(Quantity(value, unit) for value in values.values())]
            cells += [_change(values["float"], values["quantized"])] if has_both else []
            rows.append(cells)
    return Table(columns, rows, id="models", caption="Models", is_sortable=False)


def _change(before: float | None, after: float | None) -> str:
    if not before or after is None:
        return ""
    if before == after:
        return "the same"
    ratio = f"{after / before:.3g}"
    return "nearly the same" if ratio == "1" else f"x {ratio}"


def _mix(role: str, model: Mapping[str, Any]) -> Shares:
    """Returns in which types a model's MACs execute."""
    found = [
        (cut(str(name).removeprefix(_PRECISION), 20), share)
        for name in _figures(model)
        if str(name).startswith(_PRECISION) and (share := number(_figures(model), name)) is not None
    ]
    found.sort(key=lambda pair: -pair[1])
    return Shares(f"MACs of the {role} model by type", found)


def _layers(role: str, model: Mapping[str, Any]) -> Iterator[Table]:
    nodes = [node for node in model.get("heaviest") or () if isinstance(node, Mapping)]
    for key, caption, last in _LAYERS:
        known = [node for node in nodes if number(node, key)]
        known.sort(key=lambda node: -(number(node, key) or 0))
        if known:
            yield Table.of(
                (*_LAYER, last),
                known[:_MOST_LAYERS],
                id=f"layers-{role}-{key}",
                caption=f"Layers with the {caption}, {role} model",
            )


def _text(name: str) -> Callable[[Mapping[str, Any]], Cell]:
    return lambda node: cut(str(node.get(name, "")), _LONGEST_NAME)


def _number(name: str) -> Callable[[Mapping[str, Any]], Cell]:
    return lambda node: number(node, name)


_LAYER: Final = (
    Column[Mapping[str, Any]]("Layer", None, _text("name")),
    Column[Mapping[str, Any]]("Operator", None, _text("op_type")),
    Column[Mapping[str, Any]]("Type", None, _text("precision")),
)
_LAYERS: Final = (
    ("macs", "most MACs", Column("MACs", "", _number("macs"), shown_in="M", digits=1)),
    (
        "memory_bytes",
        "largest memory",
        Column("Memory", "By", _number("memory_bytes"), shown_in="MB", digits=2, title="estimated"),
    ),
)


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
