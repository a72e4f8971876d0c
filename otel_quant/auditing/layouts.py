"""How libraries lay a quantized weight out in tensors: one table, by which shapes are checked and bits are measured."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final, NamedTuple, TypeAlias

from otel_quant.auditing.checkpoint import BITS, StoredTensor

Tensors: TypeAlias = Mapping[str, StoredTensor]
"""The tensors of a module, by what they are in it."""

FP8: Final = ("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")

_FORMS: Final = """
qweight       | I32     | i* o  | scales: n o, qzeros: n o*                  | g_idx: i                                  | 0 | gptq
qweight       | I32     | i o*  | scales: n o, qzeros: n o*                  |                                           | 0 | awq
weight_packed | I32     | o i*  | weight_scale: o n / 1, weight_shape: 2     | weight_zero_point: o* n, weight_g_idx: i  | 0 |
weight_packed | U8      | o i2  | weight_scale: o n                          | weight_global_scale: 1                    | 4 |
weight        | I32     | o i*  | weight_scale: o / 1                        | weight_zero_point: o* / 1                 | 0 | quark
weight        | I32     | i o*  | weight_scale: n o                          | weight_zero_point: n o*                   | 0 | quark
weight        | U8      | o i2  | weight_scale: o n                          | weight_scale_2: 1                         | 4 |
weight        | U8      | o i6  | weight_scale: o n                          |                                           | 6 | quark
weight        | U8      | o2 i  | weight_scale: o n                          | pre_quant_scale: i                        | 4 |
weight        | I8 FP8  | o i   | weight_scale: o n / 1 / blocks             | weight_zero_point: o n / 1, pre_quant_scale: i | 8 |
weight        | FP8     | o i   | weight_scale_inv: blocks                   |                                           | 8 |
_weight_qdata | I8 FP8  | o i   | _weight_scale: o n / 1                     | _weight_zero_point: o n / 1               | 8 |
_weight_qdata | U8      | o i2  | _weight_scale: n o                         | _weight_zero_point: n o                   | 4 |
weight        | U8 BF16 F16 F32 | codes | weight.absmax: absmax, weight.quant_state: any | weight.quant_map: 16                      | 4 |
weight        | I8      | o i   | SCB: o                                     | weight_format: 1                          | 8 |
"""
"""A way to lay out a weight of ``o`` outputs and ``i`` inputs: suffix, types and shape of the codes; suffixes and shapes of what
has to be beside them, and of what may be; bits of a code, 0 where they are packed into int32; the method that alone has it.

Shapes: ``n`` groups along the inputs; ``o*``, ``i*`` packed into int32; ``o2``, ``i2`` two in a byte; ``i6`` four in three; ``blocks`` one for each
block; bitsandbytes' ``codes`` and ``absmax``; lengths of 1 are left out, ``/`` stands between those that are possible."""


class Form(NamedTuple):
    """One way to lay a weight out."""

    codes: str  # Suffix of the tensor that has the codes
    types: tuple[str, ...]  # Its types
    shape: str  # Its shape
    scales: Mapping[str, str]  # Suffixes of what has to be beside it, with their shapes
    others: Mapping[str, str]  # Of what may be
    bits: int  # Bits of a code; 0: as the configuration has it
    method: str  # The only one that uses it; empty if several do


def _form(row: str) -> Form:
    codes, types, shape, scales, others, bits, method = (each.strip() for each in row.split("|"))
    known = tuple(each for name in types.split() for each in (FP8 if name == "FP8" else (name,)))
    beside, more = (
        dict(each.strip().split(": ") for each in text.split(",") if each)
        for text in (scales, others)
    )
    return Form(codes, known, shape, beside, more, int(bits), method)


FORMS: Final = tuple(map(_form, _FORMS.strip().splitlines()))
"""Those of one kind of codes in the order in which they are tried."""

_INSIDE: Final = {"weight_shape", "weight.quant_state"}  # What has lengths, and is no scale
SCALES: Final = {name for form in FORMS for name in form.scales} - _INSIDE
_MORE: Final = ("weight_global_scale", "input_global_scale", "weight_scale_2", "input_scale")
ALL_SCALES: Final = SCALES.union(_MORE, ("pre_quant_scale", "weight.nested_absmax"))
"""Suffixes of tensors whose values are looked at."""

