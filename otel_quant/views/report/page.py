"""A page in one file: style, scripts and data in it, and no way to the network.

Other pages than the report extend ``base.html.j2`` and use the macros of ``parts.html.j2``.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_quant.views.text import printable

if TYPE_CHECKING:
    from jinja2 import Environment

_HERE: Final = Path(__file__).parent
_STYLES: Final = ("uplot/uPlot.min.css", "style.css")
_SCRIPTS: Final = ("uplot/uPlot.iife.min.js", "plots.js", "sort.js")
_LICENSE: Final = "uplot/LICENSE"


def page(template: str, /, **context: Any) -> str:
    """Returns a page.

    Every value that the template shows is escaped. A browser runs the scripts of the package and no
    other: the page names their digests and forbids everything else.
    """
    style = "".join(map(_asset, _STYLES))
    scripts = [_asset(name) for name in _SCRIPTS]
    policy = "; ".join(
        (
            "default-src 'none'",
            f"style-src {_digest(style)}",
            f"script-src {' '.join(map(_digest, scripts))}",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    return (
        _environment()
        .get_template(template)
        .render(policy=policy, style=style, scripts=scripts, license=_asset(_LICENSE), **context)
    )


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # takes 50 ms

    return Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # No terminal, yet marks that turn the direction of a text deceive here too.
        finalize=lambda value: printable(value) if type(value) is str else value,
    )


@functools.cache
def _asset(name: str) -> str:
    return (_HERE / "assets" / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
