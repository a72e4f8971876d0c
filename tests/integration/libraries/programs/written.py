"""What the weights of a quantized PyTorch model are, read from its tensors: codes, scales, zero points; no configuration."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from weights import Weights, groups, note_weights

Model = TypeVar("Model", bound=torch.nn.Module)


def note(model: Model, way: str = "") -> Model:
    """Writes down what the weights of a model are that was quantized in some way, else that of the function that calls."""
    note_weights(weights_in(model), way or sys._getframe(1).f_code.co_name)
    return model


def weights_in(model: torch.nn.Module) -> list[Weights]:
    """Returns what each quantized weight of a model is."""
    found = (_module(module) for module in model.modules())
    return [weights for weights in found if weights is not None]


def weights_of(tensors: Mapping[str, Any]) -> list[Weights]:
    """Returns the same of a checkpoint whose codes have scales and zero points beside them."""
    return [
        _integers(codes, tensors[f"{name}_scale"], tensors.get(f"{name}_zero_point"))
        for name, codes in tensors.items()
        if f"{name}_scale" in tensors
    ]


def _module(module: Any) -> Weights | None:
    kind = type(module).__module__
    weight = getattr(module, "weight", None)
    if kind.startswith("torch.ao.nn.") and callable(weight):
        return _of_torch(weight())
    if kind.startswith("hqq."):
        return _of_hqq(module)
    if not isinstance(weight, torch.Tensor):
        return None
    reader = next(
        (_READERS[each.__name__] for each in type(weight).__mro__ if each.__name__ in _READERS),
        None,
    )
    return None if reader is None else reader(weight)


def _integers(codes: Any, scale: Any, zero: Any) -> Weights:
    """Returns what codes are, by their range; `scale` has one value for each group of them."""
    bits = 1 + max(int(codes.max()).bit_length(), (-1 - int(codes.min())).bit_length())
    is_symmetric = zero is None or not bool(zero.any())
    return Weights(
        f"int{bits}", bits, *groups(codes.numel(), codes.shape[0], scale.numel()), is_symmetric
    )


def _floats(codes: Any, rows: int, scale: Any) -> Weights:
    bits = torch.finfo(codes.dtype).bits
    return Weights(f"float{bits}", bits, *groups(codes.numel(), rows, scale.numel()), None)


def _of_torch(weight: Any) -> Weights:
    if not weight.is_quantized:  # shown as they are computed with
        assert torch.equal(weight.half().float(), weight)
        return Weights("float16", 16, "", None, None)
    several = weight.qscheme() not in (torch.per_tensor_affine, torch.per_tensor_symmetric)
    scale = weight.q_per_channel_scales() if several else torch.tensor(weight.q_scale())
    zero = weight.q_per_channel_zero_points() if several else torch.tensor(weight.q_zero_point())
    return _integers(weight.int_repr(), scale, zero)


def _of_hqq(layer: Any) -> Weights | None:
    if getattr(layer, "W_q", None) is None:
        return None
    bits = max(1, int(layer.unpack(dtype=torch.float32).max()).bit_length())
    size = layer.meta["shape"].numel() // layer.meta["scale"].numel()
    # It has a zero point for each group, which is no integer.
    return Weights(f"uint{bits}", bits, "group", size, None)


def _of_torchao(weight: Any) -> Weights:
    if weight.qdata.is_floating_point():
        return _floats(weight.qdata, weight.shape[0], weight.scale)
    return _integers(weight.qdata, weight.scale, weight.zero_point)


def _of_quanto(weight: Any) -> Weights:
    scale = weight._scale
    codes = weight._data.unpack() if hasattr(weight._data, "unpack") else weight._data
    if codes.is_floating_point():
        return _floats(codes, weight.shape[0], scale)
    if not hasattr(weight, "_shift"):
        return _integers(codes, scale, None)
    bits = int(codes.max()).bit_length()
    return Weights(f"int{bits}", bits, *groups(codes.numel(), weight.shape[0], scale.numel()), None)


def _of_4bit(weight: Any) -> Weights | None:
    state = weight.quant_state
    if state is None:
        return None
    kind = "nf4" if -0.7 < float(state.code[1]) < -0.69 else "fp4"
    count = state.shape.numel()
    bits = 8 * weight.data.numel() * weight.data.element_size() // count
    return Weights(kind, bits, "group", count // state.absmax.numel(), None)


def _of_8bit(weight: Any) -> Weights | None:
    codes = weight.data if weight.CB is None else weight.CB
    return _integers(codes, weight.SCB, None) if codes.dtype == torch.int8 else None


_READERS = {
    "Int8Tensor": _of_torchao, "IntxUnpackedToInt8Tensor": _of_torchao, "Float8Tensor": _of_torchao,
    "WeightQBytesTensor": _of_quanto, "WeightQBitsTensor": _of_quanto,
    "Params4bit": _of_4bit, "Int8Params": _of_8bit,
}  # fmt: skip
