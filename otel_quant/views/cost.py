"""What models cost as a document: nodes, operators, modules or tensors, totals, and what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain, islice
from operator import attrgetter
from typing import Any, Final, NamedTuple

from otel_quant.cost import (
    AssumedBranch,
    ModelCost,
    NodeCost,
    TensorCost,
    WeightSparsity,
    intensity,
)
from otel_quant.schema.units import share_text, size, types_text
from otel_quant.views import document as doc
from otel_quant.views.text import NO_KERNEL, cell_text, phrase, precision_text, printable, share_of

SCHEMA: Final = 2
"""Version of the JSON contract: raised when a key changes its meaning or goes away."""

_MOST_ASSUMPTIONS: Final = 20  # Lines of assumptions with which a report begins
_LARGEST: Final = 3  # Nodes that a summary names


class Choices(NamedTuple):
    """What the user wants to see."""

    # ``node``, ``op``, ``module``, ``tensor``, ``total`` or ``comparison``; None for a summary, in CSV
    # for nodes
    by: str | None = None
    # ``macs``, ``memory``, ``params`` or ``order``; None for what the format has unasked
    sort: str | None = None
    top: int | None = None  # How many nodes or operators; None for all, of a summary for three
    compared: bool = True  # Whether models after the first are compared with it


def document(models: Sequence[ModelCost], choices: Choices) -> doc.Document:
    """Returns costs as a document. Its parts are made one by one: a model may have many nodes."""
    first, *others = _answers(models)
    return doc.Document(
        chain(doc.Lines.of(f"{each}." for each in others), _parts(models, choices)),
        first, "Costs of models", is_answer=True,
        sheet=lambda: _sheet(models, choices), data=lambda: _data(models, choices),
    )  # fmt: skip


def _answers(models: Sequence[ModelCost]) -> Iterator[str]:
    """Yields what a model costs, or of each further one what it takes of the first."""
    before, *others = models
    if not others:
        params, macs = (cell_text(each, "M") for each in (before.params, before.macs))
        least = "at least " * bool(before.uncosted_ops)
        text = f"{before.path} takes {size(before.file_bytes)} and has {params} parameters and {least}{macs} MACs"
        yield text + _expected(before)
    for after in others:
        ratio = share_of(after.file_bytes, before.file_bytes)
        part = phrase(", {} of {{}}", ratio, share_text).format(before.path)
        yield f"{after.path} takes {size(after.file_bytes)}{part}{_expected(after)}"


def _expected(model: ModelCost) -> str:
    """Returns how much of a model a runtime is expected to run in integers; empty where that is not known."""
    mix = model.expected_precision if model.runtime else {}
    if NO_KERNEL in mix:
        return (
            f"; {model.runtime} cannot load it: it has no kernel for the type of its contractions"
        )
    if mix and not model.quantized_contractions:
        asked, run = types_text(model.precision), types_text(mix)
        return f"; its contractions ask for {asked}, and are expected to run in {run}"
    integers = sum(share for name, share in mix.items() if name.strip("u").startswith("int"))
    text = "; {} of its contractions are expected to run in integers"
    return text.format(share_text(integers)) if mix else ""


def _parts(models: Sequence[ModelCost], choices: Choices) -> Iterator[doc.Part]:
    if models[1:] and choices.compared:
        rows = [(each.path.rpartition("/")[2], each) for each in models]
        of_files = [(f"{name}, file", each.file_bytes, 0) for name, each in rows]
        moved = ((f"{name}, bytes moved", each.memory_bytes, 0) for name, each in rows)
        yield doc.Bars([*of_files, *moved])
    for model in () if choices.by == "comparison" else models:
        title = f"{model.path} (rules: {model.rules}, view: {model.view})"
        yield doc.Section(title, chain(doc.Lines.of(_intro(model)), _of_model(model, choices)))
    for after in models[1:] if choices.compared else ():
        before = models[0]
        # Beside the models themselves their own sections have it.
        begun = (before, after) if choices.by == "comparison" else ()
        intro = doc.Lines.of(f"{each.path}: {line}" for each in begun for line in _intro(each))
        title = f"{before.path} -> {after.path} (view: {after.view})"
        yield doc.Section(title, (*intro, _comparison(before, after)))


def _of_model(model: ModelCost, choices: Choices) -> Iterator[doc.Part]:
    match choices.by:
        case None:
            yield doc.Facts([*_summary(model), *_unknown_nodes(model), *_largest(model, choices)])
        case "total":
            totals: list[tuple[str, doc.Cell]] = []
            for column in _LISTED_TOTALS:
                value = column.value(model)
                if column.key in _SIZES or value not in (0, ""):
                    totals.append((column.heading, "?" if value is None else value))
            yield doc.Facts([*totals, *_unknown_nodes(model)], caption="Total")
        case name:
            by = _BY[name]
            costs = by.costs(model, choices.sort)
            shown = costs[: choices.top]
            caption, note = f"Per {by.thing}", phrase("({:,} more)", len(costs) - len(shown), int)
            yield doc.Table.of(by.columns(model), shown, row=by.row, caption=caption, note=note)


def _summary(model: ModelCost) -> Iterator[tuple[str, doc.Cell]]:
    sizes = model.weight_bytes, model.memory_bytes, model.peak_activation_bytes
    weights, memory, alive = (cell_text(each, "By") for each in sizes)
    yield "MACs", f"{model.macs:,} ({model.macs_contraction:,} of contractions)"
    yield "parameters", f"{model.params:,} ({weights})"
    yield "bytes moved", f"{memory} of constants and results; activations at most {alive} at once"
    yield "nodes", f"{len(model.nodes):,} (--by node lists them)"


def _largest(model: ModelCost, choices: Choices) -> Iterator[tuple[str, doc.Cell]]:
    """Yields the nodes that cost most."""
    nodes: Sequence[NodeCost] = _sorted(model.nodes, choices.sort)
    for i, node in enumerate(nodes[: choices.top or _LARGEST], 1):
        share = phrase(" ({:.2f} %)", model.macs and 100 * (node.macs or 0) / model.macs, float)
        macs, memory = cell_text(node.macs) or "?", cell_text(node.memory_bytes, "By") or "?"
        yield f"largest node {i}", f"{node.name} ({node.op_type}): {macs} MACs{share}, {memory}"


# --- what was assumed ---------------------------------------------------------------------


def assumptions(model: ModelCost) -> list[str]:
    """Returns what was assumed of a model, a line for each option that sets lengths and each If."""
    by_option: dict[str, list[str]] = {}
    for each in model.assumed:
        by_option.setdefault(each.option, []).append(f"{each.name} = {each.length}")
    lines = [
        f"assumed {', '.join(lengths)}: {option} sets {'it' if len(lengths) == 1 else 'them'}"
        for option, lengths in by_option.items()
    ]
    for first, *others in filter(None, [model.assumed_full]):
        nodes = f"'{first}' (GroupQueryAttention){phrase(', as {} more,', len(others))}"
        lines.append(
            f"assumed that {nodes} attends to past and query together: how many keys there are is data"
        )
    lines += map(_branch, model.assumed_branches)
    return list(doc.Lines(lines).first(_MOST_ASSUMPTIONS).lines)


def _branch(each: AssumedBranch) -> str:
    both = each.macs, each.other_macs
    own, other = ("not known" if macs is None else f"{macs:,}" for macs in both)
    taken = f"assumed that If '{each.node}' takes its {each.taken} branch"
    option = phrase(": {} sets it", each.option)
    return f"{taken} (MACs: {own}; of the other: {other}){option}"


def all_assumptions(models: Sequence[ModelCost]) -> list[str]:
    """Returns what was assumed of several models, each line with the model's path."""
    return [printable(f"{model.path}: {line}") for model in models for line in assumptions(model)]


