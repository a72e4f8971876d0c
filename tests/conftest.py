"""Fixtures that tests of every kind share, and which tests share a process."""

from __future__ import annotations

from typing import Final

import pytest

pytest_plugins = [
    "tests.fixtures.fake_nvml.plugin",
    "tests.fixtures.instrumented",
    "tests.fixtures.otlp_receiver",
    "tests.fixtures.slow",
]

SHARE_RUNS: Final = frozenset(
    f"tests/integration/quark/test_{name}.py" for name in ("hooks", "local_file", "signals")
)
"""Files that share runs of Quark, which take long."""
SHARES_NOTHING: Final = "tests/stack/test_collector.py"
"""A file whose tests each start servers of their own, and take long."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Has the tests of a file run in one process, because they share what is set up for them."""
    file = item.nodeid.partition("::")[0]
    if file != SHARES_NOTHING:
        group = "runs of Quark" if file in SHARE_RUNS else file
        item.add_marker(pytest.mark.xdist_group(group))
