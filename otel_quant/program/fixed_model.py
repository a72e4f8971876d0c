"""``fix``: a quantized ONNX model rewritten so that it runs in integers, with the proof."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from otel_quant.cost import InputSpec
from otel_quant.inference.fix.fix_results import FixResult
from otel_quant.inference.subjects import Options


def fix(
    model: str | os.PathLike[str], output: str | os.PathLike[str], *,
    float_model: str | os.PathLike[str] | None = None, only: Sequence[str] = (),
    dry_run: bool = False, allow_db: float = 0.1,
    inputs: Mapping[str, Sequence[int]] | None = None, data: str | None = None,
    threads: int | None = 1, seconds: float = 1.0, samples: int = 16,
) -> FixResult:  # fmt: skip
    """Rewrites a quantized ONNX model so that it runs in integers, as ``otel-quant fix`` does.

    Args:
        model: The quantized file, in QDQ form. It stays as it is.
        output: Where the fixed file goes, if a rewrite pays; nothing may be there.
        float_model: The float model, which decides on rewrites that make it another function.
        only: Kinds of rewrites; all if there are none.
        dry_run: Whether to return the forecast alone.
        allow_db: By how many dB the SQNR to the float model may fall.
        inputs: Shapes of inputs by name, where the model leaves lengths open.
        data: A file of ``numpy.savez`` with the inputs, in place of random ones.
        threads: Threads within a kernel while it is measured; None for onnxruntime's choice.
        seconds: Time for the timed runs of each model.
        samples: Random inputs whose outputs are compared.

    Returns:
        What was rewritten, measured and left alone; ``output`` is None where nothing was written,
        and ``why`` has the reason.

    Raises:
        FixError: A file cannot be read, measured or written.
    """
    from otel_quant.inference.fix.fixing import Wanted
    from otel_quant.inference.fix.fixing import fix as fix_file

    shapes = {name: InputSpec(tuple(shape)) for name, shape in (inputs or {}).items()}
    options = Options(threads=threads, seconds=seconds, samples=samples, inputs=shapes, data=data)
    floats = None if float_model is None else os.fspath(float_model)
    wanted = Wanted(os.fspath(model), os.fspath(output), floats, tuple(only), dry_run, allow_db)
    return fix_file(wanted, options)
