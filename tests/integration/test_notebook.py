"""A real notebook, run by a real kernel."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from tests.integration.test_measured_run import QUANTIZING


class Page(HTMLParser):
    """Reads HTML and keeps its tags and the cells of its tables."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.cells: list[str] = []
        self.open: list[str] = []
        self.styles: set[str] = set()
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.styles |= {value or "" for name, value in attrs if name == "style"}
        if tag != "br":
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] in ("td", "th"):
            self.cells[-1] += data


def outputs_of(folder: Path, *cells: str) -> list[list[dict[str, Any]]]:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in cells],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    return [cell.outputs for cell in notebook.cells]


def test_the_snippet_of_the_readme_shows_its_steps_as_a_table(tmp_path: Path) -> None:
    *_, shown, printed, figures, failed = outputs_of(
        tmp_path,
        QUANTIZING,
        "import otel_quant\nwith otel_quant.run() as run:\n    quantize()",
        "run",
        "print(run)",
        "[step.name for step in run.steps], run.memory_peak > 0, run.error",
        "with otel_quant.run() as other:\n"
        "    try:\n"
        "        with otel_quant.step('<b>| bold'):\n"
        "            raise ValueError('<script>alert(1)</script>')\n"
        "    except ValueError:\n"
        "        pass\n"
        "other",
    )

    [result] = shown
    page = Page(result["data"]["text/html"])
    assert page.tags == {"div", "p", "br", "table", "thead", "tbody", "tr", "th", "td"}
    assert page.cells[:4] == ["STEP", "START s", "TIME s", "%"]
    assert "Quantization (Dynamic)" in page.cells
    # The page's own colours are readable, light or dark.
    assert not any("color" in style or "background" in style for style in page.styles)
    [text] = printed
    assert result["data"]["text/plain"] + "\n" == text["text"]
    assert text["text"].startswith("Memory peaked at ")
    [values] = figures
    assert values["data"]["text/plain"] == (
        "(['Quantization (Dynamic)', 'Post-process'], True, None)"
    )
    [result] = failed
    page = Page(result["data"]["text/html"])
    assert page.tags == {"div", "p", "br", "table", "thead", "tbody", "tr", "th", "td"}
    assert "<b>| bold" in page.cells
    assert "failed: ValueError: <script>alert(1)</script>" in page.cells
