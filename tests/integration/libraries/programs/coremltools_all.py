# /// script
# dependencies = ["coremltools", "torch", "scikit-learn"]
# ///
"""Quantizes small models with Core ML Tools: a converted one, and one of PyTorch."""

from __future__ import annotations

import coremltools as ct
import torch
from coremltools.converters.mil.mil import types
from coremltools.optimize import coreml as cto
from coremltools.optimize.torch import palettization, quantization
from weights import Weights, groups, note_weights

import otel_quant


def two() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)).eval()


def note_program(model: ct.models.MLModel, way: str) -> None:
    """Writes down what the operations of a model have of its weights."""
    found = []
    [function] = model._mil_program.functions.values()
    for op in function.operations:
        if op.op_type == "constexpr_blockwise_shift_scale":
            kind = types.builtin_to_string(op.data.dtype)
            rows, scales = op.data.shape[0], op.scale.val.size
            how = groups(op.data.val.size, rows, scales)
            is_symmetric = op.offset is None or not op.offset.val.any()
            found.append(Weights(kind, int(kind.removeprefix("int")), *how, is_symmetric))
        elif op.op_type == "constexpr_lut_to_dense":
            found.append(_in_table(op.lut.shape))
    note_weights(found, way)


def note_layers(model: torch.nn.Module, way: str) -> None:
    """Writes down what the layers of a model of PyTorch have for the conversion."""
    found = []
    for layer in model:
        kept = dict(layer.named_buffers())
        if "_COREML_/weight/lut" in kept:
            found.append(_in_table(kept["_COREML_/weight/lut"].shape))
            assert len(layer.weight.unique()) == 2 ** found[-1].bits
        else:
            bits, scale = (kept[f"_COREML_/weight/quantization_{of}"] for of in ("n_bits", "scale"))
            how = groups(layer.weight.numel(), layer.weight.shape[0], scale.numel())
            codes = layer.weight.reshape(*scale.shape, -1) / scale[..., None]
            assert torch.allclose(codes, codes.round(), atol=1e-3)
            found.append(Weights(f"int{int(bits)}", int(bits), *how, True))
    note_weights(found, way)


def _in_table(shape: tuple[int, ...]) -> Weights:
    *tables, entries, _ = shape
    bits = (entries - 1).bit_length()
    return Weights(
        f"uint{bits}", bits, "tensor" if set(tables) == {1} else "grouped_channel", None, None
    )


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
    note_program(made, "linear")
    with otel_quant.step("palettized"):
        palette = cto.OpPalettizerConfig(mode="kmeans", nbits=4, weight_threshold=0)
        made = cto.palettize_weights(float_model, cto.OptimizationConfig(global_config=palette))
    note_program(made, "palettized")
    with otel_quant.step("a table for 16 channels"):
        palette = cto.OpPalettizerConfig(
            mode="uniform",
            nbits=4,
            granularity="per_grouped_channel",
            group_size=16,
            weight_threshold=0,
        )
        made = cto.palettize_weights(float_model, cto.OptimizationConfig(global_config=palette))
    note_program(made, "a table for 16 channels")
    with otel_quant.step("torch"):
        config = {
            "global_config": {"weight_dtype": "int4", "granularity": "per_block", "block_size": 32}
        }
        given = quantization.PostTrainingQuantizerConfig.from_dict(config)
        layers = quantization.PostTrainingQuantizer(two(), given).compress()
    note_layers(layers, "torch")
    with otel_quant.step("torch palettized"):
        given = palettization.PostTrainingPalettizerConfig.from_dict(
            {"global_config": {"n_bits": 2}}
        )
        layers = palettization.PostTrainingPalettizer(two(), given).compress()
    note_layers(layers, "torch palettized")


if __name__ == "__main__":
    main()
