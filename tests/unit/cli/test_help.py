"""The help of every command, and what is suggested for a word that is not known."""

from __future__ import annotations

import argparse
import shlex
from importlib import import_module

import pytest

from otel_quant.cli import COMMANDS
from tests.fixtures.commands import Commands


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_two_examples_that_the_command_takes(name: str, command: Commands) -> None:
    printed = command.output(name, "--help").splitlines()
    assert printed[-3] == "examples:"
    parser = argparse.ArgumentParser(exit_on_error=False)
    import_module(f"otel_quant.cli.{name}").COMMAND.add_arguments(parser)
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
        (["show"], "the following arguments are required: PATH"),
        (["show", "r", "--zzz"], "unrecognized arguments: --zzz"),
        (["run", "--interval", "x", "--", "y"], "'x' is not a number of milliseconds from 1 to 3600000"),
    ],
)  # fmt: skip
def test_an_unknown_word_is_an_error_that_suggests_the_nearest(
    arguments: list[str], suggested: str, command: Commands
) -> None:
    code, _, err = command(*arguments)
    assert (code, err.endswith(f"{suggested}\n")) == (2, True)


def test_calling_without_a_command_lists_the_commands(command: Commands) -> None:
    code, _, err = command()
    assert code == 2
    assert "record a program that quantizes, and print its steps" in err
