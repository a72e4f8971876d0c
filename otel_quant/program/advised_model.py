"""``advise``: which layers of a quantized ONNX model to leave in float, and what that gives."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from otel_quant.cost import InputSpec
from otel_quant.inference.advise.advice_results import AdviceResult
from otel_quant.inference.advise.choosing import Target
from otel_quant.inference.subjects import Options


def advise(
    float_model: str | os.PathLike[str], model: str | os.PathLike[str], *,
    target: Target = "accuracy", budget: str = "",
    inputs: Mapping[str, Sequence[int]] | None = None, data: str | None = None,
    threads: int | None = 1, seconds: float = 1.0, samples: int = 16,
) -> AdviceResult:  # fmt: skip
    """Finds the nodes of a quantized ONNX model to leave in float, as ``otel-quant advise`` does.

    Args:
        float_model: The float model that the quantizer was given.
        model: The quantized file, in QDQ form.
        target: What is to become better: ``accuracy`` for the least time, ``latency``, or accuracy
            for the fewest bytes (``size``).
        budget: ``sqnr>=35dB``, ``sqnr>=+3dB`` (more than now; the default for accuracy),
            ``latency<=5ms``, ``latency<=1.2x`` (of now), ``size<=20MB`` or ``size<=2x``.
        inputs: Shapes of inputs by name, where the model leaves lengths open.
        data: A file of ``numpy.savez`` with the inputs, in place of random ones.
        threads: Threads within a kernel while it is measured; None for onnxruntime's choice.
        seconds: Time for the timed runs of each model.
        samples: Random inputs whose outputs are compared.

    Returns:
        The nodes, the option for the script of the tool that made the model, and what was measured
        of the model with them in float; ``why`` has the reason where there are none.

    Raises:
        FixError: The budget makes no sense, or a file cannot be read or measured.
    """
    from otel_quant.inference.advise.advising import AdviceWanted
    from otel_quant.inference.advise.advising import advise as advise_on_files

    shapes = {name: InputSpec(tuple(shape)) for name, shape in (inputs or {}).items()}
    options = Options(threads=threads, seconds=seconds, samples=samples, inputs=shapes, data=data)
    wanted = AdviceWanted(os.fspath(float_model), os.fspath(model), target, budget)
    return advise_on_files(wanted, options)
