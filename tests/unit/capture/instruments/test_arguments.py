"""What is made of the arguments of a call: one is replaced, and the models among them are found."""

from __future__ import annotations

import inspect
import logging
import shutil
from pathlib import Path
from typing import Any

import onnx
import pytest

from otel_quant.capture.instruments.hooks import Arguments, models_of


def calibrate(model: str, loader: Any = None, *rest: Any, seed: int = 0) -> tuple[Any, ...]:
    return model, loader, rest, seed


def doubled(value: int | None) -> int | None:
    return None if value is None else 2 * value


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        (("m", 1), {}, (("m", 2), {})),
        (("m", 1, 5), {"seed": 7}, (("m", 2, 5), {"seed": 7})),
        (("m",), {"loader": 1}, (("m",), {"loader": 2})),
        (("m",), {}, (("m",), {})),
        (("m",), {"loader": None}, (("m",), {"loader": None})),
    ],
)
def test_an_argument_is_replaced_where_it_is_passed(
    args: tuple[Any, ...], kwargs: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    before = dict(kwargs)
    assert Arguments(calibrate).replaced(args, kwargs, "loader", doubled) == expected
    assert kwargs == before


def test_only_passed_or_default_arguments_are_replaced() -> None:
    read = Arguments(calibrate)
    assert read.replaced(("m", 1, 5, 6), {"seed": 7}, "seed", doubled) == (
        ("m", 1, 5, 6),
        {"seed": 14},
    )
    assert read.replaced(("m",), {}, "loader", repr) == (("m",), {"loader": "None"})
    assert read.replaced((), {}, "model", doubled) == ((), {})
    assert read.replacing(calibrate, "run_fn", doubled) is calibrate


def test_parameters_hidden_by_a_decorator_come_from_the_table() -> None:
    def hidden(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        return calibrate(*args, **kwargs)

    assert Arguments(hidden).replacing(hidden, "loader", doubled) is hidden
    read = Arguments(hidden, ("model", "loader"))
    wrapper = read.replacing(hidden, "loader", doubled)
    assert wrapper("m", 1) == wrapper("m", loader=1) == ("m", 2, (), 0)
    assert read.bound(("m",), {"seed": 7})["model"] == "m"


def test_a_call_continues_unchanged_if_the_replacement_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(value: object) -> object:
        raise ValueError("no such loader")

    wrapper = Arguments(calibrate).replacing(calibrate, "loader", fails)
    with caplog.at_level(logging.WARNING, "otel_quant"):
        assert wrapper("m", 1) == ("m", 1, (), 0)
    assert caplog.messages == [
        "argument loader of calibrate failed and is skipped; the program goes on without it: "
        "ValueError: no such loader"
    ]
    assert inspect.signature(wrapper) == inspect.signature(calibrate)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("model_input", "model_output"),
        ("input_model", "output_model_path"),
        ("input_model_path", "output_model"),
    ],
)
def test_input_and_output_models_of_every_call_style_are_costed(
    model: Path, tmp_path: Path, before: str, after: str
) -> None:
    quantized = tmp_path / "quantized.onnx"
    shutil.copy(model, quantized)

    found = models_of({before: str(model), after: quantized, "per_channel": True}, None)

    assert found == [("float", str(model)), ("quantized", quantized)]


def test_the_result_is_the_quantized_model_if_no_file_was_requested(model: Path) -> None:
    result = onnx.ModelProto()
    found = models_of({"model_input": model, "model_output": None}, result)
    assert found == [("float", model), ("quantized", result)]


def test_a_model_quantized_in_place_is_costed_once(model: Path) -> None:
    assert models_of({"model_input": str(model), "model_output": model}, None) == [
        ("quantized", model)
    ]


def test_a_path_that_is_not_an_onnx_model_is_not_costed(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.bin").write_bytes(b"weights")
    arguments = {
        "model_input": str(tmp_path / "checkpoint.bin"),
        "model_output": str(tmp_path / "was_never_written.onnx"),
    }
    assert models_of(arguments, None) == []
