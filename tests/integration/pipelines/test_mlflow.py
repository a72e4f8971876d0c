"""`otel-quant run --mlflow` logs to the active run of a real server of MLflow; without one the program is as without the option."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from otel_quant.recordings import summary
from otel_quant.recordings.reader import read
from tests.fixtures.programs import PROGRAMS, Launched

mlflow: Any = pytest.importorskip("mlflow")

RUN = [str(PROGRAMS / "otel-quant"), "run", "--out", "made", "--mlflow", "--", "python", "q.py"]
PROGRAM = """
import otel_quant
with otel_quant.step("Calibration"):
    held = bytearray(100_000_000)
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a server."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    store = ("--backend-store-uri", f"sqlite:///{tmp_path}/mlflow.db", "--artifacts-destination", str(tmp_path / "files"))  # fmt: skip
    command = [str(PROGRAMS / "mlflow"), "server", "--workers", "1", "--port", str(port), *store]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        address, until = f"http://127.0.0.1:{port}", time.monotonic() + 120
        while True:
            try:
                urlopen(f"{address}/health").close()
                break
            except URLError:
                assert running.poll() is None
                assert time.monotonic() < until
                time.sleep(0.5)
        yield address
        running.terminate()


def test_the_figures_the_answer_and_the_report_are_in_the_active_run(
    server: str, launched: Launched
) -> None:
    (launched.folder / "q.py").write_text(PROGRAM)
    client = mlflow.MlflowClient(server)
    run = client.create_run(client.create_experiment("quantization")).info.run_id
    variables = {"MLFLOW_TRACKING_URI": server, "MLFLOW_RUN_ID": run}
    done = launched.run_bare(RUN, variables=variables)
    recorded, data = read(launched.folder / "made"), client.get_run(run).data
    logged = len(data.metrics) + len([name for name in data.tags if name.startswith("otel_quant.")])
    assert done.stderr.endswith(f"mlflow:    {logged} values in run {run}\n")
    assert data.metrics["otel_quant.memory.peak"] == summary.value(recorded, summary.MEMORY_PEAK)
    assert data.metrics["otel_quant.duration"] == recorded.duration
    assert data.tags["otel_quant.status"] == "ended"
    assert data.tags["otel_quant.verdict"] in done.stderr
    assert [each.path for each in client.list_artifacts(run, "otel-quant")] == ["otel-quant/report.html"]  # fmt: skip


def test_a_server_that_is_away_costs_a_line(launched: Launched) -> None:
    (launched.folder / "q.py").write_text(PROGRAM + "raise SystemExit(3)")
    variables = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:1", "MLFLOW_RUN_ID": "0" * 32}
    done = launched.run_bare(RUN, variables=variables)
    assert done.returncode == 3
    assert done.stderr.count("--mlflow failed and is skipped") == 1
    assert "report:    made/report.html" in done.stderr


def test_without_an_active_run_the_program_is_not_started(launched: Launched) -> None:
    done = launched.run_bare([*RUN[:-2], "touch", "ran"])
    expected = (
        "otel-quant: --mlflow: MLFLOW_RUN_ID is not set; expected the id of the run to log to\n"
    )
    assert (done.returncode, done.stderr) == (2, expected)
    assert not (launched.folder / "ran").exists()
