"""Each pass of Olive is a step, within which the library that it uses reports its own; a workflow has one hash."""

from __future__ import annotations

import pytest

from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import steps_below, steps_by
from tests.integration.libraries.conftest import Program

pytest.importorskip("olive")


def test_passes_are_steps_and_libraries_below_them_nest(
    program: Program, otlp: OtlpReceiver
) -> None:
    program("olive_ai_all.py", OTEL_QUANT_PATHS="off", OLIVE_DISABLE_TELEMETRY="1")

    [root] = otlp.spans_named("quantization")
    program.check_written(root, "OnnxDynamicQuantization", "OnnxPeepholeOptimizer")
    step, below = steps_by("olive-ai"), steps_by("onnxruntime", "onnxruntime.quantization.")
    run = "olive.passes.olive_pass.Pass.run"
    save = ("Post-process", "onnx_model.ONNXModel.save_model_to_file")
    quantize = ("Quantization (Dynamic)", "onnx_quantizer.ONNXQuantizer.quantize_model")

    def workflow(per_channel: bool, granularity: str) -> list[object]:
        known = {
            semconv.BITS: 8, semconv.GRANULARITY: granularity, semconv.PER_CHANNEL: per_channel,
            semconv.WEIGHT_TYPE: "QInt8", semconv.ACTIVATION_SYMMETRIC: False,
            # What the nodes and tensors of the written model have
            semconv.SYMMETRIC: True, semconv.WEIGHT_COUNT: 2,
            semconv.CONFIG_NAME: "OnnxDynamicQuantizationConfig",
        }  # fmt: skip
        within = [below(quantize, known), below(save, known)]
        described = {semconv.GRANULARITY: granularity, semconv.PER_CHANNEL: per_channel}
        passes = [
            step((name, run), {semconv.CONFIG_NAME: f"{name}Config", **described}, *steps)
            for name, steps in (("OnnxDynamicQuantization", within), ("OnnxPeepholeOptimizer", []))
        ]
        return [(f"workflow {per_channel=}", {}, passes)] + 2 * [("model cost", None)]

    assert steps_below(otlp, root) == workflow(False, "tensor") + workflow(True, "channel")

    workflows = [each for each in otlp.children(root) if each.name != "model cost"]
    hashes = [
        {each.attributes[semconv.CONFIG_HASH] for each in otlp.children(w)} for w in workflows
    ]
    assert [len(each) for each in hashes] == [1, 1]
    assert hashes[0] != hashes[1]
    assert set(root.attributes[semconv.CONFIG_HASH].split(", ")) == hashes[0] | hashes[1]
