# /// script
# dependencies = ["optimum-quanto"]
# ///
"""Quantizes a small model with optimum-quanto."""

from __future__ import annotations

import torch
from optimum.quanto import Calibration, freeze, qint8, quantize
from watched import Progress
from written import note

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
    note(model, "in place")
    several = torch.nn.Sequential(torch.nn.Linear(256, 128), torch.nn.Linear(128, 64))
    with otel_quant.step("in turn"):
        quantize(several, weights="qint4", include="0")
        quantize(several, weights="qint8", include="1")
        freeze(several)
    note(several, "in turn")
    with otel_quant.step("failing"):
        try:
            with Calibration():
                raise KeyError("no such sample")
        except KeyError:
            model(sample)


if __name__ == "__main__":
    main()
