"""The house keeps its order: arrows point one way, one boundary, nothing heavy at the door."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

PACKAGE: Final = Path(__file__).resolve().parents[2] / "otel_quant"
MODULES: Final = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
"""Every module by its name below the package; the package itself is ``__init__``."""

WORDS: Final = frozenset({"faults", "readings", "semconv", "steps", "version"})
"""What every room but ``cost`` may speak of."""

ROOMS: Final[dict[str, frozenset[str]]] = {
    "cost": frozenset(),
    "entropy": WORDS,
    "faults": frozenset(),
    "readings": frozenset(),
    "semconv": frozenset(),
    "steps": frozenset(),
    "version": frozenset(),
    "environment": WORDS,
    "lineage": WORDS,
    "profiles": WORDS | {"environment"},
    "probes": WORDS,
    "peaks": WORDS,
    "profile_metrics": WORDS,
    "columns": WORDS | {"profile_metrics", "probes"},
    "sinks": WORDS | {"columns", "profile_metrics", "profiles"},
    "model_cost": WORDS | {"cost"},
    "recorder": WORDS | {"columns", "peaks", "probes", "sinks"},
    "runtime": WORDS
    | {
        "columns",
        "entropy",
        "environment",
        "lineage",
        "model_cost",
        "probes",
        "profiles",
        "recorder",
        "sinks",
    },
    "scope": WORDS | {"recorder", "runtime"},
    "notebook": WORDS | {"runtime"},
    "instruments": WORDS | {"environment", "lineage", "profiles", "recorder", "runtime", "scope"},
    "instrumentor": WORDS | {"environment", "instruments"},
    "quark": WORDS
    | {
        "environment",
        "instrumentor",
        "profile_metrics",
        "profiles",
        "recorder",
        "runtime",
        "scope",
    },
    "cli": WORDS | {"cost"},
    "__main__": frozenset({"cli"}),
    "__init__": frozenset({"instrumentor", "notebook", "scope", "steps", "version"}),
}
"""What each room may import. A room that is not here has not been thought about."""

HEAVY: Final = frozenset(
    {"amdsmi", "google", "grpc", "numpy", "onnx", "onnxruntime", "pynvml", "quark", "torch"}
)


def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text())


def room_of(module: str) -> str:
    return module.partition(".")[0]


def imports_of(module: str) -> Iterator[str]:
    """Yields the names of all modules of ours that one imports, wherever it does."""
    for node in ast.walk(tree_of(module)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            inside = node.module.removeprefix("otel_quant").removeprefix(".")
            for alias in node.names:
                below = f"{inside}.{alias.name}".removeprefix(".")
                names.append(f"otel_quant.{below}" if below in MODULES else node.module)
        for name in names:
            if name == "otel_quant":
                yield "__init__"
            elif name.startswith("otel_quant."):
                yield name.removeprefix("otel_quant.")


def test_every_room_is_known() -> None:
    assert {room_of(module) for module in MODULES} == set(ROOMS)


@pytest.mark.parametrize("module", MODULES)
def test_arrows_between_rooms_point_one_way(module: str) -> None:
    room = room_of(module)
    targets = {room_of(target) for target in imports_of(module)} - {room}
    assert targets - ROOMS[room] == set()


def test_no_room_can_be_reached_from_itself() -> None:
    def reachable(room: str, seen: frozenset[str] = frozenset()) -> set[str]:
        further = ROOMS[room] - seen
        return set(further).union(*(reachable(other, seen | further) for other in further))

    assert [room for room in ROOMS if room in reachable(room)] == []


def test_the_recorder_knows_what_a_sink_is_and_no_sink() -> None:
    assert [target for target in imports_of("recorder") if room_of(target) == "sinks"] == [
        "sinks.sink"
    ]


def caught_by(handler: ast.ExceptHandler) -> set[str]:
    if handler.type is None:
        return {"everything"}
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {ast.unparse(kind) for kind in types}


@pytest.mark.parametrize("module", MODULES)
def test_nothing_but_the_boundary_swallows_exceptions_of_any_kind(module: str) -> None:
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ExceptHandler):
            caught = caught_by(node)
            assert not caught & {"Exception", "everything"}, f"line {node.lineno}"
            if "BaseException" in caught:
                passed_on = any(
                    isinstance(inner, ast.Raise) or "throw" in ast.unparse(inner)
                    for inner in ast.walk(node)
                )
                assert passed_on, f"line {node.lineno}"
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            names = {ast.unparse(argument) for argument in node.args}
            assert not names & {"Exception", "BaseException"}, f"line {node.lineno}"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in (
            "__exit__",
            "__aexit__",
        ):
            swallows = any(
                isinstance(inner, ast.Return)
                and inner.value is not None
                and ast.unparse(inner.value) not in ("None", "False")
                for inner in ast.walk(node)
            )
            assert swallows == (module == "faults"), f"line {node.lineno}"


def imported_at_once(node: ast.AST) -> Iterator[str]:
    """Yields what a module imports when it is loaded: not in functions, not for types."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module is not None:
            yield child.module.partition(".")[0]
        yield from imported_at_once(child)


@pytest.mark.parametrize("module", MODULES)
def test_no_module_imports_anything_heavy_when_it_is_loaded(module: str) -> None:
    assert set(imported_at_once(tree_of(module))) & HEAVY == set()


def loaded_by(code: str) -> set[str]:
    """Returns the heavy modules that are loaded after some code has run by itself."""
    found = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sorted(sys.modules))"],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(found.stdout.split()) & HEAVY


def test_loading_every_module_loads_nothing_heavy() -> None:
    names = [f"otel_quant.{name}" for name in MODULES if name not in ("__init__", "__main__")]
    assert loaded_by(f"import {', '.join(names)}") == set()


def test_the_instrumentor_loads_nothing_heavy_and_none_of_the_measuring_code() -> None:
    code = "from otel_quant import QuantInstrumentor\nQuantInstrumentor().instrument()"
    assert loaded_by(code) == set()
    measuring = "import sys; assert 'otel_quant.recorder' not in sys.modules"
    assert loaded_by(f"{code}\n{measuring}") == set()
