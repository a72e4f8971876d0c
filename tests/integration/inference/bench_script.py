"""Variants of the model in ``float.onnx``, in the folder in which the command runs."""

from __future__ import annotations

import os
from collections.abc import Callable

import onnx
import torch
from torch import nn

x = torch.randn(8, 64)


def fp32() -> nn.Module:
    weights = onnx.numpy_helper.to_array(onnx.load("float.onnx").graph.initializer[0])
    first, second = nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False)
    for layer in (first, second):
        layer.weight = nn.Parameter(torch.tensor(weights).T.contiguous())
    return nn.Sequential(first, nn.ReLU(), second).eval()


def bf16() -> tuple[nn.Module, torch.Tensor]:
    return fp32().to(torch.bfloat16), x.to(torch.bfloat16)


def compiled() -> Callable[..., object]:
    return torch.compile(fp32())


def crashing() -> nn.Module:
    os.kill(os.getpid(), 9)
    raise AssertionError


class Failing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError("no weights\nat all")


def variants() -> tuple[dict[str, object], torch.Tensor]:
    return {
        "fp32": fp32,
        "ready": Failing(),
        "bf16": bf16,
        "crashing": crashing,
        "file": "float.onnx",
    }, x


def without_a_compiler() -> tuple[dict[str, object], torch.Tensor]:
    return {"compiled": compiled, "fp32": fp32()}, x


def on_a_gpu() -> tuple[dict[str, object], torch.Tensor]:
    return {"fp32": lambda: fp32().cuda()}, x.cuda()
