"""The message of an exception, as it is shown."""

from __future__ import annotations

import pytest

from otel_quant.base.fault_boundary import message_of


class Unreadable(ValueError):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("no such\n\n  layer"), "no such layer"),
        (ValueError("x" * 600), "x" * 499 + "…"),
        (ValueError(), None),
        (Unreadable(), None),
    ],
)
def test_a_message_is_one_line_of_bounded_length(error: BaseException, message: str | None) -> None:
    assert message_of(error, paths=True) == message


def test_there_is_no_message_where_paths_are_switched_off() -> None:
    assert message_of(FileNotFoundError("/home/me/m.onnx"), paths=False) is None
