"""Fixtures that tests of every kind share."""

from __future__ import annotations

pytest_plugins = [
    "tests.fixtures.browser",
    "tests.fixtures.fake_nvml.plugin",
    "tests.fixtures.instrumented",
    "tests.fixtures.launched",
    "tests.fixtures.otlp_receiver",
    "tests.fixtures.slow",
    "tests.fixtures.workers",
]
