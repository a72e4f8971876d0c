"""CSV that a spreadsheet shows and does not compute."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import Final

from otel_quant.cli.rendering.table import printable

# Where a cell begins, by comma or in the countries that separate by semicolon, with what
# makes a spreadsheet take it for a formula; the wide forms are those of Japanese settings.
_FORMULA: Final = re.compile("(^|[,;|])(?=[\\s\"']*[=+\\-@\uff1d\uff0b\uff0d\uff20])")


def csv_text(header: Sequence[str], rows: Iterable[Sequence[str | int | float | None]]) -> str:
    """Writes rows of cells, the header first, each line ended.

    Texts come out of files that nobody vouches for: their control characters are escaped,
    and what a spreadsheet would compute has an apostrophe before it.

    Args:
        header: Names of the columns.
        rows: Cells; None for what is not known, which leaves the cell empty.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_cell(cell) for cell in row] for row in rows)
    return stream.getvalue()


def _cell(value: str | float | None) -> str | int:
    """A share has as many digits as matter."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, int) else _FORMULA.sub(r"\1'", printable(value))
