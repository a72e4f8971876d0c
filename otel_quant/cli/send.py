"""``otel-quant send``: a recording's telemetry, later."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from otel_quant.cli.command import Command, UserError, read_recording
from otel_quant.views.text import printable


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recording", metavar="DIR", help="a recording: the folder that `otel-quant run` made"
    )
    parser.add_argument(
        "--only-unended",
        action="store_true",
        help="only what a killed program could not send itself: the spans that were open, and how "
        "it ended",
    )


def _run(options: argparse.Namespace) -> int:
    # Only now: the other commands are not to wait for these.
    from importlib.util import find_spec

    shown = printable(options.recording)
    if Path(options.recording).is_file():
        raise UserError(
            f"{shown}: a file; expected a recording's folder, which has the ids and attributes of "
            "spans: `otel-quant run -- PROGRAM` makes one"
        )
    recording = read_recording(options.recording)
    if recording.state == "running":
        raise UserError(f"{shown}: is still being made; expected one that is over: send it then")
    for problem in recording.problems:
        print(printable(f"otel-quant: {options.recording}: {problem}"), file=sys.stderr)
    if not all(map(find_spec, ("opentelemetry.sdk", "opentelemetry.distro"))):
        raise UserError(
            "sending needs OpenTelemetry's SDK and an exporter: pip install 'otel-quant[otlp]'"
        )
    from otel_quant.recordings.sending.send import NotSentError, send_recording
    from otel_quant.views.answer import ending_lines

    try:
        sent = send_recording(
            recording,
            ending_lines=ending_lines(recording.ending),
            only_unended=options.only_unended,
        )
    except NotSentError as error:
        raise UserError(f"{shown}: {printable(str(error))}") from error
    print(f"{shown}: {sent} sent")
    return 0


COMMAND: Final = Command(
    name="send",
    brief="send a recording's telemetry to an OTLP endpoint",
    description=(
        "Sends the spans, log records and metrics of a recording under their own times and ids to "
        "where OTEL_EXPORTER_OTLP_ENDPOINT and OpenTelemetry's other variables say. What has arrived "
        "before, from the program or from this command, arrives once more under the same ids: a "
        "store may then show it twice. Exits with 1 if the endpoint did not take it all; the "
        "recording is as it was and can be sent again."
    ),
    examples=("runs/first", "runs/first --only-unended"),
    add_arguments=_add_arguments,
    run=_run,
)