_NAMED: Final = {name for form in FORMS for name in (form.codes, *form.scales, *form.others)}
SUFFIXES: Final = ALL_SCALES | _NAMED
_GROUPS: Final = (0, 8, 16, 32, 64, 128, 256, 512, 1024)
_PACKING: Final = {"*": (32, 0), "2": (8, 4), "6": (8, 6)}
"""Bits of what codes are packed into, and of a code; 0: as many as it has."""

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
    tensors: Tensors, method: str, bits: int, group: int, known: tuple[int, int] | None
) -> Fit | None:
    """Returns how the tensors of a module lay out a weight: as asked if they can, else what fits; None if it is no form.

    ``known``: outputs and inputs, where a tensor of the module has them.
    """
    best, forms = None, [it for it in _forms_of(tensors, method) if it.bits in (0, 4, 8, bits)]
    for wanted in (group, -1):  # -1: as many groups as there are scales
        for each in dict.fromkeys((bits or 4, *_PACKED)):
            for form in forms:
                found = _tried(form, tensors, form.bits or each, wanted, known)
                if not found.misfits:
                    return found
                if best is None or len(found.misfits) < len(best.misfits):
                    best = found
    return best


def _forms_of(tensors: Tensors, method: str) -> list[Form]:
    """Returns the forms that a module may have: those with most of what has to be beside the codes."""
    found = [
        (len(form.scales.keys() & tensors.keys()) / len(form.scales), form)
        for form in FORMS
        if form.codes in tensors and tensors[form.codes].dtype in form.types
        if not form.method or form.method == method or method not in ("gptq", "awq", "quark")
    ]
    most = max((share for share, _ in found), default=0)
    # A weight of floats holds codes only where scales say so.
    return [form for share, form in found if share == most and (share or form.shape != "codes")]


def _tried(
    form: Form, tensors: Tensors, bits: int, group: int, known: tuple[int, int] | None
) -> Fit:
    """Returns a weight of so many bits and such groups, with what does not fit; a group of -1 is measured."""
    codes, words = tensors[form.codes], form.shape.split()
    at = 0 if form.shape == "codes" else max(0, len(codes.shape) - len(words))
    whole = {
        word[0]: length * whole // (own or bits)
        for word, length in zip(words, codes.shape[at:], strict=False)
        for whole, own in (_PACKING.get(word[1:], (1, 1)),)
    }
    outputs, inputs = known or (whole.get("o", 1), whole.get("i", 1))
    group = _measured(form, tensors, at, inputs) if group < 0 else group
    found = Fit(form, outputs, inputs, prod(codes.shape[:at]), bits, group)
    misfits = []
    for suffix, shapes in {form.codes: form.shape, **form.scales, **form.others}.items():
        if suffix in tensors and shapes != "any":
            has = tensors[suffix].shape
            width = BITS.get(codes.dtype, 8)
            allowed = [_shape(found, words, has[at:], width) for words in shapes.split("/")]
            if _bare(has[at:]) not in map(_bare, allowed):
                expected = " or ".join(_text(has[:at] + each) for each in dict.fromkeys(allowed))
                misfits.append(f"{suffix} is {_text(has)} where {expected} is expected")
    return found._replace(misfits=tuple(misfits))


def _measured(form: Form, tensors: Tensors, at: int, inputs: int) -> int:
    """Returns how many inputs have one scale, by the shape of the scales; 0: all."""
    for suffix, shapes in form.scales.items():
        words = shapes.partition("/")[0].split()
        shape = tensors[suffix].shape[at:] if suffix in tensors else ()
        if "n" in words and len(shape) == len(words):
            groups = shape[words.index("n")]
            group = -(-inputs // groups) if groups > 1 else 0
            return group if group in _GROUPS else inputs  # which then does not fit
    return 0


def _shape(found: Fit, words: str, has: tuple[int, ...], width: int) -> tuple[int, ...]:
    """Returns the shape that words stand for; ``width``: bits of an element of the codes."""
    o, i, bits = found.outputs, found.inputs, found.bits
    if words.strip() == "blocks":  # any that are no more than rows and columns
        return has if len(_bare(has)) <= 2 and max(has, default=0) <= max(o, i) else (o, i)
    values = {"o": o, "i": i, "n": -(-i // found.group) if found.group else 1}
    values |= {"absmax": -(-o * i // (found.group or 64)), "codes": -(-o * i * 4 // width)}

    def length(word: str) -> int:
        if word[1:] not in _PACKING or word[0] not in values:
            return values[word] if word in values else int(word)
        whole, own = _PACKING[word[1:]]
        return -(-values[word[0]] * (own or bits) // whole)

    return tuple(map(length, words.split()))


def _bare(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(length for length in shape if length != 1)


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"
