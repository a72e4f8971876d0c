"""``otel-quant report``: where the page is written, and the error if there is nothing to report."""

from __future__ import annotations

from pathlib import Path

from tests.fixtures.commands import Commands
from tests.fixtures.recorded import CUT_PROFILE


def test_the_page_of_a_profile_is_written_beside_it(tmp_path: Path, command: Commands) -> None:
    profile = tmp_path / "quark_profile.yaml"
    profile.write_text(CUT_PROFILE)
    page = tmp_path / "quark_profile.html"
    said = command.output("report", profile)
    assert said == f"{page}: {page.stat().st_size / 1000:.0f} kB\n"
    assert sorted(tmp_path.iterdir()) == [page, profile]
    assert command.output("report", profile, "-o", "-") == page.read_text()


def test_a_page_that_cannot_be_written_is_an_error_in_one_line(command: Commands) -> None:
    Path("quark_profile.yaml").write_text(CUT_PROFILE)
    code, _, err = command("report", "quark_profile.yaml", "-o", "no/where.html")
    assert (code, err) == (
        1,
        "otel-quant: no/where.html: cannot be opened: No such file or directory; expected a file that can be written: "
        "-o FILE names another\n",
    )
