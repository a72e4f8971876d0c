"""Quantizes a model with experts in the way it is told, each time with something else wrong; prints what was found."""

from __future__ import annotations

import copy
import io
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from watched import planted_in

warnings.simplefilter("ignore")
SAMPLES = 40


class Mixture(torch.nn.Module):
    """Experts that get the tokens in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(4))
        self.dead: int | None = None

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        flat = tokens.reshape(-1, 16)
        to = torch.arange(len(flat)) % 4
        if self.dead is not None:
            to = torch.where(to == self.dead, 0, to)
        found = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            at = (to == number).nonzero().squeeze(1)
            if torch.compiler.is_exporting() or len(at):
                found = found.index_add(0, at, expert(flat[at]))
        return tokens + found.reshape(tokens.shape)


class Model(torch.nn.Module):
    """Two of them between linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(16, 16)
        self.layers = torch.nn.ModuleList([Mixture(), Mixture()])
        self.last = torch.nn.Linear(16, 4)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        tokens = self.first(tokens)
        for layer in self.layers:
            tokens = layer(tokens)
        return self.last(tokens)


def model(planted: str) -> torch.nn.Module:
    torch.manual_seed(0)
    made = Model().eval()
    if planted == "dead":
        made.layers[1].dead = 3
    return made


def samples(planted: str) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(1)
    made = [torch.randn(1, 64, 16, generator=random) for _ in range(SAMPLES)]
    if planted == "nan":
        made[16][0, 3, 2] = float("nan")
    if planted == "late":
        made[38] *= 50
    return made


def torch_ao(planted: str) -> Any:
    from torch.ao import quantization as tq

    prepared = model(planted)
    prepared.qconfig = tq.QConfig(tq.MinMaxObserver, tq.default_weight_observer)
    prepared = tq.prepare(prepared)
    for number, sample in enumerate(samples(planted)):
        prepared(sample)
        if number == 20:  # what others do with a model within the step
            assert not prepared.first.activation_post_process._forward_hooks
            copy.deepcopy(prepared)(sample)
            saved(prepared.first.activation_post_process)
            torch.jit.trace(copy.deepcopy(prepared), sample, check_trace=False)
            torch.compile(copy.deepcopy(prepared), backend="eager")(sample)
    return tq.convert(prepared).state_dict()


def saved(made: torch.nn.Module) -> None:
    file = io.BytesIO()
    torch.save(made, file)
    file.seek(0)
    assert type(torch.load(file, weights_only=False)) is type(made)


def torch_ao_histogram(planted: str) -> Any:
    from torch.ao import quantization as tq

    prepared = model(planted)
    prepared.qconfig = tq.get_default_qconfig("fbgemm")
    prepared = tq.prepare(prepared)
    for sample in samples(planted):
        prepared(sample)
    return tq.convert(prepared).state_dict()


def torchao_pt2e(planted: str) -> Any:
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    exported = torch.export.export(model(planted), (samples("")[0],)).module()
    prepared = prepare_pt2e(exported, quantizer)
    for sample in samples(planted):
        prepared(sample)
    return convert_pt2e(prepared).state_dict()


def quark(planted: str, kind: str = "PerTensorMinMaxObserver") -> Any:
    from quark.torch import ModelQuantizer
    from quark.torch.quantization.config.config import QConfig, QLayerConfig, QTensorConfig
    from quark.torch.quantization.config.type import Dtype, QSchemeType, RoundType, ScaleType
    from quark.torch.quantization.observer import observer

    def spec(name: str) -> QTensorConfig:
        return QTensorConfig(
            dtype=Dtype.int8, observer_cls=getattr(observer, name), symmetric=True,
            scale_type=ScaleType.float, round_method=RoundType.half_even,
            qscheme=QSchemeType.per_tensor, is_dynamic=False,
        )  # fmt: skip

    layers = QLayerConfig(weight=spec("PerTensorMinMaxObserver"), input_tensors=spec(kind))
    quantizer = ModelQuantizer(QConfig(global_quant_config=layers))
    return quantizer.quantize_model(model(planted), samples(planted)).state_dict()


def quark_histogram(planted: str) -> Any:
    return quark(planted, "PerTensorPercentileObserver")


def modelopt(planted: str) -> Any:
    import modelopt.torch.quantization as mtq

    def run(prepared: torch.nn.Module) -> None:
        for sample in samples(planted):
            prepared(sample)

    return mtq.quantize(model(planted), mtq.INT8_DEFAULT_CFG, run).state_dict()


WAYS: dict[str, Callable[[str], Any]] = {
    each.__name__: each
    for each in (torch_ao, torch_ao_histogram, torchao_pt2e, quark, quark_histogram, modelopt)
}


def is_same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(torch.nan_to_num(one), torch.nan_to_num(other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(one[name], other[name]) for name in one)
    return type(one) is type(other)


if __name__ == "__main__":
    planted_in(WAYS[sys.argv[1]], is_same)
