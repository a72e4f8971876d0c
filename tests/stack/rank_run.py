"""A real quantization with torchao, the same in every rank: `torchrun --nproc-per-node 2 rank_run.py`."""

import torch
from torchao.quantization import Int8WeightOnlyConfig, quantize_

import otel_quant


def main() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8))
    with otel_quant.step("Calibration"):
        model(torch.randn(4, 64))
    quantize_(model, Int8WeightOnlyConfig(version=2))


if __name__ == "__main__":
    main()
