"""Costs as a table, Markdown, CSV or JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from otel_quant.cost import ModelCost
from otel_quant.views.cost_comparison import (
    CSV_COLUMNS,
    as_cells,
    as_csv_rows,
    as_json,
    compare,
)
from otel_quant.views.cost_listing import in_order, listing, module_costs
from otel_quant.views.cost_rows import (
    TOTALS,
    Cell,
    GroupCost,
    counted,
)
from otel_quant.views.former_table import markdown_lines, markdown_text, table_lines
from otel_quant.views.text import printable

SCHEMA: Final = 2
"""Version of the JSON contract: raised when a key changes its meaning or goes away."""

_LINE_DEPTH: Final = 4
"""How deep in the document a node is: document, models, model, nodes."""


class Choices(NamedTuple):
    """What the user wants to see."""

    # ``node``, ``op``, ``module``, ``tensor``, ``total`` or ``comparison``; None for what the
    # format shows unasked
    by: str | None = None
    sort: str | None = None  # ``macs``, ``memory``, ``params`` or ``order``; None likewise
    top: int | None = None  # How many nodes or operators; None for all
    compared: bool = True  # Whether models after the first are compared with it


def report(models: Sequence[ModelCost], form: str, choices: Choices) -> Iterator[str]:
    """Renders costs, piece by piece: a model may have many nodes."""
    return _FORMATS[form](models, choices)


class _Section(NamedTuple):
    """A table with a heading, for any renderer."""

    heading: str  # What it is
    header: Sequence[str]  # Names of the columns; empty for pairs of name and value
    rows: Iterable[Sequence[str]]  # Cells
    left: int = 1  # Columns, from the first, aligned to the left
    note: str = ""  # What to say below; may be empty
    intro: Sequence[str] = ()  # Lines to begin with


_LISTED: Final = {
    "node": "per node",
    "op": "per operator",
    "module": "per module",
    "tensor": "per tensor",
}


def _sections(model: ModelCost, choices: Choices) -> Iterator[_Section]:
    for by in (choices.by,) if choices.by else ("node", "op", "total"):
        if by in _LISTED:
            found = listing(model, by, choices.sort)
            header = [column.heading for column in found.columns]
            left_out = len(found.costs) - (choices.top or len(found.costs))
            note = f"({left_out:,} more)" if left_out > 0 else ""
            yield _Section(_LISTED[by], header, found.rows(choices.top, _shown), found.left, note)
        elif by == "total":
            pairs = [
                (column.heading, _shown(value, False))
                for column in TOTALS
                if column.key not in _SAID_ELSEWHERE
                and ((value := column.value(model)) or column.key not in _ONLY_IF_ANY)
            ]
            yield _Section("total", (), [*pairs, *_unknown_nodes(model)])


def _shown(value: Cell, share: bool) -> str:
    if value is None:
        return "-" if share else "?"
    if share:
        return f"{100 * float(value):.2f}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else value


_SHOWN_ASSUMPTIONS: Final = 20
"""Lines of assumptions with which a report begins."""


def assumptions(model: ModelCost) -> list[str]:
    """Returns what was assumed of a model's inputs, a line for each option that sets it."""
    by_option: dict[str, list[str]] = {}
    for each in model.assumed:
        by_option.setdefault(each.option, []).append(f"{each.name} = {each.length}")
    lines = [
        f"assumed {', '.join(lengths)}: {option} sets {'it' if len(lengths) == 1 else 'them'}"
        for option, lengths in by_option.items()
    ]
    left = len(lines) - _SHOWN_ASSUMPTIONS
    return lines if left < 1 else [*lines[:_SHOWN_ASSUMPTIONS], f"assumed as well: {left:,} more"]


def all_assumptions(models: Sequence[ModelCost]) -> list[str]:
    """Returns what was assumed of several models, each line with the model's path."""
    return [printable(f"{model.path}: {line}") for model in models for line in assumptions(model)]


def _intro(model: ModelCost) -> list[str]:
    """What a model's report begins with."""
    changed = ", ".join(
        f"{name} = {given} (model: {fixed})"
        for name, (fixed, given) in model.overridden_dims.items()
    )
    excluded = counted(model.excluded.items())
    return [
        *assumptions(model),
        *([f"overridden {changed}"] if changed else []),
        *([f"excluded {excluded}"] if excluded else []),
        *_in_float(model),
    ]


