"""Random graphs of every known operator, most of them invalid."""

from __future__ import annotations

import random
from collections.abc import Sequence

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

from otel_quant.cost.operators import all_operators

KINDS = sorted(all_operators())
USUAL = (-1, 0, 1, 2, 3, 4, 7, 8, 64)
EXTREME = (-(2**63), 2**63 - 1, 2**31, 2**40, 1000, -5)
FLOATS = (0.0, 1.0, 2.0, float("nan"), float("inf"), -1.5, -1e30)
STRINGS = (
    b"", b"NOTSET", b"SAME_UPPER", b"VALID", b"bij,bjk->bik", b"...ij->", b"ii->i", b"linear",
    b"bidirectional", b"\xff\x00\n\x1b[31m",
)  # fmt: skip
NAMES = ("", "same", "same", "a\nb", "\x1b[31mred", "\u202ereversed", "é" * 300)

ATTRIBUTES: dict[str, dict[str, int]] = {}
for schema in onnx.defs.get_all_schemas():
    ATTRIBUTES.setdefault(schema.name, {}).update(
        {name: int(attribute.type) for name, attribute in schema.attributes.items()}
    )
ANY_ATTRIBUTE = sorted({item for found in ATTRIBUTES.values() for item in found.items()})
KIND_OF_GRAPH = AttributeProto.GRAPH


class RandomModel:
    """Makes one model from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def model(self) -> ModelProto:
        model = ModelProto(ir_version=9, graph=self.graph(0))
        version = self._random.choice((1, 7, 8, 9, 11, 13, 17, 18, 20, 22, 24))
        model.opset_import.add(domain="", version=version)
        return model

    def graph(self, depth: int) -> GraphProto:
        pick = self._random
        graph = GraphProto(name="g")
        names: list[str] = []
        for i in range(pick.randrange(1, 4)):
            names.append(f"in{depth}_{i}")
            dims = [pick.choice((dim, "N", None)) for dim in self._shape()]
            dtype = pick.choice((1, 1, 7, 7, 9, 2, 10))
            graph.input.append(helper.make_tensor_value_info(names[-1], dtype, dims))
        for i in range(pick.randrange(6)):
            names.append(f"w{depth}_{i}")
            graph.initializer.append(self._tensor(names[-1]))
        names += ["in0_0", "w0_0"]  # of the graph around this one
        for i in range(pick.randrange(1, 12 if depth == 0 else 5)):
            node = self._node(names, depth, i)
            graph.node.append(node)
            names.extend(node.output)
        for _ in range(pick.randrange(1, 4)):
            graph.output.append(onnx.ValueInfoProto(name=pick.choice(names)))
        if pick.random() < 0.3:
            nodes = list(graph.node)
            pick.shuffle(nodes)
            del graph.node[:]
            graph.node.extend(nodes)
        return graph

    def _node(self, names: Sequence[str], depth: int, i: int) -> NodeProto:
        pick = self._random
        domain, _, kind = pick.choice(KINDS).rpartition(":")
        inputs = [
            pick.choice(names) if pick.random() < 0.93 else "" for _ in range(pick.randrange(9))
        ]
        outputs = [f"o{depth}_{i}_{j}_{pick.random()}" for j in range(pick.choice((1, 1, 1, 2, 4)))]
        node = helper.make_node(kind, inputs, outputs, name=pick.choice(NAMES), domain=domain)
        known = ATTRIBUTES.get(kind, {}).items()
        wanted = [item for item in known if item[1] == KIND_OF_GRAPH or pick.random() < 0.6]
        wanted += [pick.choice(ANY_ATTRIBUTE) for _ in range(pick.randrange(3))]
        for name, what in wanted:
            if pick.random() < 0.1:
                what = pick.choice((1, 2, 3, 4, 6, 7, 8))  # of another type
            if what != KIND_OF_GRAPH or depth < 4:
                node.attribute.append(self._attribute(name, what, depth))
        return node

    def _attribute(self, name: str, what: int, depth: int) -> AttributeProto:
        pick = self._random
        made = AttributeProto(name=name, type=what)
        if what == AttributeProto.INT:
            made.i = self._int()
        elif what == AttributeProto.INTS:
            made.ints.extend(self._int() for _ in range(pick.randrange(5)))
        elif what == AttributeProto.FLOAT:
            made.f = pick.choice(FLOATS)
        elif what == AttributeProto.FLOATS:
            made.floats.extend(pick.choice(FLOATS) for _ in range(pick.randrange(4)))
        elif what == AttributeProto.STRING:
            made.s = pick.choice(STRINGS)
        elif what == AttributeProto.STRINGS:
            made.strings.extend(pick.choice(STRINGS) for _ in range(pick.randrange(3)))
        elif what == AttributeProto.TENSOR:
            made.t.CopyFrom(self._tensor(""))
        elif what == KIND_OF_GRAPH:
            made.g.CopyFrom(self.graph(depth + 1))
        return made

    def _tensor(self, name: str) -> TensorProto:
        pick = self._random
        choice = pick.random()
        if choice < 0.5:
            values = [self._int() for _ in range(pick.randrange(6))]
            dims = [len(values)] if pick.random() < 0.9 else self._shape()
            return TensorProto(name=name, data_type=7, dims=dims, int64_data=values)
        if choice < 0.6:
            return TensorProto(name=name, data_type=7, dims=[], int64_data=[self._int()])
        if choice < 0.7:
            floats = [pick.choice(FLOATS) for _ in range(3)]
            return TensorProto(name=name, data_type=1, dims=[3], float_data=floats)
        raw = pick.randbytes(pick.choice((0, 1, 64, 2048)))
        dtype = pick.choice((*range(28), 999))
        return TensorProto(name=name, data_type=dtype, dims=self._shape(), raw_data=raw)

    def _shape(self) -> list[int]:
        pick = self._random
        return [
            pick.choice((0, 1, 1, 2, 3, 4, 8, 16))
            if pick.random() < 0.9
            else pick.choice((2**20, 2**31, 2**40, 2**62))
            for _ in range(pick.randrange(6))
        ]

    def _int(self) -> int:
        return self._random.choice(USUAL if self._random.random() < 0.7 else EXTREME)
