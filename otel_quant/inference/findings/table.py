"""The table of defects, and what it finds in a run."""

from __future__ import annotations

from typing import Final

from otel_quant.inference.findings.conversions import foreign, in_float, other_axis, unfused
from otel_quant.inference.findings.inserted import (
    computed_shapes,
    copies,
    fallback,
    inserted,
    scalar,
)
from otel_quant.inference.findings.record import Defect, Evidence, Finding, FoundDefect, finding_of

_OPTIMIZER: Final = "onnxruntime/core/optimizer/"

DEFECTS: Final[tuple[Defect, ...]] = (
    Defect("in_float", in_float, f"{_OPTIMIZER}qdq_transformer/selectors_actions/qdq_selectors.cc"),
    Defect("unfused", unfused, f"{_OPTIMIZER}qdq_transformer/selectors_actions/qdq_selectors.cc"),
    Defect("unfused", foreign, "AMD Quark's custom operators, quark.onnx"),
    Defect("axis", other_axis, "onnxruntime/core/providers/cpu/quantization/qlinearconv.cc"),
    Defect(
        "inserted",
        inserted,
        f"{_OPTIMIZER}insert_cast_transformer.cc, nhwc_transformer.cc, nchwc_transformer.cc",
    ),
    Defect("memcpy", copies, f"{_OPTIMIZER}transformer_memcpy.cc"),
    Defect("fallback", fallback, "onnxruntime/core/framework/graph_partitioner.cc"),
    Defect(
        "scalar",
        scalar,
        "onnxruntime/contrib_ops/cpu/quantization/qlinear_lookup_table.cc, qlinear_pool.cc",
    ),
    Defect("shapes", computed_shapes, "onnxruntime.ai/docs/tutorials/mobile/helpers"),
)
"""In the order in which a run is looked at; files are those of onnxruntime's repository."""


def findings(evidence: Evidence) -> list[Finding]:
    """Returns what went wrong in a run, what took longest first."""
    found = [_finding(defect, met) for defect in DEFECTS for met in defect.find(evidence)]
    return sorted(found, key=lambda each: -each.micros)


def _finding(defect: Defect, met: FoundDefect) -> Finding:
    kernels = ((each.profiled.name, each.micros, each.share) for each in met.kernels)
    return finding_of(
        defect.kind, defect.source, met.node, met.text, kernels, met.remedy, met.alike
    )
