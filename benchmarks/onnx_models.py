"""ONNX models of the sizes that people have, made on the spot: nothing is downloaded.

Small and medium ones are real exports, with random weights, of architectures in
transformers. Large ones are written field by field with holes for weights, so that a file
of gigabytes takes neither memory nor disk space to make.
"""

from __future__ import annotations

import argparse
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import onnx
from onnx import TensorProto, helper

_HEADS, _KV_HEADS, _HIDDEN, _INNER, _VOCABULARY = 32, 4, 2048, 5632, 32000
_TOKENS: Final = 128


def one_node(path: Path) -> None:
    """A Relu: what remains is the time to start."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "one", ends[:1], ends[1:])
    path.write_bytes(_wrapped(graph).SerializeToString())


def chain(path: Path, nodes: int = 100_000) -> None:
    """A chain of many small nodes: what remains is the time that each one takes."""
    kinds = ("MatMul", "Add", "Relu", "Sigmoid", "Neg")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 64]) for name in "xy"]
    graph = helper.make_graph([], "chain", ends[:1], ends[1:])
    for name, dims in (("weight", [64, 64]), ("bias", [64])):
        content = bytes(4 * _product(dims))
        graph.initializer.append(
            helper.make_tensor(name, TensorProto.FLOAT, dims, content, raw=True)
        )
    made = "x"
    for i in range(nodes):
        kind = kinds[i % len(kinds)]
        inputs = [made, *{"MatMul": ["weight"], "Add": ["bias"]}.get(kind, [])]
        made = "y" if i == nodes - 1 else f"{kind}_{i}"
        graph.node.append(
            helper.make_node(kind, inputs, [made], name=f"/block.{i // 10}/{kind}_{i}")
        )
    path.write_bytes(_wrapped(graph).SerializeToString())


def mobilenet(path: Path) -> None:
    """MobileNet v2, 3.5 M parameters."""
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    _export_vision(MobileNetV2ForImageClassification(MobileNetV2Config(num_labels=1000)), path)


def resnet50(path: Path) -> None:
    """ResNet-50, 25.6 M parameters."""
    from transformers import ResNetConfig, ResNetForImageClassification

    _export_vision(ResNetForImageClassification(ResNetConfig(num_labels=1000)), path)


def bert_base(path: Path) -> None:
    """BERT-base, 109 M parameters, input of 128 tokens."""
    import torch
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig(attn_implementation="eager")).eval()
    tokens = torch.ones(1, _TOKENS, dtype=torch.int64)
    torch.onnx.export(
        _plain(model),
        (tokens, tokens),
        path,
        input_names=["input_ids", "attention_mask"],
        dynamo=False,
        opset_version=17,
    )


def _export_vision(model: Any, path: Path) -> None:
    import torch

    torch.onnx.export(
        _plain(model),
        (torch.zeros(1, 3, 224, 224),),
        path,
        input_names=["image"],
        dynamo=False,
        opset_version=17,
    )


def _plain(model: Any) -> Any:
    """Returns a module that gives a tensor rather than a record, as the exporter expects."""
    import torch

    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model.eval()

        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            output: torch.Tensor = self.model(*inputs)[0]
            return output

    return Plain().eval()


def llama(path: Path, layers: int = 22, *, inside: bool = False) -> None:
    """A decoder of the Llama family; 22 layers are 1.1 B parameters, float32.

    Its weights are holes, in a file beside the model, or inside of the model's.
    """
    builder = _Decoder()
    builder.build(layers)
    if inside:
        _write_with_holes(builder, path)
        return
    data = path.with_suffix(".data")
    offset = 0
    for name, dims in builder.weights:
        length = 4 * _product(dims)
        tensor = builder.graph.initializer.add(
            name=name, data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL
        )
        for key, value in (("location", data.name), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        offset += length
    with data.open("wb") as file:
        file.truncate(offset)
    path.write_bytes(_wrapped(builder.graph).SerializeToString())


class _Decoder:
    """Writes the graph as exporters do: normalization, rotation and masks in small nodes."""

    def __init__(self) -> None:
        self.graph = onnx.GraphProto(name="decoder")
        self.weights: list[tuple[str, tuple[int, ...]]] = []
        self._count = 0

    def build(self, layers: int) -> None:
        self.graph.input.append(
            helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, _TOKENS])
        )
        size = _HIDDEN // _HEADS
        for name, dims in (("cos", (_TOKENS, size)), ("sin", (_TOKENS, size))):
            self.weight(name, dims)
        self.weight("mask", (_TOKENS, _TOKENS))
        hidden = self.op("Gather", self.weight("embedding", (_VOCABULARY, _HIDDEN)), "input_ids")
        for layer in range(layers):
            hidden = self.layer(hidden, f"layers.{layer}")
        hidden = self.norm(hidden, "norm")
        logits = self.op("MatMul", hidden, self.weight("lm_head", (_HIDDEN, _VOCABULARY)))
        self.graph.output.append(
            helper.make_tensor_value_info(logits, TensorProto.FLOAT, [1, _TOKENS, _VOCABULARY])
        )

    def layer(self, hidden: str, name: str) -> str:
        size = _HIDDEN // _HEADS
        x = self.norm(hidden, f"{name}.input_norm")
        q = self.rotated(self.split(x, f"{name}.q", _HEADS, size))
        k = self.repeated(self.rotated(self.split(x, f"{name}.k", _KV_HEADS, size)), size)
        v = self.repeated(self.split(x, f"{name}.v", _KV_HEADS, size), size)
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.op("Add", self.op("Mul", scores, self.scalar(size**-0.5)), "mask")
        mixed = self.op("MatMul", self.op("Softmax", scores, axis=-1), v)
        mixed = self.op("Transpose", mixed, perm=[0, 2, 1, 3])
        mixed = self.op("Reshape", mixed, self.ints(1, _TOKENS, _HIDDEN))
        out = self.op("MatMul", mixed, self.weight(f"{name}.o", (_HIDDEN, _HIDDEN)))
        hidden = self.op("Add", hidden, out)
        x = self.norm(hidden, f"{name}.post_norm")
        gate = self.op("MatMul", x, self.weight(f"{name}.gate", (_HIDDEN, _INNER)))
        gate = self.op("Mul", gate, self.op("Sigmoid", gate))
        up = self.op("MatMul", x, self.weight(f"{name}.up", (_HIDDEN, _INNER)))
        down = self.weight(f"{name}.down", (_INNER, _HIDDEN))
        return self.op("Add", hidden, self.op("MatMul", self.op("Mul", gate, up), down))

    def norm(self, x: str, name: str) -> str:
        square = self.op("Pow", x, self.scalar(2.0))
        mean = self.op("ReduceMean", square, axes=[-1], keepdims=1)
        root = self.op("Sqrt", self.op("Add", mean, self.scalar(1e-6)))
        return self.op("Mul", self.op("Div", x, root), self.weight(name, (_HIDDEN,)))

    def split(self, x: str, name: str, heads: int, size: int) -> str:
        x = self.op("MatMul", x, self.weight(name, (_HIDDEN, heads * size)))
        x = self.op("Reshape", x, self.ints(1, _TOKENS, heads, size))
        return self.op("Transpose", x, perm=[0, 2, 1, 3])

    def rotated(self, x: str) -> str:
        half = _HIDDEN // _HEADS // 2
        first = self.op("Slice", x, self.ints(0), self.ints(half), self.ints(3))
        second = self.op("Slice", x, self.ints(half), self.ints(2 * half), self.ints(3))
        turned = self.op("Concat", self.op("Neg", second), first, axis=-1)
        return self.op("Add", self.op("Mul", x, "cos"), self.op("Mul", turned, "sin"))

    def repeated(self, x: str, size: int) -> str:
        times = _HEADS // _KV_HEADS
        x = self.op("Unsqueeze", x, self.ints(2))
        x = self.op("Expand", x, self.ints(1, _KV_HEADS, times, _TOKENS, size))
        return self.op("Reshape", x, self.ints(1, _HEADS, _TOKENS, size))

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        self._count += 1
        name = f"{kind}_{self._count}"
        self.graph.node.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def weight(self, name: str, dims: tuple[int, ...]) -> str:
        self.weights.append((name, dims))
        return name

    def ints(self, *values: int) -> str:
        return self._constant(
            TensorProto.INT64, [len(values)], struct.pack(f"<{len(values)}q", *values)
        )

    def scalar(self, value: float) -> str:
        return self._constant(TensorProto.FLOAT, [], struct.pack("<f", value))

    def _constant(self, dtype: int, dims: list[int], raw: bytes) -> str:
        self._count += 1
        name = f"constant_{self._count}"
        self.graph.initializer.add(name=name, data_type=dtype, dims=dims, raw_data=raw)
        return name


def _wrapped(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _write_with_holes(builder: _Decoder, path: Path) -> None:
    """Writes a ModelProto whose initializers hold zeros that are nowhere on the disk."""
    heads: list[tuple[bytes, int]] = []
    for name, dims in builder.weights:
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims)
        length = 4 * _product(dims)
        head = tensor.SerializeToString() + _key(9) + _varint(length)
        heads.append((_key(5) + _varint(len(head) + length) + head, length))
    graph = builder.graph.SerializeToString()
    whole = len(graph) + sum(len(head) + length for head, length in heads)
    model = _wrapped(onnx.GraphProto())
    model.ClearField("graph")
    with path.open("wb") as file:
        file.write(model.SerializeToString() + _key(7) + _varint(whole) + graph)
        for head, length in heads:
            file.write(head)
            file.seek(length, 1)
        file.truncate(file.tell())


def _key(number: int) -> bytes:
    return _varint(number << 3 | 2)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _product(dims: Sequence[int]) -> int:
    product = 1
    for dim in dims:
        product *= dim
    return product


MODELS: Final[dict[str, Callable[[Path], None]]] = {
    "one_node": one_node,
    "chain_of_100000": chain,
    "mobilenet_v2": mobilenet,
    "resnet50": resnet50,
    "bert_base": bert_base,
    "llama_1.1b_external": llama,
    "llama_2.7gb_one_file": lambda path: llama(path, 13, inside=True),
}
"""By name, small to large. The last is more than protobuf, and so onnx, can read."""


def main() -> None:
    """Makes models that are not there yet."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="+", choices=tuple(MODELS))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.names:
        path = options.folder / f"{name}.onnx"
        if not path.exists():
            MODELS[name](path)


if __name__ == "__main__":
    main()
