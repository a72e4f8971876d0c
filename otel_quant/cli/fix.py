"""``otel-quant fix``: a quantized ONNX model rewritten so that it runs in integers, with the proof."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from otel_quant.cli import command as cmd
from otel_quant.cli import measured_models as models
from otel_quant.inference.fix.fix_results import KINDS

if TYPE_CHECKING:
    from otel_quant.recordings.model import Recording

_MOST_DECIBELS: Final = 1000
NEEDED: Final = ("onnxruntime", "onnx")


def _run(options: argparse.Namespace) -> int:
    models.require(*NEEDED)
    if options.out is None and not options.dry_run:
        raise cmd.UserError("-o is missing; expected the path of the fixed file", cmd.MISUSED)
    from otel_quant.inference.fix.fixing import FixError, Wanted, fix
    from otel_quant.views.fix import document

    wanted = Wanted(
        options.model, options.out or "", options.float, options.only, options.dry_run,
        options.allow_db, options.provider_for,
    )  # fmt: skip
    with cmd.user_errors(FixError, exit_code=models.FAILED):
        result = fix(wanted, models.measure_options(options))
    cmd.print_document(document(result, is_page=options.format == "html"), options.format)
    sys.stdout.flush()
    return 0 if result.output or result.of_state("planned") else models.FAILED


def fixed_beside(recording: Recording) -> Iterator[str]:
    """Fixes the quantized models that a run has written, each beside itself; yields what came of it."""
    try:
        models.require(*NEEDED)
    except cmd.UserError as error:
        yield str(error)
        return
    from otel_quant.inference.fix.fixing import FixError, Wanted, fix
    from otel_quant.inference.subjects import Options
    from otel_quant.views.fix import answer

    written: dict[str, str | None] = {}
    for run in recording.runs:
        paths = {str(each.get("role")): str(each.get("path")) for each in run.models}
        written[paths.get("quantized", "")] = paths.get("float")
    for quantized, floats in written.items():
        if quantized.endswith(".onnx"):
            wanted = Wanted(quantized, f"{quantized.removesuffix('.onnx')}.fixed.onnx", floats)
            try:
                yield answer(fix(wanted, Options(threads=1, seconds=1.0, samples=16)))
            except FixError as error:
                yield str(error)


COMMAND: Final = cmd.Command(
    brief="rewrite a quantized ONNX model so that it runs in integers, and prove it",
    description=(
        "Rewrites what keeps a quantized ONNX model from running in integers, measures it beside the model as it "
        "is, and writes what is faster and no further off. The model itself stays as it is. Exit codes: 0 it was "
        f"written, or --dry-run shows what would be, {models.FAILED} nothing helps or it could not be, {cmd.MISUSED} "
        "the command line makes no sense."
    ),
    examples=("int8.onnx -o fixed.onnx --float float.onnx", "int8.onnx --dry-run"),
    arguments=(
        cmd.option("model", metavar="MODEL", help="a quantized ONNX file in QDQ form"),
        cmd.option("-o", "--out", metavar="FIXED", help="where to write the fixed file, beside which its weights lie where they lie beside the model"),
        cmd.option("--float", metavar="FLOAT", help="the float model: what changes saturation is written only if it comes no further off from that"),
        cmd.option("--only", action="append", default=[], choices=KINDS, help="only rewrites of this kind; may be repeated"),
        cmd.option("--dry-run", action="store_true", help="show what would be rewritten, by the forecast alone"),
        cmd.option("--allow-db", type=cmd.number("dB", _MOST_DECIBELS, least=0, of=float), default=0.1, metavar="DB", help="by how much the SQNR to the float model may fall (default: %(default)s)"),
        cmd.option("--for", dest="provider_for", choices=("cpu",), default="cpu", help="what the fixed file is to run on (default: %(default)s, onnxruntime's CPU provider)"),
        *models.FED_ARGUMENTS,
        *models.PROOF_ARGUMENTS,
    ),
    run=_run,
)  # fmt: skip
