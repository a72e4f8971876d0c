"""``otel-quant advise``: which layers of a quantized ONNX model to leave in float, and what that gives."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, chdir, nullcontext
from functools import partial
from pathlib import Path
from typing import Final

from otel_quant.cli import command as cmd
from otel_quant.cli import measured_models as models
from otel_quant.cli.fix import NEEDED
from otel_quant.launcher.program import ProgramElsewhere
from otel_quant.schema import semconv
from otel_quant.schema.settings import OTEL_QUANT_EXCLUDE

_TARGETS: Final = ("accuracy", "latency", "size")
_ENVIRONMENT: Final = "pyvenv.cfg"  # What an environment of Python has in its folder


def _run(options: argparse.Namespace) -> int:
    models.require(*NEEDED)
    from otel_quant.inference.advise.advising import AdviceWanted, advise
    from otel_quant.inference.fix.fixing import FixError
    from otel_quant.views.advise import document

    paths = (options.float_model, options.model)
    with ExitStack() as kept, cmd.user_errors(FixError, exit_code=models.FAILED):
        rerun = None
        if options.rerun:
            folder = kept.enter_context(tempfile.TemporaryDirectory(prefix="otel-quant-rerun-"))
            given = (Path(folder), Path(options.model).name, shlex.split(options.rerun))
            rerun = partial(_quantized_again, *given)
        wanted = AdviceWanted(*paths, options.target, options.budget, rerun)
        result = advise(wanted, models.measure_options(options))
    cmd.print_document(document(result), options.format)
    return models.FAILED if result.why else 0


def _quantized_again(folder: Path, name: str, command: Sequence[str], nodes: Sequence[str]) -> str:
    """Runs a program in a copy of the working folder, with some nodes left in float; returns the model that it writes.

    Of several that of the name of the quantized model.
    """
    copy, recording, output = folder / "copy", folder / "recording", folder / "output"
    _copy(Path.cwd().resolve(), copy)
    own = [sys.executable, "-P", "-m", "otel_quant", "run", "--quiet", "--no-report"]
    environ = {**os.environ, "TMPDIR": str(folder), OTEL_QUANT_EXCLUDE: json.dumps(nodes)}
    words = [*own, "--out", str(recording), "--", *command]
    with chdir(copy):
        code, _ = ProgramElsewhere(words, environ, str(output)).wait(nullcontext, list)
    runs = [] if code else cmd.read_recording(str(recording)).runs
    paths = [
        str(it.get("path")) for run in runs for it in run.models if it.get("role") == "quantized"
    ]
    found = [copy / path for path in paths if path.endswith(".onnx")]
    is_changed = any(semconv.CONFIG_EXCLUDED in it.attributes for run in runs for it in run.steps)
    if not (found and is_changed):
        sys.stderr.write(output.read_text(errors="replace"))
        why = "it calls no quantize_static of onnxruntime or AMD Quark; expected one of these"
        why = "it has written no quantized ONNX model" if is_changed else why
        why = f"it has exited with {code}" if code else why
        raise cmd.UserError(f"--rerun: {shlex.join(command)}: {why}", models.FAILED)
    return str(max(found, key=lambda path: path.name == name))


def _copy(source: Path, target: Path) -> None:
    """Copies a folder without its history and the copy itself; environments of Python are the same ones."""
    inside = {source / ".git", *target.resolve().parents}

    def left_out(folder: str, names: list[str]) -> set[str]:
        paths = {name: Path(folder) / name for name in names}
        return {
            it for it, path in paths.items() if path in inside or (path / _ENVIRONMENT).exists()
        }

    shutil.copytree(source, target, ignore=left_out, ignore_dangling_symlinks=True)
    for each in source.glob(f"*/{_ENVIRONMENT}"):
        (target / each.parent.name).symlink_to(each.parent)


COMMAND: Final = cmd.Command(
    brief="name the layers of a quantized ONNX model to leave in float, and what that gives",
    description=(
        "Finds which nodes of a quantized ONNX model to leave in float, prints them as the option of the tool that has "
        "made it, and measures what that gives. Nothing is written. Exit codes: 0 nodes are named and the budget is "
        f"met, {models.FAILED} none are or it is not, or a model cannot be read or measured, {cmd.MISUSED} the command "
        "line makes no sense."
    ),
    examples=(
        'float.onnx int8.onnx --budget "sqnr>=35dB"',
        'float.onnx int8.onnx --target latency --rerun "python quantize.py"',
    ),
    arguments=(
        cmd.option("float_model", metavar="FLOAT", help="the float model that the quantizer was given"),
        cmd.option("model", metavar="QUANTIZED", help="the quantized model, in QDQ form"),
        cmd.option("--target", choices=_TARGETS, default=_TARGETS[0], help="what is to become better: accuracy for the least time, latency, or accuracy for the fewest bytes (default: %(default)s)"),
        cmd.option("--budget", default="", metavar="LIMIT", help="sqnr>=35dB, sqnr>=+3dB (more than now; the default for accuracy), latency<=5ms, latency<=1.2x (of now), size<=20MB, size<=2x"),
        cmd.option("--rerun", metavar="COMMAND", help="quantize again with the nodes left in float, in a copy of the working folder, and measure what comes of it; for quantize_static of onnxruntime and of AMD Quark"),
        *models.FED_ARGUMENTS,
        *models.PROOF_ARGUMENTS,
    ),
    run=_run,
)  # fmt: skip