def _intro(model: ModelCost) -> list[str]:
    """What a model's report begins with."""
    reasons = [each.text for each in model.in_float]
    mixes = model.stored, model.precision, model.expected_precision
    types = precision_text(*mixes, model.runtime, reasons)
    texts = {
        "overridden": _overridden(model),
        "excluded": _counted(model.excluded),
        "types:": types if model.runtime else "",
        "left in float:": model.left_text,
    }
    return [*assumptions(model), *(f"{name} {text}" for name, text in texts.items() if text)]


def _overridden(model: ModelCost) -> str:
    return ", ".join(
        f"{name} = {given} (model: {fixed})"
        for name, (fixed, given) in model.overridden_dims.items()
    )


_LACKS: Final = {"rule": "nodes without a rule", "shape": "nodes without a known shape"}


def _unknown_nodes(model: ModelCost) -> Iterator[tuple[str, doc.Cell]]:
    """Yields what the totals leave out, each with the first node, why, and what helps."""
    if model.unsized_tensors and not model.unknown_nodes:  # else theirs is the reason
        reasons = (node.unknown_reason for node in model.nodes)
        for reason in islice(filter(None, reasons), 1):
            yield "first of unknown size", reason
    for each in model.unknown_nodes:
        reason = each.reason
        if f"'{each.first}'" not in reason:
            reason = f"node '{each.first}', because of {reason}"
        if each.lack == "shape" and model.assumed and "--" not in reason:
            reason += f"; lengths were assumed: {model.assumed[0].option} sets the first"
        yield _LACKS[each.lack], _counted(each.ops)
        yield "  the first", reason


