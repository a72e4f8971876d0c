"""Fixtures that tests of every kind share, and which tests run."""

from __future__ import annotations

from typing import Final

import pytest

pytest_plugins = [
    "tests.fixtures.fake_nvml.plugin",
    "tests.fixtures.instrumented",
    "tests.fixtures.otlp_receiver",
    "tests.fixtures.slow",
]

SHARE_RUNS: Final = "tests/integration/quark/"
"""A folder whose files share runs of Quark, which take long."""
SHARES_NOTHING: Final = "tests/stack/test_collector.py"
"""A file whose tests each start servers of their own, and take long."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Has each file run in one process."""
    for item in items:
        file = item.nodeid.partition("::")[0]
        if file != SHARES_NOTHING:
            group = SHARE_RUNS if file.startswith(SHARE_RUNS) else file
            item.add_marker(pytest.mark.xdist_group(group))
