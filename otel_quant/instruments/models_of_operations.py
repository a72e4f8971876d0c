"""Costs the ONNX models that an operation has read and written, and hands them to the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_quant.runtime import RUNTIME


def report_models(arguments: Mapping[str, Any], result: object) -> None:
    """Costs the models of an operation that has ended well.

    Args:
        arguments: The operation's arguments, by parameter's name.
        result: What it returned.
    """
    settings = RUNTIME.settings
    if not settings.cost or not RUNTIME.is_running:
        return
    # Imported here: a program that costs no model does not pay for it.
    from otel_quant.instruments.model_cost import cost_models, models_of

    costs = cost_models(
        models_of(arguments, result), time_limit=settings.cost_timeout, paths=settings.paths
    )
    RUNTIME.recorder.models_costed(list(costs))