def _counted(counts: Mapping[str, int]) -> str:
    """Returns names with their counts: ``Conv 3, MatMul 13``."""
    return ", ".join(f"{name} {count}" for name, count in counts.items())


# --- nodes, operators, modules, tensors ---------------------------------------------------


_SORT_KEYS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "macs": lambda cost: (cost.macs or 0, cost.memory_bytes or 0),
    "memory": lambda cost: (cost.memory_bytes or 0, cost.macs or 0),
    "params": lambda cost: (cost.params, cost.macs or 0),
    "tensor memory": lambda tensor: tensor.bytes or 0,
}
"""Largest first; what is equal keeps the order of execution."""


def _sorted(costs: Sequence[Any], sort: str | None) -> Sequence[Any]:
    """Returns costs, largest first, by their MACs or what else they are sorted by; as they are for ``order``."""
    key = _SORT_KEYS.get(sort or "macs")
    return costs if key is None else sorted(costs, key=key, reverse=True)


class GroupCost(NamedTuple):
    """What several nodes cost together: all of one operator, or of one module."""

    name: str  # The operator, or the module's path with slashes
    nodes: int  # How many there are
    macs: int | None  # Sum of those that are known; None if none is
    backward_macs: int | None  # Likewise
    memory_bytes: int | None  # Likewise
    params: int  # Elements of their constants
    # MACs per byte moved, of the nodes of which both are known; None if there are none
    intensity: float | None


def _groups(
    nodes: Sequence[NodeCost], names: Callable[[NodeCost], Iterable[str]]
) -> dict[str, GroupCost]:
    """Returns the sums of nodes by the names of the groups that each is in."""
    members: dict[str, list[NodeCost]] = {}
    for node in nodes:
        for name in names(node):
            members.setdefault(name, []).append(node)
    groups = {}
    for name, inside in members.items():
        known = [node for node in inside if node.macs is not None and node.moved_bytes is not None]
        sums = {each: _sum(inside, each) for each in ("macs", "backward_macs", "memory_bytes")}
        rate = intensity(_sum(known, "macs"), _sum(known, "moved_bytes"))
        params = sum(node.params for node in inside)
        groups[name] = GroupCost(name, len(inside), **sums, params=params, intensity=rate)
    return groups


def _sum(nodes: Sequence[NodeCost], figure: str) -> int | None:
    known = [value for node in nodes if (value := getattr(node, figure)) is not None]
    return sum(known) if known else None


def _around(parts: Sequence[str]) -> list[str]:
    """Returns the paths of a module and of those around it, outermost first."""
    return list(accumulate(parts, "{}/{}".format))


_DEEPEST: Final = 32  # Modules within each other; what is deeper is one name. Names come from files


def _modules_around(node: NodeCost) -> list[str]:
    """Returns the modules of a node by its name: of ``/layer1/conv/Conv``, or ``layer1.conv.Conv``."""
    name = node.name.strip("/")
    parts = [part for part in name.split("/" if "/" in name else ".", _DEEPEST) if part]
    return _around(parts[:-1] or ["(no module)"])


