"""``otel-quant report``: where the page is written, and the error if there is nothing to report."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_quant.cli import main
from tests.fixtures.recorded import CUT_PROFILE


def test_the_page_of_a_profile_is_written_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = tmp_path / "quark_profile.yaml"
    profile.write_text(CUT_PROFILE)
    assert main(["report", str(profile)]) == 0
    page = tmp_path / "quark_profile.html"
    size = page.stat().st_size
    assert capsys.readouterr().out == f"{page}: {size / 1000:.0f} kB\n"
    assert sorted(tmp_path.iterdir()) == [page, profile]
    assert main(["report", str(profile), "-o", "-"]) == 0
    assert capsys.readouterr().out == page.read_text()


def test_a_page_that_cannot_be_written_is_an_error_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("quark_profile.yaml").write_text(CUT_PROFILE)
    assert main(["report", "quark_profile.yaml", "-o", "no/where.html"]) == 1
    assert capsys.readouterr().err == (
        "otel-quant: no/where.html: No such file or directory; expected a file that can be written: "
        "-o FILE names another\n"
    )
