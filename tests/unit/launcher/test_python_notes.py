"""What the launcher says of the Pythons that the program has started."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_quant.launcher.python_notes import expect_notes, take_notes, why_no_step, why_nothing_sent

NOTES = (
    "absent /a/python",
    "old /o/python",
    "failed /f/python",
    "unsent /u/python",
    "instrumented /i/python",
)
NOT_CALLED = "no quantization library that otel-quant knows was called"


@pytest.mark.parametrize(
    ("count", "reason"),
    [
        (0, "no Python was started, or one with -S, -E or -I, which keep otel-quant out of it"),
        (1, "/a/python has no otel-quant: install it in that environment"),
        (2, "/o/python is older than Python 3.11"),
        (3, "automatic instrumentation failed, as the program's output says"),
        (4, NOT_CALLED),
        (5, NOT_CALLED),
    ],
)
def test_of_several_pythons_the_one_that_came_furthest_says_why_there_is_no_step(
    count: int, reason: str
) -> None:
    assert why_no_step(NOTES[:count]) == reason


def test_notes_are_no_part_of_the_recording(tmp_path: Path) -> None:
    assert take_notes(tmp_path) == ()
    expect_notes(tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_text("old /o/python\n")
    assert (take_notes(tmp_path), list(tmp_path.iterdir())) == (["old /o/python"], [])


def test_a_python_without_an_sdk_is_named_with_what_it_needs() -> None:
    assert why_nothing_sent(["instrumented /usr/bin/python3"]) == ""
    assert why_nothing_sent(["instrumented /usr/bin/python3", "unsent /v/bin/python"]) == (
        "no telemetry was sent: /v/bin/python has no OpenTelemetry SDK; expected pip install "
        "'otel-quant[otlp]' there (otel-quant send sends this recording later)"
    )