def _modules(model: ModelCost, sort: str | None) -> Sequence[GroupCost]:
    """Returns the modules, each behind the one that it is in."""
    modules = _groups(model.nodes, _modules_around)
    order = _sorted([*modules.values()], sort or "order")
    rank = {cost.name: at for at, cost in enumerate(order)}
    return sorted(order, key=lambda cost: [rank[each] for each in _around(cost.name.split("/"))])


# --- columns ------------------------------------------------------------------------------


def _text(
    key: str, heading: str, value: Callable[[Any], doc.Cell] | None = None, **more: Any
) -> doc.Column[Any]:
    """A column of the attribute that is called as it, unless another value is given."""
    return doc.Column(heading, value=value or attrgetter(key), key=key, absent="?", **more)


_number: Final = partial(_text, unit="")  # The same, of numbers


def _share(key: str, value: Callable[[Any], doc.Cell], heading: str = "") -> doc.Column[Any]:
    return doc.Column(heading, "1", value, key, shown_in="%", digits=2, absent="-")


def _figures(model: ModelCost) -> tuple[doc.Column[NodeCost | GroupCost], ...]:
    def share(key: str) -> doc.Column[NodeCost | GroupCost]:
        total, name = getattr(model, key), f"{key.removesuffix('_bytes')}_share"
        return _share(name, lambda cost: share_of(getattr(cost, key), total))

    return (
        _number("macs", "MACS"), share("macs"), _number("backward_macs", "BACKWARD MACS"),
        _number("memory_bytes", "MOVED B"), share("memory_bytes"),
        _number("intensity", "MACS/B", digits=2), _number("params", "PARAMS"), share("params"),
    )  # fmt: skip


def _of_weight(value: Callable[[WeightSparsity], doc.Cell]) -> Callable[[NodeCost], doc.Cell]:
    return lambda node: None if node.sparsity is None else value(node.sparsity)


def shape_text(shape: Sequence[int | None] | None) -> str | None:
    """Returns a shape as ``1x3x?x224``, ``scalar`` for rank 0, None for an unknown rank."""
    if shape is None:
        return None
    return "x".join("?" if length is None else str(length) for length in shape) or "scalar"


_NAME: Final = attrgetter("name")
_NODES: Final = _number("nodes", "NODES")
_MODULE: Final = _text("module", "MODULE", _NAME)
_NODE: Final = (_text("node", "NODE", _NAME), _text("op", "OP", attrgetter("op_type")))
_SPARSITY: Final = (
    _share("sparsity", _of_weight(lambda weight: weight.ratio), "ZEROS"),
    _number("sparsity_block", "BLOCK", _of_weight(lambda weight: "x".join(map(str, weight.block)))),
    _share("sparsity_block_ratio", _of_weight(lambda weight: weight.block_ratio), "ZERO BLOCKS"),
    _number("sparsity_two_of_four", "2:4", _of_weight(lambda weight: ("no", "yes")[weight.two_of_four])),
)  # fmt: skip
_SHAPES: Final = (
    _number("input", "INPUT", lambda node: shape_text(next(iter(node.inputs), None))),
    _text("output", "OUTPUT", lambda node: shape_text(next(iter(node.outputs), None))),
)
_TENSOR: Final[tuple[doc.Column[TensorCost], ...]] = (
    _text("tensor", "TENSOR", _NAME),
    _text("dtype", "TYPE"),
    _text("shape", "SHAPE", lambda tensor: shape_text(tensor.shape)),
    _number("bytes", "BYTES"),
    _text("node", "NODE"),
)

