"""The help of every command, and what is suggested for a word that is not known."""

from __future__ import annotations

import argparse
import shlex
from importlib import import_module

import pytest

from otel_quant.cli import COMMANDS, main


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_two_examples_that_the_command_takes(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    printed = capsys.readouterr().out.splitlines()
    assert (end.value.code, printed[-3]) == (0, "examples:")
    command = import_module(f"otel_quant.cli.{name}").COMMAND
    parser = argparse.ArgumentParser(exit_on_error=False)
    command.add_arguments(parser)
    for line in printed[-2:]:
        words = shlex.split(line.partition(" > ")[0])
        assert words[:2] == ["otel-quant", name]
        parser.parse_args(words[2:])


@pytest.mark.parametrize(
    ("arguments", "suggested"),
    [
        (["shwo", "r"], "did you mean show?"),
        (["show", "r", "--fomat", "csv"], "did you mean --format?"),
        (["show", "r", "--format", "jsn"], "did you mean json?"),
        (["show", "r", "--zzz"], "unrecognized arguments: --zzz"),
        (
            ["run", "--interval", "x", "--", "y"],
            "'x' is not a number of milliseconds from 1 to 3600000",
        ),
    ],
)
def test_the_nearest_word_is_suggested(
    arguments: list[str], suggested: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert (end.value.code, capsys.readouterr().err.endswith(f"{suggested}\n")) == (2, True)
