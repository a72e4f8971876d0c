"""The page about the libraries is made from their tables, and what these name exists."""

from __future__ import annotations

import subprocess
import sys

import pytest

from otel_quant.capture.instruments.processes import PROCESSES
from otel_quant.capture.instruments.shared.hooks import libraries, load
from otel_quant.schema.step_names import ALL_STEPS

HOOKS = [hook for library in libraries() for hook in library.hooks]


def test_every_wrapper_is_explained_and_every_library_has_been_seen() -> None:
    assert [hook for hook in HOOKS if not hook.wrapper.effect] == []
    assert [library.name for library in libraries() if not library.versions_seen] == []


@pytest.mark.parametrize(
    "reference",
    sorted(
        {hook.wrapper.factory for hook in (*HOOKS, *PROCESSES.hooks)}
        | {library.configuration for library in libraries() if library.configuration}
    ),
)
def test_every_function_that_a_table_names_exists(reference: str) -> None:
    assert callable(load(reference))


def test_steps_are_the_profile_steps_and_no_function_is_hooked_twice() -> None:
    assert {hook.step for hook in HOOKS} - {""} <= ALL_STEPS
    targets = [(hook.module, hook.target) for hook in HOOKS]
    assert sorted(set(targets)) == sorted(targets)
    names = {library.name for library in libraries()}
    assert {name for library in libraries() for name in library.built_on} <= names


def test_setting_the_hooks_loads_no_library_and_none_of_our_measuring() -> None:
    heavy = ["torch", "onnx", "onnxruntime", "numpy", "psutil", "otel_quant.capture.runtime"]
    script = (
        "import sys, otel_quant\n"
        "otel_quant.QuantInstrumentor().instrument()\n"
        f"print([name for name in {heavy!r} if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[]", done.stderr
