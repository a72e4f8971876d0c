"""The help of every command, and what is suggested for a word that is not known."""

from __future__ import annotations

import argparse
import shlex
from importlib import import_module

import pytest

from otel_quant.cli.command import COMMANDS
from otel_quant.cli.parser import parsed
from otel_quant.cli.run import plain_options
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


@pytest.mark.parametrize(
    ("line", "is_plain"),
    [
        ("-- python quantize.py", True), ("--quiet --watch --no-report -- sh -c 'a -- b'", True),
        ("--out r --no-command -- x", True), ("--otlp-files --out r --", True), ("--out --quiet -- x", False),
        ("--out", False), ("--out r", False), ("--quiet python x", False), ("--qui -- x", False),
        ("--interval 5 -- x", False), ("--out=r -- x", False), ("", False), ("--out r x -- y", False),
    ],
)  # fmt: skip
def test_run_reads_plain_options_as_argparse_does(line: str, is_plain: bool) -> None:
    words = shlex.split(line)
    plain = plain_options(words)
    assert (plain is not None) == is_plain
    assert plain is None or vars(plain) == vars(parsed(["run", *words]))
