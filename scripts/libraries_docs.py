"""Makes docs/libraries.md from the tables in `otel_quant/capture/instruments/`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from otel_quant.capture.instruments.shared.hooks import Library, libraries

PAGE = Path(__file__).resolve().parent.parent / "docs" / "libraries.md"

_INTRO = """\
# Libraries

<!-- Made by scripts/docs.py from the tables in otel_quant/capture/instruments/. Edit those. -->

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
        effect = hook.wrapper.effect.format(step=hook.step, parameter=hook.parameter)
        yield f"| {module} | `{hook.target}` | {effect} |"
