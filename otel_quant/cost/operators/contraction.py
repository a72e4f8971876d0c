"""Operators that sum products without a window: matrices, Einsum, recurrence, attention.

``contraction`` counts one MAC per product that the definition of the operator has, padding
included. A bias is an addition per result and counts under ``rest``. The forms of attention,
onnxruntime's among them, differ in how they are given heads, keys and a past. What they compute is
the same, so both shapes and cost start from :class:`AttentionSizes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Final, NamedTuple, TypeAlias

from otel_quant.cost.operation import Shape, TypedNode, UnknownError, first_known, known
from otel_quant.cost.operators import rule
from otel_quant.cost.operators.rule import ADD, EXP, MUL, T0, TANH, Formula, Rule, ShapesOf
from otel_quant.cost.operators.windows import conv_products


def product(a: Shape, b: Shape) -> Shape:
    """Returns the shape of ``matmul(a, b)``: vectors, and batch dimensions broadcast."""
    rule.agree("summed lengths of the operands", a[-1], b[-2:][0])
    rows, columns = a[-2:-1], b[1:][-1:]  # a vector has none
    return (*rule.broadcast((a[:-2], b[:-2])), *rows, *columns)


def matmul(b: int) -> ShapesOf:
    """Matrix product with operand ``b``."""
    return lambda op: [product(op.shape(0), op.shape(b))]


def last_axis(op: TypedNode) -> int:
    """Every result sums as many products as the first operand's last axis is long."""
    left = op.dims(0)
    return op.out_size() * left[-1]


def gemm(b: int) -> ShapesOf:
    """Matrix product with operand ``b``, with transposes by attribute."""

    def shapes(op: TypedNode) -> Sequence[Shape]:
        row, summed = _matrix(op, 0, "transA")
        also_summed, column = _matrix(op, b, "transB")
        rule.agree("summed lengths of the operands", summed, also_summed)
        return [(row, column)]

    return shapes


def _matrix(op: TypedNode, i: int, transpose: str) -> Shape:
    """Rows and columns of an operand, transposed by attribute."""
    return op.shape(i)[:: -1 if op.attr(transpose, 0) else 1]


def gemm_products(op: TypedNode) -> int:
    """Every result sums as many products as the axis that the operands share is long."""
    rows, columns = op.dims(0)
    return op.out_size() * (rows if op.attr("transA", 0) else columns)


def _matmul_tool(op: TypedNode) -> int:
    bias = len(op.inputs) == 3
    return rule.volume0(op.out()) * (prod(op.dims(1)[-2:-1]) + bias)


_MAX_EQUATION: Final = 1024  # Characters; each dimension has a letter, so real equations are short


_ELLIPSIS: Final = "0123456789"
"""Labels of the axes that an ellipsis stands for, the last one's last: two ellipses broadcast from the right."""


def _terms(op: TypedNode) -> tuple[list[str], str]:
    """Returns the labels of each operand and of the result of an Einsum, a character for each axis."""
    equation = op.attr_str("equation", "").replace(" ", "")
    if len(equation) > _MAX_EQUATION:
        problem = f"an equation of {len(equation)} characters; {_MAX_EQUATION} at most are expected"
        raise UnknownError(problem)
    left, arrow, right = equation.partition("->")
    operands, widest = [], ""
    for i, term in enumerate(left.split(",")):
        letters = len(term.replace("...", ""))
        hidden = _ELLIPSIS[len(_ELLIPSIS) + letters - len(op.shape(i)) :] if "..." in term else ""
        operands.append(term.replace("...", hidden))
        widest = max(widest, hidden, key=len)
    if arrow:
        return operands, right.replace("...", widest)
    once = (each for each in left if each not in ",." and left.count(each) == 1)
    return operands, widest + "".join(sorted(once))


def _label_lengths(op: TypedNode) -> dict[str, int | None]:
    operands, _ = _terms(op)
    lengths: dict[str, int | None] = {}
    for i, labels in enumerate(operands):
        for label, length in zip(labels, op.shape(i), strict=True):
            before = lengths.setdefault(label, length)
            if before in (None, 1):
                lengths[label] = before if length is None else length
            elif length != 1:
                rule.agree("lengths of one letter", before, length)
    return lengths


def _einsum_products(op: TypedNode) -> int:
    """A product of the lengths of all labels: one multiply-add per combination.

    More than two operands are multiplied pairwise from the left, each time summing out the
    labels that no later operand and not the result has.
    """
    operands, result = _terms(op)
    lengths = _label_lengths(op)
    products = 0
    held: Sequence[str] = operands[0]
    for i, labels in enumerate(operands[1:], 2):
        joint = list(dict.fromkeys((*held, *labels)))
        products += _combinations(op, lengths, joint)
        later = {label for rest in operands[i:] for label in rest} | set(result)
        held = [label for label in joint if label in later]
    return products


def _combinations(op: TypedNode, lengths: Mapping[str, int | None], labels: Iterable[str]) -> int:
    cause = first_known(value.unknown for value in op.given)
    return prod(known([lengths[label] for label in labels], "an operand", cause))