_TOTALS: Final[tuple[doc.Column[ModelCost], ...]] = (
    _number("macs", "MACs"),
    _number("macs_contraction", "MACs of contractions"),
    _number("backward_macs", "backward MACs"),
    _number("params", "parameters"),
    _number("weight_bytes", "weights, bytes"),
    _number("file_bytes", "file and external data, bytes"),
    _number("memory_bytes", "bytes moved"),
    _number("peak_activation_bytes", "peak of activations, bytes"),
    _text("max_memory_node", "node that moves most bytes"),
    _number("max_memory_node_bytes", "bytes that it moves", lambda model: max((node.memory_bytes or 0 for node in model.nodes), default=None)),
    _text("stored", "weights stored in", lambda model: types_text(model.stored)),
    _text("precision", "contractions ask for", lambda model: types_text(model.precision)),
    _text("expected_precision", "contractions expected to run in", lambda model: types_text(model.expected_precision) if model.runtime else ""),
    _number("nodes", "nodes", lambda model: len(model.nodes)),
    _number("quantize_nodes", "QuantizeLinear nodes"),
    _number("dequantize_nodes", "DequantizeLinear nodes"),
    _text("symbolic_dims", "assumed dimensions", lambda model: ", ".join(f"{name} = {size}" for name, size in model.symbolic_dims.items())),
    _text("overridden_dims", "overridden dimensions", _overridden),
    _text("uncosted_ops", "nodes without known MACs", lambda model: _counted(model.uncosted_ops)),
    _number("unsized_tensors", "results of unknown size"),
    _number("unused_params", "parameters that no node reads"),
    _number("unused_weight_bytes", "their weights, bytes"),
)  # fmt: skip
"""Per model. Texts may be empty, counts 0; neither is unknown."""

_ELSEWHERE: Final = ("symbolic_dims", "overridden_dims", "uncosted_ops")
_LISTED_TOTALS: Final = [column for column in _TOTALS if column.key not in _ELSEWHERE]
"""Less those that tables have in words, at the beginning or the end."""


class _By(NamedTuple):
    """What has a row each in a table of a model."""

    thing: str  # In words
    columns: Callable[[ModelCost], Sequence[doc.Column[Any]]]
    costs: Callable[[ModelCost, str | None], Sequence[Any]]  # In the order asked for
    row: Callable[[Any, Sequence[doc.Cell]], doc.Row] | None = None


_BY: Final[Mapping[str, _By]] = {
    "node": _By(
        "node",
        lambda model: (*_NODE, *_figures(model), *(() if model.sparsity is None else _SPARSITY), *_SHAPES),
        lambda model, sort: _sorted(model.nodes, sort),
    ),
    "op": _By(
        "operator",
        lambda model: (_text("op", "OP", _NAME), _NODES, *_figures(model)),
        lambda model, sort: _sorted(
            [*_groups(model.nodes, lambda node: (node.op_type,)).values()], sort
        ),
    ),
    "module": _By(
        "module", lambda model: (_MODULE, _NODES, *_figures(model)), _modules,
        lambda cost, cells: doc.Row((cost.name.rpartition("/")[2], *cells[1:]), cost.name.count("/")),
    ),
    "tensor": _By(
        "tensor", lambda _: _TENSOR, lambda model, sort: _sorted(model.tensors or (), f"tensor {sort}")
    ),
    "total": _By("model", lambda _: _TOTALS, lambda model, _: (model,)),
}  # fmt: skip


# --- what quantization bought -------------------------------------------------------------

_SIZES: Final = (
    "file_bytes", "weight_bytes", "params", "macs", "macs_contraction", "memory_bytes",
    "peak_activation_bytes",
)  # fmt: skip
_COUNTS: Final = ("nodes", "quantize_nodes", "dequantize_nodes", "uncosted_nodes")


_MIXES: Final = {"precision": "asked", "expected_precision": "run"}
"""Shares of the contractions by type, with the word for it."""


class _Difference(NamedTuple):
    """One figure of two models, or the share that a type has of their contractions."""

    baseline: str  # Path of the first model
    model: str  # Path of the other
    figure: str  # Its name for programs: ``macs``, ``precision.int8``
    heading: str  # Its name in tables: of a share the type
    before: float  # The first model's
    after: float  # The other's
    mix: str = ""  # What a share is of
    is_size: bool = False  # Compared as a ratio; else a count, as a difference

    @property
    def ratio(self) -> float | None:
        """After by before, of sizes; None if there was nothing before, or it is no number of 64 bits."""
        try:
            return self.after / self.before if self.is_size else None
        except ArithmeticError:
            return None

    @property
    def change(self) -> doc.Cell:
        """What a table has of the two."""
        if self.is_size:
            return "-" if self.ratio is None else doc.UnitCell(self.ratio, "x", digits=3)
        change = self.after - self.before
        return doc.UnitCell(change, "", before="+" if change >= 0 else "")


_UNCOSTED: Final = _number(
    "uncosted_nodes", "nodes without known MACs", lambda model: sum(model.uncosted_ops.values())
)
_COMPARED: Final = {column.key: column for column in (*_TOTALS, _UNCOSTED)}


