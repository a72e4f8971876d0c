"""The documentation of the libraries says what their tables do, and the tables name what is."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from otel_quant.instruments import LIBRARIES
from otel_quant.steps import ALL_STEPS
from scripts.libraries_docs import _ROLES

HOOKS = [hook for library in LIBRARIES for hook in library.hooks]
_PREFIX = "otel_quant.instruments."


def test_every_wrapper_is_explained_and_none_that_is_not() -> None:
    used = {hook.wrap.removeprefix(_PREFIX) for hook in HOOKS}
    has_a_step = {"calls:step", "torch_calls:quantize_dynamic"}
    assert used - has_a_step == set(_ROLES)


@pytest.mark.parametrize("wrap", sorted({hook.wrap for hook in HOOKS}))
def test_every_wrapper_that_a_table_names_exists(wrap: str) -> None:
    module, _, factory = wrap.partition(":")
    assert callable(getattr(importlib.import_module(module), factory))


def test_steps_are_the_profile_steps_and_no_function_is_hooked_twice() -> None:
    assert {hook.step for hook in HOOKS} - {""} <= ALL_STEPS
    targets = [(hook.module, hook.target) for hook in HOOKS]
    assert sorted(set(targets)) == sorted(targets)
    names = {library.name for library in LIBRARIES}
    assert {covered for library in LIBRARIES for covered in library.covers} <= names


def test_setting_the_hooks_loads_no_library_and_none_of_our_measuring() -> None:
    heavy = ["torch", "onnx", "onnxruntime", "numpy", "psutil", "otel_quant.runtime"]
    script = (
        "import sys, otel_quant\n"
        "otel_quant.QuantInstrumentor().instrument()\n"
        f"print([name for name in {heavy!r} if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[]", done.stderr
