"""The registry of names, in the form of OpenTelemetry's weaver."""

from __future__ import annotations

import importlib
import json
import pkgutil
import shutil
import subprocess
from collections import Counter
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

from otel_quant.schema import catalog, semconv
from scripts import registry_docs

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
    assert declared.keys() == ours | set(catalog.FORMER)
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
    assert {name for name in sent if not name.startswith("quant.")} <= known


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
