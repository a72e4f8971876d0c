"""Kernels that the runtime has put in, and kernels that are slow by themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from otel_quant.cost.graph import DEQUANTIZES, QDQ, QUANTIZES, Operation, dtypes
from otel_quant.inference.file_graph import FileGraph
from otel_quant.inference.findings.record import Evidence, FoundDefect, listed, title
from otel_quant.inference.join import Kernel

_CPU: Final = "CPUExecutionProvider"
_MEMCPY: Final = frozenset({"MemcpyFromHost", "MemcpyToHost"})

_WHY: Final[Mapping[str, tuple[str, str]]] = {
    "Cast": ("converts between types because there is no kernel in the type of the file", ""),
    "Transpose": (
        "changes the order of the axes for the kernel next to it, which wants the channels last",
        "",
    ),
    "ReorderInput": ("blocks the channels for the kernel behind it", ""),
    "ReorderOutput": (
        "puts the channels back because the kernel behind it does not take them in blocks",
        "",
    ),
}
"""Operator -> what it does, and what would change it."""


def inserted(evidence: Evidence) -> Iterator[FoundDefect]:
    """Yields conversions that the runtime has put in, those at the model's ends left out."""
    moved = _moved(evidence)
    for kernel in evidence.kernels:
        op_type = kernel.profiled.op_type
        if not kernel.inserted or op_type not in _WHY:
            continue
        if op_type != "Cast" and _at_an_end(evidence.file, kernel):
            continue
        if moved[op_type] > 0:
            moved[op_type] -= 1
            continue
        does, remedy = _WHY[op_type]
        near = kernel.after or kernel.before
        node = kernel.profiled.name if near is None else near.name
        text = f"onnxruntime put in a {op_type} {_place(kernel)}: it {does}"
        yield FoundDefect(node, [kernel], text, remedy, op_type)


def _moved(evidence: Evidence) -> Counter[str]:
    """Counts the nodes of the file that are gone: the optimizer has moved them elsewhere."""
    ran = {op for kernel in evidence.kernels for op in kernel.nodes}
    return Counter(
        op.node.op_type
        for op in evidence.file.ops
        if op not in ran
        and op.node.op_type in _WHY
        and not all(value is None or value.constant for value in op.inputs)
    )


def _place(kernel: Kernel) -> str:
    before, after = kernel.before, kernel.after
    if before is not None and after is not None and before is not after:
        return f"between {title(before)} and {title(after)}"
    if after is not None:
        return f"{'next to' if before is after else 'in front of'} {title(after)}"
    return "" if before is None else f"behind {title(before)}"


def _at_an_end(file: FileGraph, kernel: Kernel) -> bool:
    """Whether nothing but a conversion stands between a kernel and an input or output."""
    before, after = kernel.before, kernel.after
    at_input = before is None or (before.kind in QUANTIZES and _reads_input(file, before))
    at_output = after is None or (
        after.kind in DEQUANTIZES and any(map(file.is_output, after.outputs))
    )
    return (at_input and after is not None) or (at_output and before is not None)


def _reads_input(file: FileGraph, op: Operation) -> bool:
    return op.has(0) and file.is_input(op.input(0))


def copies(evidence: Evidence) -> Iterator[FoundDefect]:
    """Yields copies between the memories of two providers."""
    for kernel in evidence.kernels:
        if kernel.profiled.op_type in _MEMCPY:
            near = kernel.after or kernel.before
            node = kernel.profiled.name if near is None else near.name
            text = f"a tensor is copied between providers {_place(kernel)}".rstrip()
            yield FoundDefect(node, [kernel], text, "nodes of one provider on either side")


def fallback(evidence: Evidence) -> Iterator[FoundDefect]:
    """Yields nodes that ran on the CPU although another provider was asked for before it."""
    wanted = next(iter(evidence.asked), _CPU)
    if wanted == _CPU:
        return
    groups: dict[tuple[str, str], list[Kernel]] = {}
    for kernel in evidence.kernels:
        provider = kernel.profiled.provider
        if provider != wanted and kernel.profiled.op_type not in _MEMCPY:
            groups.setdefault((kernel.profiled.op_type, provider), []).append(kernel)
    for (op_type, provider), kernels in groups.items():
        names = [kernel.node.name if kernel.node else kernel.profiled.name for kernel in kernels]
        yield FoundDefect(
            names[0], kernels, f"{op_type} {listed(names)} ran on {provider} and not on {wanted}"
        )


_ONE_BY_ONE: Final = frozenset(
    {"QLinearAveragePool", "QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax", "MatMulBnb4"}
)
"""Kernels of the CPU provider that take one element after the other, or dequantize all weights."""


def scalar(evidence: Evidence) -> Iterator[FoundDefect]:
    """Yields kernels without a vectorized path."""
    for kernel in evidence.kernels:
        profiled = kernel.profiled
        if profiled.op_type in _ONE_BY_ONE and profiled.provider == _CPU:
            node = profiled.name if kernel.node is None else kernel.node.name
            of = "" if kernel.node is None else f" of {title(_named(kernel.nodes))}"
            text = f"the kernel {profiled.op_type}{of} has no vectorized path"
            yield FoundDefect(node, [kernel], text)


def _named(nodes: Sequence[Operation]) -> Operation:
    return next((op for op in nodes if op.kind not in QDQ), nodes[0])


def computed_shapes(evidence: Evidence) -> Iterator[FoundDefect]:
    """Yields what computes shapes in every run because an input has a length that is not fixed."""
    if not evidence.open_lengths:
        return
    of_shapes = _from_shapes(evidence.file)
    kernels = [
        kernel
        for kernel in evidence.kernels
        if kernel.nodes and all(op in of_shapes for op in kernel.nodes)
    ]
    if not kernels:
        return
    first = next(op for op in evidence.file.ops if any(op in kernel.nodes for kernel in kernels))
    names = [op.name for op in evidence.file.ops if any(op in kernel.nodes for kernel in kernels)]
    text = (
        f"{listed(names)} compute shapes in every run because lengths of the inputs are not fixed"
    )
    remedy = "fixed lengths (python -m onnxruntime.tools.make_dynamic_shape_fixed)"
    yield FoundDefect(first.name, kernels, text, remedy)


def _from_shapes(file: FileGraph) -> set[Operation]:
    """Returns the nodes that make numbers of a shape, from Shape and constants alone."""
    found: set[Operation] = set()
    for op in file.ops:
        makers = [
            file.maker(value) for value in op.inputs if value is not None and not value.constant
        ]
        known = [maker for maker in makers if maker is not None]
        small = all(value.dtype in _LENGTHS and (value.size or 0) <= _RANKS for value in op.outputs)
        if op.kind == "Shape" or (
            known and len(known) == len(makers) and small and all(each in found for each in known)
        ):
            found.add(op)
    return found


_LENGTHS: Final = frozenset({dtypes.INT64, dtypes.INT32, dtypes.BOOL})

_RANKS: Final = 64
"""Elements of the largest tensor that is taken for a shape."""
