"""What went wrong in a PyTorch model at work, each as a sentence with its share of the time."""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from otel_quant.inference.findings.record import Finding, finding_of
from otel_quant.inference.pytorch.flow import Flow
from otel_quant.inference.pytorch.operators import CONVERT, OBSERVE, kind_of, multiplies, shown
from otel_quant.inference.pytorch.profile import Kernel
from otel_quant.inference.pytorch.what_ran import changes_of_type, place_name, title
from otel_quant.inference.results import BackendKernel

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
class Evidence:
    """What defects are looked for in."""

    kernels: Sequence[Kernel]  # Operators in the order in which they begin
    backend: Sequence[BackendKernel]  # What libraries below them have run
    engine: str  # The quantized engine in force
    flow: Flow  # Where numbers are dequantized for the operators
    # Paths of modules that observe numbers or imitate their quantization
    observers: Collection[str] = ()
    machine: str = platform.machine()  # The processor's architecture


class FoundDefect(NamedTuple):
    """A defect that was found."""

    module: str  # Path of the module
    # The operators whose time it is, that of what runs within them included
    kernels: Sequence[Kernel]
    text: str  # What is wrong, without the share
    remedy: str  # What would change it; empty if nothing is known
    alike: str  # The same for those that are so for the same reason


def findings(evidence: Evidence) -> list[Finding]:
    """Returns what went wrong in a run, what took longest first."""
    whole = sum(kernel.micros for kernel in evidence.kernels) or 1.0
    found = [
        finding_of(
            kind,
            source,
            place_name(met.module),
            met.text,
            ((title(kernel), kernel.total, kernel.total / whole) for kernel in met.kernels),
            met.remedy,
            met.alike,
        )
        for kind, find, source in DEFECTS
        for met in find(evidence)
    ]
    return sorted(found, key=lambda each: -each.micros)


def _in_float(evidence: Evidence) -> Iterator[FoundDefect]:
    kernels = evidence.kernels
    for place, weights, dequantized in evidence.flow.in_float:
        kernel = kernels[place]
        dtype = next((each.tensor.dtype for each in kernel.outputs), "float")
        if weights:
            why = f"although its weights are {weights}: they are dequantized in every run"
        else:
            why = "although what it takes was quantized: it is dequantized before"
        makers = [kernels[each] for each in dequantized]
        is_reference = any(each.name.startswith("quantized_decomposed::") for each in makers)
        yield FoundDefect(
            kernel.module,
            [kernel, *makers],
            f"{_name(kernel)} ran in {dtype} {why}",
            "torch.compile with freezing, or another backend that lowers quantized_decomposed"
            if is_reference
            else "",
            f"{shown(kernel.name)} {dtype} {why}",
        )


def _within(evidence: Evidence) -> Iterator[FoundDefect]:
    for place, dequantized in evidence.flow.within.items():
        kernel = evidence.kernels[place]
        dtype = evidence.kernels[dequantized].inputs[0].tensor.dtype
        why = f"takes {dtype}, dequantizes it and runs in float"
        yield FoundDefect(
            kernel.module, [kernel], f"{_name(kernel)} {why}", "", f"{kernel.name} {why}"
        )


def _between(evidence: Evidence) -> Iterator[FoundDefect]:
    kernels = evidence.kernels
    for dequantized, place, quantized in evidence.flow.between:
        kernel = kernels[place]
        why = "ran in float between an operator that dequantizes and one that quantizes"
        yield FoundDefect(
            kernel.module,
            [kernels[each] for each in (dequantized, place, quantized)],
            f"{_name(kernel)} {why}",
            "",
            f"{kernel.name} {why}",
        )


def _converted(evidence: Evidence) -> Iterator[FoundDefect]:
    kernels = evidence.kernels
    named = {id(kernels[place]) for found in evidence.flow.in_float for place in found.dequantized}
    for kind, types, kernel in changes_of_type(kernels):
        within = kernel if kernel.parent is None else kernels[kernel.parent]
        if kind == CONVERT and named.isdisjoint({id(kernel), id(within)}):
            yield FoundDefect(
                kernel.module,
                [kernel],
                f"{_name(kernel)} converts {types}",
                "",
                f"{kernel.name} {types}",
            )


