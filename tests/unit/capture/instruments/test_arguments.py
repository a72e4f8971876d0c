"""One argument of a call is replaced wherever it is passed, and nothing else is."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

import pytest

from otel_quant.capture.instruments.shared.arguments import Arguments, with_argument


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
def test_argument_is_replaced_where_it_is_passed(
    args: tuple[Any, ...], kwargs: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    before = dict(kwargs)
    assert Arguments(calibrate).replaced(args, kwargs, "loader", doubled) == expected
    assert kwargs == before


def test_keyword_only_argument_is_not_mistaken_for_a_positional_one() -> None:
    call = Arguments(calibrate).replaced(("m", 1, 5, 6), {"seed": 7}, "seed", doubled)
    assert call == (("m", 1, 5, 6), {"seed": 14})


def test_default_is_replaced_if_it_changes() -> None:
    call = Arguments(calibrate).replaced(("m",), {}, "loader", lambda loader: [loader])
    assert call == (("m",), {"loader": [None]})


def test_missing_argument_without_a_default_is_left_to_the_function() -> None:
    assert Arguments(calibrate).replaced((), {}, "model", doubled) == ((), {})


def test_function_without_the_parameter_is_returned_itself() -> None:
    assert with_argument(calibrate, "run_fn", doubled) is calibrate


def test_parameters_come_from_another_signature_where_the_functions_own_hides_them() -> None:
    def hidden(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        return calibrate(*args, **kwargs)

    assert with_argument(hidden, "loader", doubled) is hidden
    wrapper = with_argument(hidden, "loader", doubled, Arguments(calibrate))
    assert wrapper("m", 1) == wrapper("m", loader=1) == ("m", 2, (), 0)


def test_call_goes_on_unchanged_if_the_change_fails(caplog: pytest.LogCaptureFixture) -> None:
    def fails(value: object) -> object:
        raise ValueError("no such loader")

    wrapper: Callable[..., Any] = with_argument(calibrate, "loader", fails)
    with caplog.at_level(logging.WARNING, "otel_quant"):
        assert wrapper("m", 1) == ("m", 1, (), 0)
    assert caplog.messages == [
        "argument loader of calibrate failed and is skipped; the program goes on without it: "
        "ValueError: no such loader"
    ]
    assert inspect.signature(wrapper) == inspect.signature(calibrate)
