"""The parser of the command line, and its help. Not loaded where `otel-quant run` starts a program: argparse takes as long as Python."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from re import findall
from typing import NoReturn

from otel_quant.cli.command import COMMANDS, MISUSED, Command
from otel_quant.version import VERSION


def parsed(given: Sequence[str]) -> argparse.Namespace:
    """Returns the options of a command line; of one that makes no sense, exits with an error."""
    _Parser.known = list(COMMANDS)
    parser = _Parser(
        prog="otel-quant",
        description="Records quantization runs, and shows what they and their models cost.",
        formatter_class=_formatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {VERSION}")
    subparsers = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, prog=parser.prog
    )
    for name in given[:1] if given and given[0] in COMMANDS else COMMANDS:
        command: Command = import_module(f"otel_quant.cli.{name}").COMMAND
        examples = "\n".join(f"  otel-quant {name} {each}".rstrip() for each in command.examples)
        subparser = subparsers.add_parser(
            name, help=command.brief, description=command.description,
            epilog=f"examples:\n{examples}", formatter_class=_formatter,
        )  # fmt: skip
        command.add_arguments(subparser)
        _Parser.known += subparser._option_string_actions
        where = "show where an error of otel-quant itself was raised"
        subparser.add_argument("--traceback", action="store_true", help=where)
        subparser.set_defaults(run=command.run, prints=command.prints)
    if not given:
        parser.exit(MISUSED, parser.format_help())
    return parser.parse_args(given)


def _formatter(prog: str) -> argparse.HelpFormatter:
    """Returns argparse's own, which loads shutil to know the width: it is made for every argument."""
    try:
        columns = int(os.environ.get("COLUMNS", 0)) or os.get_terminal_size().columns
    except (OSError, ValueError):
        columns = 0
    return _Formatter(prog, width=(columns or 80) - 2)


class _Formatter(argparse.HelpFormatter):
    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("examples:") else super()._fill_text(text, width, indent)


class _Parser(argparse.ArgumentParser):
    """argparse's own, which names what may have been meant by what it does not know."""

    known: list[str]  # Commands, and the options of those that are loaded

    def error(self, message: str) -> NoReturn:
        problem, _, choices = message.partition("(choose from ")
        known = findall(r"[\w-]+", choices) or [each for each in self.known if each != "--help"]
        words = [quoted or option for quoted, option in findall(r"'([^']+)'|(--[\w-]+)", problem)]
        unknown = (word for word in words if word not in self.known)
        near = [found for word in unknown for found in get_close_matches(word, known, 1)]
        super().error(f"{message}; did you mean {near[0]}?" if near else message)
