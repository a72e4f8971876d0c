"""Makes docs/libraries.md from the tables in `otel_quant/instruments/`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from otel_quant.instruments import LIBRARIES
from otel_quant.instruments.library import Hook, Library
from otel_quant.steps import ProfileStep
from scripts.tested_libraries import TESTED

PAGE = Path(__file__).resolve().parent.parent / "docs" / "libraries.md"

_ROLES: Final = {
    "calls:operation": "an entry point: its arguments go with the steps within",
    "calls:quantization": (
        "an entry point: its arguments go with the steps within, and both models are costed"
    ),
    "calls:sample": "counts one calibration sample",
    "calls:samples": "each item that it yields is one calibration sample",
    "calls:layer": "counts one layer of the step around it",
    "onnxruntime_calls:collect": "step **{step}**; counts what `get_next` of its reader returns",
    "onnxruntime_calls:compute": "the end of that step, or a step **{step}** of its own",
    "onnxruntime_calls:quantize_model": (
        f"step **{ProfileStep.QUANTIZATION_STATIC}** or **{ProfileStep.QUANTIZATION_DYNAMIC}**"
    ),
    "onnxruntime_calls:process": "step **{step}**; the models are costed",
    "torch_calls:calibrating": "an entry point; the `{parameter}` it is handed is step **{step}**",
    "torch_calls:step_or_layer": "step **{step}**; within one of `transformers` a layer of it",
    "transformers_calls:from_pretrained": "step **{step}**, if called with `quantization_config`",
    "optimum_onnx_calls:quantize": (
        "an entry point: its arguments go with onnxruntime's steps within, and both models are "
        "costed"
    ),
    "quanto_calls:enter": "begins the step **{step}**",
    "quanto_calls:leave": "ends it",
    "auto_round_calls:preparing": "step **{step}**, the first time for each compressor",
    "auto_round_calls:described": "step **{step}**, described by its compressor",
    "auto_round_calls:calibrating": (
        "step **{step}**; counts what its data set yields, if that is not a name"
    ),
    "auto_round_calls:reading": "step **{step}**; what the loader it returns yields is counted",
    "auto_round_calls:exporting": f"step **{{step}}**, or **{ProfileStep.EXPORT_GGUF}**",
    "neural_compressor_calls:configured": "step **{step}**, described by its configuration",
    "neural_compressor_calls:calibrating": (
        f"step **{{step}}**; the `{{parameter}}` it is handed is step **{ProfileStep.CALIBRATION}**"
    ),
    "neural_compressor_calls:saving": "step **{step}**, which names the folder",
    "llmcompressor_calls:pipeline": "step **{step}**, described by the recipe's modifiers",
    "llmcompressor_calls:counting_pipeline": (
        "step **{step}**, described by the recipe's modifiers; counts what its `{parameter}` yields"
    ),
    "llmcompressor_calls:parts": "tells how many parts of the model take the samples",
    "llmcompressor_calls:batches": (
        "each item that it yields to calibrate with is one calibration sample: every part of "
        "the model takes each anew"
    ),
    "llmcompressor_calls:saving": "the `save_pretrained` that it gives to a model is step **{step}**",
    "quark_configuration:named": "names the configuration that it makes",
    "quark_profiler:profile_scope": "each function that it decorates is a step",
    "quark_profiler:scope": "a step, as named",
    "quark_profiler:enter": "begins that step",
    "quark_profiler:leave": "ends that step",
    "quark_profiler:make": "begins the run; its metrics are in our local file too",
    "quark_profiler:checkpoint": "a checkpoint",
    "quark_profiler:watch": "a cache directory to watch",
}

_INTRO = """\
# Libraries

<!-- Made by scripts/docs.py from the tables in otel_quant/instruments/. Edit those. -->

What is hooked, and what a call becomes. A hook is set when the module that defines the
function is imported; a function that another version of the library does not have is left
out. `OTEL_QUANT_LIBRARIES` takes the names below, and unset it means all.

Within the steps and entry points of a library that is built upon another, the other's calls
are not reported. Figures and attributes of the steps: [telemetry.md](telemetry.md).

| name | distribution | versions seen | within it are not reported |
|---|---|---|---|
"""


def document() -> str:
    """Returns the page."""
    rows = "".join(
        f"| [`{library.name}`](#{library.name}) | {library.distribution} | {TESTED[library.name].versions} "
        f"| {', '.join(f'`{name}`' for name in sorted(library.covers)) or 'none'} |\n"
        for library in LIBRARIES
    )
    return _INTRO + rows + "".join(_section(library) for library in LIBRARIES)


def _section(library: Library) -> str:
    return "\n".join(
        [f"\n## {library.name}\n", "| module | function | what a call is |", "|---|---|---|",
         *_rows(library), ""]
    )  # fmt: skip


def _rows(library: Library) -> Iterator[str]:
    before = ""
    for hook in library.hooks:
        module = f"`{hook.module}`" if hook.module != before else ""
        before = hook.module
        yield f"| {module} | `{hook.target}` | {_role(hook)} |"


def _role(hook: Hook) -> str:
    role = hook.wrap.removeprefix("otel_quant.instruments.")
    return _ROLES.get(role, "step **{step}**").format(step=hook.step, parameter=hook.parameter)
