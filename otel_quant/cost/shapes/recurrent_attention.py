"""Attention that keeps a state in place of all keys, and the causal convolution before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from otel_quant.cost.operation import Operation, UnknownError
from otel_quant.cost.shapes.rule import agree
from otel_quant.cost.values import Shape

Length: TypeAlias = int | None


@dataclass(frozen=True, slots=True, eq=False)
class StateSizes:
    """Lengths of one such attention; None for one that is not known."""

    rows: Shape  # Axes of the tokens
    batch: Length  # Sequences, each with a state of its own
    heads: Length  # Query heads
    state_heads: Length  # Heads of the state, which are those of keys and values
    size: Length  # Length of a query's or key's head
    value_size: Length  # Length of a value's head

    @property
    def results(self) -> Length:
        """Heads of the result: the query's, or the state's where those are more."""
        known = (self.heads, self.state_heads)
        return None if None in known else max(head for head in known if head is not None)


StateSizesOf: TypeAlias = Callable[[Operation], StateSizes]


def _per(length: Length, heads: Length) -> Length:
    return None if length is None or not heads else length // heads


def linear(op: Operation) -> StateSizes:
    """LinearAttention: operands [batch, length, heads * size]."""
    batch, length, hidden = op.shape(0, exactly=3)
    heads, state_heads = op.attr("q_num_heads", 0), op.attr("kv_num_heads", 0)
    if not heads or not state_heads:
        raise UnknownError("the attributes 'q_num_heads' and 'kv_num_heads' are missing")
    size, value = _per(hidden, heads), op.shape(2, exactly=3)[2]
    return StateSizes((batch, length), batch, heads, state_heads, size, _per(value, state_heads))


def gated_delta(op: Operation) -> StateSizes:
    """GatedDeltaNet: heads on an axis of their own, or packed, when the state has the lengths."""
    query = op.shape(0, 2)
    ends = op.shape(3, exactly=1)[0] if op.has(3) else None
    batch = None if ends is None else ends - 1
    if op.has(1):
        *rows, heads, size = query
        state_heads, value_size = op.shape(2, 3)[-2:]
        batch = op.shape(6, exactly=4)[0] if op.has(6) else batch
    else:
        batch, state_heads, value_size, size = op.dims(6, exactly=4)
        *rows, width = query
        heads = None if width is None else (width - state_heads * value_size) // (2 * size)
    return StateSizes(tuple(rows), batch, heads, state_heads, size, value_size)


def _windowed(op: Operation, state: Shape) -> Shape:
    """The states after each of the last tokens, where onnxruntime is asked for them."""
    window = op.attr("state_window", 0)
    return (window, *state) if window else state


def linear_attention(op: Operation) -> Sequence[Shape]:
    """LinearAttention: the result and the state."""
    found = linear(op)
    heads, size = found.results, found.value_size
    hidden = None if heads is None or size is None else heads * size
    state = (found.batch, found.state_heads, found.size, size)
    return [(*found.rows, hidden), _windowed(op, state)]


def gated_delta_net(op: Operation) -> Sequence[Shape | None]:
    """GatedDeltaNet: the result and the state; what it captures beside them is data."""
    found = gated_delta(op)
    state = (found.batch, found.state_heads, found.value_size, found.size)
    return [(*found.rows, found.results, found.value_size), state, None]


def state_type(op: Operation) -> int:
    """The type of the state: that of the last one, else the query's."""
    return op.dtype(3) if op.has(3) else op.dtype(0)


def causal_conv(op: Operation) -> Sequence[Shape | None]:
    """CausalConvWithState: the input's shape, and the last positions that the kernel reaches."""
    shape, weight = op.shape(0, 3), op.shape(1, 3)
    taps = weight[2]
    kept = None if taps is None else (taps - 1) * op.attr("dilation", 1)
    if op.attr("ndim", 1) != 1:
        return [shape, op.shape(3) if op.has(3) else None]
    if op.attr("channels_last", 0):
        return [shape, _windowed(op, (shape[0], kept, *shape[2:]))]
    agree("channels of input and weight", shape[1], weight[0])
    return [shape, _windowed(op, (*shape[:2], kept))]


def packed_causal_conv(op: Operation) -> Sequence[Shape]:
    """VarlenCausalConvWithState: the same of sequences packed one behind the other."""
    state = op.shape(4, exactly=3)
    return [op.shape(0), state, (state[0], op.attr("state_update_capacity", 0), state[1])]
