"""Generated files are up to date, and the other pages describe what the code does."""

from __future__ import annotations

import importlib
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import pytest

from otel_quant.capture.instruments.hooks import libraries, load
from otel_quant.capture.instruments.processes import PROCESSES
from otel_quant.cost.operators import all_operators
from otel_quant.recordings.comparison.runs import FACTS
from otel_quant.schema import catalog, semconv
from otel_quant.schema import settings as environment
from otel_quant.schema.records import ALL_STEPS
from scripts import api_docs
from scripts.cost_rules_docs import document
from scripts.docs import documents

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = documents()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_generated_file_is_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == DOCUMENTS[path], (
        "run `.venv/bin/python scripts/docs.py`"
    )


def test_every_dashboard_is_made_by_the_generator() -> None:
    folder = ROOT / "grafana" / "dashboards"
    assert set(folder.glob("*.json")) == {path for path in DOCUMENTS if path.parent == folder}


@pytest.mark.parametrize("module", api_docs.MODULES)
def test_every_public_name_has_a_section(module: str) -> None:
    page = DOCUMENTS[api_docs.PAGE]
    section = page.split(f"\n## `{module}`\n")[1].split("\n## ")[0]
    headings = [line[5:-1] for line in section.splitlines() if line.startswith("### ")]
    names = importlib.import_module(module).__all__
    assert headings == [name for name in names if not name.startswith("__")]


def test_every_rule_is_on_the_page_except_duplicates_of_another_domain() -> None:
    page = document()
    missing = [
        kind
        for kind in all_operators()
        if not kind.startswith("com.vai.quantize:") and f"`{kind.rpartition(':')[2]}`" not in page
    ]
    assert missing == []


HOOKS = [hook for library in libraries() for hook in library.hooks]


def test_every_library_has_a_verified_version() -> None:
    assert [library.name for library in libraries() if not library.versions_seen] == []


@pytest.mark.parametrize(
    "reference",
    sorted(
        {
            reference
            for hook in (*HOOKS, *PROCESSES.hooks)
            for reference in (hook.wrapper, hook.choose, hook.describe, hook.models, hook.after)
            if reference
        }
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


def test_every_name_of_semconv_is_in_its_tables() -> None:
    listed = {entry.name for entry in catalog.ATTRIBUTES} | {m.name for m in catalog.METRICS}
    events = {event.name for event in semconv.EVENTS}
    prefixes = {
        semconv.PREFIX,
        semconv.CHECKPOINT_PREFIX,
        semconv.READING_PREFIX,
        semconv.CUSTOM_PREFIX,
    }
    named = {
        value
        for name, value in vars(semconv).items()
        if name.isupper() and isinstance(value, str) and value.startswith("quant.")
    }
    outside = named - events - prefixes - listed
    assert not outside, (
        f"not in a table: {outside}; expected their lines in semconv.py with the others of a kind"
    )


def test_every_variable_that_the_package_reads_is_documented() -> None:
    sources = Path(environment.__file__).parents[1].rglob("*.py")
    read = {
        name
        for source in sources
        for name in re.findall(r'"(OTEL_QUANT_[A-Z_]+)"', source.read_text(encoding="utf-8"))
    }
    assert read == {
        v.variable for v in environment.SETTINGS if v.variable.startswith("OTEL_QUANT_")
    }


def test_the_stability_page_names_every_attribute_metric_and_event() -> None:
    page = Path(environment.__file__).parents[2] / "docs" / "stability.md"
    section = page.read_text(encoding="utf-8").partition("## The local file")[0]
    patterns = re.findall(r"`([a-z][a-z_.*]*)`", section)
    names = {each.name for each in (*semconv.ATTRIBUTES, *semconv.METRICS, *semconv.EVENTS)}
    missing = [n for n in sorted(names) if not any(fnmatchcase(n, p) for p in patterns)]
    assert not missing, f"docs/stability.md has no row for {', '.join(missing)}"


COMPARE: Final = (ROOT / "docs" / "compare.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """Returns the cells of the table whose first heading is that."""
    lines = COMPARE.partition(f"| {heading} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_the_page_on_comparing_has_every_difference_that_keeps_runs_from_being_compared() -> None:
    documented = {
        name: frozenset(kinds.replace("GPU memory", "gpu").split(", "))
        for names, kinds in rows("what differs")[1:-1]
        for name in re.sub(r" \(.*?\)", "", names).split(", ")
    }
    documented.pop("the version of a library")
    assert documented == {fact.name: fact.changes for fact in FACTS if fact.changes}
