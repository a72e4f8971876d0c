"""What Quark's profiler has, `otel_quant.quark` has, under the same names and signatures."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest

from tests.fixtures.programs import run_script

pytestmark = pytest.mark.quark

# In a process of its own, because Quark loads torch. Of the private names of Quark's, those that
# programs have been seen to use.
DESCRIBE = '''
import importlib
import inspect
import json

PRIVATE = {"_has_psutil", "_gpu_available", "_disk_io_available", "_checkpoint", "_instance"}


def is_offered(name):
    return not name.startswith("_") or name in PRIVATE


def parameters_of(function):
    """Name, kind and default of each parameter, without annotations."""
    return [
        [each.name, str(each.kind), repr(each.default)]
        for each in inspect.signature(function).parameters.values()
    ]


def describe(value):
    if inspect.isclass(value):
        bases = [base for base in reversed(value.__mro__) if base.__module__ not in ("abc", "builtins", "enum")]
        own = {name: vars(base)[name] for base in bases for name in vars(base)}
        members = {name: kind_of(own[name]) for name in own if is_offered(name)}
        return {"kind": "class", "parameters": parameters_of(value), "members": members}
    return kind_of(value)


def kind_of(value):
    if isinstance(value, (staticmethod, classmethod)):
        return {"kind": type(value).__name__, "parameters": parameters_of(value.__func__)}
    if callable(value):
        return {"kind": "function", "parameters": parameters_of(value)}
    return {"kind": "attribute"}


def names_of(module):
    """The names that a module offers: those of its `__all__`, or those that it defines."""
    return getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if is_offered(name) and getattr(value, "__module__", None) == module.__name__
    ]


def described(package):
    """What the modules of a package have of the names that Quark's offer."""
    found = {}
    for name in ["", ".profiler", ".metrics", ".utils", ".cache_dir_disk_monitor"]:
        module = importlib.import_module(package + name)
        names = names_of(importlib.import_module("quark.common.profiler" + name))
        found[name] = {each: describe(getattr(module, each)) for each in names if hasattr(module, each)}
    return found


def instances(package):
    module = importlib.import_module(package)
    profiler = module.GlobalProfiler("OUTPUT")
    monitor = importlib.import_module(package + ".cache_dir_disk_monitor").CacheDirDiskMonitor(".")
    found = {}
    for each in (profiler, monitor, module.MetricContext()):
        names = [name for name in dir(each) if is_offered(name)]
        found[type(each).__name__] = {
            name: [callable(getattr(each, name)), type(getattr(each, name)).__name__]
            for name in names
        }
    return found


print(json.dumps([
    {"modules": described(package), "instances": instances(package)}
    for package in ["quark.common.profiler", "otel_quant.quark"]
]))
'''


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    folder = tmp_path_factory.mktemp("described")
    out, _ = run_script(folder, DESCRIBE.replace("OUTPUT", "p.yaml"), QUARK_PROFILING="1")
    quarks, ours = json.loads(out.splitlines()[-1])
    return quarks, ours


NO_DEFAULT = repr(inspect.Parameter.empty)
MODULES = ["", ".profiler", ".metrics", ".utils", ".cache_dir_disk_monitor"]


@pytest.mark.parametrize("module", MODULES)
def test_every_quark_name_exists_with_the_same_kind_and_parameters(
    described: tuple[dict[str, Any], dict[str, Any]], module: str
) -> None:
    quarks, ours = (each["modules"][module] for each in described)

    assert quarks.keys() - ours.keys() == set()
    for name, theirs in quarks.items():
        mine = ours[name]
        assert mine["kind"] == theirs["kind"], name
        assert_same_parameters(mine, theirs, name)
        for member, described_ in theirs.get("members", {}).items():
            assert member in mine["members"], (name, member)
            assert mine["members"][member]["kind"] == described_["kind"], (name, member)
            assert_same_parameters(mine["members"][member], described_, f"{name}.{member}")


def assert_same_parameters(mine: dict[str, Any], theirs: dict[str, Any], name: str) -> None:
    """Ours may have more, at the end and with a default."""
    known, own = theirs.get("parameters", []), mine.get("parameters", [])
    assert own[: len(known)] == known, name
    required = [each for each, _, default in own[len(known) :] if default == NO_DEFAULT]
    assert required == [], name


def test_every_attribute_of_quark_objects_exists_with_the_same_type(
    described: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    quarks, ours = (each["instances"] for each in described)

    assert quarks.keys() == ours.keys()
    missing = {
        (kind, name, tuple(what), tuple(ours[kind].get(name, ())))
        for kind, names in quarks.items()
        for name, what in names.items()
        if ours[kind].get(name) != what
    }
    assert missing == set()
