"""Which file a run writes."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.trace.export import SpanExportResult

from otel_quant.environment import Settings
from otel_quant.profile import path as profiles
from otel_quant.profile.exporter import QuarkYamlSpanExporter
from otel_quant.profile.path import ProfileRequests, profile_path, quark_own_path, request_profile

PID = os.getpid()


@pytest.fixture(autouse=True)
def requests(monkeypatch: pytest.MonkeyPatch) -> ProfileRequests:
    fresh = ProfileRequests()
    monkeypatch.setattr(profiles, "REQUESTS", fresh)
    return fresh


@pytest.mark.parametrize(
    ("named", "rank", "is_child", "quarks", "expected"),
    [
        (None, None, False, None, "quark_profile.yaml"),
        ("out/mine.yml", None, False, None, "out/mine.yml"),
        ("mine", None, True, None, f"mine.{PID}"),
        (None, 3, False, None, "quark_profile.rank3.yaml"),
        (None, 0, True, None, f"quark_profile.rank0.{PID}.yaml"),
        ("out/", None, False, None, "out/quark_profile.yaml"),
        (None, None, False, "quark_profile.yaml", "quark_profile.otel.yaml"),
        (None, None, False, "./elsewhere.yaml", "quark_profile.yaml"),
        (None, 3, False, "quark_profile.yaml", "quark_profile.rank3.yaml"),
        ("a/../quark_profile.yaml", None, False, "quark_profile.yaml", "a/../quark_profile.otel.yaml"),
    ],
)  # fmt: skip
def test_each_process_has_a_path_of_its_own(
    named: str | None, rank: int | None, is_child: bool, quarks: str | None, expected: str
) -> None:
    settings = Settings(profile_path=named)

    assert profile_path(settings, rank, is_child, quarks) == Path(expected)


def test_a_folder_gets_a_file_with_the_default_name(tmp_path: Path) -> None:
    settings = Settings(profile_path=str(tmp_path))

    assert profile_path(settings, None, False, None) == tmp_path / "quark_profile.yaml"


def test_what_the_program_asks_for_counts_more_than_the_environment(
    requests: ProfileRequests,
) -> None:
    assert not requests.wanted

    request_profile()
    assert requests.wanted
    assert profile_path(Settings(profile_path="env.yaml"), None, False, None) == Path("env.yaml")

    request_profile("own.yaml")
    assert profile_path(Settings(profile_path="env.yaml"), None, False, None) == Path("own.yaml")


def test_the_span_exporter_asks_for_the_file_and_takes_no_span(requests: ProfileRequests) -> None:
    exporter = QuarkYamlSpanExporter()

    assert (requests.wanted, requests.path) == (True, None)
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
def test_quarks_own_file_is_known_before_quark_has_opened_it(
    environ: dict[str, str], modules: dict[str, Any], expected: str | None
) -> None:
    assert quark_own_path(environ, modules) == expected
