"""Errors for wrong arguments of ``step``."""

from __future__ import annotations

import pytest

import otel_quant


def test_a_decorator_without_a_name_raises_at_once() -> None:
    with pytest.raises(TypeError, match=r"^step\(\) is given .*quantize; expected a name"):

        @otel_quant.step
        def quantize() -> None: ...


def test_attributes_that_are_not_a_mapping_raise_at_once() -> None:
    with pytest.raises(TypeError) as refused:
        otel_quant.step("Calibration", attributes=[1])
    assert str(refused.value) == (
        "step() is given attributes=[1]; expected a mapping of names to values"
    )
