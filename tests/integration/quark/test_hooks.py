"""Hooks on real Quark: set late, set twice, removed; the program itself does not change."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest

from tests.fixtures.programs import steps_in
from tests.integration.quark.conftest import FloatModels, Run

pytestmark = [
    pytest.mark.quark,
    pytest.mark.skipif(find_spec("quark") is None, reason="amd-quark is not installed"),
]

DYNAMIC = ["Model Caching", "Quantization (Dynamic)"]


def test_a_late_instrument_hooks_aliases_once_and_uninstrument_restores_them(
    run: Run, float_models: FloatModels
) -> None:
    variables = {"OTEL_QUANT_PROFILE": "p.yaml"}
    late = run("late.py", float_models.onnx, instrumented=False, environment=variables)

    found = json.loads((late.out / "report.json").read_text())
    assert found == dict.fromkeys(
        ("alias replaced", "hooked once", "pickles", "restored", "hooked again"), True
    )
    made = {path.name: path.read_bytes() for path in late.out.glob("*.onnx")}
    assert len(made) == 4
    assert len(set(made.values())) == 1
    once = [f"{step} {end}" for step in DYNAMIC for end in ("Start", "End")]
    assert steps_in(late.cwd / "p.yaml") == ["Start", *once, *once, "End"]
    [of_worker] = late.cwd.glob("p.*.yaml")
    assert steps_in(of_worker)[:5] == ["Start", *once]  # the end of the block terminates it
