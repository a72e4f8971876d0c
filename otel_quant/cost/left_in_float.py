"""Which contractions a quantizer has left in float, and why, as far as the file shows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from otel_quant.cost import dtypes
from otel_quant.cost.operation import TypedNode
from otel_quant.cost.operators import operator_of

PRODUCERS: Final = frozenset({"onnx.quantize"})
"""What quantizers write into a file as its producer, whether they have quantized anything or not."""

_FLOATS: Final = frozenset(map(dtypes.name_of, dtypes.ARITHMETIC))

_FORMS: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(("Conv", "Gemm"), frozenset({"QDQ", "QOperator", "dynamic"})),
    "MatMul": frozenset({"QDQ", "QOperator", "dynamic", "weight-only"}),
    "ConvTranspose": frozenset({"QDQ"}), "LSTM": frozenset({"dynamic"}),
    "com.microsoft:Attention": frozenset({"QOperator", "dynamic"}),
}  # fmt: skip
"""Forms in which onnxruntime's quantizer can write a contraction."""

_FORM_OF: Final[Mapping[str, str]] = {
    **dict.fromkeys(("QLinearConv", "QLinearMatMul", "com.microsoft:QGemm"), "QOperator"),
    **dict.fromkeys(("ConvInteger", "MatMulInteger", "com.microsoft:DynamicQuantizeLSTM"), "dynamic"),
    **dict.fromkeys(("com.microsoft:MatMulNBits", "com.microsoft:MatMulBnb4"), "weight-only"),
}  # fmt: skip
"""The form that an operator shows; others are quantized by QuantizeLinear and DequantizeLinear."""

_ADDED: Final = "_MatMul"
"""Behind the name of a Gemm that onnxruntime's quantizer has made a MatMul of, before it looks for names."""


Why: TypeAlias = tuple[str, str]
"""A reason, and what would change it, which may be empty."""


class LeftInFloat(NamedTuple):
    """Contractions that stay in float for one reason."""

    why: Why
    ops: list[TypedNode]
    share: float  # Of the MACs of all contractions


class Contractions:
    """The contractions of a model, those in float apart."""

    def __init__(self, ops: Iterable[TypedNode]) -> None:
        self._held = set(_held(ops))
        self._floats: list[tuple[TypedNode, int]] = []
        self._forms: set[str] = set()  # of those that are quantized
        self._in_body = self._computed = (
            False  # whether there are quantized ones in bodies, of no constants
        )
        self.count = self.macs = 0

    def add(self, op: TypedNode, precision: str, macs: int) -> None:
        """Adds a contraction with what it is asked to execute in; one in integers is quantized."""
        self.count, self.macs = self.count + 1, self.macs + macs
        if precision in _FLOATS:
            self._floats.append((op, macs))
            return
        other = "weight-only" if precision.endswith("weight-only") else "QDQ"
        self._forms.add(_FORM_OF.get(op.kind, other))
        self._in_body |= op in self._held
        self._computed |= not _has_constant(op) and not op.kind.startswith("com.microsoft:")

    def left(self, *, is_written: bool) -> list[LeftInFloat]:
        """Returns those in float by their reasons, most MACs first; none of a model that nobody has quantized.

        ``is_written``: a quantizer is known to have written the model.
        """
        if not (self._forms or is_written):
            return []
        groups: dict[Why, tuple[list[TypedNode], list[int]]] = {}
        for op, macs in self._floats:
            group = groups.setdefault(self._why(op), ([], []))
            group[0].append(op)
            group[1].append(macs)
        found = [
            LeftInFloat(why, ops, sum(macs) / self.macs) for why, (ops, macs) in groups.items()
        ]
        return sorted(found, key=lambda group: -group.share)

    def _why(self, op: TypedNode) -> Why:
        """Returns the first of several reasons that holds.

        Case 1: it is in a body, and no contraction in bodies is quantized.
        Case 2: it cannot be written in the form that others have.
        Case 3: none of its operands is a constant, and no such contraction is quantized.
        Case 4: no contraction at all is quantized.
        Case 5: others are.
        """
        if op in self._held and not self._in_body:  # Case 1
            return _IN_BODY
        if self._forms and self._forms.isdisjoint(_FORMS.get(op.kind, ())):  # Case 2
            form = f"{' or '.join(sorted(self._forms))} form of {op.node.op_type}"
            return f"onnxruntime's quantizer has no {form}", ""
        if not _has_constant(op) and not self._computed:  # Case 3
            return _NO_CONSTANT
        why = _EXCLUDED if self._forms else _NOTHING  # Case 5, Case 4
        if not op.name.endswith(_ADDED):
            return why
        return why[0], "names with _MatMul behind them, which Gemms get first"


_IN_BODY: Final = (
    "the quantizer leaves alone what is in a body of If, Loop or Scan",
    "EnableSubgraph in extra_options of quantize_dynamic",
)
_NO_CONSTANT: Final = (
    "none of its operands is a constant",
    "static quantization, of activations too",
)
_EXCLUDED: Final = ("it was excluded, or not named", "its name among those to be quantized")
_NOTHING: Final = (
    "nothing was quantized: no node has a name or operator that the quantizer was given",
    "names and operators that the model has",
)


def _has_constant(op: TypedNode) -> bool:
    return any(op.has(i) and op.input(i).constant for i in operator_of(op.kind).precision.operands)


def _held(ops: Iterable[TypedNode], *, is_held: bool = False) -> Iterator[TypedNode]:
    """Yields the operations in bodies of If, Loop and Scan."""
    for op in ops:
        if is_held:
            yield op
        for body in (*op.bodies, *op.branches):
            yield from _held(body.ops, is_held=is_held or not op.inlined)
