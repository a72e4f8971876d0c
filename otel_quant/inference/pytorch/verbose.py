"""What oneDNN and MKL say of the kernels that they run, when they are told to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from otel_quant.cost.graph import printable
from otel_quant.inference.pytorch.ranges import path_in
from otel_quant.inference.results import BackendKernel

MODULE: Final = "otel-quant module "
"""Begin of a line that says which module runs from there on."""

_ONEDNN: Final = "onednn_verbose,"
_MKL: Final = "MKL_VERBOSE "
_ISA: Final = "isa:"
_FOR: Final = " for "
_LONGEST: Final = 120


@dataclass(frozen=True, slots=True)
class VerboseOutput:
    """What libraries have said of a run."""

    kernels: tuple[BackendKernel, ...]  # Those that did the same together, the most frequent first
    facts: Mapping[str, str]  # Instruction sets by library


def read_verbose(text: str) -> VerboseOutput:
    """Reads what was written to the standard output of a run."""
    facts: dict[str, str] = {}
    modules: dict[tuple[str, str, str, str], list[str]] = {}
    module = ""
    for line in text.splitlines():
        if line.startswith(MODULE):
            module = path_in(line[len(MODULE) :])
        elif line.startswith(_ONEDNN):
            fields = line.split(",")
            for each in fields:
                if each.startswith(_ISA):
                    facts["oneDNN's instruction set"] = printable(each.removeprefix(_ISA), _LONGEST)
            for key in _primitive(fields):
                modules.setdefault(key, []).append(module)
        elif line.startswith(_MKL):
            name, bracket, _ = line[len(_MKL) :].partition("(")
            if bracket and name.isalnum():
                modules.setdefault(("MKL", name, "", ""), []).append(module)
            elif _FOR in line:
                facts["MKL's instruction set"] = printable(
                    line.split(_FOR, 2)[-1].split(",")[0], _LONGEST
                )
    kernels = [
        BackendKernel(*key, len(within), within[0], len(set(within)))
        for key, within in modules.items()
    ]
    return VerboseOutput(tuple(sorted(kernels, key=lambda each: -each.calls)), facts)


def _primitive(fields: list[str]) -> Iterator[tuple[str, str, str, str]]:
    """Yields library, primitive, implementation and types of a line about an execution."""
    if "exec" not in fields or "graph" in fields:
        return
    # Behind it: engine, primitive, implementation, direction, descriptors of memory, and more.
    rest = fields[fields.index("exec") + 1 :]
    if len(rest) > 4:
        types = (descriptor.split(":")[:2] for descriptor in rest[4].split())
        yield "oneDNN", rest[1], rest[2], " ".join(":".join(filter(None, pair)) for pair in types)
