"""The path of a run's file."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.trace.export import SpanExportResult

from otel_quant.export.quark_yaml import exporter as exporter_module
from otel_quant.export.quark_yaml.exporter import QuarkYamlSpanExporter
from otel_quant.export.quark_yaml.file import (
    ProfileRequest,
    ProgramRequest,
    profile_path,
    quark_own_path,
    requested_by,
)
from otel_quant.schema.settings import Settings


@pytest.mark.parametrize(
    ("named", "rank", "is_child", "quarks", "expected"),
    [
        (None, None, False, None, "quark_profile.yaml"),
        ("out/mine.yml", None, False, None, "out/mine.yml"),
        ("mine", None, True, None, "mine.<pid>"),
        (None, 3, False, None, "quark_profile.rank3.yaml"),
        (None, 0, True, None, "quark_profile.rank0.<pid>.yaml"),
        ("out/", None, False, None, "out/quark_profile.yaml"),
        ("..", None, False, None, "../quark_profile.yaml"),  # a folder that is there
        (None, None, False, "quark_profile.yaml", "quark_profile.otel.yaml"),
        (None, None, False, "./elsewhere.yaml", "quark_profile.yaml"),
        (None, 3, False, "quark_profile.yaml", "quark_profile.rank3.yaml"),
        ("a/../quark_profile.yaml", None, False, "quark_profile.yaml", "a/../quark_profile.otel.yaml"),
    ],
)  # fmt: skip
def test_each_process_has_its_own_path(
    named: str | None, rank: int | None, is_child: bool, quarks: str | None, expected: str
) -> None:
    path = expected.replace("<pid>", str(os.getpid()))
    assert profile_path(ProfileRequest(named), rank, is_child, quarks) == Path(path)


def test_an_exact_path_is_used_unchanged() -> None:
    request = ProfileRequest("mine.yaml", is_exact=True)

    assert profile_path(request, 3, True, "mine.yaml") == Path("mine.yaml")


ENVIRONMENT = Settings(profile_path="env.yaml", yaml_strict=True)


def test_a_path_from_the_program_overrides_the_environment() -> None:
    program = ProgramRequest()
    program.ask()
    assert requested_by(ENVIRONMENT, program.latest) == ProfileRequest("env.yaml", True, True)

    program.ask("own.yaml", makes_folders=False)
    assert requested_by(ENVIRONMENT, program.latest) == ProfileRequest("own.yaml", False, True)

    program.ask()
    assert requested_by(Settings(), program.latest) == ProfileRequest("own.yaml", False, False)


def test_the_span_exporter_requests_the_file_and_ignores_spans(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = ProgramRequest()
    monkeypatch.setattr(exporter_module, "PROGRAM_REQUEST", program)
    exporter = QuarkYamlSpanExporter()

    assert program.latest == ProfileRequest()
    assert exporter.export([]) is SpanExportResult.SUCCESS
    assert exporter.force_flush()
    exporter.shutdown()


def profiler(**instance: Any) -> dict[str, Any]:
    own = SimpleNamespace(_initialized=True, **instance) if instance else None
    module = SimpleNamespace(GlobalProfiler=SimpleNamespace(_instance=own))
    return {"quark.common.profiler.profiler": module}


@pytest.mark.parametrize(
    ("environ", "modules", "expected"),
    [
        ({"QUARK_PROFILING": "1"}, {}, None),
        ({"QUARK_PROFILING": "1"}, profiler(), "quark_profile.yaml"),
        ({}, profiler(), None),
        ({"QUARK_PROFILING": "true"}, profiler(), None),
        ({"QUARK_PROFILING": "1"}, profiler(enabled=True, output_path="q.yaml"), "q.yaml"),
        ({"QUARK_PROFILING": "1"}, profiler(enabled=False, output_path="q.yaml"), None),
    ],
)
def test_the_path_of_quarks_own_file_is_known_before_quark_opens_it(
    environ: dict[str, str], modules: dict[str, Any], expected: str | None
) -> None:
    assert quark_own_path(environ, modules) == expected