def _differences(before: ModelCost, after: ModelCost) -> Iterator[_Difference]:
    """Yields the figures of two models, then the share of each type of contractions."""
    of = partial(_Difference, before.path, after.path)
    for key in (*_SIZES, *_COUNTS):
        column = _COMPARED[key]
        then: Any = column.value(before)
        now: Any = column.value(after)
        yield of(key, column.heading, then, now, is_size=key in _SIZES)
    for mix in _MIXES:
        then, now = getattr(before, mix), getattr(after, mix)
        for name in dict.fromkeys((*then, *now)):
            yield of(f"{mix}.{name}", name, then.get(name, 0.0), now.get(name, 0.0), mix)


def _comparison(before: ModelCost, after: ModelCost) -> doc.Table:
    """Returns what differs; a type of contractions has one row for what asks for it and what runs in it."""
    rows: list[Sequence[doc.Cell]] = []
    shares: dict[str, dict[str, _Difference]] = {}
    for each in _differences(before, after):
        if each.mix:
            shares.setdefault(each.heading, {})[each.mix] = each
        else:
            rows.append((each.heading, each.before, each.after, each.change))
    mixes = [mix for mix in _MIXES if any(mix in of for of in shares.values())]
    words = ", ".join(_MIXES[mix] for mix in mixes)
    for name, of in shares.items():
        pairs = [of[mix][4:6] if mix in of else (0.0, 0.0) for mix in mixes]
        texts = [[f"{100 * share:.2f} %" for share in pair] for pair in pairs]
        change = ", ".join(f"{100 * (now - then):+.2f}" for then, now in pairs)
        both = map(", ".join, zip(*texts, strict=True))
        rows.append((f"contractions in {name} ({words})", *both, f"{change} points"))
    units = {"": None, "BEFORE": "", "AFTER": "", "CHANGE": None}
    return doc.Table([doc.Column[Any](*each) for each in units.items()], rows, is_sortable=False)


# --- for programs -------------------------------------------------------------------------


def _sheet(models: Sequence[ModelCost], choices: Choices) -> doc.Table:
    if choices.by == "comparison":
        columns = doc.of_attributes("baseline", "model", "figure", "before", "after", "ratio")
        every = (_differences(models[0], after) for after in models[1:])
        return doc.Table.of([*columns], chain.from_iterable(every))
    by = _BY[choices.by or "node"]
    rows = (
        (model.path, *(column.value(cost) for column in columns))
        for model, columns in ((model, by.columns(model)) for model in models)
        for cost in by.costs(model, choices.sort)[: choices.top]
    )
    return doc.Table((doc.Column[Any]("model"), *by.columns(models[0])), rows)


def _data(models: Sequence[ModelCost], choices: Choices) -> dict[str, object]:
    data: dict[str, object] = {"schema": SCHEMA}
    data["models"] = [_model_data(model, choices) for model in models]
    if models[1:] and choices.compared:
        data["comparison"] = [_comparison_data(models[0], after) for after in models[1:]]
    return data


_OF_MODULES: Final = (
    _MODULE,
    *(_number(key, key) for key in ("nodes", "macs", "params", "memory_bytes", "intensity")),
)


def _model_data(model: ModelCost, choices: Choices) -> dict[str, object]:
    nodes = _sorted(model.nodes, choices.sort or "order")[: choices.top]
    found: dict[str, object] = model._replace(nodes=()).to_json_dict()
    if nodes:
        found["nodes"] = map(model.node_json, nodes)  # one at a time: there may be many
    if choices.by == "module":
        found["modules"] = [*doc.records(_OF_MODULES, _modules(model, choices.sort)[: choices.top])]
    return found


def _comparison_data(before: ModelCost, after: ModelCost) -> dict[str, object]:
    found: dict[str, Any] = {"baseline": before.path, "path": after.path}
    shares: dict[str, dict[str, Any]] = {mix: {} for mix in _MIXES}
    for each in _differences(before, after):
        own, key = (shares[each.mix], each.heading) if each.mix else (found, each.figure)
        own[key] = {"before": each.before, "after": each.after}
        own[key] |= {"ratio": each.ratio} if each.is_size else {}
    return found | shares
