"""The operators of a profile by module, by operator and by what they do to types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from otel_quant.cost.graph import printable
from otel_quant.inference.pytorch.operators import (
    CONVERT,
    COPY,
    SCALES,
    allocates,
    copies,
    kind_of,
    shown,
)
from otel_quant.inference.pytorch.profile import Kernel, Profile
from otel_quant.inference.results import BackendKernel, Conversion, OperatorTime, Ran, RanKernel

MODEL: Final = "(model)"
"""What stands in place of a path for the model itself."""

_LONGEST: Final = 120
_MOST_TENSORS: Final = 16


def ran_of(profile: Profile, device: str) -> Ran:
    """Returns what ran, as other runtimes have it: operators of one kind in a module together."""
    kernels = profile.kernels
    own_bytes = _allocated(kernels)
    groups: dict[tuple[str, ...], list[int]] = {}
    for place, kernel in enumerate(kernels):
        groups.setdefault(_alike(kernel), []).append(place)
    whole = profile.kernel_micros or 1.0
    found = [
        _row(
            [kernels[place] for place in places],
            sum(own_bytes[place] for place in places),
            whole,
            device,
        )
        for places in groups.values()
    ]
    rows = sorted(_named_apart(found), key=lambda each: -each.micros)
    return Ran(
        profile.runs,
        profile.run_micros,
        profile.kernel_micros,
        max(0.0, profile.run_micros - profile.kernel_micros),
        tuple(rows),
        0,
        0.0,
        tuple(_operators(kernels, own_bytes, whole, device)),
    )


def place_name(module: str) -> str:
    """Returns the path of a module as people are shown it."""
    return printable(module, _LONGEST) if module else MODEL


def title(kernel: Kernel) -> str:
    """Returns an operator and its module as the names of kernels have them."""
    return f"{place_name(kernel.module)}: {shown(kernel.name)}"


def _alike(kernel: Kernel) -> tuple[str, ...]:
    inputs = (str(each.tensor) for each in kernel.inputs)
    outputs = (str(each.tensor) for each in kernel.outputs)
    return (kernel.module, kernel.name, *inputs, "->", *outputs)


def _allocated(kernels: Sequence[Kernel]) -> list[int]:
    """Returns the bytes that each allocates, or that are allocated for it."""
    found = [kernel.allocated for kernel in kernels]
    for place in reversed(range(len(kernels))):
        parent = kernels[place].parent
        if parent is not None and allocates(kernels[place].name):
            found[parent] += found[place]
            found[place] = 0
    return found


def _row(alike: Sequence[Kernel], allocated: int, whole: float, device: str) -> RanKernel:
    first, micros = alike[0], sum(kernel.micros for kernel in alike)
    return RanKernel(
        name=title(first),
        op_type=shown(first.name),
        node=place_name(first.module),
        nodes=1,
        provider=device,
        micros=micros,
        share=micros / whole,
        calls=float(len(alike)),
        inputs=tuple(str(each.tensor) for each in first.inputs[:_MOST_TENSORS]),
        outputs=tuple(str(each.tensor) for each in first.outputs[:_MOST_TENSORS]),
        macs=None,
        macs_per_second=None,
        allocated=allocated,
    )


def _named_apart(rows: Sequence[RanKernel]) -> Iterator[RanKernel]:
    known: dict[str, int] = {}
    for row in rows:
        count = known[row.name] = known.get(row.name, 0) + 1
        yield row if count == 1 else replace(row, name=f"{row.name} #{count}")


def _operators(
    kernels: Sequence[Kernel], allocated: Sequence[int], whole: float, device: str
) -> list[OperatorTime]:
    groups: dict[str, list[int]] = {}
    for place, kernel in enumerate(kernels):
        groups.setdefault(shown(kernel.name), []).append(place)
    found = []
    for name, places in groups.items():
        micros = sum(kernels[place].micros for place in places)
        size = sum(allocated[place] for place in places)
        found.append(
            OperatorTime(name, device, len(places), micros, micros / whole, None, None, size)
        )
    return sorted(found, key=lambda each: -each.micros)


def on_gpu(profile: Profile) -> tuple[BackendKernel, ...]:
    """Returns the kernels of a GPU that operators have started, the most frequent first."""
    modules: dict[str, list[str]] = {}
    for kernel in profile.kernels:
        for name in kernel.on_device:
            modules.setdefault(name, []).append(kernel.module)
    found = [
        BackendKernel("GPU", printable(name, _LONGEST), "", "", len(each), each[0], len(set(each)))
        for name, each in modules.items()
    ]
    return tuple(sorted(found, key=lambda each: -each.calls))


def conversions_of(profile: Profile) -> tuple[Conversion, ...]:
    """Counts and times what quantizes, dequantizes, observes and converts, the slowest first."""
    groups: dict[tuple[str, str], list[Kernel]] = {}
    for kind, types, kernel in changes_of_type(profile.kernels):
        groups.setdefault((kind, types), []).append(kernel)
    whole = profile.kernel_micros or 1.0
    found = [
        Conversion(
            kind,
            types,
            len(group),
            sum(kernel.total for kernel in group),
            sum(kernel.total for kernel in group) / whole,
        )
        for (kind, types), group in groups.items()
    ]
    return tuple(sorted(found, key=lambda each: -each.micros))


def changes_of_type(kernels: Sequence[Kernel]) -> Iterator[tuple[str, str, Kernel]]:
    """Yields what changes how numbers are stored: what it does, the types, and the operator.

    What runs within such an operator belongs to it. A copy of a scalar is none.
    """
    within: list[bool] = []
    for kernel in kernels:
        kind = kind_of(kernel.name)
        inside = kernel.parent is not None and within[kernel.parent]
        within.append(inside or kind is not None)
        if inside:
            continue
        if kind is not None:
            yield kind, _types_of(kernel), kernel
        elif (types := converted(kernel)) is not None:
            outermost = kernel
            while outermost.parent is not None and copies(kernels[outermost.parent].name):
                outermost = kernels[outermost.parent]
            yield CONVERT, " -> ".join(types), outermost


def converted(kernel: Kernel) -> tuple[str, str] | None:
    """Returns from which type to which a copy converts; None for anything else."""
    if kernel.name != COPY or len(kernel.inputs) < 2 or not kernel.inputs[0].tensor.shape:
        return None
    written, read = (operand.tensor.dtype for operand in kernel.inputs[:2])
    return None if written == read else (read, written)


def _types_of(kernel: Kernel) -> str:
    result = () if kind_of(kernel.name) == SCALES else kernel.outputs[:1]
    sides = (kernel.inputs[:1], result)
    return " -> ".join(each.tensor.dtype for side in sides for each in side)
