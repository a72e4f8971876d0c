"""What is made from the code is what the code makes."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from scripts import api_docs
from scripts.docs import documents

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = documents()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_generated_file_is_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == DOCUMENTS[path], (
        "run `.venv/bin/python scripts/docs.py`"
    )


def test_no_dashboard_is_left_that_the_generator_does_not_make() -> None:
    folder = ROOT / "grafana" / "dashboards"
    assert set(folder.glob("*.json")) == {path for path in DOCUMENTS if path.parent == folder}


@pytest.mark.parametrize("module", api_docs.MODULES)
def test_every_public_name_has_a_section(module: str) -> None:
    page = DOCUMENTS[api_docs.PAGE]
    section = page.split(f"\n## `{module}`\n")[1].split("\n## ")[0]
    headings = [line[5:-1] for line in section.splitlines() if line.startswith("### ")]
    names = importlib.import_module(module).__all__
    assert headings == [name for name in names if not name.startswith("__")]


def test_a_google_docstring_becomes_markdown() -> None:
    docstring = """Opens a step of :class:`Run`.

It is ``closed`` by its caller::

    step = open()
    step.close()

Args:
    kind: A constant, or a
        name of your own.
    size: In bytes.

Returns:
    The step; None
    where there is no run.

Raises:
    ValueError: The size is negative."""
    assert (
        api_docs.prose(docstring)
        == """\
Opens a step of `Run`.

It is `closed` by its caller:

```python
step = open()
step.close()
```

**Arguments:**

- `kind`: A constant, or a name of your own.
- `size`: In bytes.

**Returns:** The step; None where there is no run.

**Raises:**

- `ValueError`: The size is negative.
"""
    )
