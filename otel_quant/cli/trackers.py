"""``otel-quant run --mlflow`` and ``--wandb``: logs a run's figures and its report to a run of an experiment tracker.

The tracker's own client sends them to where its environment variables say. It retries once only: the user waits for it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_quant.format.event_file import REPORT
from otel_quant.recordings import runs, summary
from otel_quant.views.answer import brief

if TYPE_CHECKING:
    from otel_quant.recordings.model import Recording
    from otel_quant.recordings.runs import Row

_PREFIX: Final = "otel_quant."
_ENVIRONMENT: Final = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10", "WANDB_SILENT": "true",
}  # fmt: skip


def log_run(recording: Recording, tracker: str) -> str:
    """Logs a run to one of the trackers; returns a line that says where it is."""
    for variable, value in _ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    row = runs.row_of(recording, (*runs.NAMES, *summary.BY_NAME))
    known = {f"{_PREFIX}{name}": value for name, value in row.items() if value is not None}
    known[f"{_PREFIX}verdict"] = brief(recording).verdict
    log = _to_mlflow if tracker == "mlflow" else _to_wandb
    where = log(known, (recording.path / REPORT).resolve())
    return f"{tracker + ':':10} {len(known):,} values in run {where}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _to_mlflow(row: Row, report: Path) -> str:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, RunTag

    run, client, now = os.environ["MLFLOW_RUN_ID"], MlflowClient(), time.time_ns() // 1_000_000
    metrics = [Metric(name, value, now, 0) for name, value in row.items() if _is_number(value)]
    tags = [RunTag(name, str(value)) for name, value in row.items() if not _is_number(value)]
    client.log_batch(run, metrics, (), tags)
    if report.exists():
        client.log_artifact(run, str(report), "otel-quant")
    return run


def _to_wandb(row: Row, report: Path) -> str:
    import wandb

    with wandb.init(id=os.environ["WANDB_RUN_ID"], resume="allow") as run:
        run.summary.update(dict(row))
        if report.exists():
            run.save(str(report), base_path=str(report.parent), policy="now")
        return str(run.id)
