"""``otel-quant show`` of files that are truncated, malicious or no profile, and wrong command lines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from otel_quant.cli import main
from otel_quant.export.recording.event_file import EXPECTED
from otel_quant.recordings.profile_reader import Record, parse
from tests.unit.cli.shown_profiles import COMPLETE, show


def records_of(text: str) -> list[Record]:
    return parse(text).records


def test_a_file_truncated_at_any_byte_shows_its_complete_records(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    every = records_of(COMPLETE)
    assert len(every) == 7
    # The keys of the first record are unknown until it ends; those of the last cost always are.
    after_the_first = COMPLETE.index('- step: "Model Quantization Start"')
    undetectable = COMPLETE.index("onnx_model_cost:") - 1
    for cut in range(len(COMPLETE)):
        profile = parse(COMPLETE[:cut])
        if cut < undetectable:
            assert not profile.complete, cut
        if cut >= after_the_first:
            expected = [dict(record) for record in every[: len(profile.records)]]
            for key in {"error", "accuracy"} - set(profile.records[-1]):
                expected[-1].pop(key, None)  # it cannot be detected that they are missing
            assert profile.records == expected, cut
        begun = COMPLETE[:cut].count("- step:") - COMPLETE[:cut].count("# - step:")
        assert begun - 1 <= len(profile.records) <= begun
    path = tmp_path / "p.yaml"
    for cut in range(97, len(COMPLETE), 97):
        path.write_text(COMPLETE[:cut])
        assert "truncated" in show(capsys, path) or cut >= undetectable


def test_names_that_quark_does_not_escape_are_read_correctly(
    complete: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ['say "hi"', "two\nlines", "back\\slash d", "a: b"]
    text = "# Quark Profiling Results\n\nmemory_usage:\n"
    for name in names:
        text += f'- step: "{name} Start"\n  cpu_memory_mb: 1.0\n'

    assert [record["step"] for record in records_of(text)] == [f"{name} Start" for name in names]


def test_names_cannot_send_control_codes_to_the_terminal(
    complete: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    complete.write_text(
        'memory_usage:\n- step: "\\e]0;owned\\a\\e[2J Start"\n  cpu_memory_mb: 1.0\n'
        '- step: "\x1b[31mred\u202e Start"\n  cpu_memory_mb: 1.0\n'
        '\nevil\x1b[1m: "\x9b2J"\n'
    )

    for form in ("table", "markdown", "csv", "json"):
        out = show(capsys, complete, "--format", form)
        blanks = "\n\xa0" if form == "markdown" else "\n"  # the second indents steps
        assert not [letter for letter in out if letter not in blanks and not letter.isprintable()]
        assert "red" in out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"steps: []\n", f"no line 'memory_usage:'; {EXPECTED}"),
        (b"\x00\xff\x80" * 50, f"no line 'memory_usage:'; {EXPECTED}"),
        (None, f"cannot be opened: No such file or directory; {EXPECTED}"),
        (
            b"",
            "the file is empty; expected the records of a run, which writes the first as it begins",
        ),
        (
            b"# Quark Profiling Results\n\nmemory_usage:\n",
            "the file ends before its first checkpoint; expected the records of a run, which "
            "writes the first as it begins",
        ),
    ],
)
def test_a_file_that_is_no_profile_or_has_no_checkpoint_is_refused_with_its_path(
    content: bytes | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.yaml"
    if content is not None:
        path.write_bytes(content)

    assert main(["show", str(path)]) == 1

    assert capsys.readouterr() == ("", f"otel-quant: {path}: {message}\n")


def test_an_invalid_command_line_exits_with_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for arguments in ([], ["shew"], ["show"], ["show", "p", "--format", "xml"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
    assert "usage: otel-quant" in capsys.readouterr().err


def test_without_a_command_the_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([])
    assert "record a program that quantizes, and print its steps" in capsys.readouterr().err


def test_a_closed_output_pipe_is_not_an_error(complete: Path) -> None:
    complete.write_text(COMPLETE * 200)
    code = "import sys; from otel_quant.cli import main; sys.exit(main(sys.argv[1:]))"
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run(
        [sys.executable, "-c", code, "show", str(complete)],
        stdout=writer, stderr=subprocess.PIPE, text=True, check=False, timeout=60,
    )  # fmt: skip
    os.close(writer)

    assert (run.returncode, run.stderr) == (0, "")


def test_an_alias_in_a_value_is_not_followed() -> None:
    bomb = "{a: &a [1, 1], b: &b [*a, *a], c: [*b, *b]}"

    [record] = records_of(f'memory_usage:\n- step: "Start"\n  metric: {bomb}\n')

    assert record["metric"] == bomb
