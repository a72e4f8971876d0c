"""``otel-quant upload``: recordings into an object store."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from otel_quant.cli.command import Command, UserError, option, user_errors
from otel_quant.schema.units import BY_UNIT
from otel_quant.views.text import printable


def _run(options: argparse.Namespace) -> int:
    from otel_quant.format.event_file import EXPECTED, MANIFEST, processes_in
    from otel_quant.format.store import StoreError
    from otel_quant.launcher.upload import Upload

    for name in options.recordings:
        folder = Path(name)
        with user_errors(StoreError, exit_code=1, path=name, expected=EXPECTED):
            if not processes_in(folder) and not (folder / MANIFEST).is_file():
                raise UserError(f"{name}: is no recording; {EXPECTED}")
            upload = Upload(folder, options.url)
            sent = upload.send(is_last=True)
        print(printable(f"{upload.url}: {BY_UNIT['By'](sent)} sent"))
    return 0


COMMAND: Final = Command(
    brief="upload recordings to S3, Google Cloud Storage, Azure or a folder",
    description="Uploads recordings, each into a folder of its own at the URL. What is there of a recording is not sent again: after `otel-quant run --upload` with a store that failed it sends the rest. show, report, compare, runs and the like read from what it prints. Credentials are taken from the environment, as AWS_ACCESS_KEY_ID. Exits with 1 if the store has not taken it all.",
    examples=("runs/first s3://bucket/runs", "runs/first runs/second file:///mnt/runs"),
    arguments=(
        option("recordings", nargs="+", metavar="DIR", help="a recording: the folder that `otel-quant run` made"),
        option("url", metavar="URL", help="s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH or file:///PATH"),
    ),
    run=_run,
)  # fmt: skip
