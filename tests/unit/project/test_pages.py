"""Generated files are up to date, and the other pages describe what the code does; the registry has the form of weaver."""

from __future__ import annotations

import ast
import functools
import importlib
import json
import pkgutil
import re
import shutil
import subprocess
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import jsonschema
import pytest
import yaml
from opentelemetry.semconv import attributes
from opentelemetry.semconv._incubating import attributes as incubating
from opentelemetry.semconv._incubating import metrics as incubating_metrics
from opentelemetry.semconv._incubating.metrics import hw_metrics
from opentelemetry.semconv.schemas import Schemas

from otel_quant.capture.instruments.hooks import load
from otel_quant.capture.instruments.processes import PROCESSES
from otel_quant.capture.instruments.tables import LIBRARIES
from otel_quant.cost.operators import all_operators
from otel_quant.recordings.compared_runs import FACTS
from otel_quant.schema import catalog, semconv
from otel_quant.schema import settings as environment
from otel_quant.schema.readings import ALL_STEPS
from scripts import api_docs, registry_docs
from scripts.cost_rules_docs import document
from scripts.docs import documents
from scripts.tested_libraries import TESTED, TRIED

ROOT = Path(__file__).resolve().parents[3]
generated = functools.cache(documents)  # half a second: not at each collection


def test_every_generated_file_is_up_to_date() -> None:
    stale = [path for path, text in generated().items() if path.read_text("utf-8") != text]
    assert stale == [], "run `.venv/bin/python scripts/docs.py`"


def test_every_dashboard_is_made_by_the_generator() -> None:
    folder = ROOT / "grafana" / "dashboards"
    assert set(folder.glob("*.json")) == {path for path in generated() if path.parent == folder}


@pytest.mark.parametrize("module", api_docs.MODULES)
def test_every_public_name_has_a_section(module: str) -> None:
    page = generated()[api_docs.PAGE]
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


HOOKS = [hook for library in LIBRARIES.values() for hook in library.hooks]


def test_every_library_was_tried_and_a_version_that_failed_stands_beside_one_that_passed() -> None:
    tried = json.loads(TRIED.read_text())
    assert list(tried) == list(TESTED)
    assert [library.name for library in LIBRARIES.values() if library.name not in TESTED] == []
    assert [n for n, rows in tried.items() if all(row["failed"] for row in rows)] == []


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
    names = {library.name for library in LIBRARIES.values()}
    assert {name for library in LIBRARIES.values() for name in library.built_on} <= names


def test_every_name_of_semconv_is_in_its_tables() -> None:
    listed = {each.name for each in (*catalog.ATTRIBUTES, *catalog.METRICS, *semconv.EVENTS)}
    named = {value for value in vars(semconv).values() if str(value).startswith(semconv.PREFIX)}
    outside = {name for name in named - listed if name[-1] != "."}  # beginnings of others
    assert not outside, (
        f"not in a table: {outside}; expected their lines in semconv.py with the others of a kind"
    )


def test_no_name_of_ours_is_spelled_outside_the_tables() -> None:
    tables = [f"otel_quant/schema/{name}.py" for name in ("semconv", "figures", "catalog")]
    spelled = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("otel_quant", "grafana", "scripts")
        for path in (ROOT / folder).rglob("*.py")
        if str(path.relative_to(ROOT)) not in tables
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and str(node.value).startswith(semconv.PREFIX)
    ]
    assert spelled == []


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


REGISTRY: Final = yaml.safe_load(registry_docs.document())["groups"]


def test_the_registry_has_the_form_of_weaver_and_every_name_of_ours_once() -> None:
    """Weaver's own JSON schema, of 2026-08-22 (github.com/open-telemetry/weaver, schemas/semconv.schema.json)."""
    schema = json.loads(
        (registry_docs.ROOT / "tests/fixtures/weaver_semconv.schema.json").read_text()
    )
    jsonschema.Draft202012Validator(schema).validate({"groups": REGISTRY})

    declared = Counter(each["id"] for each in REGISTRY[0]["attributes"])
    assert set(declared.values()) == {1}
    # A part of a name that is open at its end is left out there.
    ours = {
        short
        for name in (each.name for each in catalog.ATTRIBUTES)
        if name.startswith("quant.")
        for role in registry_docs.ROLES
        for short in [name.replace("<role>", role).partition(".<")[0]]
    }
    of_pyroscope = {semconv.PYROSCOPE_PROFILE_ID}  # which publishes no registry
    assert declared.keys() == ours | set(catalog.FORMER) | of_pyroscope
    named = Counter(each.get("name") or each.get("metric_name") for each in REGISTRY[1:])
    metrics = {name for each in catalog.METRICS for name in (each.name, *each.former)}
    assert {name for name in named if name} == {each.name for each in semconv.EVENTS} | {
        name for name in metrics if name.startswith("quant.") and "<" not in name
    }


def test_names_of_others_are_in_the_conventions_of_the_schema_url() -> None:
    assert Schemas.V1_44_0.value == semconv.SCHEMA_URL
    known = {
        value
        for package in (attributes, incubating, incubating_metrics)
        for module in pkgutil.iter_modules(package.__path__)
        for value in vars(importlib.import_module(f"{package.__name__}.{module.name}")).values()
        if isinstance(value, str)
    }
    sent = {each.name for each in (*catalog.ATTRIBUTES, *catalog.METRICS)}
    of_pyroscope = {"pyroscope.profile.id"}  # The only name that Grafana links to a profile by
    assert {name for name in sent if not name.startswith("quant.")} <= known | of_pyroscope


def test_a_gpus_figures_have_the_names_that_the_conventions_have() -> None:
    theirs = {name for name in vars(hw_metrics).values() if str(name).startswith("hw.")}
    ends = {name.removeprefix("hw.").removeprefix("gpu.") for name in theirs}
    ours = {each.name.removeprefix("quant.run.gpu.") for each in catalog.METRICS}
    assert ours & ends == set()


def test_weaver_finds_no_error(tmp_path: Path) -> None:
    weaver = shutil.which("weaver")
    if weaver is None:
        pytest.skip("no weaver on PATH")
    # The conventions are on the internet: what is referred to of them stands for them here.
    referred = {each["ref"] for group in REGISTRY[1:] for each in group["attributes"]}
    theirs = [
        {"id": name, "type": "string", "stability": "stable", "brief": "Theirs.", "examples": ["x"]}
        for name in referred if not name.startswith("quant.")
    ]  # fmt: skip
    group = {"id": "theirs", "type": "attribute_group", "brief": "Theirs.", "attributes": theirs}
    manifest = yaml.safe_load(registry_docs.manifest())
    (dependency,) = manifest["dependencies"]
    dependency["registry_path"] = str(tmp_path / "theirs")
    for name, its_manifest, groups in (
        ("ours", manifest, REGISTRY),
        ("theirs", {"schema_url": dependency["schema_url"]}, [group]),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.yaml").write_text(yaml.safe_dump(its_manifest))
        (tmp_path / name / "names.yaml").write_text(yaml.safe_dump({"groups": groups}))
    command = [weaver, "registry", "check", "--future", "-r", tmp_path / "ours"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
