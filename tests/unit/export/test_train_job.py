"""What Kubeflow Trainer is told of a run: the outermost open step with a known total, with the pod's token over TLS."""

from __future__ import annotations

import json
import shlex
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.export import train_job
from otel_quant.export.train_job import TrainJobSink
from otel_quant.schema.events import Event
from otel_quant.schema.readings import Count, Counts, Forecast, RunInfo, StepInfo, StepProgress
from tests.fixtures.programs import run_script

PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/n/trainjobs/j/status"
RUN = RunInfo("r", 1)
_OPENSSL = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=trainer -addext subjectAltName=IP:127.0.0.1"


class Trainer(HTTPServer):
    """A server as the controller has one; it answers with `status`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: Queue[tuple[str, str, Any]] = Queue()
        self.status = 200
        key, self.certificate = folder / "tls.key", folder / "ca.crt"
        made = shlex.split(f"{_OPENSSL} -keyout '{key}' -out '{self.certificate}'")
        subprocess.run(made, check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        self.socket = context.wrap_socket(self.socket, server_side=True)


class _Handler(BaseHTTPRequestHandler):
    server: Trainer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        # Before the answer, after which the sink goes on
        self.server.requests.put((self.path, self.headers["Authorization"], json.loads(body)))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Trainer]:
    with Trainer(tmp_path) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def sink(trainer: Trainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TrainJobSink]:  # fmt: skip
    monkeypatch.setattr(train_job, "_EVERY", 0.01)
    token = tmp_path / "token"
    token.write_text("of-the-pod\n")
    made = TrainJobSink({
        train_job.SERVER: f"https://127.0.0.1:{trainer.server_port}{PATH}",
        "KUBEFLOW_TRAINER_SERVER_CA_CERT": str(trainer.certificate), "KUBEFLOW_TRAINER_SERVER_TOKEN": str(token),
    })  # fmt: skip
    yield made
    made.run_ended(ended("stopped"))


def progress(name: str, left: float | None = None, **counts: Count) -> StepProgress:
    return StepProgress(StepInfo(0, name, name), Counts(counts), Forecast(time_left=left))


def ended(error: str | None = None) -> Event:
    return Event(kind="run.ended", time_ns=0, clock_ns=0, run=RUN, error=error)


def reading(*steps: StepProgress) -> Event:
    return Event(kind="reading.taken", time_ns=0, clock_ns=0, run=RUN, steps=steps)


def test_progress_and_time_left_are_those_of_the_outermost_step_with_a_total(
    trainer: Trainer, sink: TrainJobSink
) -> None:
    inner = progress("Calibration", 3.0, sample=Count(7, 8))
    outer = progress("Model Quantization", 61.4, layer=Count(9, 32))
    sink.receive(reading(progress("All", sample=Count(5)), outer, inner))
    path, key, body = trainer.requests.get(timeout=20)
    assert (path, key) == (PATH, "Bearer of-the-pod")
    assert body["trainerStatus"].pop("lastUpdatedTime").endswith("+00:00")
    assert body == {
        "trainerStatus": {
            "progressPercentage": 25, "estimatedRemainingSeconds": 61,
            "metrics": [{"name": "step", "value": "Model Quantization"}, {"name": "progress", "value": "layer 9 of 32"}],
        }
    }  # fmt: skip


def test_what_is_not_known_is_not_told(trainer: Trainer, sink: TrainJobSink) -> None:
    sink.receive(reading(progress("Calibration", sample=Count(5))))
    with pytest.raises(Empty):
        trainer.requests.get(timeout=0.2)
    sink.receive(reading(progress("Calibration", sample=Count(0, 8))))
    status = trainer.requests.get(timeout=20)[2]["trainerStatus"]
    assert status["progressPercentage"] == 0
    assert "estimatedRemainingSeconds" not in status


@pytest.mark.parametrize(("error", "last"), [(None, 100), ("ValueError", 50)])
def test_a_run_that_did_not_fail_is_complete_at_its_end(
    trainer: Trainer, sink: TrainJobSink, error: str | None, last: int
) -> None:
    sink.receive(reading(progress("Calibration", sample=Count(5, 8))))
    trainer.requests.get(timeout=20)
    sink.receive(ended(error))
    sent = [trainer.requests.get(timeout=20) for _ in range(trainer.requests.qsize())]
    percents = [body["trainerStatus"]["progressPercentage"] for *_, body in sent]
    assert [50, *percents][-1] == last


def test_a_server_that_refuses_is_asked_again_and_warned_of_once(
    trainer: Trainer, sink: TrainJobSink, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(FAULTS, "counts", {})
    trainer.status = 403
    sink.receive(reading(progress("Calibration", sample=Count(5, 8))))
    for _ in range(3):
        trainer.requests.get(timeout=20)
    sink.receive(ended("ValueError"))
    assert [each.getMessage() for each in caplog.records] == [
        "TrainJob failed and is skipped; the program goes on without it: OSError: HTTP 403 Forbidden"
    ]


PROGRAM = """
import time
import otel_quant
from otel_quant.capture.runtime import RUNTIME

with otel_quant.step("Calibration"):
    step = RUNTIME.current_step()
    step.recorder.expect(step, "sample", 1)
    step.recorder.count(step, "sample")
    time.sleep(2.5)  # sinks get a reading each second
"""


@pytest.mark.parametrize(("rank", "percents"), [("0", [100]), ("1", [])])
def test_the_first_rank_of_a_pod_reports(
    trainer: Trainer, tmp_path: Path, rank: str, percents: list[int]
) -> None:
    (tmp_path / "token").write_text("of-the-pod")
    run_script(
        tmp_path, PROGRAM, RANK=rank, WORLD_SIZE="2", LOCAL_RANK=rank, OTEL_QUANT_RECORD="made",
        KUBEFLOW_TRAINER_SERVER_URL=f"https://127.0.0.1:{trainer.server_port}{PATH}",
        KUBEFLOW_TRAINER_SERVER_CA_CERT=str(trainer.certificate),
        KUBEFLOW_TRAINER_SERVER_TOKEN=str(tmp_path / "token"),
    )  # fmt: skip
    sent = [trainer.requests.get_nowait()[2] for _ in range(trainer.requests.qsize())]
    assert [each["trainerStatus"]["progressPercentage"] for each in sent] == percents
