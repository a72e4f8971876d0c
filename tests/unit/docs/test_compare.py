"""The page on comparing has every figure and every difference that counts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from otel_quant.recordings.comparison.facts import FACTS
from otel_quant.schema.figures import QUANTITIES

PAGE: Final = (Path(__file__).resolve().parents[3] / "docs" / "compare.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """Returns the cells of the table whose first heading is that."""
    lines = PAGE.partition(f"| {heading} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_the_page_has_every_figure() -> None:
    expected = [
        [
            f"`{figure.name.replace('.float.', '.<role>.')}`",
            figure.unit,
            figure.brief.removeprefix("float model: ")
            + ("" if figure.is_smaller_better else "; more is better"),
            figure.kind,
        ]
        for figure in QUANTITIES
        if ".quantized." not in figure.name
    ]
    assert rows("figure") == expected


def test_the_page_has_every_difference_that_keeps_runs_from_being_compared() -> None:
    documented = {
        name: frozenset(kinds.replace("GPU memory", "gpu").split(", "))
        for names, kinds in rows("what differs")[1:-1]
        for name in re.sub(r" \(.*?\)", "", names).split(", ")
    }
    documented.pop("the version of a library")
    assert documented == {fact.name: fact.changes for fact in FACTS if fact.changes}
