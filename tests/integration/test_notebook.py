"""A real notebook, run by a real kernel."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

from tests.integration.test_measured_run import QUANTIZING

TAGS = {"div", "p", "br", "table", "thead", "tbody", "tr", "th", "td"}


def cells_of(html: str) -> list[str]:
    """Returns the cells of the tables in a piece of HTML, which has the tags of a table and no colours."""
    assert set(re.findall(r"<(\w+)", html)) == TAGS
    for tag in TAGS - {"br"}:
        assert len(re.findall(rf"<{tag}[ >]", html)) == html.count(f"</{tag}>")
    # The page's own colours are readable, light or dark.
    assert not any(
        "color" in style or "background" in style for style in re.findall('style="(.*?)"', html)
    )
    return [unescape(cell) for cell in re.findall(r"<t[hd](?: [^>]*)?>(.*?)</t[hd]>", html)]


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
    cells = cells_of(result["data"]["text/html"])
    assert cells[:4] == ["STEP", "START s", "TIME s", "%"]
    assert "Quantization (Dynamic)" in cells
    [text] = printed
    assert result["data"]["text/plain"] + "\n" == text["text"]
    assert text["text"].startswith("Memory peaked at ")
    [values] = figures
    assert values["data"]["text/plain"] == (
        "(['Quantization (Dynamic)', 'Post-process'], True, None)"
    )
    [result] = failed
    cells = cells_of(result["data"]["text/html"])
    assert "<b>| bold" in cells
    assert "failed: ValueError: <script>alert(1)</script>" in cells
