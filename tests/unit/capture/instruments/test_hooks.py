"""Hooks on a module of the test's own, set when it is imported, and removed; which libraries are instrumented."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from otel_quant.capture import instruments
from otel_quant.capture.instruments import PACKAGES
from otel_quant.capture.instruments.hooks import RETURNED, STEP, Hook, Hooks, Library
from otel_quant.capture.instruments.steps import version_of
from otel_quant.capture.instruments.tables import LIBRARIES
from tests.fixtures.programs import run_script

SOURCE = """
class Base:
    def inherited(self): return "base"
class Tool(Base):
    def method(self): return "method"
    @staticmethod
    def static(value): return value
    @classmethod
    def of_class(cls): return cls.__name__
def function(): return "function"
"""


def wrapped(original: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return library.name, original(*args, **kwargs)

    return wrapper


def wrapped_twice(original: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    return wrapped(wrapped(original, hook, library), hook, library)


def library(*targets: str) -> Library:
    return Library(
        "test", "test", tuple(Hook("hooked_here", target, "test:wrapped") for target in targets)
    )


@pytest.fixture
def hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hooks]:
    (tmp_path / "hooked_here.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    # A table names functions of the package of the instruments.
    monkeypatch.setitem(sys.modules, f"{instruments.__name__}.test", sys.modules[__name__])
    hooks = Hooks()
    yield hooks
    hooks.remove()
    sys.modules.pop("hooked_here", None)


def load() -> ModuleType:
    return importlib.import_module("hooked_here")


def test_a_hook_waits_for_its_module_and_loads_nothing(hooks: Hooks) -> None:
    hooks.set([library("function")])
    assert "hooked_here" not in sys.modules

    assert load().function() == ("test", "function")


def test_a_wrapper_of_several_layers_refers_to_the_original_function(hooks: Hooks) -> None:
    hook = Hook("hooked_here", "function", "test:wrapped_twice")
    hooks.set([Library("test", "test", (hook,))])
    function = load().function

    assert function() == ("test", ("test", "function"))
    original = function.__wrapped__
    assert (original(), hasattr(original, "__wrapped__")) == ("function", False)


def test_static_methods_and_class_methods_keep_their_kind(hooks: Hooks) -> None:
    hooks.set([library("Tool.method", "Tool.static", "Tool.of_class")])
    tool = load().Tool

    assert tool().method() == ("test", "method")
    assert tool.static(1) == tool().static(1) == ("test", 1)
    assert tool.of_class() == ("test", "Tool")
    assert isinstance(vars(tool)["static"], staticmethod)
    assert isinstance(vars(tool)["of_class"], classmethod)


@pytest.mark.parametrize("target", ["gone", "Gone.method", "Tool.gone", "Tool.inherited"])
def test_a_target_missing_in_a_version_is_a_debug_log_and_not_an_error(
    hooks: Hooks, caplog: pytest.LogCaptureFixture, target: str
) -> None:
    with caplog.at_level(logging.DEBUG, "otel_quant"):
        hooks.set([library(target, "function")])
        module = load()

    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("DEBUG", f"hooked_here has no {target} in this version; that hook is left out")
    ]
    assert module.function() == ("test", "function")
    assert module.Tool().inherited() == "base"


def test_a_late_hook_reaches_aliases_and_removal_restores_the_same_objects(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load()
    before = {**vars(module), **vars(module.Tool)}
    user = ModuleType("user")
    user.alias = module.function
    monkeypatch.setitem(sys.modules, "user", user)

    hooks.set([library("function", "Tool.static", "Tool.method")])
    hooks.set([library("function", "Tool.static", "Tool.method")])
    assert module.function() == user.alias() == ("test", "function")

    hooks.remove()
    after = {**vars(module), **vars(module.Tool)}
    assert {name for name in before if after[name] is not before[name]} == set()
    assert user.alias is module.function


def test_a_replacement_set_later_by_another_library_is_kept(hooks: Hooks) -> None:
    hooks.set([library("function")])
    module = load()

    def theirs() -> str:
        return "theirs"

    module.function = theirs
    hooks.remove()
    assert module.function is theirs


def test_the_table_of_a_library_is_loaded_as_its_package_is_imported(
    hooks: Hooks, tmp_path: Path
) -> None:
    (tmp_path / "hqq" / "core").mkdir(parents=True)
    (tmp_path / "hqq" / "__init__.py").write_text("from hqq.core.quantize import HQQLinear\n")
    (tmp_path / "hqq" / "core" / "quantize.py").write_text(
        "class HQQLinear:\n    def quantize(self): return 'quantized'\n"
    )
    hooks.set((), ["hqq", "nncf"])
    assert hooks.libraries == frozenset()
    package = importlib.import_module("hqq")
    assert [library.name for library in hooks.libraries] == ["hqq"]
    wrapped = package.HQQLinear.quantize
    assert (wrapped(None), wrapped.__wrapped__(None)) == ("quantized", "quantized")
    hooks.remove()
    assert not hasattr(package.HQQLinear.quantize, "__wrapped__")
    assert hooks not in sys.meta_path
    for name in ("hqq", "hqq.core", "hqq.core.quantize"):
        del sys.modules[name]


@pytest.fixture(autouse=True)
def _not_asked_before(monkeypatch: pytest.MonkeyPatch) -> None:
    version_of.cache_clear()
    monkeypatch.delitem(sys.modules, "neural_compressor", raising=False)


def test_a_library_has_the_version_of_its_distribution_or_of_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = LIBRARIES["neural-compressor"]
    unknown = dataclasses.replace(known, distribution="of no index")
    assert version_of(unknown) is None

    version_of.cache_clear()
    package = ModuleType("neural_compressor")
    package.__version__ = "3.10+own"
    monkeypatch.setitem(sys.modules, "neural_compressor", package)
    metadata = tmp_path / "neural_compressor-3.10.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: neural_compressor\nVersion: 3.10\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert (version_of(known), version_of(unknown)) == ("3.10", "3.10+own")


NAMES = ", ".join(sorted(PACKAGES))


UNKNOWN = "environment variable OTEL_QUANT_LIBRARIES names 'quack'; expected names out of " + NAMES


@pytest.mark.parametrize(
    ("libraries", "warnings"), [("hqq", []), ("hqq,quack", [UNKNOWN]), ("quack", [UNKNOWN])]
)
def test_an_unknown_name_is_logged_with_the_expected_ones(
    libraries: str, warnings: list[str], tmp_path: Path
) -> None:
    code = "import otel_quant; otel_quant.QuantInstrumentor().instrument()"
    _, errors = run_script(tmp_path, code, OTEL_QUANT_LIBRARIES=libraries)
    assert errors.splitlines() == warnings


@pytest.mark.parametrize("name", LIBRARIES)
def test_each_hook_of_a_library_has_an_effect(name: str) -> None:
    hooks = LIBRARIES[name].hooks
    assert len({(hook.module, hook.target) for hook in hooks}) == len(hooks)
    counting = [
        hook for hook in hooks if hook.wrapper == STEP and hook.counts not in ("", RETURNED)
    ]
    assert {hook.step for hook in counting} <= {"Calibration"}  # nothing is counted in other steps


KEPT = "onnxconverter_common.float16.convert_float_to_float16"


@pytest.mark.parametrize(
    ("call", "is_missed"),
    [
        ("kept()", True),
        ("float16.convert_float_to_float16(); kept()", True),
        ("float16.convert_float_to_float16()", False),
        ("float16.convert_float_to_float16_model_path(kept)", False),
        ("float16.other()", False),
    ],
)
def test_a_function_that_was_kept_from_before_it_was_hooked_is_told_once_where_it_ran(
    call: str, is_missed: bool, tmp_path: Path
) -> None:
    (tmp_path / "onnxconverter_common").mkdir()
    (tmp_path / "onnxconverter_common" / "float16.py").write_text(
        "import time\n"
        "def convert_float_to_float16():\n    end = time.monotonic() + 0.5\n"
        "    while time.monotonic() < end:\n        sum(range(1000))\n"
        "other = convert_float_to_float16\n"
        "def convert_float_to_float16_model_path(inner):\n    inner()\n"
    )
    code = (
        "import functools, otel_quant\nfrom onnxconverter_common import float16\n"
        "kept = functools.partial(float16.convert_float_to_float16)\n"
        f"otel_quant.QuantInstrumentor().instrument()\nwith otel_quant.run():\n    {call}\n    {call}"
    )
    _, errors = run_script(tmp_path, code)
    told = [line.split(" ran without a step: ")[0] for line in errors.splitlines()]
    assert told == [KEPT] * is_missed
