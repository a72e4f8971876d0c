"""A user's script: a torch module quantized with AMD Quark, frozen and exported. Knows only Quark.

Arguments: folder of a checkpoint to quantize file by file, folder for the output.
"""

from __future__ import annotations

import sys
from pathlib import Path

import quick_import  # noqa: F401  # before Quark
import torch
from quark.torch import ModelQuantizer, export_onnx, export_safetensors
from quark.torch.quantization.config.config import (
    Int8PerChannelSpec,
    Int8PerTensorSpec,
    QConfig,
    QLayerConfig,
)
from torch import nn
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM


def main(checkpoint: Path, out: Path) -> None:
    torch.manual_seed(0)
    weight = Int8PerChannelSpec(
        symmetric=True, scale_type="float", round_method="half_even", ch_axis=0, is_dynamic=False
    ).to_quantization_spec()
    activation = Int8PerTensorSpec(
        observer_method="min_max",
        symmetric=True,
        scale_type="float",
        round_method="half_even",
        is_dynamic=False,
    ).to_quantization_spec()

    # 1. Activations calibrated with data; frozen, and exported.
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)).eval()
    quantizer = ModelQuantizer(
        QConfig(global_quant_config=QLayerConfig(weight=weight, input_tensors=activation))
    )
    loader = DataLoader(torch.randn(6, 16), batch_size=2)
    quantized = quantizer.freeze(quantizer.quantize_model(model, loader))
    export_onnx(quantized, str(out / "onnx"), (torch.randn(1, 16),))

    # 2. Weights only, which needs no data; a transformers model is what safetensors take.
    weights_only = QConfig(global_quant_config=QLayerConfig(weight=weight))
    transformer = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
        )
    ).eval()
    quantizer = ModelQuantizer(weights_only)
    quantized = quantizer.freeze(quantizer.quantize_model(transformer))
    export_safetensors(quantized, str(out / "safetensors"))

    # 3. A checkpoint, file by file.
    ModelQuantizer(weights_only).direct_quantize_checkpoint(
        pretrained_model_path=str(checkpoint), save_path=str(out / "files"), device="cpu"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
