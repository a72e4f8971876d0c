"""Small files that would unfold into much: each ends in a result or an error, within bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from onnx import (
    FunctionProto,
    GraphProto,
    NodeProto,
    StringStringEntryProto,
    TensorProto,
    ValueInfoProto,
    helper,
)

from tests.integration.cost.fuzz.conftest import Limited

MANY = 50_000
node = helper.make_node


def model(
    nodes: Sequence[NodeProto],
    constants: Sequence[TensorProto] = (),
    functions: Sequence[FunctionProto] = (),
) -> bytes:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("f", 1)]
    graph = helper.make_graph(list(nodes), "g", [x], [], list(constants))
    made = helper.make_model(graph, functions=list(functions), opset_imports=opsets)
    content: bytes = made.SerializeToString()
    return content


def numbers(name: str, *values: int) -> TensorProto:
    return helper.make_tensor(name, TensorProto.INT64, [len(values)], values)


LONG = numbers("c", *range(1 << 40, (1 << 40) + 2048))


def chain(kind: str, first: str, *others: str, length: int = MANY, **attributes: object) -> list:
    """Nodes each of which takes what the one before it makes."""
    return [
        node(kind, [f"v{i}" if i else first, *others], [f"v{i + 1}"], **attributes)
        for i in range(length)
    ]


def alike(kind: str, *inputs: str, **attributes: object) -> list[NodeProto]:
    return [node(kind, inputs, [f"v{i}"], **attributes) for i in range(MANY)]


def loops(depth: int, constants: int) -> bytes:
    """Loops in loops, each of which changes the rank of what it carries; constants innermost."""
    inputs = [
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
        helper.make_tensor_value_info("go", TensorProto.BOOL, []),
        ValueInfoProto(name="s"),
    ]
    outputs = [ValueInfoProto(name="go"), ValueInfoProto(name="s2")]
    held = [helper.make_tensor(f"w{i}", 1, [1], [0.0]) for i in range(constants)]
    body: GraphProto | None = None
    for _ in range(depth):
        inner = [node("Loop", ["", "", "s"], ["t"], body=body)] if body is not None else []
        grown = node("Unsqueeze", ["t" if inner else "s", "axis"], ["s2"])
        body = helper.make_graph(
            [*inner, grown], "b", inputs, outputs, held if body is None else ()
        )
    return model([node("Loop", ["", "", "x"], ["y"], body=body)], [numbers("axis", 0)])


def calls(depth: int, wide: int, name: str) -> bytes:
    """Functions each of which calls the next several times from nodes with long names."""
    functions = [
        helper.make_function(
            "f", f"f{i}", ["a"], ["b"],
            [
                node(f"f{i + 1}", ["a"], [f"z{j}" if j else "b"], domain="f", name=name)
                if i < depth else node("Relu", ["a"], [f"z{j}" if j else "b"], name=name)
                for j in range(wide)
            ],
            [helper.make_opsetid("f", 1), helper.make_opsetid("", 20)],
        )
        for i in range(depth + 1)
    ]  # fmt: skip
    return model([node("f0", ["x"], ["y"], domain="f")], functions=functions)


def recursive() -> bytes:
    """Two functions that call each other."""
    functions = [
        helper.make_function(
            "f", name, ["a"], ["b"], [node(other, ["a"], ["b"], domain="f")],
            [helper.make_opsetid("f", 1)],
        )
        for name, other in (("f0", "f1"), ("f1", "f0"))
    ]  # fmt: skip
    return model([node("f0", ["x"], ["y"], domain="f")], functions=functions)


def sums() -> bytes:
    """An Einsum of a text as long as is read, many times."""
    body = [node("Einsum", ["a"], ["b"], equation=",".join(["ab"] * 20_000) + "->ab")]
    function = helper.make_function("f", "f", ["a"], ["b"], body, [helper.make_opsetid("", 20)])
    return model([node("f", ["x"], [f"y{i}"], domain="f") for i in range(20_000)], (), [function])


def elsewhere() -> bytes:
    """Weights in as many files as there are weights."""
    return model(
        [],
        [
            TensorProto(
                name=f"t{i}", dims=[1], data_type=1, data_location=1,
                external_data=[StringStringEntryProto(key="location", value=f"../{i}")],
            )
            for i in range(MANY)
        ],
    )  # fmt: skip


def lists() -> bytes:
    """A megabyte of list elements for each few that a real model has."""
    attributes = {f"a{i}": [0] * 65_000 for i in range(40)}
    return model([node("Odd", [], [], **attributes) for _ in range(8)])


TOO_MANY = (
    "unfolds into more than 200,000 operations or 5,000,000 operands and attributes, "
    "functions and bodies included; expected fewer; --max-nodes raises both limits"
)
BOMBS: dict[str, tuple[Callable[[], bytes], str | None]] = {
    "views of views": (lambda: model(chain("Identity", "x")), None),
    "copies of a long constant": (lambda: model(alike("Identity", "c"), [LONG]), None),
    "sums of long constants": (lambda: model(alike("Add", "c", "c"), [LONG]), None),
    "reductions of a long constant": (lambda: model(alike("ReduceSum", "c"), [LONG]), None),
    "a rank of 2048": (lambda: model([node("Reshape", ["x", "s"], ["y"]), *chain("Transpose", "y")], [numbers("s", *[1] * 2048)]), None),
    "lengths that grow": (lambda: model(chain("Tile", "x", "r", length=20_000), [numbers("r", 2**62)]), None),
    "many operands": (lambda: model([node("Sum", ["x"] * 300_000, ["y"])]), None),
    "long operands": (lambda: model([node("Sum", ["c"] * MANY, ["y"])], [LONG]), None),
    "many results": (lambda: model([node("Split", ["x"], [f"o{i}" for i in range(300_000)])]), None),
    "loops in loops": (lambda: loops(20, 50_000), None),
    "calls with long names": (lambda: calls(8, 6, "N" * 60_000), TOO_MANY),
    "calls of calls": (lambda: calls(10, 6, ""), TOO_MANY),
    "functions that call each other": (recursive, "nested more than 64 deep"),
    "long equations": (sums, None),
    "a file for each weight": (elsewhere, None),
    "long lists": (lists, "names, lists and small constants of more than 536,870,912 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_ends_in_a_result_or_an_error_within_bounds(
    limited: Limited, tmp_path: Path, name: str
) -> None:
    make, expected = BOMBS[name]
    path = tmp_path / "bomb.onnx"
    path.write_bytes(make())

    answer = limited.cost(path)

    assert answer["outcome"] == ("cost" if expected is None else "error"), answer
    if expected is None:
        assert answer["wrong"] == []
    else:
        assert expected in answer["message"]
    assert set(answer["opened"]) == {str(path)}
