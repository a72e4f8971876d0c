"""How many bytes the weights of a model take, and whether they are quantized."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from otel_quant.inference.measurement import is_of_few_bits

_PACKED: Final = ("qweight", "weight_packed")
"""Names of weights that GPTQ and AWQ, and compressed-tensors, pack into numbers of 32 bits."""


def weight_bytes(model: Any) -> int | None:
    """Returns the bytes of a module's parameters and buffers, packed and quantized ones included.

    Memory that two of them share counts once. None for what is no module.
    """
    import torch

    if not isinstance(model, torch.nn.Module):
        return None
    tensors = list(_plain(model.state_dict()))  # all at once: unpacked ones are made for it
    storages = [tensor.untyped_storage() for tensor in tensors]
    sizes: dict[int, int] = {each.data_ptr(): each.nbytes() for each in storages}
    return sum(sizes.values())


def has_quantized_weights(model: Any) -> bool | None:
    """Returns whether a module has weights of eight bits or fewer; None for what is no module."""
    import torch

    if not isinstance(model, torch.nn.Module):
        return None
    weights = model.state_dict()
    if any(type(each).__module__.startswith("torchao.") for each in weights.values()):
        return True  # its tensors may pack several numbers into 32 bits
    if any(name.rpartition(".")[2] in _PACKED for name in weights):
        return True
    return any(
        tensor.is_quantized or is_of_few_bits(str(tensor.dtype).removeprefix("torch."))
        for tensor in _plain(weights)
    )


def _plain(value: Any) -> Iterator[Any]:
    """Yields the tensors of which something consists."""
    import torch

    by_channel = (torch.per_channel_affine, torch.per_channel_affine_float_qparams)
    if isinstance(value, Mapping):
        for each in value.values():
            yield from _plain(each)
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _plain(each)
    elif isinstance(value, torch.Tensor):
        if hasattr(value, "__tensor_flatten__"):
            for name in value.__tensor_flatten__()[0]:
                yield from _plain(getattr(value, name))
        else:
            yield value
            if value.is_quantized and value.qscheme() in by_channel:
                yield value.q_per_channel_scales()
                yield value.q_per_channel_zero_points()
