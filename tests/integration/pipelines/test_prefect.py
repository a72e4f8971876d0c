"""The tasks of a flow are in one trace, as docs/pipelines.md has it."""

from __future__ import annotations

import pytest

from tests.integration.pipelines.conftest import Pipeline, blocks

pytest.importorskip("prefect")


def test_the_tasks_of_a_run_of_a_flow_are_one_trace(pipeline: Pipeline) -> None:
    (block,) = blocks("Prefect")
    (pipeline.folder / "flow.py").write_text(block)
    variables = {
        "PREFECT_HOME": str(pipeline.folder / "home"),
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
    }
    pipeline.run("python", "flow.py", **variables)
    pipeline.check_one_trace()
