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
                raise UserError(f"{name}: not a recording; {EXPECTED}")
            upload = Upload(folder, options.url)
            sent = upload.send(is_last=True)
        print(printable(f"{upload.url}: {BY_UNIT['By'](sent)} sent"))
    return 0


COMMAND: Final = Command(
    brief="upload recordings to S3, Google Cloud Storage, Azure or a folder",
    description="Uploads recordings, each into a folder of its own at the URL. What the store has is not sent again, so this completes an upload that `otel-quant run --upload` could not. show, report, compare, runs, stacks and send read from the URLs that it prints. Credentials are taken from the environment, such as AWS_ACCESS_KEY_ID. Needs pip install 'otel-quant[store]'. Exits with 1 if the upload is not complete.",
    examples=("runs/first s3://bucket/runs", "runs/first runs/second file:///mnt/runs"),
    arguments=(
        option("recordings", nargs="+", metavar="DIR", help="a recording: the folder that `otel-quant run` made"),
        option("url", metavar="URL", help="s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH or file:///PATH"),
    ),
    run=_run,
)  # fmt: skip
