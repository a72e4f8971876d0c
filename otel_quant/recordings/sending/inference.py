"""Sends what a command has measured of models at work, where the environment says where to."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_quant.base.environment import settings_from
from otel_quant.base.fault_boundary import FAULTS
from otel_quant.base.initial_environment import environment_at_start
from otel_quant.base.log import LOG
from otel_quant.export.otel.default_exporters import defaults_in

if TYPE_CHECKING:
    from otel_quant.inference.results import InferenceResult

_TIMEOUT: Final = "OTEL_EXPORTER_OTLP_TIMEOUT"
"""Seconds that an exporter goes on trying."""


def send_inference(
    result: InferenceResult, began_ns: int, ended_ns: int, recording: Path | None = None
) -> None:
    """Sends spans, log records and metrics of models at work; the last thing that a command does.

    Nothing is loaded or sent where no endpoint and no exporter is configured. An endpoint that is away
    is told of in one line of the log, after ``OTEL_QUANT_EXIT_TIMEOUT`` at most, and nothing is raised.
    The parent of the span is what ``TRACEPARENT`` says, else the run of the recording.
    """
    settings = settings_from(os.environ, warn=False)
    is_silent = defaults_in(os.environ, environment_at_start(os.environ)) is not None
    if settings.sdk_disabled or is_silent:
        return
    if not all(map(find_spec, ("opentelemetry.sdk", "opentelemetry.distro"))):
        LOG.warning(
            "an endpoint is configured and nothing was sent: that needs OpenTelemetry's SDK and an "
            "exporter: pip install 'otel-quant[otlp]'"
        )
        return
    os.environ.setdefault(_TIMEOUT, f"{max(1, round(settings.exit_timeout))}")
    with FAULTS.kept_in("sending of an inference"):
        # Only now: loading the SDK takes a quarter of a second.
        from otel_quant.recordings.sending.endpoint import NotSentError
        from otel_quant.recordings.sending.inference_signals import send_signals

        try:
            send_signals(result, began_ns, ended_ns, recording, settings)
        except NotSentError as error:
            LOG.warning("the telemetry of the inference was not sent: %s", error)
