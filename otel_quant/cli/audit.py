"""``otel-quant audit``: whether a quantized model that was written is what its configuration says."""

from __future__ import annotations

import argparse
import gc
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_quant.cli import command as cmd

if TYPE_CHECKING:
    from otel_quant.recordings.model import Recording

FAILED: Final = 1  # It is not as configured, or could not be read


def _run(options: argparse.Namespace) -> int:
    from otel_quant.auditing.audit import audit
    from otel_quant.auditing.checkpoint import AuditError
    from otel_quant.views.audit import document

    if options.weights and options.against is None:
        raise cmd.UserError("--weights: expected --against FLOAT, to compare with", cmd.MISUSED)
    gc.disable()  # of many tensors it would look through all again and again; we end soon
    with cmd.user_errors(AuditError, exit_code=FAILED):
        against, left_out = _float_model(options.against), options.left_out
        found = audit(options.model, against, weights=options.weights, left_out=left_out)
    cmd.print_document(document(found), options.format)
    return 0 if found.passed else FAILED


def _float_model(path: str | None) -> str | None:
    """Returns the float model that is named, or that a recording was made with."""
    from otel_quant.format.event_file import processes_in
    from otel_quant.schema import semconv

    if path is None or not Path(path).is_dir() or not processes_in(Path(path)):
        return path
    for run in cmd.read_recording(path, "--against: ", FAILED).runs:
        models = [each.get("path") for each in run.models if each.get("role") == "float"]
        for each in (*models, run.attributes.get(semconv.INPUT_PATH)):
            if isinstance(each, str) and Path(each).exists():
                return each
    raise cmd.UserError(f"--against: {path}: its float model is not there; expected FLOAT", FAILED)


_MOST_SECONDS: Final = 5.0  # For all models of a run, at its end
_MOST_MODELS: Final = 10


def audited(recording: Recording) -> Iterator[str]:
    """Audits the models that a run has written; yields a line for each."""
    written = [*islice(_written(recording), _MOST_MODELS)]
    if not written:
        return
    from time import monotonic

    from otel_quant.auditing.audit import audit
    from otel_quant.auditing.checkpoint import AuditError
    from otel_quant.schema import semconv

    of_steps = [step.attributes for run in recording.runs for step in run.steps]
    names = (it.get(semconv.CONFIG_EXCLUDED) for it in of_steps)
    excluded = [str(name) for own in names if isinstance(own, list | tuple) for name in own]
    until = monotonic() + _MOST_SECONDS
    for path, is_quantized, known in written:
        if known:
            yield f"{path}: {known}"
            continue
        try:
            found = audit(path, left_out=excluded, seconds=max(0.0, until - monotonic()))
        except AuditError:
            continue  # a tokenizer, for one
        if is_quantized or found.layout or found.of_state("quantized"):  # else it is a float model
            yield f"{path}: {found.answer}"


def _written(recording: Recording) -> Iterator[tuple[str, bool, str]]:
    """Yields each model that a run has written, whether it is known to be quantized, and what the program has found of it.

    What was changed since is to be looked at again.
    """
    from otel_quant.auditing.audit import written_in
    from otel_quant.schema import semconv

    models = [it for run in recording.runs for it in run.models if it.get("role") == "quantized"]
    steps = (step.attributes for run in recording.runs for step in run.steps)
    places = [*(it.get("path") for it in models), *(it.get(semconv.OUTPUT_PATH) for it in steps)]
    known = {str(Path(str(it.get("path")))): it for it in models}
    of_all = (written_in(it, recording.began_ns / 1e9) for it in places if isinstance(it, str))
    for path in dict.fromkeys(chain.from_iterable(of_all)):
        model = known.get(path, {})
        is_changed = model and any(written_in(path, model["began"] / 1e9))
        answer = model.get("figures", {}).get("audit.answer", "")
        yield path, bool(model), "" if is_changed else str(answer)


_OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "model": {
        "metavar": "PATH",
        "help": "a folder with *.safetensors and config.json, one such file or its index, or an ONNX file",
    },
    "--against": {
        "metavar": "FLOAT",
        "help": "the float model, or a recording of the run that has quantized it: what is in it has to be there",
    },
    "--weights": {
        "action": "store_true",
        "help": "read the weights too, and show how far off those of each layer are from the float model's (SQNR)",
    },
    "--left-out": {
        "action": "append",
        "default": [],
        "metavar": "NAME",
        "help": "a layer that was left in float on purpose, or a pattern (*.gate), where the configuration does not say so; may be repeated",
    },
}

COMMAND: Final = cmd.Command(
    brief="check a quantized model that was written against its configuration",
    description=f"Checks a quantized model that was written, by headers, scales and zero points: whether each layer is quantized as the configuration says, what was forgotten, missing or written twice, and whether the files are whole. Weights are read with --weights alone, and no pickle is loaded. Exit codes: 0 as configured, {FAILED} it is not, or cannot be read, {cmd.MISUSED} the command line makes no sense.",
    examples=("Llama-3.1-8B-int4", "Llama-3.1-8B-int4 --against Llama-3.1-8B"),
    arguments=(*(cmd.option(name, **how) for name, how in _OPTIONS.items()), cmd.add_format),
    run=_run,
)
