"""optimum-onnx drives onnxruntime's steps, which carry what it was asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_quant.recordings.reader import read
from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import Launched
from tests.fixtures.steps import steps_below, steps_by
from tests.integration.libraries.conftest import PROGRAMS, Program

pytest.importorskip("optimum.onnxruntime")


def test_steps_are_from_onnxruntime_and_arguments_from_optimum(
    program: Program, otlp: OtlpReceiver
) -> None:
    program("optimum_onnx_all.py")

    [root] = otlp.spans_named("quantization")
    program.check_written(root)
    step = steps_by("onnxruntime", "onnxruntime.quantization.")
    save = ("Post-process", "onnx_model.ONNXModel.save_model_to_file")
    given = {
        semconv.ACTIVATION_BITS: 8, semconv.ACTIVATION_TYPE: "QUInt8", semconv.BITS: 8,
        semconv.CONFIG_NAME: "QuantizationConfig", semconv.INPUT_PATH: "float.onnx",
    }  # fmt: skip
    static = {
        **given, semconv.FORMAT: "QDQ", semconv.GRANULARITY: "tensor", semconv.PER_CHANNEL: False,
        semconv.WEIGHT_TYPE: "QInt8", semconv.SYMMETRIC: True, semconv.WEIGHT_COUNT: 2,
    }  # fmt: skip
    dynamic = {
        **given, semconv.FORMAT: "QOperator", semconv.GRANULARITY: "channel", semconv.PER_CHANNEL: True,
        semconv.WEIGHT_TYPE: "QUInt8", semconv.SYMMETRIC: False, semconv.WEIGHT_COUNT: 2,
    }  # fmt: skip
    ways = {
        "static": [
            step(
                ("Calibration", "calibrate.HistogramCalibrater.collect_data"),
                {
                    semconv.INPUT_PATH: "float.onnx",
                    semconv.CALIBRATION_METHOD: "Percentile",
                    semconv.CALIBRATION_SAMPLE_COUNT: 5,
                },
            ),
            step(("Quantization (Static)", "qdq_quantizer.QDQQuantizer.quantize_model"), static),
            step(save, {**static, semconv.OUTPUT_PATH: "static/float_quantized.onnx"}),
        ],
        "dynamic": [
            step(
                ("Quantization (Dynamic)", "onnx_quantizer.ONNXQuantizer.quantize_model"), dynamic
            ),
            step(save, {**dynamic, semconv.OUTPUT_PATH: "dynamic/float.onnx"}),
        ],
    }
    reported = steps_below(otlp, root)
    assert [entry for entry in reported if entry[0] != "model cost"] == [
        (way, {}, within) for way, within in ways.items()
    ]
    assert [entry[1] for entry in reported if entry[0] == "model cost"] == [
        "float.onnx", "static/float_quantized.onnx", "float.onnx", "dynamic/float.onnx"
    ]  # fmt: skip
    # What ``fit`` has seen is known to ``quantize``, which is another call.
    for span in otlp.spans_named("model cost"):
        role = span.attributes[semconv.MODEL_ROLE]
        assert span.attributes[f"quant.model.{role}.input_shapes"] == ("x=1x64",)


def test_accelerate_launch_and_optimum_cli_are_recorded(launched: Launched) -> None:
    pytest.importorskip("accelerate")
    script = PROGRAMS / "optimum_onnx_all.py"
    static = ["static", "Calibration", "Quantization (Static)", "Post-process"]
    dynamic = ["Quantization (Dynamic)", "Post-process"]
    ours = launched.run(["accelerate", "launch", "--cpu", str(script)], "--out", "accelerate")
    assert steps_of(launched.folder / "accelerate") == [*static, "dynamic", *dynamic]

    (launched.folder / "model").mkdir()
    (launched.folder / "float.onnx").rename(launched.folder / "model" / "model.onnx")
    (launched.folder / "model" / "config.json").write_text('{"model_type": "bert"}')
    quantize = ["optimum-cli", "onnxruntime", "quantize", "--onnx_model", "model", "--avx2"]
    cli = launched.run([*quantize, "-o", "made"], "--out", "cli")
    assert steps_of(launched.folder / "cli") == dynamic
    assert (launched.folder / "made" / "model_quantized.onnx").exists()

    # What each of them ends with is the program's own.
    failed = launched.run(["accelerate", "launch", "--cpu", "missing.py"], "--out", "failed")
    bare = launched.run_bare(["accelerate", "launch", "--cpu", "missing.py"])
    assert [ours.returncode, cli.returncode, failed.returncode] == [0, 0, bare.returncode]
    assert "CalledProcessError" in failed.stderr


def steps_of(folder: Path) -> list[str]:
    """Returns the names of the steps in a recording that has ended well, with steps in one process.

    A launcher that takes half a minute to start, on a busy machine, is recorded too.
    """
    recording = read(folder)
    assert recording.ending is not None
    assert recording.ending.exit_code == 0
    [run] = [run for run in recording.runs if run.steps]
    return [step.name for step in run.steps]
