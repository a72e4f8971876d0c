# /// script
# dependencies = ["optimum-quanto"]
# ///
"""Quantizes a small model with optimum-quanto."""

from __future__ import annotations

import torch
from optimum.quanto import Calibration, freeze, qint8, quantize
from watched import Progress

import otel_quant


def main() -> None:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    sample = torch.randn(2, 16)
    Progress()
    with otel_quant.step("in place"):
        quantize(model, weights=qint8, activations="qint8")
        with Calibration(), Calibration(momentum=0.5):
            model(sample)
            model(sample)
        freeze(model)
    with otel_quant.step("failing"):
        try:
            with Calibration():
                raise KeyError("no such sample")
        except KeyError:
            model(sample)


if __name__ == "__main__":
    main()
