"""What helps against exceptions that are known, and nothing against others: each is raised for real."""

from __future__ import annotations

import multiprocessing
import pickle
from pathlib import Path

import onnx
import pytest
from onnx import helper

from otel_quant.launcher.known_errors import KNOWN_ERRORS, advice_on
from otel_quant.launcher.surroundings import Disk


def first_words(error: str, model: str = "", full: tuple[Disk, ...] = ()) -> list[str]:
    return [" ".join(each.text.split()[:4]) for each in advice_on(error, model, full)]


def error_of(value: object) -> str:
    """Returns the error of pickling, as a recording has it."""
    with pytest.raises((pickle.PicklingError, AttributeError, TypeError)) as raised:
        multiprocessing.reduction.ForkingPickler.dumps(value)
    return f"{type(raised.value).__name__}: {raised.value}"


class Outer:
    class Hidden:
        pass


def test_what_cannot_be_pickled_has_advice() -> None:
    class Local:
        pass

    hidden = Outer.Hidden()
    Outer.Hidden.__qualname__ = "Gone"
    with open(__file__) as file:
        for value in (lambda: 1, Local(), hidden, (x for x in "a"), file):
            assert first_words(error_of(value)) == ["Give to other processes"], error_of(value)


GUARD = (
    "An attempt has been made to start a new process before the current process has finished its "
    "bootstrapping phase. This probably means"
)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (f"RuntimeError: {GUARD}", ["Put what starts the"]),
        ("Exception: Incomplete symbolic shape inference", ["Call quant_pre_process with skip_symbolic_shape=True:"]),
        ("ValueError: pickle", []),
        ("UnpicklingError: pickle data was truncated", []),
        ("", []),
    ],
)  # fmt: skip
def test_a_known_error_has_its_advice(error: str, expected: list[str]) -> None:
    assert first_words(error) == expected


def test_operators_of_a_models_own_are_named(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    nodes = [
        helper.make_node("Custom", ["x"], ["h"], domain="my.ops"),
        helper.make_node("Relu", ["h"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [value], [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])]
    )
    onnx.save(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("my.ops", 1)]
        ),
        tmp_path / "m.onnx",
    )
    error = "Exception: Incomplete symbolic shape inference"
    (found,) = advice_on(error, str(tmp_path / "m.onnx"), ())
    assert found.text.endswith("is still done. It cannot know the shapes of my.ops:Custom.")
    (found,) = advice_on(error, str(tmp_path / "none.onnx"), ())
    assert found.text.endswith("is still done.")


def test_a_full_disk_has_advice_by_what_is_on_it() -> None:
    full = (
        Disk("temporary files, shared memory", 0, 30_000_000),
        Disk("the current folder", 4096, 9_000_000),
        Disk("shared memory", 0, 64_000_000),
    )
    assert [each.text for each in advice_on("", "", full)] == [
        "Set TMPDIR to a folder on a disk with more room than 30.0 MB, which temporary files have now.",
        "Write to a disk with more room, or make some: the current folder had 4.10 kB of 9.00 MB.",
        "Give shared memory (/dev/shm) more room than 64.0 MB: docker run --shm-size, Kubernetes an emptyDir with medium Memory.",
    ]
    (found,) = advice_on("RuntimeError: Caught RuntimeError in DataLoader worker", "", full[2:])
    assert found.text.endswith(
        "Or load samples with num_workers=0, fewer workers or smaller batches: workers hand over their batches in it."
    )


def test_every_known_error_names_its_source() -> None:
    assert all(each.source for each in KNOWN_ERRORS)
