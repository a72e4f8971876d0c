"""The pages of docs/ are a site."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_site_has_every_page_and_no_broken_link(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    zensical = Path(sys.executable).with_name("zensical")
    built = subprocess.run(
        [zensical, "build", "--strict"], cwd=tmp_path, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stdout + built.stderr
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"}
    assert {page.parent.name for page in (tmp_path / "site").glob("*/index.html")} == pages
    start = (tmp_path / "site" / "index.html").read_text()
    assert [page for page in sorted(pages) if f'href="./{page}/"' not in start] == []
