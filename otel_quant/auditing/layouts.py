"""How libraries lay a quantized weight out in tensors: one table, by which shapes are checked and bits are measured."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final, NamedTuple

from otel_quant.auditing.checkpoint import BITS, StoredTensor

FP8: Final = "F8_E4M3 F8_E5M2 F8_E4M3FNUZ F8_E5M2FNUZ"
_SCALE: Final = "o n|1|blocks"  # of groups or channels, of the tensor, or of blocks


class Form(NamedTuple):
    """One way to lay a weight of ``o`` outputs and ``i`` inputs out.

    Shapes are in words: ``n`` groups along the inputs; ``o*`` and ``i*``: packed into int32; ``o2`` and ``i2``: two in a byte;
    ``blocks``: one for each block; ``absmax`` and ``codes`` of bitsandbytes. ``|`` stands between those that are possible, and
    lengths of 1 are left out.
    """

    codes: str  # Suffix of the tensor that has the codes
    types: str  # Its types
    shape: str  # Its shape
    scales: Mapping[str, str]  # Suffixes of what has to be beside it, with their shapes
    others: Mapping[str, str] = {}  # Of what may be
    bits: int = 0  # Bits of a code; 0: as the configuration has it
    method: str = ""  # The only one that uses it; empty if several do


_TWO_IN_A_BYTE: Final = {"weight_scale": "o n"}
FORMS: Final = (
    Form(
        "qweight", "I32", "i* o", {"scales": "n o", "qzeros": "n o*"}, {"g_idx": "i"}, method="gptq"
    ),
    Form("qweight", "I32", "i o*", {"scales": "n o", "qzeros": "n o*"}, method="awq"),
    Form(
        "weight_packed",
        "I32",
        "o i*",
        {"weight_scale": "o n|1", "weight_shape": "2"},
        {"weight_zero_point": "o* n", "weight_g_idx": "i"},
    ),
    Form("weight_packed", "U8", "o i2", _TWO_IN_A_BYTE, {"weight_global_scale": "1"}, 4),
    Form(
        "weight",
        "I32",
        "i o*",
        {"weight_scale": "n o"},
        {"weight_zero_point": "n o*"},
        method="quark",
    ),
    Form(
        "weight",
        "I32",
        "o i*",
        {"weight_scale": "o|1"},
        {"weight_zero_point": "o*|1"},
        method="quark",
    ),
    Form("weight", "U8", "o i2", _TWO_IN_A_BYTE, {"weight_scale_2": "1"}, 4),
    Form("weight", "U8", "o2 i", _TWO_IN_A_BYTE, {"pre_quant_scale": "i"}, 4),
    Form(
        "weight",
        f"I8 {FP8}",
        "o i",
        {"weight_scale": _SCALE},
        {"weight_zero_point": _SCALE, "pre_quant_scale": "i"},
        8,
    ),
    Form("weight", FP8, "o i", {"weight_scale_inv": "blocks"}, bits=8),
    Form(
        "_weight_qdata",
        f"I8 {FP8}",
        "o i",
        {"_weight_scale": _SCALE},
        {"_weight_zero_point": _SCALE},
        8,
    ),
    Form("_weight_qdata", "U8", "o i2", {"_weight_scale": "n o"}, {"_weight_zero_point": "n o"}, 4),
    Form(
        "weight",
        "U8 BF16 F16 F32",
        "codes",
        {"weight.absmax": "absmax", "weight.quant_state": ""},
        {"weight.quant_map": "16"},
        4,
    ),
    Form("weight", "I8", "o i", {"SCB": "o"}, {"weight_format": "1"}, 8),
)
"""Those of one kind of codes in the order in which they are tried."""

SCALES: Final = frozenset(name for form in FORMS for name in form.scales) - {
    "weight_shape",
    "weight.quant_state",
}
ALL_SCALES: Final = SCALES | {
    "weight_global_scale",
    "input_global_scale",
    "weight_scale_2",
    "input_scale",
    "pre_quant_scale",
    "weight.nested_absmax",
    "k_scale",
    "v_scale",
}
"""Suffixes of tensors whose values are looked at."""

SUFFIXES: Final = ALL_SCALES | {
    name for form in FORMS for name in (form.codes, *form.scales, *form.others)
}
_GROUPS: Final = (0, 8, 16, 32, 64, 128, 256, 512, 1024)
_PACKED: Final = (4, 8, 2, 3)  # Bits of codes in int32


class Fit(NamedTuple):
    """A weight as its tensors have it."""

    form: Form
    outputs: int
    inputs: int
    copies: int  # Weights of that shape in the tensor: experts
    bits: int
    group: int  # Inputs with one scale; 0: all
    misfits: tuple[str, ...] = ()  # What the shapes of its tensors should be

    @property
    def elements(self) -> int:
        """Number of weights."""
        return self.outputs * self.inputs * self.copies


def fit(
    tensors: Mapping[str, StoredTensor],
    method: str,
    bits: int,
    group: int,
    known: tuple[int, int] | None = None,
) -> Fit | None:
    """Returns how the tensors of a module lay out a weight: as asked if they can, else what fits; None if it is no form.

    ``known``: outputs and inputs, where a tensor of the module has them.
    """
    first = None
    forms = forms_of(tensors, method)
    for wanted in (group, -1):  # -1: as many groups as there are scales
        for each in dict.fromkeys((bits or 4, *_PACKED)):
            for form in forms:
                found = _tried(form, tensors, form.bits or each, wanted, known)
                if not found.misfits:
                    return found
                first = first or found
    return first


def forms_of(tensors: Mapping[str, StoredTensor], method: str) -> list[Form]:
    """Returns the forms that a module may have: those with most of what has to be beside the codes."""
    found = [
        form
        for form in FORMS
        if form.codes in tensors and tensors[form.codes].dtype in form.types.split()
        if not form.method or form.method == method or method not in ("gptq", "awq", "quark")
    ]
    beside = [len(form.scales.keys() & tensors.keys()) / len(form.scales) for form in found]
    most = max(beside, default=0)
    is_plain = most == 0 and all(form.codes == "weight" for form in found)
    if is_plain and any(tensors["weight"].dtype in ("BF16", "F16", "F32") for _ in found):
        return []
    return [form for form, share in zip(found, beside, strict=True) if share == most]


def _tried(
    form: Form,
    tensors: Mapping[str, StoredTensor],
    bits: int,
    group: int,
    known: tuple[int, int] | None,
) -> Fit:
    codes = tensors[form.codes]
    words = form.shape.split()
    at = max(0, len(codes.shape) - len(words))
    lengths, copies = codes.shape[at:], prod(codes.shape[:at])
    if form.shape == "codes":
        at, copies, lengths = 0, 1, ()
    size = {
        word[0]: _whole(word, length, bits) for word, length in zip(words, lengths, strict=False)
    }
    outputs, inputs = known or (size.get("o", 1), size.get("i", 1))
    group = _measured(form, tensors, at, inputs) if group < 0 else group
    fit = Fit(form, outputs, inputs, copies, bits, group)
    wanted = {form.codes: form.shape, **form.scales, **form.others}
    misfits = []
    for suffix, shapes in wanted.items():
        if suffix not in tensors or not shapes:
            continue
        has = tensors[suffix].shape
        allowed = [_lengths(fit, words, has[at:], tensors) for words in shapes.split("|")]
        if _bare(has[at:]) not in map(_bare, allowed):
            expected = " or ".join(_text(has[:at] + each) for each in dict.fromkeys(allowed))
            misfits.append(f"{suffix} is {_text(has)} where {expected} is expected")
    return fit._replace(misfits=tuple(misfits))


def _whole(word: str, length: int, bits: int) -> int:
    """Returns a length of the weight, from that of its codes."""
    return length * 32 // bits if word[1:] == "*" else length * 2 if word[1:] == "2" else length


def _measured(form: Form, tensors: Mapping[str, StoredTensor], at: int, inputs: int) -> int:
    """Returns how many inputs have one scale, by the shape of the scales; 0: all."""
    for suffix, shapes in form.scales.items():
        words = shapes.partition("|")[0].split()
        shape = tensors[suffix].shape[at:] if suffix in tensors else ()
        if "n" in words and len(shape) == len(words):
            groups = shape[words.index("n")]
            group = -(-inputs // groups) if groups > 1 else 0
            return group if group in _GROUPS else inputs  # which then does not fit
    return 0


def _lengths(
    fit: Fit, words: str, has: tuple[int, ...], tensors: Mapping[str, StoredTensor]
) -> tuple[int, ...]:
    """Returns the shape that words stand for."""
    o, i, bits = fit.outputs, fit.inputs, fit.bits
    values = {
        "o": o,
        "i": i,
        "n": -(-i // fit.group) if fit.group else 1,
        "o*": -(-o * bits // 32),
        "i*": -(-i * bits // 32),
        "o2": -(-o // 2),
        "i2": -(-i // 2),
        "absmax": -(-o * i // (fit.group or 64)),
        "codes": -(-o * i // (BITS[tensors["weight"].dtype] // 4)) if words == "codes" else 0,
    }
    if words == "blocks":  # any that are no more than rows and columns
        real = _bare(has)
        fits = len(real) <= 2 and all(length <= max(o, i) for length in real)
        return real if fits else (o, i)
    return tuple(values.get(word) or int(word) for word in words.split())


def _bare(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(length for length in shape if length != 1)


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"
