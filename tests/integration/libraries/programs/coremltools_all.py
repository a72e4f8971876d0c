# /// script
# dependencies = ["coremltools", "torch", "scikit-learn"]
# ///
"""Quantizes small models with Core ML Tools: a converted one, and one of PyTorch."""

from __future__ import annotations

import coremltools as ct
import torch
from coremltools.optimize import coreml as cto
from coremltools.optimize.torch import palettization, quantization

import otel_quant


def two() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)).eval()


def types_of(model: ct.models.MLModel) -> list[str]:
    """Returns the operations that the program of a model has for its quantized weights."""
    [function] = model._mil_program.functions.values()
    return sorted({op.op_type for op in function.operations if "constexpr" in op.op_type})


def main() -> None:
    traced = torch.jit.trace(two(), torch.randn(1, 64))
    float_model = ct.convert(
        traced, inputs=[ct.TensorType(shape=(1, 64))], convert_to="mlprogram",
        minimum_deployment_target=ct.target.iOS18, skip_model_load=True,
    )  # fmt: skip
    with otel_quant.step("linear"):
        linear = cto.OpLinearQuantizerConfig(
            mode="linear_symmetric", dtype="int4", granularity="per_block", block_size=32, weight_threshold=0,
        )  # fmt: skip
        made = cto.linear_quantize_weights(
            float_model, cto.OptimizationConfig(global_config=linear)
        )
        print("linear", *types_of(made))
    with otel_quant.step("palettized"):
        palette = cto.OpPalettizerConfig(mode="kmeans", nbits=4, weight_threshold=0)
        made = cto.palettize_weights(float_model, cto.OptimizationConfig(global_config=palette))
        print("palettized", *types_of(made))
    with otel_quant.step("torch"):
        config = {
            "global_config": {"weight_dtype": "int4", "granularity": "per_block", "block_size": 32}
        }
        given = quantization.PostTrainingQuantizerConfig.from_dict(config)
        quantization.PostTrainingQuantizer(two(), given).compress()
    with otel_quant.step("torch palettized"):
        given = palettization.PostTrainingPalettizerConfig.from_dict(
            {"global_config": {"n_bits": 2}}
        )
        palettization.PostTrainingPalettizer(two(), given).compress()


if __name__ == "__main__":
    main()
