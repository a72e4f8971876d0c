"""What oneDNN prints of what it runs: below torch, and within OpenVINO."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from otel_quant.cost.graph import printable
from otel_quant.inference.results import BackendKernel, backend_kernels
from otel_quant.inference.torch_parts import path_in

_LONGEST: Final = 120
MODULE: Final = "otel-quant module "
"""Prefix of a line that names the module that runs from there on."""


_INSTRUCTIONS: Final = re.compile(r",isa:([^,]*)")


def read_verbose(text: str) -> tuple[tuple[BackendKernel, ...], Mapping[str, str]]:
    """Reads what was written in a run: kernels, the most frequent first, and instruction sets."""
    facts: dict[str, str] = {}
    ran: list[tuple[tuple[str, str, str, str], str]] = []
    module = ""
    for line in text.splitlines():
        if line.startswith(MODULE):
            module = path_in(line[len(MODULE) :])
        elif line.startswith("onednn_verbose,"):
            fields = line.split(",")
            for isa in _INSTRUCTIONS.findall(line):
                facts["oneDNN's instruction set"] = printable(isa, _LONGEST)
            # Behind it: engine, primitive, implementation, direction, descriptors of memory, and more.
            rest = line.partition(",exec,")[2].split(",")
            if len(rest) > 4 and "graph" not in fields:
                types = (descriptor.split(":")[:2] for descriptor in rest[4].split())
                shown = " ".join(":".join(filter(None, pair)) for pair in types)
                ran.append((("oneDNN", rest[1], rest[2], shown), module))
    return backend_kernels(ran), facts
