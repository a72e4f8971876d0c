"""Attention of ONNX: over keys, or over a state that is kept in place of all keys.

The forms of attention, onnxruntime's among them, differ in how they are given heads, keys and a
past. What they compute is the same, so both shapes and cost start from :class:`AttentionSizes`
or :class:`StateSizes`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final, NamedTuple, TypeAlias

from otel_quant.cost.operation import Operation, Shape, UnknownError, known
from otel_quant.cost.operators.record import (
    EXP,
    LOG,
    MUL,
    SOFTMAX,
    T0,
    TANH,
    Formula,
    Operator,
    ShapesOf,
    Types,
    agree,
    scaled,
    total,
)
from otel_quant.cost.operators.windows import conv_products

Length: TypeAlias = int | None


class AttentionSizes(NamedTuple):
    """Lengths of one attention; None for one that is not known."""

    batch: Length  # Sequences
    heads: Length  # Query heads
    kv_heads: Length  # Key and value heads
    queries: Length  # Positions that ask
    keys: Length  # Positions that are asked, those of the past among them
    size: Length  # Length of a query's or key's head
    value_size: Length  # Length of a value's head
    present: Length  # Positions of the key and value cache after it

    @property
    def joined(self) -> Shape:
        """Shape of a result with the heads side by side."""
        return (self.batch, self.queries, total_width(self.heads, self.value_size))

    @property
    def caches(self) -> tuple[Shape, Shape]:
        """Shapes of the caches of keys and values."""
        head = (self.batch, self.kv_heads, self.present)
        return (*head, self.size), (*head, self.value_size)

    @property
    def scores(self) -> Shape:
        """Shape of the scores."""
        return (self.batch, self.heads, self.queries, self.keys)


SizesOf: TypeAlias = Callable[[Operation], AttentionSizes]


def total_width(heads: Length, size: Length) -> Length:
    """Returns the length of heads side by side."""
    return None if heads is None or size is None else heads * size


def per_head(length: Length, heads: Length) -> Length:
    """Returns the length of one of so many heads."""
    return None if heads is None else scaled(length, 1, heads)


def head_counts(op: Operation) -> tuple[int, int]:
    """Returns the heads of ONNX's operators that have them as attributes."""
    heads, kv_heads = op.attr("q_num_heads", 0), op.attr("kv_num_heads", 0)
    if not heads or not kv_heads:
        raise UnknownError("the attributes 'q_num_heads' and 'kv_num_heads' are missing")
    return heads, kv_heads


def _sizes(op: Operation) -> AttentionSizes:
    """Operands [batch, length, hidden] with heads by attribute, or [batch, heads, length, size]."""
    q = op.shape(0, 3)
    apart = len(q) == 4
    k, v = op.shape(1, 3 if apart else 2), op.shape(2, 4 if apart else 3)
    if apart:
        batch, heads, queries, size = q
        kv_heads, keys, value_size = k[1], k[2], v[3]
    else:
        batch, queries, keys = q[0], q[1], k[1]
        heads, kv_heads = head_counts(op)
        size, value_size = per_head(q[2], heads), per_head(v[2], kv_heads)
    if op.has(4):
        keys = total((keys, op.shape(4)[2]))
    return AttentionSizes(batch, heads, kv_heads, queries, keys, size, value_size, keys)


def _attention(op: Operation) -> Sequence[Shape]:
    """Result, caches of keys and values, scores."""
    found = _sizes(op)
    result = found.joined
    if len(op.shape(0)) == 4:
        result = (found.batch, found.heads, found.queries, found.value_size)
    return [result, *found.caches, found.scores]


def attention_products(sizes: SizesOf) -> Formula:
    """Scores and their application to the values; a causal mask is not skipped."""

    def macs(op: Operation) -> int:
        found = sizes(op)
        heads = (found.size, found.value_size)
        size, value_size = known(heads, "an attention head", op.input(0).unknown)
        return attention_scores(op, found) * (size + value_size)

    return macs


def attention_scores(op: Operation, found: AttentionSizes) -> int:
    """Returns the number of query and key pairs over all heads."""
    names = ("batch", "heads", "queries", "keys")
    missing = [name for name, length in zip(names, found.scores, strict=True) if length is None]
    what = f"an attention ({', '.join(missing)})"
    return prod(known(found.scores, what, op.input(0).unknown))


def score_macs(op: Operation, *masks: int) -> int:
    """Returns what one score takes: scale, softmax, masks, and a cap if there is one."""
    cap = TANH + 2 if op.attr_float("softcap", 0.0) else 0
    return SOFTMAX + 1 + cap + sum(1 for mask in masks if op.has(mask))


class StateSizes(NamedTuple):
    """Lengths of an attention that keeps a state; None for one that is not known."""

    rows: Shape  # Axes of the tokens
    batch: Length  # Sequences, each with a state of its own
    heads: Length  # Query heads
    state_heads: Length  # Heads of the state, which are those of keys and values
    size: Length  # Length of a query's or key's head
    value_size: Length  # Length of a value's head

    @property
    def results(self) -> Length:
        """Heads of the result: the query's, or the state's where those are more."""
        if self.heads is None or self.state_heads is None:
            return None
        return max(self.heads, self.state_heads)


