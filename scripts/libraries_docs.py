"""Makes docs/libraries.md from the tables in `otel_quant/capture/instruments/tables.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from otel_quant.capture.instruments.hooks import (
    END_CALIBRATION,
    ENTRY_POINT,
    OBSERVED,
    RETURNED,
    STEP,
    Hook,
    Library,
    load,
)
from otel_quant.capture.instruments.tables import LIBRARIES
from otel_quant.schema.readings import ProfileStep
from otel_quant.schema.units import counted
from scripts.tested_libraries import TRIED, Row

PAGE = Path(__file__).resolve().parent.parent / "docs" / "libraries.md"

_INTRO = """\
# Libraries

<!-- Made by scripts/docs.py from otel_quant/capture/instruments/tables.py and from what
`scripts/test.py --libraries` has written to docs/libraries_tried.json. -->

What is hooked, and what a call becomes. A hook is set when the module that defines the
function is imported; a function that another version of the library does not have is left
out. `OTEL_QUANT_LIBRARIES` takes the names below, and unset it means all.

A program that has imported a library before it calls `otel_quant.run()` or `instrument()` has its functions hooked
then, under every name that a module has for them. What a dict, a `functools.partial` or a default argument holds is
the function as it was before: a call by it is no step, and where the sampler has seen one run outside of any step of the
library, a warning at the end names the function. Start the program with `otel-quant run`, or call `instrument()` before the import.

Configuration: the types, bits and block size of a step are those of all parts of the model; where parts differ, types are
listed ("int4, int8"), and `quant.parts.bits` and `quant.parts.block_size` take the place of one number. Of ONNX models that
onnxruntime, NNCF and Model Optimizer write they are read from the nodes and tensors, with the number of quantized weights
(`quant.weight.count`); a calibration before that has only what is known of activations. What was configured of a model is
on all steps that work on it later.

Functions that a program calls for one layer after another, outside of a step, are one step with that many layers: it ends
with the last call, when another step begins, its thread ends or 5 s pass without one.

`otel-quant run -- llama-quantize ...` is a step too, of the library llama.cpp: its layers are the tensors that the program
prints ("[  12/ 291] blk.0"), its types those that it converts to; where it fails, the reason is what it printed. `--dry-run`
quantizes nothing and has no step. `convert_hf_to_gguf.py` is a program of `gguf`. Both were run with the sources of build 11434.

Within the steps and entry points of a library that is built on another, the other's calls
are not reported. Figures and attributes of the steps: [telemetry.md](telemetry.md).

A step counts the calibration samples and the layers that it begins, and knows of how many where the library does:
`quant.calibration.sample_count` of `sample_total`, `quant.layer_count` of `layer_total`. LLM Compressor takes all
samples through one part of a model after another, mostly twice: its samples are counted once, and each batch through a part is
a pass, `quant.pass_count` of `pass_total`. `watch` shows them while the step
runs ("layer 17 of 32, about 40 min left"), and after a kill so do `show` and the report. A layer is what the library goes
through one after the other: a decoder layer in Quark, AutoRound and GPTQModel, a part of the model in LLM Compressor, a
linear layer in HQQ and optimum-quanto, a node in NNCF and in Quark for ONNX, a tensor in GGUF files. Each loop over layers counts from the first one again.

What a function *records* is how well the library has quantized a layer, as it computes that itself: no
forward pass is added for it. Each is a log record `quant.accuracy.measured` and a line of the recording; median
and worst are on the step's span, the ten worst of each step in `show` and the report. A value that is not
finite is absent, and its layer counts as the worst.

| name | distribution | within it are not reported |
|---|---|---|
"""

_TRIED = """
## Versions tried

Real quantizations by each library, in an environment of its own with the newest releases that the
library allows beside it (`scripts/test.py --libraries`). `openvino` is onnxruntime-openvino, whose provider
`otel-quant inference` measures. *Ways compared*: kinds of calls whose steps have the types, bits, granularity, block size and
symmetry that the nodes or tensors have that were written.

| name | version | with | on | result |
|---|---|---|---|---|
"""


def document() -> str:
    """Returns the page."""
    rows = "".join(
        f"| [`{library.name}`](#{library.name}) | {library.distribution} "
        f"| {', '.join(f'`{name}`' for name in sorted(library.built_on)) or 'none'} |\n"
        for library in LIBRARIES.values()
    )
    noted = json.loads(TRIED.read_text(encoding="utf-8"))
    tried = "".join(_tried(name, row) for name, of_library in noted.items() for row in of_library)
    return _INTRO + rows + _TRIED + tried + "".join(map(_section, LIBRARIES.values()))


def _tried(name: str, row: Row) -> str:
    beside = ", ".join(f"{distribution} {version}" for distribution, version in row["with"].items())
    failed = ", ".join(each.replace("_", " ") for each in row["failed"])
    ways = row.get("compared", 0)
    compared = f", {counted(ways, 'way')} compared" if ways else ""
    result = f"**failed**: {failed}" if failed else f"passed{compared}"
    return f"| `{name}` | {row['version']} | {beside} | {row['date']} | {result} |\n"


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
        yield f"| {module} | `{hook.target}` | {'; '.join(_effects(hook))} |"


def _effects(hook: Hook) -> Iterator[str]:
    """Yields what a call becomes: the fields of a hook in words, the first lines of functions."""
    if hook.wrapper not in (STEP, ENTRY_POINT, OBSERVED):
        yield _first_line(hook.wrapper, hook)
        return
    if hook.choose:
        yield _first_line(hook.choose, hook)
    elif hook.wrapper == STEP:
        yield f"step **{hook.step}**" + (f", if called with `{hook.needs}`" if hook.needs else "")
    elif hook.wrapper == ENTRY_POINT:
        yield "an entry point: its arguments go with the steps within"
    if hook.describe == END_CALIBRATION:
        yield _first_line(hook.describe, hook)
    elif hook.describe or hook.config:
        yield "described by its configuration"
    if hook.models:
        yield "its models are costed"
    if hook.runs:
        yield f"the `{hook.runs}` it is passed is step **{ProfileStep.CALIBRATION}**"
    if hook.counts:
        counted = "what it returns" if hook.counts == RETURNED else f"its `{hook.counts}`"
        yield f"each item of {counted} is one calibration sample"
    for function in filter(None, (hook.before, hook.after)):
        yield _first_line(function, hook)


def _first_line(reference: str, hook: Hook) -> str:
    function = load(reference)
    text = (getattr(function, "func", function).__doc__ or "").partition("\n")[0].removesuffix(".")
    return (text[0].lower() + text[1:]).format(step=hook.step, counts=hook.counts)
