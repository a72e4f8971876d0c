"""``otel-quant send``: a recording's telemetry, later."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_quant.cli.command import Command, UserError, option, read_recording, user_errors
from otel_quant.views.text import printable

if TYPE_CHECKING:
    from otel_quant.inference.results import InferenceResult


def _run(options: argparse.Namespace) -> int:
    from importlib.util import find_spec

    shown, file = options.recording, Path(options.recording)
    measured = _result_in(file) if file.is_file() else None
    recording = read_recording(shown) if measured is None else None
    if recording is not None and recording.state == "running":
        raise UserError(f"{shown}: is still being made; expected one that is over: send it then")

    def warn(text: str) -> None:
        print(printable(f"otel-quant: {shown}: {text}"), file=sys.stderr)

    for problem in recording.problems if recording is not None else ():
        warn(problem)
    if not all(map(find_spec, ("opentelemetry.sdk", "opentelemetry.distro"))):
        needs = "OpenTelemetry's SDK and an exporter"
        raise UserError(f"sending needs {needs}: pip install 'otel-quant[otlp]'")
    from otel_quant.base.environment import settings_from
    from otel_quant.format.event_file import MANIFEST
    from otel_quant.sending.send import NotSentError, send_inference, send_recording
    from otel_quant.views.endings import ending_lines

    sent = "sent"
    with user_errors(NotSentError, f"{shown}: ", exit_code=1):
        if recording is not None:
            lines = ending_lines(recording.ending)
            found = send_recording(
                recording, warn, ending_lines=lines, only_unended=options.only_unended
            )
            sent = f"{found} sent"
        elif measured is not None:
            joined = file.parent if (file.parent / MANIFEST).is_file() else None
            send_inference(measured, joined, settings_from(os.environ, warn=False))
    print(printable(f"{shown}: {sent}"))
    return 0


def _result_in(file: Path) -> InferenceResult:
    from otel_quant.inference.results import read_result

    try:
        result = read_result(file.read_text(encoding="utf-8"))
        if not result.began_ns:
            raise ValueError("the version that measured it did not write when")
    except (OSError, ValueError) as error:
        raise UserError(
            f"{file}: {error}; expected the folder of a recording, which has the ids and attributes of "
            "spans (`otel-quant run -- PROGRAM` makes one), or a result of `otel-quant inference`"
        ) from error
    return result


COMMAND: Final = Command(
    brief="send a recording's telemetry to an OTLP endpoint",
    description="Sends the spans, log records and metrics of a recording under their own times and ids to the endpoint that OTEL_EXPORTER_OTLP_ENDPOINT and its like configure. What has arrived before, from the program or from this command, arrives once more under the same ids: a store may then show it twice. Exits with 1 if the endpoint did not take it all; the recording is as it was and can be sent again.",
    examples=("runs/first", "runs/first --only-unended"),
    arguments=(
        option("recording", metavar="DIR", help="a recording: the folder that `otel-quant run` made; or what `otel-quant inference` or `bench` has written as JSON"),
        option("--only-unended", action="store_true", help="only what a killed program could not send itself: the spans that were open, and how it ended"),
    ),
    run=_run,
)  # fmt: skip
