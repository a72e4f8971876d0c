"""Which contractions a quantizer has left in float, and why, as far as the file shows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from otel_quant.cost import dtypes, obstacles
from otel_quant.cost.obstacles import Hindered, Obstacle
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


class _Alike(NamedTuple):
    """What contractions have in common that stay in float for one reason."""

    kind: str
    is_held: bool  # Whether they are in a body of If, Loop or Scan
    has_constant: bool
    is_renamed: bool


class Contractions:
    """The contractions of a model, those in float apart. Operations are not kept: there may be many."""

    def __init__(self, ops: Iterable[TypedNode]) -> None:
        self._held = set(_held(ops))
        self._floats: dict[_Alike, tuple[list[str], list[int]]] = {}
        self._forms: set[str] = set()  # of those that are quantized
        self._known: set[tuple[bool, bool]] = set()  # of those: in bodies, with constants
        self.count = self.macs = 0

    def add(self, op: TypedNode, precision: str, expected: str, macs: int) -> None:
        """Adds a contraction with what it asks for and is expected to run in; one in integers is quantized."""
        self.count, self.macs = self.count + 1, self.macs + macs
        is_held, operands = op in self._held, operator_of(op.kind).precision.operands
        has_constant = any(op.has(i) and op.input(i).constant for i in operands)
        if precision not in _FLOATS:
            other = "weight-only" if precision.endswith("weight-only") else "QDQ"
            self._forms.add(_FORM_OF.get(op.kind, other))
            self._known.add((is_held, has_constant or op.kind in _FORM_OF))
        elif not expected.startswith("int"):
            alike = _Alike(op.kind, is_held, has_constant, op.name.endswith(_ADDED))
            names, total = self._floats.setdefault(alike, ([], [0]))
            names.append(op.name)
            total[0] += macs

    def left(self, *, is_written: bool, others: bool) -> list[Hindered]:
        """Returns those in float by their reasons, most MACs first; none of a model that nobody has quantized.

        ``is_written``: a quantizer is known to have written the model; ``others``: other operators are quantized.
        """
        groups: dict[Obstacle, Hindered] = {}
        for alike, (names, [macs]) in self._floats.items() if self._forms or is_written else ():
            if self._forms == {"weight-only"} and not alike.has_constant:
                continue  # they have no weights
            why = self._why(alike, others=others)
            group = groups.setdefault(why, Hindered(why))
            group.kinds[alike.kind] += len(names)
            group.names += names
            group.macs += macs
        return sorted(groups.values(), key=lambda group: -group.macs)

    def _why(self, alike: _Alike, *, others: bool) -> Obstacle:
        """Returns the first of several reasons that holds.

        Case 1: they are in a body, and no contraction in bodies is quantized.
        Case 2: they cannot be written in the form that others have.
        Case 3: none of their operands is a constant, and no such contraction is quantized.
        Case 4: nothing at all is quantized.
        Case 5: others are.
        """
        if alike.is_held and not any(is_held for is_held, _ in self._known):  # Case 1
            return obstacles.IN_BODY
        if self._forms and self._forms.isdisjoint(_FORMS.get(alike.kind, ())):  # Case 2
            form = f"{' or '.join(sorted(self._forms))} form of {alike.kind.rpartition(':')[2]}"
            return Obstacle(f"onnxruntime's quantizer has no {form}")
        # Case 3
        if not alike.has_constant and all(of_constants for _, of_constants in self._known):
            return obstacles.NO_CONSTANT
        why = obstacles.EXCLUDED if self._forms or others else obstacles.NOTHING  # Case 5, Case 4
        return why._replace(remedy=obstacles.RENAMED) if alike.is_renamed else why


def _held(ops: Iterable[TypedNode], *, is_held: bool = False) -> Iterator[TypedNode]:
    """Yields the operations in bodies of If, Loop and Scan."""
    for op in ops:
        if is_held:
            yield op
        for body in (*op.bodies, *op.branches):
            yield from _held(body.ops, is_held=is_held or not op.inlined)