def _in_float(model: ModelCost) -> Iterator[str]:
    """Yields a line on the quantized nodes that are expected to run in float, if there are any."""
    causes = [
        f"{counted(each.ops.items())}, the first '{each.first}', because {each.reason}; "
        + (f"{each.remedy} would change it" if each.remedy else "nothing in the model changes it")
        for each in model.in_float
    ]
    if causes:
        count = sum(sum(each.ops.values()) for each in model.in_float)
        yield (
            f"{count:,} of {model.quantized_contractions:,} quantized contractions are expected to "
            f"run in float in onnxruntime, with memory for floats: {'. '.join(causes)}"
        )


_LACKS: Final = {"rule": "nodes without a rule", "shape": "nodes without a known shape"}


def _unknown_nodes(model: ModelCost) -> Iterator[tuple[str, str]]:
    """Yields what the totals leave out, each with the first node, why, and what helps."""
    if model.unsized_tensors and not model.unknown_nodes:  # else theirs is the reason
        reason = next((node.unknown_reason for node in model.nodes if node.unknown_reason), None)
        if reason is not None:
            yield "first of unknown size", reason
    for each in model.unknown_nodes:
        yield _LACKS[each.lack], counted(each.ops.items())
        reason = each.reason
        if f"'{each.first}'" not in reason:
            reason = f"node '{each.first}', because of {reason}"
        if each.lack == "shape" and model.assumed and "--" not in reason:
            reason += f"; lengths were assumed: {model.assumed[0].option} sets the first"
        yield "  the first", reason


_SAID_ELSEWHERE: Final = frozenset({"symbolic_dims", "overridden_dims", "uncosted_ops"})
"""Totals that tables have in words, at the beginning or the end."""

_ONLY_IF_ANY: Final = frozenset(
    {
        "max_memory_node",
        "max_memory_node_bytes",
        "precision",
        "quantize_nodes",
        "dequantize_nodes",
        "unsized_tensors",
        "unused_params",
        "unused_weight_bytes",
    }
)
"""Totals not worth a line when there are none."""


def _comparisons(models: Sequence[ModelCost], choices: Choices) -> Iterator[_Section]:
    if choices.compared:
        for after in models[1:]:
            yield _Section(
                f"{models[0].path} -> {after.path} (view: {after.view})",
                ("", "BEFORE", "AFTER", "CHANGE"),
                [as_cells(item) for item in compare(models[0], after)],
                intro=_intro_of_both(models[0], after) if choices.by == "comparison" else (),
            )


def _intro_of_both(before: ModelCost, after: ModelCost) -> list[str]:
    return [f"{model.path}: {line}" for model in (before, after) for line in _intro(model)]


def _shown_alone(models: Sequence[ModelCost], choices: Choices) -> Sequence[ModelCost]:
    return () if choices.by == "comparison" else models


def _with_blank_lines(parts: Iterable[Iterable[str]]) -> Iterator[str]:
    for i, part in enumerate(parts):
        if i:
            yield "\n"
        yield from part


def _as_table(models: Sequence[ModelCost], choices: Choices) -> Iterator[str]:
    return _with_blank_lines(_table_parts(models, choices))


def _table_parts(models: Sequence[ModelCost], choices: Choices) -> Iterator[Iterable[str]]:
    for model in _shown_alone(models, choices):
        title = f"{model.path} (rules: {model.rules}, view: {model.view})"
        yield _lines([title, *_intro(model)])
        for section in _sections(model, choices):
            yield _table_section(section)
    for section in _comparisons(models, choices):
        yield chain(_lines([section.heading, *section.intro]), ["\n"], _table_section(section))


def _lines(texts: Iterable[str]) -> Iterator[str]:
    return (f"{printable(text)}\n" for text in texts)


def _table_section(section: _Section) -> Iterator[str]:
    if not section.header:
        pairs = list(section.rows)
        width = max(len(name) for name, _ in pairs)
        return _lines(f"{name:{width}}  {value}" for name, value in pairs)
    note = _lines([section.note] if section.note else [])
    return chain(table_lines(section.header, section.rows, left=section.left), note)


def _as_markdown(models: Sequence[ModelCost], choices: Choices) -> Iterator[str]:
    return _with_blank_lines(_markdown_parts(models, choices))


