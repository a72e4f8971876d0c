"""What the weights of a quantized PyTorch model are, read from its tensors: codes, scales, zero points; no configuration."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any, TypeVar

import torch
from weights import Weights, groups, note_weights

Model = TypeVar("Model", bound=torch.nn.Module)
Tensors = TypeVar("Tensors", bound=Mapping[str, Any])


def note(model: Model, way: str = "") -> Model:
    """Writes down what the weights of a model are that was quantized in some way, else that of the function that calls."""
    note_weights(weights_in(model), way or sys._getframe(1).f_code.co_name)
    return model


def note_tensors(tensors: Tensors, way: str = "") -> Tensors:
    """Writes down the same of a checkpoint."""
    note_weights(weights_of(tensors), way or sys._getframe(1).f_code.co_name)
    return tensors


def note_floats(tensors: Tensors, way: str) -> Tensors:
    """Writes down the same of a checkpoint whose matrices are all in float."""
    types = [each.dtype for each in tensors.values() if each.dim() > 1]
    assert all(each.is_floating_point for each in types)
    note_weights(
        [
            Weights(str(each).removeprefix("torch."), torch.finfo(each).bits, "", None, None)
            for each in types
        ],
        way,
    )
    return tensors


def note_values(model: Model, way: str = "") -> Model:
    """Writes down the same of a model whose linear layers have the values that codes stand for, with quantizers or not."""
    found = []
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            quantize = getattr(module, "weight_quantizer", lambda weight: weight)
            found.append(_of_values(quantize(module.weight).detach().float()))
    kept = [each for each in found if each is not None]
    note_weights(kept, way or sys._getframe(1).f_code.co_name)
    return model


def weights_in(model: torch.nn.Module) -> list[Weights]:
    """Returns what each quantized weight of a model is."""
    if isinstance(model, torch.fx.GraphModule) and (exported := list(_of_graph(model))):
        return exported
    found = (_module(module) for module in model.modules())
    return [weights for weights in found if weights is not None]


def weights_of(tensors: Mapping[str, Any]) -> list[Weights]:
    """Returns the same of a checkpoint whose codes have scales and zero points beside them."""
    found = []
    for name, codes in tensors.items():
        if f"{name}_scale" in tensors:
            scale, zero = tensors[f"{name}_scale"], tensors.get(f"{name}_zero_point")
            if codes.dtype.itemsize == 1 and codes.is_floating_point():
                found.append(_floats(codes, codes.shape[0], scale))
            elif scale.numel() > 0:
                found.append(_integers(_codes(codes, scale), scale, zero))
        elif name.endswith(".weight_packed"):
            base = name.removesuffix("_packed")
            columns = int(tensors[f"{base}_shape"][-1])
            bits = 32 // (columns // codes.shape[1])
            unpacked = _unpacked(codes, bits, columns) - 2 ** (bits - 1)
            zero = tensors.get(f"{base}_zero_point")
            found.append(_integers(unpacked, tensors[f"{base}_scale"], zero))
        elif name.endswith(".qweight"):
            base = name.removesuffix("qweight")
            found.append(_of_gptq(codes, tensors[f"{base}scales"], tensors[f"{base}qzeros"]))
    return found


def _codes(values: Any, scale: Any) -> Any:
    """Returns the codes of values; of those that are not rounded until they are saved, what they will be."""
    if not values.is_floating_point():
        return values
    codes = values.reshape(*scale.shape[:1], max(1, scale.numel() // scale.shape[0]), -1)
    codes = codes / scale.reshape(*codes.shape[:2], 1)
    half = 2 ** (math.ceil(math.log2(2 * float(codes.abs().max()) - 1e-2)) - 1)
    return codes.round().clamp(-half, half - 1).reshape(values.shape).int()


def _unpacked(packed: Any, bits: int, columns: int) -> Any:
    """Returns codes of which several are in each 32 bits, in the last dimension."""
    shifts = torch.arange(32 // bits) * bits
    codes = (packed.long()[..., None] >> shifts) & (2**bits - 1)
    return codes.flatten(-2)[..., :columns]


def _of_gptq(packed: Any, scales: Any, zeros: Any) -> Weights:
    """Returns what is packed as GPTQ does, by columns."""
    groups_of_rows, columns = scales.shape
    each = -(-columns // zeros.shape[1])
    bits = 32 // each
    codes, kept = _unpacked(packed.T, bits, 10**9), _unpacked(zeros, bits, columns)
    assert 2 ** (bits - 1) < int(codes.max()) + 1 <= 2**bits
    middle = 2 ** (bits - 1)
    is_symmetric = bool(((kept == middle) | (kept == middle - 1)).all())  # one less, as GPTQ has it
    rows = packed.shape[0] * each
    how = ("channel", None) if groups_of_rows == 1 else ("group", rows // groups_of_rows)
    return Weights(f"int{bits}", bits, *how, is_symmetric)


def _of_values(weight: Any) -> Weights | None:
    """Returns what values are that codes stand for, by the coarsest scales of which all are multiples."""
    for bits in (4, 8):
        for size in (weight.numel(), weight.shape[1], *(2**power for power in range(9, 2, -1))):
            if weight.numel() % size or (size < weight.shape[1] and weight.shape[1] % size):
                continue
            blocks = weight.reshape(-1, size)
            top = blocks.abs().amax(1, keepdim=True).clamp_min(1e-12)
            largest = torch.arange(2 ** (bits - 2), 2 ** (bits - 1) + 1)
            codes = blocks[:, None] * largest[:, None] / top[:, None]
            # Values and scales may be of bfloat16.
            off = (codes - codes.round()).abs() - codes.abs() / 200
            if bool((off.amax(2).amin(1) < 0.03).all()):
                how = groups(weight.numel(), weight.shape[0], weight.numel() // size)
                return Weights(f"int{bits}", bits, *how, True)
    return None


def _of_graph(model: Any) -> Iterator[Weights]:
    """Yields what the nodes of an exported program make of its weights."""
    for node in model.graph.nodes:
        name = str(node.target)
        is_first = "quantized_decomposed.quantize_per" in name or (
            "quantized_decomposed.dequantize_per" in name
        )
        if not is_first or node.args[0].op != "get_attr":
            continue
        weight, *how = (
            attrgetter(each.target)(model) if isinstance(each, torch.fx.Node) else each
            for each in node.args
        )
        scale, zero, lowest, highest = how[0], how[1], how[-3], how[-2]
        if weight.dim() < 2:
            continue
        bits = int(highest - lowest).bit_length()
        sign = "u" if lowest == 0 else ""
        scale, zero = torch.as_tensor(scale), torch.as_tensor(zero)
        kind, several = f"{sign}int{bits}", groups(weight.numel(), weight.shape[0], scale.numel())
        yield Weights(kind, bits, *several, not bool(zero.any()))


def _module(module: Any) -> Weights | None:
    kind = type(module).__module__
    weight = getattr(module, "weight", None)
    if kind.startswith("torch.ao.nn.") and callable(weight):
        return _of_torch(weight())
    if kind.startswith("hqq."):
        return _of_hqq(module)
    if hasattr(module, "qweight") and hasattr(module, "qzeros"):
        return _of_gptq(module.qweight, module.scales, module.qzeros)
    if hasattr(module, "q_weight"):  # of Neural Compressor's HQQ, whose zero points are no integers
        packed, scale = module.q_weight.val, module.q_weight.scale
        count = module.in_features * module.out_features
        bits = 8 * packed.numel() // count
        return Weights(f"int{bits}", bits, "group", count // scale.numel(), None)
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
    return Weights(f"float{bits}", bits, *groups(codes.numel(), rows, scale.numel()), True)


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


def _of_params4bit(weight: Any) -> Weights | None:
    return None if weight.quant_state is None else of_4bit(weight.data, weight.quant_state)


def of_4bit(codes: Any, state: Any) -> Weights:
    """Returns what codes of bitsandbytes are."""
    kind = "nf4" if -0.7 < float(state.code[1]) < -0.69 else "fp4"
    count = state.shape.numel()
    bits = 8 * codes.numel() * codes.element_size() // count
    return Weights(kind, bits, "group", count // state.absmax.numel(), None)


def _of_8bit(weight: Any) -> Weights | None:
    codes = weight.data if weight.CB is None else weight.CB
    return _integers(codes, weight.SCB, None) if codes.dtype == torch.int8 else None


_READERS = {
    "Int8Tensor": _of_torchao, "IntxUnpackedToInt8Tensor": _of_torchao, "Float8Tensor": _of_torchao,
    "WeightQBytesTensor": _of_quanto, "WeightQBitsTensor": _of_quanto,
    "Params4bit": _of_params4bit, "Int8Params": _of_8bit,
}  # fmt: skip
