"""Makes docs/libraries.md from the tables in `otel_quant/capture/instruments/tables.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from otel_quant.capture.instruments.hooks import (
    ENTRY_POINT,
    OBSERVED,
    STEP,
    Hook,
    Library,
    libraries,
    load,
)
from otel_quant.schema.records import ProfileStep

PAGE = Path(__file__).resolve().parent.parent / "docs" / "libraries.md"

_INTRO = """\
# Libraries

<!-- Made by scripts/docs.py from otel_quant/capture/instruments/tables.py. Edit that. -->

What is hooked, and what a call becomes. A hook is set when the module that defines the
function is imported; a function that another version of the library does not have is left
out. `OTEL_QUANT_LIBRARIES` takes the names below, and unset it means all.

Within the steps and entry points of a library that is built on another, the other's calls
are not reported. Figures and attributes of the steps: [telemetry.md](telemetry.md).

| name | distribution | versions seen | within it are not reported |
|---|---|---|---|
"""


def document() -> str:
    """Returns the page."""
    rows = "".join(
        f"| [`{library.name}`](#{library.name}) | {library.distribution} | {library.versions_seen} "
        f"| {', '.join(f'`{name}`' for name in sorted(library.built_on)) or 'none'} |\n"
        for library in libraries()
    )
    return _INTRO + rows + "".join(_section(library) for library in libraries())


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
    if hook.describe or hook.config:
        yield "described by its configuration"
    if hook.models:
        yield "its models are costed"
    if hook.runs:
        yield f"the `{hook.runs}` it is passed is step **{ProfileStep.CALIBRATION}**"
    if hook.counts:
        yield f"each item of its `{hook.counts}` is one calibration sample"
    if hook.after:
        yield _first_line(hook.after, hook)


def _first_line(reference: str, hook: Hook) -> str:
    text = (load(reference).__doc__ or "").partition("\n")[0].removesuffix(".")
    return (text[0].lower() + text[1:]).format(step=hook.step, counts=hook.counts)