def _markdown_parts(models: Sequence[ModelCost], choices: Choices) -> Iterator[Iterable[str]]:
    for model in _shown_alone(models, choices):
        rules = f"Rules: {model.rules}, view: {model.view}\n"
        yield [f"## {markdown_text(model.path)}\n\n", *_paragraphs(_intro(model)), rules]
        for section in _sections(model, choices):
            yield chain([f"### {section.heading.capitalize()}\n\n"], _markdown_section(section))
    for section in _comparisons(models, choices):
        title = [f"## {markdown_text(section.heading)}\n\n", *_paragraphs(section.intro)]
        yield chain(title, _markdown_section(section))


def _paragraphs(texts: Iterable[str]) -> Iterator[str]:
    return (f"{markdown_text(text)}\n\n" for text in texts)


def _markdown_section(section: _Section) -> Iterator[str]:
    yield from markdown_lines(section.header or ("", ""), section.rows, left=section.left)
    if section.note:
        yield f"\n{markdown_text(section.note)}\n"


def _as_csv(models: Sequence[ModelCost], choices: Choices) -> Iterator[str]:
    from otel_quant.views.spreadsheet import (
        csv_lines,  # the other formats are not to wait for it
    )

    if choices.by == "comparison":
        compared = (row for after in models[1:] for row in as_csv_rows(models[0], after))
        return csv_lines(CSV_COLUMNS, compared)
    header, rows = _csv_rows(models, choices)
    return csv_lines(("model", *header), rows)


def _csv_rows(
    models: Sequence[ModelCost], choices: Choices
) -> tuple[list[str], Iterator[tuple[Cell, ...]]]:
    if choices.by == "total":
        return (
            [column.key for column in TOTALS],
            ((model.path, *(column.value(model) for column in TOTALS)) for model in models),
        )
    by = choices.by or "node"
    found = [listing(model, by, choices.sort, indented=False) for model in models]
    return (
        [column.key for column in found[0].columns],
        (
            (model.path, *cells)
            for model, lines in zip(models, found, strict=True)
            for cells in lines.rows(choices.top, _unchanged)
        ),
    )


def _unchanged(value: Cell, share: bool) -> Cell:
    return value


def _as_json(models: Sequence[ModelCost], choices: Choices) -> Iterator[str]:
    import json

    document: dict[str, object] = {
        "schema": SCHEMA,
        "models": [_json_model(model, choices) for model in models],
    }
    if len(models) > 1 and choices.compared:
        document["comparison"] = [as_json(models[0], after) for after in models[1:]]
    yield from _laid_out(document, json.dumps)
    yield "\n"


def _laid_out(value: object, dumps: Callable[[object], str], depth: int = 0) -> Iterator[str]:
    """Yields JSON with one line per node: a line per number would be thousands of lines."""
    if depth == _LINE_DEPTH or not value or not isinstance(value, dict | list | map):
        yield dumps(value)
        return
    items = value.items() if isinstance(value, dict) else ((None, item) for item in value)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    separator = opening
    for key, item in items:
        yield separator + "\n" + "  " * (depth + 1)
        if key is not None:
            yield f"{dumps(key)}: "
        yield from _laid_out(item, dumps, depth + 1)
        separator = ","
    yield f"\n{'  ' * depth}{closing}"


def _json_model(model: ModelCost, choices: Choices) -> dict[str, object]:
    nodes = in_order(model.nodes, choices.sort or "order")[: choices.top]
    document: dict[str, object] = model._replace(nodes=()).to_json_dict()
    if nodes:
        document["nodes"] = map(model.node_json, nodes)  # one at a time: there may be many
    if choices.by == "module":
        modules = module_costs(model, choices.sort)[: choices.top]
        document["modules"] = [_json_module(module) for module in modules]
    return document


def _json_module(module: GroupCost) -> dict[str, object]:
    return {
        "module": module.name,
        "nodes": module.nodes,
        "macs": module.macs,
        "params": module.params,
        "memory_bytes": module.memory_bytes,
        "intensity": module.intensity,
    }


_FORMATS: Final[Mapping[str, Callable[[Sequence[ModelCost], Choices], Iterator[str]]]] = {
    "table": _as_table,
    "markdown": _as_markdown,
    "csv": _as_csv,
    "json": _as_json,
}
