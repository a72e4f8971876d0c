"""CSV whose cells a spreadsheet does not run as formulas."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final

from otel_quant.views.text import printable

# The start of a cell (after a comma, or a semicolon in some countries) and a character that makes
# a spreadsheet read it as a formula; Japanese settings also accept the wide forms.
_FORMULA: Final = re.compile("(^|[,;|])(?=[\\s\"']*[=+\\-@\uff1d\uff0b\uff0d\uff20])")


def csv_lines(
    header: Sequence[str], rows: Iterable[Sequence[str | int | float | None]]
) -> Iterator[str]:
    """Yields a header and rows of cells as lines with line breaks.

    Texts may come from untrusted files: control characters are escaped, and an apostrophe is put
    before a text that a spreadsheet would run as a formula.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    for row in chain((header,), rows):
        writer.writerow(map(_cell, row))
        yield stream.getvalue()
        stream.seek(0)
        stream.truncate()


@lru_cache(1 << 12, typed=True)  # shapes and numbers of nodes recur
def _cell(value: str | float | None) -> str | int:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"  # six digits are enough for a share
    return value if isinstance(value, int) else _FORMULA.sub(r"\1'", printable(value))
