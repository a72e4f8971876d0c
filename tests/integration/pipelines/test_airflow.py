"""The tasks of a DAG are in one trace, as docs/pipelines.md has it."""

from __future__ import annotations

import pytest

from tests.integration.pipelines.conftest import Pipeline, blocks

pytest.importorskip("airflow")


def test_the_tasks_of_a_run_of_a_dag_are_one_trace(pipeline: Pipeline) -> None:
    (block,) = blocks("Airflow")
    (pipeline.folder / "dags").mkdir()
    (pipeline.folder / "dags" / "quantization.py").write_text(block)
    variables = {
        "AIRFLOW_HOME": str(pipeline.folder / "home"), "WORK": str(pipeline.folder),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(pipeline.folder / "dags"),
    }  # fmt: skip
    for command in ("db migrate", "dags reserialize", "dags test quantization"):
        pipeline.run("airflow", *command.split(), **variables)
    pipeline.check_one_trace()
