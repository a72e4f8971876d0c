# /// script
# dependencies = ["ctranslate2", "transformers", "torch"]
# ///
"""Converts a tiny language model with CTranslate2, quantized and not."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import ctranslate2
import transformers
from ctranslate2.converters import TransformersConverter
from weights import Weights, groups, note_weights

import otel_quant


def variables_of(data: bytes) -> dict[str, tuple[list[int], int]]:
    """Returns the shape and the number of the type of each variable in a model file: name, sizes, type, values."""
    found, at = dict[str, tuple[list[int], int]](), 0

    def number(kind: str) -> int:
        nonlocal at
        [value] = struct.unpack_from(f"<{kind}", data, at)
        at += struct.calcsize(kind)
        return int(value)

    def text() -> str:
        nonlocal at
        size = number("H")
        at += size
        return data[at - size : at - 1].decode()

    assert number("I") >= 6
    text()
    number("I")
    for _ in range(number("I")):
        name = text()
        shape = [number("I") for _ in range(number("B"))]
        kind, size = number("B"), number("I")
        at += size
        found[name] = shape, kind
    return found


def note(folder: str) -> None:
    """Writes down what the variables of a model are that have a scale."""
    variables, found = variables_of(Path(folder, "model.bin").read_bytes()), []
    for name, (shape, kind) in variables.items():
        if f"{name}_scale" in variables:
            [scales, _] = variables[f"{name}_scale"]
            assert kind == 1  # int8
            how = groups(shape[0] * shape[1], shape[0], math.prod(scales))
            found.append(Weights("int8", 8, *how, True))
    note_weights(found, folder)


def main() -> None:
    tiny = transformers.GPT2Config(n_embd=64, n_layer=1, n_head=2, vocab_size=32, n_positions=16)
    transformers.GPT2LMHeadModel(tiny).save_pretrained("tiny")
    vocabulary = {chr(65 + at): at for at in range(31)} | {"<|endoftext|>": 31}
    Path("vocab.json").write_text(str(vocabulary).replace("'", '"'))
    Path("merges.txt").write_text("#version: 0.2\n")
    transformers.GPT2Tokenizer("vocab.json", "merges.txt").save_pretrained("tiny")
    converter = TransformersConverter("tiny")
    with otel_quant.step("int8"):
        converter.convert("int8", quantization="int8")
    note("int8")
    with otel_quant.step("not quantized"):
        converter.convert("float")
    print(
        ctranslate2.Generator("int8").compute_type,
        sum(each.stat().st_size for each in Path("int8").iterdir())
        < sum(each.stat().st_size for each in Path("float").iterdir()),
    )


if __name__ == "__main__":
    main()
