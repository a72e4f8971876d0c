"""The page of a comparison in a real browser."""

from __future__ import annotations

from pathlib import Path

from otel_quant.recordings.comparison.runs import compared_run
from otel_quant.recordings.comparison.side_by_side import Side, side_by_side
from otel_quant.views.compare import document
from otel_quant.views.html import page_text
from tests.fixtures import recorded as built
from tests.fixtures.browser import PHONE, WIDE, Open


def test_both_curves_are_in_each_chart_and_can_be_read_at_a_step(
    opened: Open, tmp_path: Path
) -> None:
    sides = []
    for name, seconds in (("base", 600.0), ("new", 780.0)):
        (tmp_path / name).mkdir()
        run = compared_run(name, built.good(tmp_path / name, seconds=seconds, interval=1.0))
        sides.append(Side(name, (run,)))
    page = opened(page_text(document(side_by_side(sides), None, with_curves=True)), **PHONE)
    assert page.page.locator("figure.chart.live canvas").count() == 5  # memory, 3 GPUs, caches
    page.page.locator("#chart-memory .plot").focus()
    for key in ("End", "ArrowLeft"):
        page.page.keyboard.press(key)
    reading = page.page.locator("#reading-memory").inner_text()
    assert [part.split()[0] for part in reading.split(" · ")[-1].split(", ")] == ["new", "base"]
    legend = page.page.locator("#chart-memory .legend li").all_inner_texts()
    assert legend == ["base", "new"]
    page.is_well()
    page.page.emulate_media(color_scheme="dark")
    page.page.set_viewport_size(WIDE)
    page.is_well()
