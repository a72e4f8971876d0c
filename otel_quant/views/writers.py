"""The five writers, by the names of ``--format``. Each is loaded when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from otel_quant.views.document import Document

FORMATS: Final = ("table", "markdown", "json", "csv", "html")
"""What ``--format`` takes."""


def written(document: Document, form: str, width: int | None = None) -> Iterator[str]:
    """Yields a document in a format, piece by piece; ``width`` is that of the terminal."""
    match form:
        case "table":
            from otel_quant.views.terminal import terminal_lines

            return terminal_lines(document, width)
        case "markdown":
            from otel_quant.views.markdown import markdown_lines

            return markdown_lines(document)
        case "csv":
            from otel_quant.views.csv import csv_lines

            return csv_lines(document)
        case "json":
            from otel_quant.views.json import json_lines

            return json_lines(document)
        case "html":
            from otel_quant.views.html import page_text

            return iter((page_text(document),))
    raise ValueError(f"{form!r} is no format; expected one of {', '.join(FORMATS)}")
