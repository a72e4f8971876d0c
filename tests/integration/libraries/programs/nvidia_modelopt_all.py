# /// script
# dependencies = ["nvidia-modelopt[onnx]", "torch", "transformers<5.15"]
# ///
"""Quantizes small models with NVIDIA's Model Optimizer: PyTorch and ONNX, as far as a CPU goes."""

from __future__ import annotations

import warnings
from pathlib import Path

import modelopt.torch.quantization as mtq
import numpy as np
import torch
from modelopt.onnx.quantization import quantize
from modelopt.torch.export import export_hf_checkpoint
from ort import write_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from watched import in_every_way, write_tiny
from written import note_tensors, note_values
from written_onnx import note

warnings.simplefilter("ignore")
WIDTH = 256  # two blocks of 128
SAMPLE = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(1))
TOKENS = torch.arange(8).reshape(1, 8)


def model() -> torch.nn.Module:
    torch.manual_seed(2)
    layers = [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 32)]
    return torch.nn.Sequential(*layers).eval()


def read(made: torch.nn.Module) -> None:
    for _ in range(3):
        made(SAMPLE)


def largest() -> torch.Tensor:
    return note_values(mtq.quantize(model(), mtq.INT8_DEFAULT_CFG, read))(SAMPLE)


def awq() -> torch.Tensor:
    return note_values(mtq.quantize(model(), config=mtq.INT4_AWQ_CFG, forward_loop=read))(SAMPLE)


def searched() -> torch.Tensor:
    """Has two formats to choose from, of which only the smaller one fits."""
    made, _ = mtq.auto_quantize(
        model(), constraints={"effective_bits": 4.0}, quantization_formats=[mtq.INT4_AWQ_CFG, mtq.INT8_DEFAULT_CFG],
        data_loader=[SAMPLE, SAMPLE], forward_step=lambda each, batch: each(batch), loss_func=lambda out, _: out.sum(),
        num_calib_steps=2, num_score_steps=2,
    )  # fmt: skip
    weights = [each.weight_quantizer for each in (made[0], made[2])]
    assert {each.num_bits for each in weights} == {4}
    assert not any(each.input_quantizer.is_enabled for each in (made[0], made[2]))
    return note_values(made)(SAMPLE).detach()


def fp8() -> torch.Tensor:
    made = AutoModelForCausalLM.from_pretrained("tiny")
    made = mtq.quantize(made, mtq.FP8_DEFAULT_CFG, lambda each: each(input_ids=TOKENS))
    with torch.inference_mode():
        export_hf_checkpoint(made, export_dir="exported")
    note_tensors(load_file("exported/model.safetensors"), "fp8")
    return torch.tensor(Path("exported/model.safetensors").stat().st_size)


def onnx_file() -> torch.Tensor:
    samples = np.random.default_rng(3).standard_normal((96, 64), dtype=np.float32)
    for method in ("max", "entropy"):
        quantize(
            "float.onnx", quantize_mode="int8", calibration_data={"x": samples}, output_path=f"{method}.onnx",
            calibration_method=method, calibration_eps=["cpu"], high_precision_dtype="fp32",
        )  # fmt: skip
        note(f"{method}.onnx", "onnx_file")
    return torch.tensor(Path("max.onnx").stat().st_size)


def failing() -> torch.Tensor:
    def no_data(made: torch.nn.Module) -> None:
        made(SAMPLE)
        raise KeyError("no such sample")

    try:
        mtq.quantize(model(), mtq.INT8_DEFAULT_CFG, no_data)
    except KeyError:
        return SAMPLE
    raise AssertionError("expected a KeyError")


def main() -> None:
    write_tiny()
    write_model("float.onnx", rows=32)
    in_every_way((largest, awq, searched, fp8, onnx_file, failing), torch.equal)


if __name__ == "__main__":
    main()
