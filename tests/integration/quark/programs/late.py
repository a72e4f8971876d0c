"""A notebook: Quark is imported long before us, and hooked, unhooked and hooked again.

Arguments: folder of the float models, folder for the output. Writes what it finds out about itself to report.json.
"""

from __future__ import annotations

import json
import multiprocessing
import pickle
import sys
from pathlib import Path

import quark.onnx
from quark.onnx import quantize_dynamic
from quark.onnx.quantization import quantize as defining

from otel_quant import QuantInstrumentor


def main(models: Path, out: Path) -> None:
    original, model = quantize_dynamic, str(models / "matmul.onnx")

    QuantInstrumentor().instrument()
    hooked = quantize_dynamic
    QuantInstrumentor().instrument()
    found = {"hooked once": quantize_dynamic is hooked}
    quantize_dynamic(model, str(out / "alias.onnx"))
    quark.onnx.quantize_dynamic(model, str(out / "package.onnx"))
    with multiprocessing.get_context("fork").Pool(1) as pool:
        pool.starmap(quantize_dynamic, [(model, str(out / "pool.onnx"))])
    found["pickles"] = pickle.loads(pickle.dumps(quantize_dynamic)) is quantize_dynamic
    found["alias replaced"] = hooked is not original and hooked.__wrapped__ is original

    QuantInstrumentor().uninstrument()
    places = (quantize_dynamic, quark.onnx.quantize_dynamic, defining.quantize_dynamic)
    found["restored"] = all(place is original for place in places)
    quantize_dynamic(model, str(out / "too_late.onnx"))
    QuantInstrumentor().instrument()
    found["hooked again"] = quantize_dynamic is not original
    (out / "report.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
