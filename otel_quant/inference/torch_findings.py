"""Findings in a PyTorch model: where numbers are dequantized for operators, and the table of findings."""

from __future__ import annotations

import platform
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple

from otel_quant.inference import torch_parts
from otel_quant.inference.findings import Findings, Found
from otel_quant.inference.results import BackendKernel, grouped, has_few_bits
from otel_quant.inference.torch_profile import Operand, TorchOperator, around, changes_of_type


class Origin(NamedTuple):
    """Where a tensor of floats comes from."""

    place: int  # The operator that has made it of integers, or the one that has computed it of such
    dtype: str  # Type of the integers
    is_constant: bool  # Whether no operator of the run has written these
    # The operator that has dequantized it; ``place`` itself unless something was computed
    maker: int


class Flow:
    """Follows what is dequantized through a run, by the memory of tensors; operators by their places."""

    def __init__(self, kernels: Sequence[TorchOperator]) -> None:
        # Products and convolutions of floats that were integers before: the operator, the type of its
        # weights before (empty if only other operands were integers), and what has dequantized them
        self.in_float: list[tuple[int, str, tuple[int, ...]]] = []
        # What stands between an operator that dequantizes and one that quantizes, in the middle of both
        self.between: list[tuple[int, int, int]] = []
        # Operators that take integers and dequantize within themselves -> what dequantizes
        self.within: dict[int, int] = {}
        self._kernels = kernels
        self._made: dict[int, Origin] = {}
        self._computed: dict[int, Origin] = {}
        self._written: set[int] = set()
        self._used: set[int] = set()
        within: list[int] = []
        for place, kernel in enumerate(kernels):
            while within and within[-1] != kernel.parent:
                self._leave(within.pop())
            self._enter(place, within)
            within.append(place)
        for place in reversed(within):
            self._leave(place)

    def _enter(self, place: int, within: Sequence[int]) -> None:
        """Looks at what an operator takes."""
        kernel, outer = self._kernels[place], [self._kernels[each].name for each in within]
        kind = torch_parts.kind_of(kernel.name)
        if kind == torch_parts.DEQUANTIZE:
            self._dequantized(kernel, place, within[:1])
        if any(map(torch_parts.kind_of, outer)):
            return
        if kind == torch_parts.QUANTIZE:  # what was computed of dequantized numbers
            origins = _origins(kernel.inputs[:1], self._computed)
            self.between += [(each.maker, each.place, place) for each in origins]
        elif torch_parts.contracts(kernel.name) and not any(map(torch_parts.contracts, outer)):
            self._multiplied(kernel, place)

    def _dequantized(self, kernel: TorchOperator, place: int, outermost: Sequence[int]) -> None:
        """Notes that an operator around it has taken the integers itself."""
        integers = {each.storage for each in kernel.inputs if has_few_bits(each.dtype)}
        for outer in outermost:
            around = self._kernels[outer]
            if around.reads & integers and torch_parts.kind_of(around.name) is None:
                self.within.setdefault(outer, place)

    def _multiplied(self, kernel: TorchOperator, place: int) -> None:
        """Notes that dequantized numbers are multiplied; what has dequantized them counts once."""
        if origins := _origins(kernel.inputs, self._made):
            weights = next((each.dtype for each in origins if each.is_constant), "")
            makers = dict.fromkeys(each.maker for each in origins if each.maker not in self._used)
            self._used.update(makers)
            self.in_float.append((place, weights, tuple(makers)))

    def _leave(self, place: int) -> None:
        """Notes what an operator has written: a result that is no operand, which would be a view of it."""
        kernel = self._kernels[place]
        origin = self._origin(kernel, place)
        is_followed = kernel.parent is None and not torch_parts.contracts(kernel.name)
        written = {each.storage for each in kernel.outputs} - kernel.reads
        self._written |= written
        for storage in written:
            self._computed.pop(storage, None)
            self._made.pop(storage, None)
            if origin is None:
                continue
            if not torch_parts.computes(kernel.name) or origin.maker == place:
                self._made[storage] = origin
            elif is_followed:
                self._computed[storage] = origin

    def _origin(self, kernel: TorchOperator, place: int) -> Origin | None:
        """Returns where the result of an operator comes from, if it was integers before."""
        for first in kernel.inputs[:1]:
            if has_few_bits(first.dtype):
                found = Origin(place, first.dtype, first.storage not in self._written, place)
                return found if _makes_floats(kernel) else None
        known = next(iter(_origins(kernel.inputs, self._made)), None)
        return known._replace(place=place) if known and torch_parts.computes(kernel.name) else known


def _origins(operands: Sequence[Operand], known: Mapping[int, Origin]) -> list[Origin]:
    """Returns where operands come from that were integers before."""
    return [known[each.storage] for each in operands if each.storage in known]


def _makes_floats(kernel: TorchOperator) -> bool:
    """Whether an operator that takes integers dequantizes them."""
    if kernel.name in torch_parts.MAKES_FLOATS:
        return not any(has_few_bits(each.dtype) for each in kernel.outputs[:1])
    return torch_parts.kind_of(kernel.name) == torch_parts.DEQUANTIZE


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
_TORCH: Final = "aten/src/ATen/native"  # A folder of PyTorch's repository


def _found(
    kernel: TorchOperator, why: str, remedy: str = "", also: Sequence[TorchOperator] = ()
) -> Found:
    """Returns what was found of an operator, whose time includes all that runs within it."""
    place, name = torch_parts.place_name(kernel.module), torch_parts.shown(kernel.name)
    what = f"{name} of `{place}` {why}"
    return Found(place, [kernel, *also], what, remedy, alike=f"{name} {why}")


