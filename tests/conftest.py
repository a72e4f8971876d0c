"""Fixtures that tests of every kind share, and which tests run."""

from __future__ import annotations

import sys
from typing import Final

import pytest

pytest_plugins = [
    "tests.fixtures.fake_nvml.plugin",
    "tests.fixtures.instrumented",
    "tests.fixtures.otlp_receiver",
    "tests.fixtures.slow",
]

_NO_THREAD_AT_EXIT: Final = "3.12 starts no thread at exit, and delivery starts its own there"
_PROFILER: Final = "tests/unit/quark/test_profiler.py"
KNOWN_FAILURES: Final = {
    (3, 12): dict.fromkeys(
        (
            f"{_PROFILER}::test_without_the_variable_no_file_is_written_and_steps_are_spans_all_the_same",
            f"{_PROFILER}::test_scopes_of_several_threads_may_overlap",
            f"{_PROFILER}::test_coroutines_and_generators_are_steps_for_as_long_as_they_run",
            f"{_PROFILER}::test_only_the_first_path_counts_and_stop_is_the_end",
            f"{_PROFILER}::test_a_program_that_puts_the_singleton_back_gets_a_second_file",
            f"{_PROFILER}::test_a_run_that_began_by_itself_takes_the_path_that_is_asked_for_later",
            f"{_PROFILER}::test_a_child_process_has_a_file_of_its_own_with_the_same_metrics[fork]",
            f"{_PROFILER}::test_a_child_process_has_a_file_of_its_own_with_the_same_metrics[spawn]",
            f"{_PROFILER}::test_the_growth_of_cache_directories_is_in_the_summary",
            f"{_PROFILER}::test_a_failing_block_fails_as_it_would_without_us",
        ),
        _NO_THREAD_AT_EXIT,
    ),
}
"""By version of Python, the tests that fail on it and why. One that passes is an error."""


SHARE_RUNS: Final = "tests/integration/quark/"
"""A folder whose files share runs of Quark, which take long."""
SHARES_NOTHING: Final = "tests/stack/test_collector.py"
"""A file whose tests each start servers of their own, and take long."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Expects the known failures of this Python to fail, and has each file run in one process."""
    known = KNOWN_FAILURES.get(sys.version_info[:2], {})
    for item in items:
        if item.nodeid in known:
            item.add_marker(pytest.mark.xfail(reason=known[item.nodeid], strict=True))
        file = item.nodeid.partition("::")[0]
        if file != SHARES_NOTHING:
            group = SHARE_RUNS if file.startswith(SHARE_RUNS) else file
            item.add_marker(pytest.mark.xdist_group(group))
