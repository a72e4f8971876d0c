"""Findings in a PyTorch model: where numbers are dequantized for operators, and the table of findings."""

from __future__ import annotations

import platform
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from otel_quant.inference.findings import Findings, Found
from otel_quant.inference.results import BackendKernel, is_of_few_bits
from otel_quant.inference.torch_parts import (
    CONVERT,
    DEQUANTIZE,
    OBSERVE,
    QUANTIZE,
    computes,
    contracts,
    kind_of,
    makes_floats,
    multiplies,
    place_name,
    shown,
)
from otel_quant.inference.torch_profile import TorchOperator, changes_of_type


class Origin(NamedTuple):
    """Where a tensor of floats comes from."""

    place: int  # The operator that has made it of integers, or the one that has computed it of such
    dtype: str  # Type of the integers
    is_constant: bool  # Whether no operator of the run has written these
    # The operator that has dequantized it; ``place`` itself unless something was computed
    maker: int


@dataclass(slots=True)
class Flow:
    """What was found in a run; operators by their places in it."""

    # Products and convolutions of floats that were integers before: the operator, the type of its
    # weights before (empty if only other operands were integers), and what has dequantized them
    in_float: list[tuple[int, str, tuple[int, ...]]] = field(default_factory=list)
    # What stands between an operator that dequantizes and one that quantizes, in the middle of both
    between: list[tuple[int, int, int]] = field(default_factory=list)
    # Operators that take integers and dequantize within themselves -> what dequantizes
    within: dict[int, int] = field(default_factory=dict)


def flow_of(kernels: Sequence[TorchOperator]) -> Flow:
    """Follows what is dequantized through a run."""
    walk = _StorageFlow(kernels)
    within: list[int] = []
    for place, parent in enumerate([*(kernel.parent for kernel in kernels), None]):
        while within and within[-1] != parent:
            walk.leave(within.pop())
        if place < len(kernels):
            walk.enter(place, within)
            within.append(place)
    return walk.found


class _StorageFlow:
    """Follows the memory of tensors from operator to operator."""

    def __init__(self, kernels: Sequence[TorchOperator]) -> None:
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
            taken = {each.storage for each in kernel.inputs if is_of_few_bits(each.dtype)}
            if taken & {each.storage for each in outermost.inputs}:
                self.found.within.setdefault(within[0], place)
        if any(kind_of(name) is not None for name in names):
            return
        if contracts(kernel.name) and not any(map(contracts, names)):
            self._multiplied(place)
        elif kind == QUANTIZE:
            for origin in filter(None, (self._computed.get(x.storage) for x in kernel.inputs[:1])):
                self.found.between.append((origin.maker, origin.place, place))

    def _multiplied(self, place: int) -> None:
        storages = [operand.storage for operand in self._kernels[place].inputs]
        origins = [self._made[each] for each in storages if each in self._made]
        if origins:
            weights = next((each.dtype for each in origins if each.is_constant), "")
            makers = dict.fromkeys(each.maker for each in origins if each.maker not in self._used)
            self._used.update(makers)
            self.found.in_float.append((place, weights, tuple(makers)))

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
        if first is not None and is_of_few_bits(first.dtype):
            to_float = kernel.outputs and not is_of_few_bits(kernel.outputs[0].dtype)
            if kind_of(kernel.name) == DEQUANTIZE or (makes_floats(kernel.name) and to_float):
                is_constant = first.storage not in self._written
                return Origin(place, first.dtype, is_constant, place)
            return None
        for operand in kernel.inputs:
            if (known := self._made.get(operand.storage)) is not None:
                return known._replace(place=place) if computes(kernel.name) else known
        return None


_SLOW: Final = frozenset(
    f"aten::{name}"
    for name in (
        "_slow_conv2d_forward", "slow_conv3d_forward", "slow_conv_dilated2d", "slow_conv_dilated3d",
        "slow_conv_transpose2d", "slow_conv_transpose3d",
    )
)  # fmt: skip
"""Convolutions by torch itself, a matrix product at a time."""

_REFERENCE: Final = ("ref", "simple")
"""Begins of oneDNN's implementations without vector instructions."""

_OF_X86: Final = frozenset({"x86_64", "AMD64", "i686"})


@dataclass(frozen=True, slots=True)
class TorchEvidence:
    """What defects are looked for in."""

    kernels: Sequence[TorchOperator]  # Operators in the order in which they begin
    backend: Sequence[BackendKernel]  # What libraries below them have run
    engine: str  # The quantized engine in force
    flow: Flow  # Where numbers are dequantized for the operators
    # Paths of modules that observe numbers or imitate their quantization
    observers: Collection[str] = ()
    machine: str = platform.machine()  # The processor's architecture


FINDINGS: Final = Findings[TorchEvidence]()

_X86_GUIDE: Final = (
    "docs.pytorch.org, PyTorch 2 Export Quantization with X86 Backend through Inductor"
)
_TORCH: Final = "aten/src/ATen/native"
"""A folder of PyTorch's repository."""


def _found(
    kernel: TorchOperator, why: str, remedy: str = "", also: Sequence[TorchOperator] = ()
) -> Found:
    """Returns what was found of an operator, whose time includes all that runs within it."""
    place, name = place_name(kernel.module), shown(kernel.name)
    return Found(place, [kernel, *also], f"{name} of `{place}` {why}", remedy, f"{name} {why}")


def _outermost(kernel: TorchOperator, kernels: Sequence[TorchOperator]) -> TorchOperator:
    return kernel if kernel.parent is None else _outermost(kernels[kernel.parent], kernels)


