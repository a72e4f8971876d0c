"""A user's script: algorithms of AMD Quark that go through layers, and what it computes of each. Knows only Quark.

Arguments: folder of the float models, folder for the quantized ones. It kills itself in the second layer of the
last algorithm.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import quick_import  # noqa: F401  # before Quark
import torch
from onnx_all import Reader
from quark.onnx import (
    AdaRoundConfig,
    AutoMixprecisionConfig,
    CalibrationMethod,
    ExtendedQuantFormat,
    Int8Spec,
    Int16Spec,
    ModelQuantizer,
    QConfig,
    QLayerConfig,
    QuantType,
    XInt8Spec,
    quantize_static,
)
from quark.torch import LLMTemplate
from quark.torch import ModelQuantizer as TorchQuantizer
from quark.torch.algorithm.awq.awq import AwqProcessor
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM

from tests.integration.libraries.programs.watched import Progress


def main(models: Path, out: Path) -> None:
    conv, matmul = models / "conv.onnx", models / "matmul.onnx"
    # 1. The distance after each layer is finetuned, and that of each sample in the end.
    config = QConfig(
        global_config=QLayerConfig(activation=XInt8Spec(), weight=XInt8Spec()),
        algo_config=[
            AdaRoundConfig(num_iterations=5, batch_size=1, data_size=2, selective_update=True)
        ],
        EvalMetrics=True,
        EvalDataReader=Reader(conv, 3),
    )
    ModelQuantizer(config).quantize_model(str(conv), str(out / "adaround.onnx"), Reader(conv, 2))
    # 2. The distance with each layer in a narrower type.
    narrow = QLayerConfig(activation=Int8Spec(), weight=Int8Spec())
    sensitivities = out / "sensitivities.json"
    mixed = AutoMixprecisionConfig(
        narrow,
        metric_default="cosine",
        metric_threshold=None,
        sensitivity_cache_file=str(sensitivities),
    )
    wide = QLayerConfig(activation=Int16Spec(), weight=Int16Spec())
    config = QConfig(global_config=wide, algo_config=[mixed])
    ModelQuantizer(config).quantize_model(str(conv), str(out / "mixed.onnx"), Reader(conv, 2))
    # 3. SmoothQuant, which takes samples, and GPTQ, which takes layers: from here on each is written down.
    Progress()
    quantize_static(
        matmul, out / "gptq.onnx", Reader(matmul, 3), quant_format=ExtendedQuantFormat.QDQ,
        calibrate_method=CalibrationMethod.MinMax, weight_type=QuantType.QInt8, include_sq=True,
        extra_options={"UseGPTQ": True, "GPTQParams": {"Bits": 8, "BlockSize": 32}},
    )  # fmt: skip
    # 4. A language model of three layers.
    kill_in(2)
    for algorithm in ("gptq", "smoothquant", "awq"):
        quantize_language_model(algorithm)


def quantize_language_model(algorithm: str) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32, hidden_size=128, intermediate_size=128, num_hidden_layers=3,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=16,
    )  # fmt: skip
    chosen = LLMTemplate.get("llama").get_config(scheme="int4_wo_128", algorithm=algorithm)
    samples = DataLoader(torch.randint(0, 32, (2, 8)))
    TorchQuantizer(chosen).quantize_model(LlamaForCausalLM(config).eval(), samples)


def kill_in(layer: int) -> None:
    apply, calls = AwqProcessor._apply_quant, iter(range(1, layer + 1))

    def killing(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == layer:
            os.kill(os.getpid(), signal.SIGKILL)
        return apply(*args, **kwargs)

    AwqProcessor._apply_quant = killing


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