def _reordered(evidence: Evidence) -> Iterator[FoundDefect]:
    for kernel in evidence.kernels:
        outer = kernel
        while outer.parent is not None:
            outer = evidence.kernels[outer.parent]
        if kernel.name == "aten::clone" and outer.name.startswith("quantized::conv"):
            why = "copies what it takes to another layout, channels last"
            yield FoundDefect(
                kernel.module,
                [kernel],
                f"{_name(outer)} {why}",
                "inputs of the model in torch.channels_last",
                f"{outer.name} {why}",
            )


def _observed(evidence: Evidence) -> Iterator[FoundDefect]:
    groups: dict[str, list[Kernel]] = {}
    for kernel in evidence.kernels:
        outer = None if kernel.parent is None else evidence.kernels[kernel.parent]
        observes = kernel.module in evidence.observers or kind_of(kernel.name) == OBSERVE
        if observes and (outer is None or outer.module != kernel.module):
            groups.setdefault(kernel.module, []).append(kernel)
    why = "still observes numbers or imitates their quantization: the model was not converted"
    for module, kernels in groups.items():
        yield FoundDefect(
            module, kernels, f"`{place_name(module)}` {why}", "the converted model", why
        )


def _engine(evidence: Evidence) -> Iterator[FoundDefect]:
    ran = [each for each in evidence.kernels if each.name.startswith("quantized::")]
    if ran and evidence.engine == "qnnpack" and evidence.machine in _OF_X86:
        yield FoundDefect(
            "",
            [each for each in ran if each.parent is None],
            "the quantized engine is qnnpack, which is made for ARM and uses no more than SSE2 on x86",
            "torch.backends.quantized.engine = 'x86' before the model is converted and run",
            "",
        )


def _slow(evidence: Evidence) -> Iterator[FoundDefect]:
    for kernel in evidence.kernels:
        # Of a kernel of one point such a product is the best that there is.
        if kernel.name in _SLOW and any(each != 1 for each in _kernel_size(kernel)):
            why = "is torch's own convolution by matrix products, not one of oneDNN's kernels"
            yield FoundDefect(
                kernel.module, [kernel], f"{_name(kernel)} {why}", "", f"{kernel.name} {why}"
            )


def _kernel_size(convolution: Kernel) -> tuple[int, ...]:
    return convolution.inputs[1].tensor.shape[2:] if len(convolution.inputs) > 1 else ()


def _reference(evidence: Evidence) -> Iterator[FoundDefect]:
    for each in evidence.backend:
        if each.implementation.startswith(_REFERENCE):
            why = f"ran without vector instructions: {each.implementation} ({each.types})"
            yield FoundDefect(
                each.node,
                _products_of(each.node, evidence.kernels),
                f"{each.library}'s {each.primitive} of `{place_name(each.node)}` {why}",
                "",
                f"{each.primitive} {why}",
            )


def _products_of(module: str, kernels: Sequence[Kernel]) -> Sequence[Kernel]:
    """Returns a module's outermost products; all its outermost operators if it has none."""
    outermost = [
        kernel
        for kernel in kernels
        if kernel.module == module
        and (kernel.parent is None or kernels[kernel.parent].module != module)
    ]
    return [kernel for kernel in outermost if multiplies(kernel.name)] or outermost


def _name(kernel: Kernel) -> str:
    return f"{shown(kernel.name)} of `{place_name(kernel.module)}`"


_X86_GUIDE: Final = (
    "docs.pytorch.org, PyTorch 2 Export Quantization with X86 Backend through Inductor"
)

DEFECTS: Final[Sequence[tuple[str, Callable[[Evidence], Iterator[FoundDefect]], str]]] = (
    ("in_float", _in_float, _X86_GUIDE),
    ("in_float", _within, "aten/src/ATen/native/quantized, of PyTorch's repository"),
    ("unfused", _between, _X86_GUIDE),
    ("inserted", _converted, "torch.profiler"),
    (
        "inserted",
        _reordered,
        "aten/src/ATen/native/quantized/cpu/qconv.cpp, of PyTorch's repository",
    ),
    ("observed", _observed, "torchao/quantization/pt2e, of torchao's repository"),
    ("fallback", _engine, "aten/src/ATen/native/quantized/cpu/qnnpack, of PyTorch's repository"),
    ("fallback", _slow, "aten/src/ATen/native/Convolution.cpp, of PyTorch's repository"),
    ("scalar", _reference, "oneDNN's guide, Verbose Mode"),
)
"""Kinds of defects, each with what recognises it and where what is said can be read."""
