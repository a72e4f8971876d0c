"""Makes the table of figures in docs/compare.md from `otel_quant/schema/catalog.py`."""

from __future__ import annotations

from otel_quant.schema.catalog import QUANTITIES
from scripts.recording_docs import ROOT, with_table

PAGE = ROOT / "docs" / "compare.md"


def document() -> str:
    """Returns the page, which is written by hand around the table."""
    rows = [
        (
            f"`{figure.name.replace('.float.', '.<role>.')}`",
            figure.unit,
            figure.brief.removeprefix("float model: ")
            + ("" if figure.is_smaller_better else "; more is better"),
            figure.kind,
        )
        for figure in QUANTITIES
        if ".quantized." not in figure.name
    ]
    return with_table(PAGE, "| figure | unit | what it is | kind |\n|---|---|---|---|\n", rows)
