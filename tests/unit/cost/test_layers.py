"""Modules of the cost analysis import each other in one direction, imports for types included."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[3] / "otel_quant" / "cost"
ALLOWED = {
    "reader": {"dtypes", "errors", "reader", "structure"},
    "shapes": {
        "budget", "dtypes", "errors", "graph_scope", "operation", "shapes", "structure", "values",
    },
    "rules": {"dtypes", "operation", "rules", "shapes"},
}  # fmt: skip
"""What each folder imports."""


def imports() -> dict[str, set[str]]:
    """Returns the modules of ours that each module imports, wherever it does."""
    modules = {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path
        for path in PACKAGE.rglob("*.py")
    }
    found: dict[str, set[str]] = {module: set() for module in modules}
    for module, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                if not f"{node.module}.".startswith("otel_quant.cost."):
                    continue
                inside = node.module.removeprefix("otel_quant.cost").removeprefix(".")
                for alias in node.names:
                    whole = f"{inside}.{alias.name}".removeprefix(".")
                    package = f"{inside}.__init__".removeprefix(".")
                    found[module].add(next(n for n in (whole, inside, package) if n in modules))
    return found


def test_no_module_imports_itself_through_others() -> None:
    found = imports()

    def reached(module: str, seen: set[str]) -> set[str]:
        for target in found[module] - seen:
            seen.add(target)
            reached(target, seen)
        return seen

    assert len(found) > 40
    assert [module for module in found if module in reached(module, set())] == []


def test_folders_import_only_what_is_below_them() -> None:
    used = {
        folder: {
            target.partition(".")[0]
            for module, targets in imports().items()
            for target in targets
            if module.partition(".")[0] == folder
        }
        for folder in ALLOWED
    }
    assert used == ALLOWED
