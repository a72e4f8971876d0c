"""Hooks on a real library: set late, set twice, removed; the program itself does not change."""

from __future__ import annotations

import json
from pathlib import Path

from tests.fixtures.programs import FLOAT_MODEL, run_script, steps_in

LATE = f"""{FLOAT_MODEL}
import json, multiprocessing, pickle, sys
import onnxruntime.quantization
from onnxruntime.quantization import quantize_dynamic
from otel_quant import QuantInstrumentor

def main():  # names of a module are aliases, which are replaced
    original, defining = quantize_dynamic, sys.modules["onnxruntime.quantization.quantize"]

    QuantInstrumentor().instrument()
    hooked = quantize_dynamic
    QuantInstrumentor().instrument()
    found = {{"hooked once": quantize_dynamic is hooked}}
    quantize_dynamic("float.onnx", "alias.onnx")
    onnxruntime.quantization.quantize_dynamic("float.onnx", "package.onnx")
    with multiprocessing.get_context("fork").Pool(1) as pool:
        pool.starmap(quantize_dynamic, [("float.onnx", "pool.onnx")])
    found["pickles"] = pickle.loads(pickle.dumps(quantize_dynamic)) is quantize_dynamic
    found["alias replaced"] = hooked is not original and hooked.__wrapped__ is original

    QuantInstrumentor().uninstrument()
    places = (quantize_dynamic, onnxruntime.quantization.quantize_dynamic, defining.quantize_dynamic)
    found["restored"] = all(place is original for place in places)
    quantize_dynamic("float.onnx", "too_late.onnx")
    QuantInstrumentor().instrument()
    found["hooked again"] = quantize_dynamic is not original
    print(json.dumps(found))

main()
"""


def test_a_late_instrument_hooks_aliases_once_and_uninstrument_restores_them(
    tmp_path: Path,
) -> None:
    out, _ = run_script(tmp_path, LATE, OTEL_QUANT_PROFILE="p.yaml")
    assert json.loads(out.splitlines()[-1]) == dict.fromkeys(
        ("alias replaced", "hooked once", "pickles", "restored", "hooked again"), True
    )
    names = ("alias", "package", "pool", "too_late")
    assert len({(tmp_path / f"{name}.onnx").read_bytes() for name in names}) == 1
    steps = ("Quantization (Dynamic)", "Post-process")
    once = [f"{step} {end}" for step in steps for end in ("Start", "End")]
    assert steps_in(tmp_path / "p.yaml") == ["Start", *once, *once, "End"]
    [of_worker] = tmp_path.glob("p.*.yaml")
    assert steps_in(of_worker)[:5] == ["Start", *once]  # the end of the block terminates it
