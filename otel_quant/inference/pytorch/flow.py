"""Where numbers are dequantized for an operator, by the memory that operators write and read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from otel_quant.inference.pytorch.operators import (
    DEQUANTIZE,
    QUANTIZE,
    computes,
    contracts,
    is_small,
    kind_of,
    makes_floats,
)
from otel_quant.inference.pytorch.profile import Kernel


class Origin(NamedTuple):
    """Where a tensor of floats comes from."""

    place: int  # The operator that has made it of integers, or the one that has computed it of such
    dtype: str  # Type of the integers
    is_constant: bool  # Whether no operator of the run has written these
    # The operator that has dequantized it; ``place`` itself unless something was computed
    maker: int


class InFloat(NamedTuple):
    """A matrix product or convolution of floats that were integers before."""

    place: int  # The operator
    # Type of its weights before they were dequantized; empty if only other operands were
    weights: str
    dequantized: tuple[int, ...]  # Places of the operators that have dequantized its operands


class Between(NamedTuple):
    """An operator on floats, between one that dequantizes and one that quantizes: their places."""

    dequantized: int
    place: int
    quantized: int


@dataclass(slots=True)
class Flow:
    """What was found in a run."""

    in_float: list[InFloat] = field(default_factory=list)  # Products of what was dequantized
    # What stands between dequantize and quantize
    between: list[Between] = field(default_factory=list)
    # Operators that take integers and dequantize within themselves, each with the place of what
    # dequantizes
    within: dict[int, int] = field(default_factory=dict)


def flow_of(kernels: Sequence[Kernel]) -> Flow:
    """Follows what is dequantized through a run."""
    walk = _Walk(kernels)
    open_places: list[int] = []
    for place, kernel in enumerate(kernels):
        while open_places and open_places[-1] != kernel.parent:
            walk.leave(open_places.pop())
        walk.enter(place, open_places)
        open_places.append(place)
    while open_places:
        walk.leave(open_places.pop())
    return walk.found


class _Walk:
    """Follows the memory of tensors from operator to operator."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self.found = Flow()
        self._kernels = kernels
        self._made: dict[int, Origin] = {}
        self._computed: dict[int, Origin] = {}
        self._written: set[int] = set()
        self._used: set[int] = set()

    def enter(self, place: int, within: Sequence[int]) -> None:
        """Looks at what an operator takes."""
        kernel = self._kernels[place]
        kind = kind_of(kernel.name)
        names = [self._kernels[each].name for each in within]
        if kind == DEQUANTIZE and within and kind_of(names[0]) is None:
            outermost = self._kernels[within[0]]
            taken = {each.storage for each in kernel.inputs if is_small(each.tensor.dtype)}
            if taken & {each.storage for each in outermost.inputs}:
                self.found.within.setdefault(within[0], place)
        if any(kind_of(name) is not None for name in names):
            return
        if contracts(kernel.name) and not any(map(contracts, names)):
            self._multiplied(place)
        elif kind == QUANTIZE:
            for operand in kernel.inputs[:1]:
                if (origin := self._computed.get(operand.storage)) is not None:
                    self.found.between.append(Between(origin.maker, origin.place, place))

    def _multiplied(self, place: int) -> None:
        origins = [
            origin
            for operand in self._kernels[place].inputs
            if (origin := self._made.get(operand.storage)) is not None
        ]
        if origins:
            weights = next((each.dtype for each in origins if each.is_constant), "")
            makers = dict.fromkeys(each.maker for each in origins if each.maker not in self._used)
            self._used.update(makers)
            self.found.in_float.append(InFloat(place, weights, tuple(makers)))

    def leave(self, place: int) -> None:
        """Notes what an operator has written."""
        kernel = self._kernels[place]
        read = {each.storage for each in kernel.inputs}
        for result in kernel.outputs:
            if result.storage in read:
                continue  # a view of it, or written in place
            self._written.add(result.storage)
            self._computed.pop(result.storage, None)
            origin = self._origin(place)
            if origin is None:
                self._made.pop(result.storage, None)
            elif computes(kernel.name) and origin.maker != place:
                self._made.pop(result.storage, None)
                if kernel.parent is None and not contracts(kernel.name):
                    self._computed[result.storage] = origin
            else:
                self._made[result.storage] = origin

    def _origin(self, place: int) -> Origin | None:
        """Returns where the result of an operator comes from, if it was integers before."""
        kernel = self._kernels[place]
        first = kernel.inputs[0] if kernel.inputs else None
        if first is not None and is_small(first.tensor.dtype):
            to_float = kernel.outputs and not is_small(kernel.outputs[0].tensor.dtype)
            if kind_of(kernel.name) == DEQUANTIZE or (makes_floats(kernel.name) and to_float):
                is_constant = first.storage not in self._written
                return Origin(place, first.tensor.dtype, is_constant, place)
            return None
        for operand in kernel.inputs:
            if (known := self._made.get(operand.storage)) is not None:
                return known._replace(place=place) if computes(kernel.name) else known
        return None