def _outermost(kernels: Sequence[TorchOperator]) -> Iterator[TorchOperator]:
    """Yields the operators that ran within no other of their module."""
    for each in kernels:
        if each.parent is None or kernels[each.parent].module != each.module:
            yield each


@FINDINGS.row("in_float", _X86_GUIDE)
def _in_float(evidence: TorchEvidence) -> Iterator[Found]:
    """Yields products and convolutions of what was integers before."""
    kernels = evidence.kernels
    for place, weights, dequantized in evidence.flow.in_float:
        dtype = next((each.dtype for each in kernels[place].outputs), "float")
        why = "although what it takes was quantized: it is dequantized before"
        if weights:
            why = f"although its weights are {weights}: they are dequantized in every run"
        makers = [kernels[each] for each in dequantized]
        remedy = "torch.compile with freezing, or another backend that lowers quantized_decomposed"
        is_reference = any(each.name.startswith("quantized_decomposed::") for each in makers)
        fix = remedy if is_reference else ""
        yield _found(kernels[place], f"ran in {dtype} {why}", fix, makers)


@FINDINGS.row("in_float", f"{_TORCH}/quantized, of PyTorch's repository")
def _within(evidence: TorchEvidence) -> Iterator[Found]:
    """Yields operators that take integers and compute in float within themselves."""
    for place, dequantized in evidence.flow.within.items():
        dtype = evidence.kernels[dequantized].inputs[0].dtype
        yield _found(evidence.kernels[place], f"takes {dtype}, dequantizes it and runs in float")


@FINDINGS.row("unfused", _X86_GUIDE)
def _between(evidence: TorchEvidence) -> Iterator[Found]:
    """Yields what ran in float between an operator that dequantizes and one that quantizes."""
    kernels = evidence.kernels
    why = "ran in float between an operator that dequantizes and one that quantizes"
    for maker, place, quantizer in evidence.flow.between:
        found = _found(kernels[place], why)
        yield found._replace(kernels=[kernels[maker], kernels[place], kernels[quantizer]])


@FINDINGS.row("inserted", "torch.profiler")
def _converted(evidence: TorchEvidence) -> Iterator[Found]:
    """Yields conversions between types, but for those that an operator in float is named with."""
    kernels = evidence.kernels
    named = {id(kernels[place]) for _, _, places in evidence.flow.in_float for place in places}
    for kind, types, kernel in changes_of_type(kernels):
        innermost = map(id, (kernel, *islice(around(kernel, kernels), 1)))
        if kind == torch_parts.CONVERT and named.isdisjoint(innermost):
            yield _found(kernel, f"converts {types}")


@FINDINGS.row("inserted", f"{_TORCH}/quantized/cpu/qconv.cpp, of PyTorch's repository")
def _reordered(evidence: TorchEvidence) -> Iterator[Found]:
    """Yields copies to another layout within quantized convolutions."""
    for kernel in evidence.kernels:
        outer = [kernel, *around(kernel, evidence.kernels)][-1]
        if kernel.name == "aten::clone" and outer.name.startswith("quantized::conv"):
            why = "copies what it takes to another layout, channels last"
            found = _found(outer, why, "inputs of the model in torch.channels_last")
            yield found._replace(place=torch_parts.place_name(kernel.module), kernels=[kernel])


@FINDINGS.row("observed", "torchao/quantization/pt2e, of torchao's repository")
def _observed(evidence: TorchEvidence) -> Iterator[Found]:
    """Yields modules that still observe numbers, which are there to be converted."""
    observing = (
        each
        for each in _outermost(evidence.kernels)
        if each.module in evidence.observers
        or torch_parts.kind_of(each.name) == torch_parts.OBSERVE
    )
    why = "still observes numbers or imitates their quantization: the model was not converted"
    for module, kernels in grouped(observing, attrgetter("module")).items():
        name = torch_parts.place_name(module)
        yield Found(name, kernels, f"`{name}` {why}", "the converted model", alike=why)


@FINDINGS.row("fallback", f"{_TORCH}/quantized/cpu/qnnpack, of PyTorch's repository")
def _engine(evidence: TorchEvidence) -> Iterator[Found]:
    """Yields operators of an engine that is made for another processor."""
    ran = [each for each in evidence.kernels if each.name.startswith("quantized::")]
    if ran and evidence.engine == "qnnpack" and evidence.machine in _OF_X86:
        yield Found(
            torch_parts.place_name(""),
            [each for each in ran if each.parent is None],
            "the quantized engine is qnnpack, which is made for ARM and uses no more than SSE2 on x86",
            "torch.backends.quantized.engine = 'x86' before the model is converted and run",
        )


@FINDINGS.row("scalar", "oneDNN's guide, Verbose Mode")
def _reference(evidence: TorchEvidence) -> Iterator[Found]:
    """Yields kernels of oneDNN without vector instructions."""
    for each in evidence.backend:
        if each.implementation.startswith(_REFERENCE):
            why = f"ran without vector instructions: {each.implementation} ({each.types})"
            name = torch_parts.place_name(each.node)
            text = f"{each.library}'s {each.primitive} of `{name}` {why}"
            # Its time is the time of the module's products, or of all that it runs if it has none.
            outermost = [one for one in _outermost(evidence.kernels) if one.module == each.node]
            products = [kernel for kernel in outermost if torch_parts.multiplies(kernel.name)]
            yield Found(name, products or outermost, text, alike=f"{each.primitive} {why}")
