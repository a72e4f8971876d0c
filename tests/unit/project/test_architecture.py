"""Imports between parts go one way, one module suppresses exceptions, loading is cheap; sinks take events."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final, get_args

import onnx.parser
import pytest

from otel_quant.base.environment import _READERS
from otel_quant.capture.probes.readers import PROBES
from otel_quant.export.otel.logs import LogsSink
from otel_quant.export.otel.metrics import MetricsSink
from otel_quant.export.otel.spans import SpansSink
from otel_quant.export.quark_yaml.sink import QuarkYamlSink
from otel_quant.export.recording_sink import RecordingSink
from otel_quant.program.measured_run import KeptRun
from otel_quant.schema.events import EVENTS, Sink, method_of
from otel_quant.schema.figures import RESOURCES
from otel_quant.schema.settings import Kind

PACKAGE: Final = Path(__file__).resolve().parents[3] / "otel_quant"
MODULES: Final = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
"""Every module by its name below the package; the package itself is ``__init__``."""

ROOMS: Final = (
    ("schema", "version"),
    ("base", "diagnosis"),
    ("cost", "format"),
    ("auditing", "export", "recordings"),
    ("capture", "inference"),
    ("launcher", "sending", "views"),
    ("program",),
    ("cli", "quark"),
    ("__init__", "__main__"),
)
"""The rooms, and the modules outside of them, from the ground up: an arrow never points up."""

FLOOR: Final = {room: floor for floor, rooms in enumerate(ROOMS) for room in rooms}

RELU: Final = """
<ir_version: 8, opset_import: ["": 17]>
graph (float[2] x) => (float[2] y) { y = Relu(x) }
"""

HEAVY: Final = {
    "amdsmi", "google", "grpc", "jinja2", "numpy", "onnx", "onnxruntime", "pynvml", "quark", "torch",
}  # fmt: skip


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text())


def part_of(module: str) -> str:
    return module.partition(".")[0]


@cache
def imports_of(module: str) -> frozenset[str]:
    """Returns the names of all modules of the package that a module imports, in functions too."""
    return frozenset(
        "__init__" if name == "otel_quant" else name.removeprefix("otel_quant.")
        for name in all_imports_of(module)
        if name == "otel_quant" or name.startswith("otel_quant.")
    )


def all_imports_of(module: str) -> Iterator[str]:
    """Yields the names of all modules that a module imports."""
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            inside = node.module.removeprefix("otel_quant").removeprefix(".")
            for alias in node.names:
                below = f"{inside}.{alias.name}".removeprefix(".")
                yield f"otel_quant.{below}" if below in MODULES else node.module


def test_every_module_is_in_a_known_room() -> None:
    assert {part_of(module) for module in MODULES} - set(FLOOR) == set()


def test_other_rooms_use_only_the_public_names_graph_and_estimates_of_cost() -> None:
    used = {
        target
        for module in MODULES
        if part_of(module) != "cost"
        for target in imports_of(module)
        if part_of(target) == "cost"
    }
    assert used == {"cost", "cost.estimate", "cost.estimate.probe", "cost.graph"}


def test_a_room_imports_only_rooms_of_lower_floors() -> None:
    arrows = {(module, part_of(target)) for module in MODULES for target in imports_of(module)}
    assert {
        (module, room)
        for module, room in arrows
        if room != part_of(module) and FLOOR.get(room, 0) >= FLOOR.get(part_of(module), 9)
    } == set()


def test_the_program_and_what_reads_its_recording_share_no_room_above_the_format() -> None:
    half = {"capture": 1, "export": 1, "recordings": 2, "views": 2}
    arrows = {(module, part_of(other)) for module in MODULES for other in imports_of(module)}
    assert {
        (module, room)
        for module, room in arrows
        if {half.get(part_of(module)), half.get(room)} == {1, 2}
    } == set()


def test_no_module_imports_itself_through_others_not_even_for_types() -> None:
    TopologicalSorter({module: imports_of(module) - {module} for module in MODULES}).prepare()


_BRANCHES: Final = (
    ast.If, ast.For, ast.While, ast.IfExp, ast.BoolOp, ast.comprehension, ast.ExceptHandler, ast.match_case,
)  # fmt: skip


def test_no_function_has_more_than_20_branches_or_60_lines() -> None:
    found = {
        f"{module}.{node.name}"
        for module in MODULES
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (
            sum(isinstance(each, _BRANCHES) for each in ast.walk(node)) > 20
            or (node.end_lineno or 0) - node.lineno >= 60
        )
    }
    assert found == set()


def test_no_two_classes_have_one_name() -> None:
    names = Counter(
        node.name
        for module in MODULES
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_no_module_has_the_name_of_a_public_function() -> None:
    import otel_quant

    assert {name for name in MODULES if "." not in name} & set(otel_quant.__all__) == set()


def suppresses(node: ast.AST) -> bool:
    """Whether a node suppresses exceptions of every kind."""
    if isinstance(node, ast.ExceptHandler):
        kind = node.type
        types = kind.elts if isinstance(kind, ast.Tuple) else [kind] if kind else []
        caught = {ast.unparse(each) for each in types}
        passes_on = any(
            isinstance(inner, ast.Raise) or "throw" in ast.unparse(inner)
            for inner in ast.walk(node)
        )
        return (
            kind is None or "Exception" in caught or ("BaseException" in caught and not passes_on)
        )
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
        return bool({"Exception", "BaseException"} & {ast.unparse(each) for each in node.args})
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
        node.name in ("__exit__", "__aexit__")
        and any(
            isinstance(inner, ast.Return)
            and inner.value is not None
            and ast.unparse(inner.value) not in ("None", "False")
            for inner in ast.walk(node)
        )
    )


def test_only_the_fault_boundary_suppresses_exceptions() -> None:
    found = {
        module for module in MODULES if any(suppresses(node) for node in ast.walk(tree_of(module)))
    }
    assert found == {"base.fault_boundary"}


def loaded_by(code: str) -> set[str]:
    """Returns the modules that are loaded after some code has run by itself."""
    found = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sorted(sys.modules))"],
        cwd=PACKAGE.parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(found.stdout.splitlines()[-1].split())


ON_ARRAYS: Final = (
    "auditing.weights",
    "cost.sparsity",
    "inference.advise.",
    "inference.fix.",
    "inference.layer_errors",
)
"""Modules that work on arrays and graphs throughout, which the others load only where these are looked at."""


def test_loading_every_module_loads_nothing_heavy() -> None:
    left_out = ("__init__", "__main__", *(name for name in MODULES if name.startswith(ON_ARRAYS)))
    names = [f"otel_quant.{name}" for name in MODULES if name not in left_out]
    assert loaded_by(f"import {', '.join(names)}") & HEAVY == set()


def test_the_instrumentor_loads_nothing_heavy_and_none_of_the_measuring_code() -> None:
    code = "from otel_quant import QuantInstrumentor\nQuantInstrumentor().instrument()"
    assert loaded_by(code) & (HEAVY | {"otel_quant.capture.recorder.recorder"}) == set()


def test_costing_a_model_loads_no_other_command_no_logging_and_no_rules_of_other_domains(
    tmp_path: Path,
) -> None:
    model = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(RELU), model)
    code = f"from otel_quant.cli import main\nmain(['cost', {str(model)!r}])"
    loaded = loaded_by(code)
    commands = {name for name in loaded if name.startswith("otel_quant.cli.")}
    rules = {name for name in loaded if name.startswith("otel_quant.cost.operators.")}
    assert commands == {f"otel_quant.cli.{name}" for name in ("command", "cost", "parser")}
    assert {name.rpartition(".")[2] for name in rules} == {
        "contraction", "control", "elementwise", "layout", "rule", "windows",
    }  # fmt: skip
    avoided = {"csv", "dataclasses", "json", "logging", "pathlib", "threading"}
    # From Python 3.14 on argparse, which is Python's own, loads one of them.
    by_argparse = loaded_by("import argparse\nargparse.ArgumentParser().parse_args([])")
    assert loaded & avoided - by_argparse == set()
    assert loaded & (HEAVY | {"opentelemetry", "yaml"}) == set()


def test_what_is_declared_has_what_reads_it() -> None:
    assert set(_READERS) == set(get_args(Kind))
    assert set(PROBES) == {resource.name for resource in RESOURCES}


def test_run_loads_nothing_that_its_program_would_wait_for() -> None:
    code = "import otel_quant.cli as cli\ncli._options_of(['run', '--quiet', '--', 'true'])"
    slow = {"argparse", "contextlib", "enum", "functools", "pathlib", "re", "signal", "typing"}
    assert loaded_by(code) & slow - loaded_by("pass") == set()


@pytest.mark.parametrize(
    "sink", [KeptRun, LogsSink, MetricsSink, QuarkYamlSink, RecordingSink, SpansSink]
)
def test_each_method_that_receives_an_event_has_the_name_of_a_kind(sink: type[Sink]) -> None:
    receiving = {
        name
        for name, method in inspect.getmembers(sink, inspect.isfunction)
        if name[0] != "_" and "event" in inspect.signature(method).parameters
    }
    assert receiving <= {method_of(name) for name, kind in EVENTS.items() if kind.is_received} | {
        "receive",
        "send_reading",
    }