StateSizesOf: TypeAlias = Callable[[Operation], StateSizes]


def _linear_sizes(op: Operation) -> StateSizes:
    batch, length, hidden = op.shape(0, exactly=3)
    heads, state_heads = head_counts(op)
    value = per_head(op.shape(2, exactly=3)[2], state_heads)
    return StateSizes((batch, length), batch, heads, state_heads, per_head(hidden, heads), value)


def _windowed(op: Operation, state: Shape) -> Shape:
    """The states after each of the last tokens, where onnxruntime is asked for them."""
    window = op.attr("state_window", 0)
    return (window, *state) if window else state


def _linear(op: Operation) -> Sequence[Shape]:
    """The result and the state."""
    found = _linear_sizes(op)
    state = (found.batch, found.state_heads, found.size, found.value_size)
    hidden = total_width(found.results, found.value_size)
    return [(*found.rows, hidden), _windowed(op, state)]


def _causal_conv(op: Operation) -> Sequence[Shape | None]:
    """The input's shape, and the last positions that the kernel reaches."""
    shape, weight = op.shape(0, 3), op.shape(1, 3)
    taps = weight[2]
    kept = None if taps is None else (taps - 1) * op.attr("dilation", 1)
    if op.attr("ndim", 1) != 1:
        return [shape, op.shape(3) if op.has(3) else None]
    if op.attr("channels_last", 0):
        return [shape, _windowed(op, (shape[0], kept, *shape[2:]))]
    agree("channels of input and weight", shape[1], weight[0])
    return [shape, _windowed(op, (*shape[:2], kept))]


_READS_STATE: Final = {"linear": 0, "gated": 0, "delta": 1, "gated_delta": 1}
"""Update rule -> it takes what the state has for a key away from the value first."""

_DECAYS: Final = {"linear": 0, "gated": 1, "delta": 0, "gated_delta": 1}
"""Update rule -> the state is scaled before each token."""

_ACTIVATIONS: Final = {"none": 0, "silu": EXP + MUL, "swish": EXP + MUL}
_GATES: Final = {"none": 0, "qwen": EXP + LOG + 4}
_BETAS: Final = {"none": 0, "sigmoid": EXP}


def state_attention(shapes: ShapesOf, types: Types, sizes: StateSizesOf) -> Operator:
    """Attention that keeps a state in place of all keys."""

    def lengths(op: Operation, *found: Length) -> int:
        return prod(known(found, "the heads", op.input(0).unknown))

    def products(op: Operation) -> int:
        """Per token and head: key times value, state times query, state times key of a delta."""
        found = sizes(op)
        reads = op.attr_choice("update_rule", "gated_delta", _READS_STATE)
        uses = lengths(op, found.state_heads) * (1 + reads) + lengths(op, found.results)
        return lengths(op, *found.rows) * lengths(op, found.size, found.value_size) * uses

    def rest(op: Operation) -> int:
        """Decay of the state, the delta of the value, the scale of the result, activations."""
        found = sizes(op)
        tokens = lengths(op, *found.rows)
        values = tokens * lengths(op, found.state_heads, found.value_size)
        macs = op.out_size()
        macs += 2 * op.attr_choice("update_rule", "gated_delta", _READS_STATE) * values
        if op.attr_choice("update_rule", "gated_delta", _DECAYS):
            gate = op.attr_choice("gate_activation", "none", _GATES)
            macs += values * lengths(op, found.size) + (EXP + gate) * op.size(4)
        if op.has(5):
            macs += op.attr_choice("beta_activation", "none", _BETAS) * op.size(5)
        if op.attr("qk_l2_norm", 0):
            macs += 2 * 2 * tokens * lengths(op, found.heads, found.size)
        return macs

    words = "per token: key times value, state times query, of a delta also times key; decay"
    return Operator(words, shapes, types, products, rest)


def causal_conv(shapes: ShapesOf, bias: int) -> Operator:
    """The convolution in front of such an attention."""

    def rest(op: Operation) -> int:
        activation = op.attr_choice("activation", "none", _ACTIVATIONS)
        return ((1 if op.has(bias) else 0) + activation) * op.out_size()

    return Operator("|y|*|W[1:]|, bias, activation", shapes, T0, conv_products(1), rest)


TABLE: Final[dict[str, Operator]] = {
    "Attention": Operator(
        "scores and weighted values; softmax",
        _attention,
        T0,
        attention_products(_sizes),
        lambda op: attention_scores(op, _sizes(op)) * score_macs(op, 3),
    ),
    "LinearAttention": state_attention(
        _linear, (*T0, lambda op: op.dtype(3 if op.has(3) else 0)), _linear_sizes
    ),
    "CausalConvWithState": causal_conv(_causal_conv, 2),
}