def _einsum_alone(op: TypedNode) -> int:
    """An Einsum of one operand sums or moves: one addition per element if it sums."""
    operands, result = _terms(op)
    if len(operands) > 1 or set(operands[0]) == set(result):
        return 0
    return _combinations(op, _label_lengths(op), set(operands[0]))


def _states(op: TypedNode) -> Sequence[Shape]:
    """LSTM, GRU and RNN: all states, then the last ones."""
    data = op.shape(0)
    directions, _, width = op.shape(1)
    rule.agree("widths of input and weight", data[2], width)
    hidden: int | None = op.attr("hidden_size", 0) or op.shape(2)[2]
    if op.attr("layout", 0):
        state: Shape = (data[0], directions, hidden)
        return [(*data[:2], directions, hidden), state, state]
    state = (directions, data[1], hidden)
    return [(data[0], *state), state, state]


def steps(op: TypedNode) -> int:
    """Returns batch times sequence length."""
    data = op.dims(0)
    return data[0] * data[1]


def _recurrent(words: str, gates: int, per_state: int) -> Rule:
    """Both matrices once per step; biases, and per state the activations and the blend."""

    def rest(op: TypedNode) -> int:
        directions, _, hidden = op.dims(2)
        states = directions * hidden * (per_state + gates * ADD)
        return (op.size_if_given(3) + states) * steps(op)

    def tool(op: TypedNode) -> int:
        states = op.dims(1)[1] // gates * (per_state + gates * ADD)
        return (op.size(1) + op.size(2) + op.size_if_given(3) + states) * steps(op)

    return Rule(f"(|W|+|R|)*b*s; biases; {words}", _states, T0, recurrent_products, rest, tool)


def recurrent_products(op: TypedNode) -> int:
    """Both matrices once per step."""
    return (op.size(1) + op.size(2)) * steps(op)


Length: TypeAlias = int | None


class AttentionSizes(NamedTuple):
    """Lengths of one attention; None for one that is not known."""

    batch: Length  # Sequences
    heads: Length  # Query heads
    kv_heads: Length  # Key and value heads
    queries: Length  # Positions that ask
    keys: Length  # Positions that are asked, past positions included
    size: Length  # Length of a query's or key's head
    value_size: Length  # Length of a value's head
    present: Length  # Positions of the key and value cache after it

    @property
    def joined(self) -> Shape:
        """Shape of a result with the heads side by side."""
        hidden = None if self.heads is None else rule.scaled(self.value_size, self.heads)
        return (self.batch, self.queries, hidden)

    @property
    def caches(self) -> tuple[Shape, Shape]:
        """Shapes of the caches of keys and values."""
        head = (self.batch, self.kv_heads, self.present)
        return (*head, self.size), (*head, self.value_size)


SizesOf: TypeAlias = Callable[[TypedNode], AttentionSizes]


def per_head(length: Length, heads: Length) -> Length:
    """Returns the length of one of so many heads."""
    return None if heads is None else rule.scaled(length, 1, heads)


def _head_counts(op: TypedNode) -> tuple[int, int]:
    """Returns the heads of ONNX's operators that have them as attributes."""
    heads, kv_heads = op.attr("q_num_heads", 0), op.attr("kv_num_heads", 0)
    if not heads or not kv_heads:
        raise UnknownError("the attributes 'q_num_heads' and 'kv_num_heads' are missing")
    return heads, kv_heads


def _sizes(op: TypedNode) -> AttentionSizes:
    """Operands [batch, length, hidden] with heads by attribute, or [batch, heads, length, size]."""
    q = op.shape(0)
    apart = len(q) == 4
    k, v = op.shape(1), op.shape(2)
    if apart:
        batch, heads, queries, size = q
        kv_heads, keys, value_size = k[1], k[2], v[3]
    else:
        batch, queries, keys = q[0], q[1], k[1]
        heads, kv_heads = _head_counts(op)
        size, value_size = per_head(q[2], heads), per_head(v[2], kv_heads)
    if op.has(4):
        keys = rule.total((keys, op.shape(4)[2]))
    return AttentionSizes(batch, heads, kv_heads, queries, keys, size, value_size, keys)


def _attention(op: TypedNode) -> Sequence[Shape]:
    """Result, caches of keys and values, scores."""
    found = _sizes(op)
    result = found.joined
    if len(op.shape(0)) == 4:
        result = (found.batch, found.heads, found.queries, found.value_size)
    scores = (found.batch, found.heads, found.queries, found.keys)
    return [result, *found.caches, scores]


def tokens_of(op: TypedNode, found: AttentionSizes) -> int:
    """Returns the queries of all sequences."""
    return prod(known((found.batch, found.queries), "batch or queries", op.input(0).unknown))