@FINDINGS.row("in_float", _X86_GUIDE)
def _in_float(evidence: TorchEvidence) -> Iterator[Found]:
    kernels = evidence.kernels
    for place, weights, dequantized in evidence.flow.in_float:
        dtype = next((each.dtype for each in kernels[place].outputs), "float")
        if weights:
            why = f"although its weights are {weights}: they are dequantized in every run"
        else:
            why = "although what it takes was quantized: it is dequantized before"
        makers = [kernels[each] for each in dequantized]
        remedy = "torch.compile with freezing, or another backend that lowers quantized_decomposed"
        is_reference = any(each.name.startswith("quantized_decomposed::") for each in makers)
        yield _found(
            kernels[place], f"ran in {dtype} {why}", remedy if is_reference else "", makers
        )


@FINDINGS.row("in_float", f"{_TORCH}/quantized, of PyTorch's repository")
def _within(evidence: TorchEvidence) -> Iterator[Found]:
    for place, dequantized in evidence.flow.within.items():
        dtype = evidence.kernels[dequantized].inputs[0].dtype
        yield _found(evidence.kernels[place], f"takes {dtype}, dequantizes it and runs in float")


@FINDINGS.row("unfused", _X86_GUIDE)
def _between(evidence: TorchEvidence) -> Iterator[Found]:
    kernels = evidence.kernels
    for places in evidence.flow.between:
        why = "ran in float between an operator that dequantizes and one that quantizes"
        found = _found(kernels[places[1]], why)
        yield found._replace(kernels=[kernels[place] for place in places])


@FINDINGS.row("inserted", "torch.profiler")
def _converted(evidence: TorchEvidence) -> Iterator[Found]:
    kernels = evidence.kernels
    named = {id(kernels[place]) for _, _, places in evidence.flow.in_float for place in places}
    for kind, types, kernel in changes_of_type(kernels):
        within = kernel if kernel.parent is None else kernels[kernel.parent]
        if kind == CONVERT and named.isdisjoint({id(kernel), id(within)}):
            yield _found(kernel, f"converts {types}")


@FINDINGS.row("inserted", f"{_TORCH}/quantized/cpu/qconv.cpp, of PyTorch's repository")
def _reordered(evidence: TorchEvidence) -> Iterator[Found]:
    for kernel in evidence.kernels:
        outer = _outermost(kernel, evidence.kernels)
        if kernel.name == "aten::clone" and outer.name.startswith("quantized::conv"):
            why = "copies what it takes to another layout, channels last"
            found = _found(outer, why, "inputs of the model in torch.channels_last")
            yield found._replace(place=place_name(kernel.module), kernels=[kernel])


@FINDINGS.row("observed", "torchao/quantization/pt2e, of torchao's repository")
def _observed(evidence: TorchEvidence) -> Iterator[Found]:
    groups: dict[str, list[TorchOperator]] = {}
    for kernel in evidence.kernels:
        outer = None if kernel.parent is None else evidence.kernels[kernel.parent]
        observes = kernel.module in evidence.observers or kind_of(kernel.name) == OBSERVE
        if observes and (outer is None or outer.module != kernel.module):
            groups.setdefault(kernel.module, []).append(kernel)
    why = "still observes numbers or imitates their quantization: the model was not converted"
    for module, kernels in groups.items():
        name = place_name(module)
        yield Found(name, kernels, f"`{name}` {why}", "the converted model", why)


@FINDINGS.row("fallback", f"{_TORCH}/quantized/cpu/qnnpack, of PyTorch's repository")
def _engine(evidence: TorchEvidence) -> Iterator[Found]:
    ran = [each for each in evidence.kernels if each.name.startswith("quantized::")]
    if ran and evidence.engine == "qnnpack" and evidence.machine in _OF_X86:
        yield Found(
            place_name(""),
            [each for each in ran if each.parent is None],
            "the quantized engine is qnnpack, which is made for ARM and uses no more than SSE2 on x86",
            "torch.backends.quantized.engine = 'x86' before the model is converted and run",
        )


@FINDINGS.row("fallback", f"{_TORCH}/Convolution.cpp, of PyTorch's repository")
def _slow(evidence: TorchEvidence) -> Iterator[Found]:
    for kernel in evidence.kernels:
        size = kernel.inputs[1].shape[2:] if len(kernel.inputs) > 1 else ()
        # Of a kernel of one point such a product is the best that there is.
        if kernel.name in _SLOW and any(each != 1 for each in size):
            why = "is torch's own convolution by matrix products, not one of oneDNN's kernels"
            yield _found(kernel, why)


@FINDINGS.row("scalar", "oneDNN's guide, Verbose Mode")
def _reference(evidence: TorchEvidence) -> Iterator[Found]:
    for each in evidence.backend:
        if each.implementation.startswith(_REFERENCE):
            why = f"ran without vector instructions: {each.implementation} ({each.types})"
            name = place_name(each.node)
            text = f"{each.library}'s {each.primitive} of `{name}` {why}"
            # Its time is the time of the module's products, or of all that it runs if it has none.
            own = [kernel for kernel in evidence.kernels if kernel.module == each.node]
            outermost = [
                kernel
                for kernel in own
                if kernel.parent is None or evidence.kernels[kernel.parent].module != each.node
            ]
            products = [kernel for kernel in outermost if multiplies(kernel.name)]
            yield Found(name, products or outermost, text, "", f"{each.primitive} {why}")
