"""The rules of fusing are what the installed onnxruntime does, for contractions in every form."""

from __future__ import annotations

import pytest

from otel_quant.cost.graph import runtime_here
from scripts.onnxruntime_rules import compared


@pytest.mark.parametrize("arm", [False, True])
def test_contractions_run_as_the_rules_say_in_every_form(arm: bool) -> None:
    runs = list(compared(runtime_here()._replace(arm=arm)))
    assert [(form.title, seen, said) for form, seen, said in runs if seen != said] == []
    assert {seen for _, seen, _ in runs} == {"integers", "weights", "float", "fails"}