def attention(
    words: str, sizes: SizesOf, shapes: ShapesOf, *masks: int, projection: Formula = rule.zero,
    rest: Formula = rule.zero, types: rule.Types = T0,
) -> Rule:  # fmt: skip
    """Scores and their application to the values; a causal mask is not skipped."""

    def scores(op: TypedNode) -> int:
        found = sizes(op)
        lengths = (found.batch, found.heads, found.queries, found.keys)
        names = zip(("batch", "heads", "queries", "keys"), lengths, strict=True)
        missing = ", ".join(name for name, length in names if length is None)
        return prod(known(lengths, f"an attention ({missing})", op.input(0).unknown))

    def products(op: TypedNode) -> int:
        found = sizes(op)
        heads = known((found.size, found.value_size), "an attention head", op.input(0).unknown)
        return projection(op) + scores(op) * sum(heads)

    def others(op: TypedNode) -> int:
        cap = TANH + 2 if op.attributes.get("softcap") else 0
        # What one score takes: softmax, scale, a cap if there is one, masks.
        return rest(op) + scores(op) * (rule.SOFTMAX + 1 + cap + sum(map(op.has, masks)))

    return Rule(words, shapes, types, products, others)


def _state_sizes(op: TypedNode) -> tuple[int, int, int, int, int]:
    """Lengths of an attention with a state, of a key's by a value's length for each of its heads.

    The batch, the tokens, heads of the state, and the lengths of a key's and a value's head.
    """
    batch, length, hidden = op.dims(0)
    heads, kv_heads = _head_counts(op)
    return batch, length, kv_heads, hidden // heads, op.dims(2)[2] // kv_heads


def _linear(op: TypedNode) -> Sequence[Shape]:
    """The result, with the heads of the query or the state, whichever are more, and the state."""
    batch, length, heads, size, value_size = _state_sizes(op)
    result = (batch, length, max(_head_counts(op)) * value_size)
    return [result, (batch, heads, size, value_size)]


def _linear_products(op: TypedNode) -> int:
    """Per token and head: key times value, state times query, state times key of a delta."""
    batch, length, heads, size, value_size = _state_sizes(op)
    reads = "delta" in op.attr_str("update_rule", "gated_delta")
    products = heads * (2 if reads else 1) + max(_head_counts(op))
    return batch * length * size * value_size * products


def _linear_rest(op: TypedNode) -> int:
    """Decay of the state, the delta of the value, the scale of the result."""
    batch, length, heads, size, value_size = _state_sizes(op)
    rule, values = op.attr_str("update_rule", "gated_delta"), batch * length * heads * value_size
    macs = op.out_size() + (2 * values if "delta" in rule else 0)
    return macs + (values * size + EXP * op.size(4) if "gated" in rule else 0)


def _causal_conv(op: TypedNode) -> Sequence[Shape]:
    """The input's shape, and the last positions that the kernel reaches."""
    shape, weight = op.shape(0), op.shape(1)
    rule.agree("channels of input and weight", shape[1], weight[0])
    return [shape, (*shape[:2], None if weight[2] is None else weight[2] - 1)]


_ACTIVATIONS: Final = {"none": 0, "silu": EXP + MUL, "swish": EXP + MUL}


_ONE_DIRECTION: Final = "(onnx_tool: states of one direction)"

TABLE: Final[dict[str, Rule]] = {
    "MatMul": Rule("|y|*K", matmul(1), T0, last_axis, tool=_matmul_tool),
    "MatMulInteger": Rule("|y|*K; zero points are free (onnx_tool: one is a bias)", matmul(1), rule.INT32, last_axis,
        tool=_matmul_tool, precision=rule.Precision(zero_point=(1, 3))),
    "QLinearMatMul": Rule("|y|*K", matmul(3), rule.like(7), last_axis,
        tool=lambda op: rule.volume0(op.dims(0)) * op.dims(3)[-1], precision=rule.Precision(operands=(0, 3), zero_point=(3, 5))),
    "Gemm": Rule("|y|*K, +|y| with C", gemm(1), T0, gemm_products, rule.present(2)),
    "Einsum": Rule("product over the letters, operands pairwise",
        lambda op: [tuple(map(_label_lengths(op).__getitem__, _terms(op)[1]))], T0, _einsum_products, _einsum_alone),
    "LSTM": _recurrent(f"180 per state {_ONE_DIRECTION}", 4, 3 * EXP + 2 * TANH + 4),
    "GRU": _recurrent(f"110 per state {_ONE_DIRECTION}", 3, 2 * EXP + TANH + 5),
    "RNN": _recurrent("tanh per state", 1, TANH)._replace(tool=None),
    "Attention": attention("scores and weighted values; softmax", _sizes, _attention, 3),
    "LinearAttention": Rule("per token: key times value, state times query, of a delta also times key; decay", _linear,
        (*T0, lambda op: op.dtype(3 if op.has(3) else 0)), _linear_products, _linear_rest),
    "CausalConvWithState": Rule("|y|*|W[1:]|, bias, activation", _causal_conv, T0, conv_products(1),
        rule.added(rule.present(2), lambda op: op.attr_choice("activation", "none", _ACTIVATIONS) * op.out_size())),
}  # fmt: skip
