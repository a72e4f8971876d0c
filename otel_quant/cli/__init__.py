"""The ``otel-quant`` command. Each subcommand is one module with a ``COMMAND``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final

from otel_quant.cli import cost, show
from otel_quant.cli.command import Command, UserError
from otel_quant.version import VERSION

COMMANDS: Final[tuple[Command, ...]] = (show.COMMAND, cost.COMMAND)
"""The subcommands, in the order of the help."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: The arguments after the program's name; None for those of the process.

    Returns:
        The exit code: 0 for success, 2 for an invalid command line, otherwise that of the error.
    """
    parser = argparse.ArgumentParser(
        prog="otel-quant", description="Looks at what quantization runs and their models cost."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {VERSION}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        subparser = subparsers.add_parser(
            command.name, help=command.brief, description=command.description or command.brief
        )
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    options = parser.parse_args(arguments)
    if sys.stdout is None:
        print("otel-quant: standard output: closed; expected a place to write", file=sys.stderr)
        return 1
    if hasattr(sys.stdout, "reconfigure"):
        # A name that the terminal cannot show must not be an error.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except UserError as error:
        print(f"otel-quant: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        _discard_output()  # the reader (such as head) has stopped reading
        return 0
    except OSError as error:  # from standard output: commands handle errors of other files
        _discard_output()
        print(f"otel-quant: standard output: {error.strerror}", file=sys.stderr)
        return 1
    return code


def _discard_output() -> None:
    """Redirects standard output to the null device, so that Python's flush at exit succeeds."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
