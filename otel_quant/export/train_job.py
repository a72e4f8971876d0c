"""Sink that reports the progress of a step to Kubeflow Trainer, which has it in the status of the TrainJob (KEP 2779, alpha in 2.2).

The controller names its server, a certificate and a token in the environment of the pods. Loaded only where it does.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from otel_quant.base.fault_boundary import FAULTS, start_thread
from otel_quant.schema.events import Event, Sink, present
from otel_quant.schema.readings import StepProgress

SERVER: Final = "KUBEFLOW_TRAINER_SERVER_URL"
_CERTIFICATE: Final = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
_BEARER: Final = "KUBEFLOW_TRAINER_SERVER_TOKEN"
_EVERY: Final = 10.0  # Seconds between two reports
_TIMEOUT: Final = 5.0  # Seconds that the server has for an answer
_LONGEST: Final = 64  # Characters of a value, as the API has it


class TrainJobSink(Sink):
    """Reports the outermost open step that counts to a known total, while there is one, and the end of a run that had one."""

    name = "TrainJob"

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._steps: Sequence[StepProgress] = ()
        self._has_ended, self._is_complete = threading.Event(), False
        self._thread: threading.Thread | None = None

    def reading_taken(self, event: Event) -> None:
        """Notes how far the steps are; begins to report at the first that counts."""
        self._steps = [each for each in event.steps if each.counts.current.total]
        if self._steps and self._thread is None:
            self._thread = start_thread(self._report, "otel-quant TrainJob")

    def run_ended(self, event: Event) -> None:
        """Has the end reported, if the run did not fail."""
        self._is_complete = event.error is None
        self._has_ended.set()
        if self._thread is not None:
            self._thread.join(_TIMEOUT)

    def forget(self) -> None:
        """Drops the run: a forked child has no thread that reports."""
        self._thread = None

    def _report(self) -> None:
        while not self._has_ended.wait(_EVERY):
            with FAULTS.kept_in(self.name):
                if steps := self._steps:
                    self._post(_status(steps[0]))
        if self._is_complete:
            with FAULTS.kept_in(self.name):
                self._post({"progressPercentage": 100, "estimatedRemainingSeconds": 0})

    def _post(self, status: Mapping[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        request = json.dumps({"trainerStatus": {**status, "lastUpdatedTime": now}})
        url = urlsplit(self._environ[SERVER])
        headers = {"Content-Type": "application/json"}
        # Again each time: Kubernetes replaces it before it expires
        headers["Authorization"] = f"Bearer {Path(self._environ[_BEARER]).read_text().strip()}"
        trusted = ssl.create_default_context(cafile=self._environ.get(_CERTIFICATE))
        server = HTTPSConnection(url.netloc, timeout=_TIMEOUT, context=trusted)
        try:
            server.request("POST", url.path, request, headers)
            if (answer := server.getresponse()).status >= 300:
                raise OSError(f"HTTP {answer.status} {answer.reason}")
        finally:
            server.close()


def _status(step: StepProgress) -> dict[str, Any]:
    done, total = step.counts.current
    left = step.forecast.time_left
    values = {"step": step.info.label, "progress": str(step.counts)}
    return present({
        "progressPercentage": max(0, 100 * (done - 1) // (total or 1)),  # of those that are over
        "estimatedRemainingSeconds": None if left is None else round(left),
        "metrics": [{"name": name, "value": text[:_LONGEST]} for name, text in values.items()],
    })  # fmt: skip
