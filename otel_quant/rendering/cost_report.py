"""Costs as a table, Markdown, CSV or JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from otel_quant.cost import ModelCost
from otel_quant.rendering.cost_comparison import (
    CSV_COLUMNS,
    as_cells,
    as_csv_rows,
    as_json,
    compare,
)
from otel_quant.rendering.cost_modules import module_lines
from otel_quant.rendering.cost_rows import (
    TENSOR_COLUMNS,
    TOTALS,
    Cell,
    Column,
    Line,
    counted,
    module_columns,
    node_columns,
    node_lines,
    op_columns,
    op_lines,
    sorted_nodes,
    tensor_lines,
)
from otel_quant.rendering.markdown import markdown_table, markdown_text
from otel_quant.rendering.table import printable, table

SCHEMA: Final = 2
"""Version of the JSON contract: raised when a key changes its meaning or goes away."""

_LINE_DEPTH: Final = 4
"""How deep in the document a node is: document, models, model, nodes."""


class Choices(NamedTuple):
    """What the user wants to see.

    Attributes:
        by: ``node``, ``op``, ``module``, ``tensor``, ``total`` or ``comparison``; None for what the format shows
            unasked.
        sort: ``macs``, ``memory``, ``params`` or ``order``; None likewise.
        top: How many nodes or operators; None for all.
        compared: Whether models after the first are compared with it.
    """

    by: str | None = None
    sort: str | None = None
    top: int | None = None
    compared: bool = True


def report(models: Sequence[ModelCost], form: str, choices: Choices) -> str:
    """Renders costs.

    Args:
        models: At least one.
        form: ``table``, ``markdown``, ``csv`` or ``json``.
        choices: What to show.

    Returns:
        Text that ends with a line break.
    """
    return _FORMATS[form](models, choices)


class _Section(NamedTuple):
    """A table with a heading, for any renderer.

    Attributes:
        heading: What it is.
        header: Names of the columns; empty for pairs of name and value.
        rows: Cells.
        left: Columns, from the first, aligned to the left.
        note: What to say below; may be empty.
        intro: Lines to begin with.
    """

    heading: str
    header: Sequence[str]
    rows: Iterable[Sequence[str]]
    left: int = 1
    note: str = ""
    intro: Sequence[str] = ()


def _sections(model: ModelCost, choices: Choices) -> Iterator[_Section]:
    by, sort = choices.by, choices.sort or "macs"
    if by in (None, "node"):
        columns = node_columns(sparsity=model.sparsity is not None)
        lines = node_lines(model, sort, choices.top)
        rows = _texts(columns, lines)
        yield _Section(
            "per node", _headings(columns), rows, 2, _left_out(len(model.nodes) - len(lines))
        )
    if by in (None, "op"):
        lines = op_lines(model, sort, choices.top)
        note = _left_out(len(model.op_counts) - len(lines))
        yield _Section(
            "per operator", _headings(op_columns()), _texts(op_columns(), lines), 1, note
        )
    if by == "module":
        every = module_lines(model, choices.sort or "order", None)
        lines = every[: choices.top]
        columns = module_columns(indented=True)
        note = _left_out(len(every) - len(lines))
        yield _Section("per module", _headings(columns), _texts(columns, lines), 1, note)
    if by == "tensor":
        tensors = tensor_lines(model, choices.sort, choices.top)
        left = len(model.tensors or ()) - len(tensors)
        rows = _texts(TENSOR_COLUMNS, tensors)
        yield _Section("per tensor", _headings(TENSOR_COLUMNS), rows, 3, _left_out(left))
    if by in (None, "total"):
        pairs = [
            (column.heading, _shown(value, column.share))
            for column in TOTALS
            if column.key not in _SAID_ELSEWHERE
            and ((value := column.value(model)) or column.key not in _ONLY_IF_ANY)
        ]
        yield _Section("total", (), [*pairs, *_unknown_nodes(model)])


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
    ]


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


def _left_out(count: int) -> str:
    return f"({count:,} more)" if count else ""


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


_Row = TypeVar("_Row")


def _headings(columns: Sequence[Column[_Row]]) -> list[str]:
    return [column.heading for column in columns]


def _texts(columns: Sequence[Column[_Row]], lines: Sequence[_Row]) -> Iterator[tuple[str, ...]]:
    cells = [(column.value, column.share) for column in columns]
    for line in lines:  # one at a time: a model may have many nodes
        yield tuple(_shown(value(line), share) for value, share in cells)


def _shown(value: Cell, share: bool) -> str:
    if type(value) is int and not share:
        return f"{value:,}"
    if value is None:
        return "?" if not share else "-"
    if share and isinstance(value, float | int):
        return f"{100 * value:.2f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return str(value)


def _shown_alone(models: Sequence[ModelCost], choices: Choices) -> Sequence[ModelCost]:
    return () if choices.by == "comparison" else models


def _as_table(models: Sequence[ModelCost], choices: Choices) -> str:
    parts: list[str] = []
    for model in _shown_alone(models, choices):
        parts.append(
            f"{printable(model.path)} (rules: {model.rules}, view: {model.view})\n"
            f"{_lines(_intro(model))}"
        )
        parts += [_table_section(section) for section in _sections(model, choices)]
    for section in _comparisons(models, choices):
        intro = _lines(section.intro)
        parts.append(f"{printable(section.heading)}\n{intro}\n{_table_section(section)}")
    return "\n".join(parts)


def _lines(texts: Sequence[str]) -> str:
    return "".join(f"{printable(text)}\n" for text in texts)


def _table_section(section: _Section) -> str:
    if not section.header:
        pairs = list(section.rows)
        width = max(len(name) for name, _ in pairs)
        return "".join(f"{printable(f'{name:{width}}  {value}')}\n" for name, value in pairs)
    text = table(section.header, section.rows, left=section.left)
    return text + "".join(f"{printable(line)}\n" for line in section.note.split("\n") if line)


def _as_markdown(models: Sequence[ModelCost], choices: Choices) -> str:
    parts: list[str] = []
    for model in _shown_alone(models, choices):
        intro = _paragraphs(_intro(model))
        parts.append(
            f"## {markdown_text(model.path)}\n\n{intro}Rules: {model.rules}, view: {model.view}\n"
        )
        parts += [
            f"### {section.heading.capitalize()}\n\n{_markdown_section(section)}"
            for section in _sections(model, choices)
        ]
    for section in _comparisons(models, choices):
        intro = _paragraphs(section.intro)
        parts.append(f"## {markdown_text(section.heading)}\n\n{intro}{_markdown_section(section)}")
    return "\n".join(parts)


def _paragraphs(texts: Sequence[str]) -> str:
    return "".join(f"{markdown_text(text)}\n\n" for text in texts)


def _markdown_section(section: _Section) -> str:
    text = markdown_table(section.header or ("", ""), section.rows, left=section.left)
    return text + "".join(f"\n{markdown_text(line)}\n" for line in section.note.split("\n") if line)


def _as_csv(models: Sequence[ModelCost], choices: Choices) -> str:
    from otel_quant.rendering.spreadsheet import (
        csv_text,  # the other formats are not to wait for it
    )

    if choices.by == "comparison":
        return csv_text(
            CSV_COLUMNS,
            (row for after in models[1:] for row in as_csv_rows(models[0], after)),
        )
    header, rows = _csv_rows(models, choices)
    return csv_text(("model", *header), rows)


def _csv_rows(
    models: Sequence[ModelCost], choices: Choices
) -> tuple[list[str], Iterator[tuple[Cell, ...]]]:
    sort, top = choices.sort or "macs", choices.top
    if choices.by == "total":
        return (
            [column.key for column in TOTALS],
            ((model.path, *(column.value(model) for column in TOTALS)) for model in models),
        )
    if choices.by == "tensor":
        return (
            [column.key for column in TENSOR_COLUMNS],
            (
                (model.path, *(column.value(tensor) for column in TENSOR_COLUMNS))
                for model in models
                for tensor in tensor_lines(model, choices.sort, top)
            ),
        )
    if choices.by == "op":
        columns, lines_of = op_columns(), op_lines
    elif choices.by == "module":
        columns, lines_of = module_columns(indented=False), module_lines
        sort = choices.sort or "order"
    else:
        columns, lines_of = node_columns(sparsity=models[0].sparsity is not None), node_lines
    return (
        [column.key for column in columns],
        (
            (model.path, *(column.value(line) for column in columns))
            for model in models
            for line in lines_of(model, sort, top)
        ),
    )


def _as_json(models: Sequence[ModelCost], choices: Choices) -> str:
    import json

    document: dict[str, object] = {
        "schema": SCHEMA,
        "models": [_json_model(model, choices) for model in models],
    }
    if len(models) > 1 and choices.compared:
        document["comparison"] = [as_json(models[0], after) for after in models[1:]]
    return _laid_out(document, json.dumps) + "\n"


def _laid_out(value: object, dumps: Callable[[object], str], depth: int = 0) -> str:
    """Returns JSON with one line per node: a line per number would be thousands of lines."""
    if depth == _LINE_DEPTH or not value or not isinstance(value, dict | list):
        return dumps(value)
    indent = "\n" + "  " * (depth + 1)
    if isinstance(value, dict):
        items = [
            f"{dumps(key)}: {_laid_out(item, dumps, depth + 1)}" for key, item in value.items()
        ]
        opening, closing = "{}"
    else:
        items = [_laid_out(item, dumps, depth + 1) for item in value]
        opening, closing = "[]"
    return f"{opening}{indent}{f',{indent}'.join(items)}\n{'  ' * depth}{closing}"


def _json_model(model: ModelCost, choices: Choices) -> dict[str, object]:
    nodes = sorted_nodes(model, choices.sort or "order", choices.top)
    document: dict[str, object] = model._replace(nodes=nodes).to_json_dict()
    if choices.by == "module":
        lines = module_lines(model, choices.sort or "order", choices.top)
        document["modules"] = [_json_module(line) for line in lines]
    return document


def _json_module(line: Line) -> dict[str, object]:
    module = line.group
    return {
        "module": module.name,
        "nodes": module.nodes,
        "macs": module.macs,
        "params": module.params,
        "memory_bytes": module.memory_bytes,
        "intensity": module.intensity,
    }


_FORMATS: Final[Mapping[str, Callable[[Sequence[ModelCost], Choices], str]]] = {
    "table": _as_table,
    "markdown": _as_markdown,
    "csv": _as_csv,
    "json": _as_json,
}
