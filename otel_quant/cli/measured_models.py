"""What ``otel-quant inference`` and ``otel-quant bench`` share: options of models, and where results go."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_quant.cli import command as cmd
from otel_quant.views.text import printable, terminal_width

if TYPE_CHECKING:
    from otel_quant.inference.results import InferenceResult
    from otel_quant.inference.subjects import Options

FAILED: Final = 1  # A model could not be measured
MOST_RUNS: Final = 1_000_000
SECONDS: Final = cmd.number("seconds", 86_400, least=0.001, of=float)

_LEVELS: Final = ("disable", "basic", "extended", "all")

FED_ARGUMENTS: Final = (
    cmd.add_format,
    *cmd.shapes_of_models(of_inputs=", as in image=1x3x224x224, or with type and values, mask:i64:1x2:1x1", of_dims="; unspecified dimensions default to 1"),
    cmd.option("--data", metavar="FILE.npz", help="take the inputs from arrays of numpy.savez by the names of the inputs, instead of random ones"),
    cmd.option("--custom-ops", action="append", default=[], metavar="LIBRARY", help="library of custom operators, or `quark` for AMD Quark's; may be repeated"),
)  # fmt: skip

PROOF_ARGUMENTS: Final = (
    cmd.option("--threads", type=cmd.number("threads", MOST_RUNS), default=1, metavar="N", help="threads within a kernel while it is measured (default: %(default)s: other programs then disturb least)"),
    cmd.option("--seconds", type=SECONDS, default=1.0, metavar="S", help="time for the timed runs of each model (default: %(default).0f)"),
    cmd.option("--samples", type=cmd.number("samples", MOST_RUNS), default=16, metavar="N", help="random inputs whose outputs are compared (default: %(default)s; with --data one)"),
    lambda parser: parser.set_defaults(provider=[]),
)  # fmt: skip

MODEL_ARGUMENTS: Final = (
    *FED_ARGUMENTS,
    cmd.option("--provider", action="append", default=[], metavar="NAME[:KEY=VALUE,...]", help="execution provider with its options, in order of preference (CUDA is short for CUDAExecutionProvider); may be repeated (default: CPU)"),
    cmd.option("--threads", type=cmd.number("threads", MOST_RUNS), metavar="N", help="threads within a kernel (default: what the runtime takes)"),
    cmd.option("--level", choices=_LEVELS, default="all", help="level of onnxruntime's graph optimization (default: %(default)s)"),
    cmd.option("--record", metavar="DIR", help="add the result to a recording of `otel-quant run`; its report shows it"),
)  # fmt: skip


def require(*packages: str, extra: str = "inference") -> None:
    """Raises the error for the first of some packages that is not installed."""
    for name in packages:
        if find_spec(name) is None:
            raise cmd.UserError(
                f"{name} is not installed; expected: pip install otel-quant[{extra}]"
            )


def measure_options(options: argparse.Namespace) -> Options:
    """Returns how models are measured: arguments of the command that have the name of an option."""
    from otel_quant.capture.probes.energy import MachineEnergy
    from otel_quant.inference.subjects import Options

    if sys.platform == "win32":
        raise cmd.UserError(
            "models are measured in separate processes, which cannot be started here; expected Linux or macOS"
        )
    inputs, dims = cmd.model_shapes(options)
    given = {each.name: value for each in fields(Options)
             if (value := getattr(options, each.name, None)) is not None}  # fmt: skip
    return Options(**{
        **given,
        "providers": tuple(map(_provider, options.provider)),
        "inputs": inputs,
        "dims": dims,
        "joules": MachineEnergy(),
    })  # fmt: skip


def refuse_with_script(options: argparse.Namespace, script: str, names: Sequence[str]) -> None:
    """Raises the error for options of ONNX files that are given with a script."""
    for name in names:
        if getattr(options, name) not in ([], None, False, _LEVELS[-1]):
            raise cmd.UserError(
                f"--{name.replace('_', '-')} is for ONNX files; expected none of it with {script}, whose "
                "function returns models and inputs",
                cmd.MISUSED,
            )


def _provider(text: str) -> tuple[str, Mapping[str, str]]:
    """Reads a provider with its options: ``CUDA:device_id=0,arena=1``."""
    name, _, more = text.partition(":")
    full = name if name.endswith("ExecutionProvider") else f"{name}ExecutionProvider"
    found: dict[str, str] = {}
    for pair in filter(None, more.split(",")):
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise cmd.UserError(
                f"--provider: {text} has an option {pair!r}; expected NAME:KEY=VALUE,KEY=VALUE",
                cmd.MISUSED,
            )
        found[key] = value
    return full, found


def measured(
    options: argparse.Namespace, measure: Callable[[], InferenceResult], name: str, top: int = 0
) -> InferenceResult:
    """Measures, prints the result, adds it to the recording that the options name, and sends it."""
    from otel_quant.format.event_file import MANIFEST
    from otel_quant.inference.torch_session import VariantsError
    from otel_quant.views.html import write_page
    from otel_quant.views.inference import result_text

    recording = None if options.record is None else Path(options.record)
    if recording is not None and not (recording / MANIFEST).is_file():
        raise cmd.UserError(
            f"--record: {options.record} is no recording; expected a folder that `otel-quant run` made",
            cmd.MISUSED,
        )
    began_ns, clock_ns = time.time_ns(), time.perf_counter_ns()
    with cmd.user_errors(VariantsError, exit_code=FAILED):
        result = measure()
    ended_ns = began_ns + time.perf_counter_ns() - clock_ns
    result = replace(result, began_ns=began_ns, ended_ns=ended_ns)
    if result.baseline or not all(each.problem for each in result.models):
        shown = result_text(result, options.format, top, terminal_width(sys.stdout))
        sys.stdout.writelines(shown)
        if recording is not None:
            expected = "expected a place to write to"
            with cmd.user_errors(ValueError, "--record: ", FAILED, expected=expected):
                write_page(recording / name, result.to_json())
    sys.stdout.flush()
    _send(result, recording, name)
    return result


def _send(result: InferenceResult, recording: Path | None, name: str) -> None:
    """Sends a result as telemetry; nothing is loaded or sent where nothing is configured.

    What could not be sent is in a file afterwards.
    """
    from otel_quant.base.destinations import sends
    from otel_quant.base.environment import settings_from
    from otel_quant.base.fault_boundary import FAULTS
    from otel_quant.base.log import LOG

    settings = settings_from(os.environ, warn=False)
    if settings.sdk_disabled or not sends(os.environ):
        return
    if not all(map(find_spec, ("opentelemetry.sdk", "opentelemetry.distro"))):
        LOG.warning(
            "an endpoint is configured and nothing was sent: that needs OpenTelemetry's SDK and an "
            "exporter: pip install 'otel-quant[otlp]'"
        )
        return
    with FAULTS.kept_in("sending of an inference"):
        # Only now: loading the SDK takes a quarter of a second.
        from otel_quant.sending.send import NotSentError, send_inference
        from otel_quant.views.html import write_page

        try:
            send_inference(result, recording, settings)
        except NotSentError as error:
            kept = Path(name).with_stem(f"{Path(name).stem}-{result.began_ns // 10**9}")
            kept = kept if recording is None else recording / name
            write_page(kept, result.to_json())
            LOG.warning(
                "the telemetry of the inference was not sent: %s; `otel-quant send %s` sends it",
                error,
                shlex.quote(printable(str(kept))),
            )
