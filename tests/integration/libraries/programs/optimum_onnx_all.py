# /// script
# dependencies = ["optimum-onnx[onnxruntime]", "accelerate", "datasets", "onnx-ir"]
# ///
"""Quantizes a small model with optimum-onnx, statically and dynamically."""

from __future__ import annotations

import datasets
import onnx
from onnxruntime.quantization import CalibrationMethod
from optimum.onnxruntime import ORTQuantizer
from optimum.onnxruntime.configuration import AutoCalibrationConfig, AutoQuantizationConfig
from ort import write_model
from written_onnx import note

import otel_quant

datasets.disable_progress_bars()


def main() -> None:
    write_model("float.onnx")
    samples = datasets.Dataset.from_dict({"x": [[float(n)] * 64 for n in range(5)]})
    with otel_quant.step("static"):
        quantizer = ORTQuantizer.from_pretrained(".", file_name="float.onnx")
        config = AutoQuantizationConfig.avx512_vnni(is_static=True, per_channel=False)
        how = AutoCalibrationConfig.percentiles(samples, percentile=99.9)
        assert how.method is CalibrationMethod.Percentile
        ranges = quantizer.fit(samples, how, operators_to_quantize=config.operators_to_quantize)
        quantizer.quantize(config, "static", calibration_tensors_range=ranges)
    with otel_quant.step("dynamic"):
        config = AutoQuantizationConfig.avx2(is_static=False)
        quantizer.quantize(config, "dynamic", file_suffix=None)
    for way, made in (("static", "static/float_quantized.onnx"), ("dynamic", "dynamic/float.onnx")):
        onnx.checker.check_model(made)
        note(made, way)


if __name__ == "__main__":
    main()
