"""Quantizes a small model with torch.ao.quantization, in every way there is."""

from __future__ import annotations

import copy
import pickle
import sys
import warnings
from collections.abc import Callable

import torch
from torch.ao import quantization as tq
from torch.ao.quantization import quantize_fx
from watched import in_every_way
from written import note

import otel_quant

warnings.simplefilter("ignore")
torch.backends.quantized.engine = "fbgemm"

SAMPLE = torch.randn(2, 8, generator=torch.Generator().manual_seed(1))


def model() -> torch.nn.Module:
    torch.manual_seed(2)
    layers = [tq.QuantStub(), torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)]
    made = torch.nn.Sequential(*layers, tq.DeQuantStub()).eval()
    made.qconfig = tq.get_default_qconfig("fbgemm")
    return made


def calibrate(prepared: torch.nn.Module, times: int) -> None:
    for _ in range(times):
        prepared(SAMPLE)


def eager() -> torch.nn.Module:
    prepared = tq.prepare(model())
    calibrate(prepared, 2)
    return tq.convert(prepared)


def copied() -> torch.nn.Module:
    prepared = tq.prepare(model())
    calibrate(prepared, 2)
    another = copy.deepcopy(prepared)
    assert not another._forward_pre_hooks  # what watches the model is in no copy of it
    calibrate(another, 2)
    return tq.convert(another, inplace=True)


def fx_copied() -> torch.nn.Module:
    mapping = tq.get_default_qconfig_mapping("fbgemm")
    prepared = quantize_fx.prepare_fx(model()[1:4], mapping, (SAMPLE,))
    another = copy.deepcopy(prepared)
    another(SAMPLE)
    return quantize_fx.convert_fx(another)


def in_steps() -> torch.nn.Module:
    """Prepares and calibrates in steps of its own, and converts nothing."""
    with otel_quant.step("User-Defined"):
        prepared = tq.prepare(model())
    with otel_quant.step("User-Defined"):
        calibrate(prepared, 2)
    return prepared


def all_in_one() -> torch.nn.Module:
    return tq.quantize(model(), calibrate, run_args=(2,))


def all_in_one_by_name() -> torch.nn.Module:
    return tq.quantize(model=model(), run_fn=calibrate, run_args=[2], inplace=True)


def dynamic() -> torch.nn.Module:
    return tq.quantize_dynamic(model()[1:4], {torch.nn.Linear}, dtype=torch.qint8)


def dynamic_mapped() -> torch.nn.Module:
    return tq.quantize_dynamic(model()[1:4], {torch.nn.Linear: tq.float16_dynamic_qconfig})


def fx() -> torch.nn.Module:
    mapping = tq.get_default_qconfig_mapping("fbgemm")
    prepared = quantize_fx.prepare_fx(model()[1:4], mapping, (SAMPLE,))
    torch.jit.script(prepared)  # what watches the model is in no script of it
    calibrate(prepared, 2)
    return quantize_fx.convert_fx(prepared)


def fx_forward() -> torch.nn.Module:
    """Calls `forward` itself, which no hook of the model sees, once; the model is called once."""
    mapping = tq.get_default_qconfig_mapping("fbgemm")
    prepared = quantize_fx.prepare_fx(model()[1:4], mapping, (SAMPLE,))
    prepared.forward(SAMPLE)
    prepared(SAMPLE)
    return quantize_fx.convert_fx(prepared)


def fx_trained() -> torch.nn.Module:
    mapping = tq.get_default_qat_qconfig_mapping("fbgemm")
    prepared = quantize_fx.prepare_qat_fx(model()[1:4].train(), mapping, (SAMPLE,))
    prepared(SAMPLE).sum().backward()
    return quantize_fx.convert_fx(prepared.eval())


def failing() -> torch.nn.Module:
    try:
        tq.prepare(torch.nn.Linear(2, 2), inplace=True, allow_list=0)
    except TypeError:
        return torch.nn.Identity()
    raise AssertionError("expected a TypeError")


def failing_in_calibration() -> torch.nn.Module:
    prepared = tq.prepare(model())
    try:
        prepared("no tensor")
    except AttributeError:
        return torch.nn.Identity()
    raise AssertionError("expected an AttributeError")


WAYS = (
    eager, copied, fx_copied, in_steps, all_in_one, all_in_one_by_name, dynamic, dynamic_mapped, fx, fx_forward, fx_trained, failing,
    failing_in_calibration,
)  # fmt: skip


def quantized(way: Callable[[], torch.nn.Module]) -> torch.Tensor:
    """Quantizes in one way and returns what the model answers."""
    return note(way(), way.__name__)(SAMPLE)


def main() -> None:
    # A program that only imports these pays nothing for us.
    assert "otel_quant.capture.runtime" not in sys.modules
    functions = [tq.prepare, tq.quantize_dynamic, quantize_fx.prepare_fx]
    assert pickle.loads(pickle.dumps(functions)) == functions
    in_every_way(WAYS, torch.equal, quantized)
    restored = [tq.prepare, tq.quantize_dynamic, quantize_fx.prepare_fx]
    assert [function.__wrapped__ for function in functions] == restored


if __name__ == "__main__":
    main()
