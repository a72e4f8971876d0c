"""The ``otel-quant`` command. Each subcommand is one module with a ``COMMAND``."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from otel_quant.base.fault_boundary import LastResort
from otel_quant.cli.command import MISUSED, Command, UserError
from otel_quant.version import VERSION

TYPE_CHECKING = False  # as in run.py
if TYPE_CHECKING:
    from typing import Final, NoReturn

COMMANDS: Final = (
    "run", "watch", "show", "report", "stacks", "compare", "runs", "send",
    "cost", "estimate", "inference", "bench",
)  # fmt: skip
"""The subcommands, in the order of the help; each is the module of this folder with its name."""


FAULTY: Final = 70
"""Exit code of an error of otel-quant itself; BSD's sysexits.h has it for errors of software."""


INTERRUPTED: Final = 130
"""Exit code of a command that was stopped with Ctrl-C, as shells have it."""

_SHOWN: Final = 300
"""Characters of an error that are shown."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line."""
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
    given = sys.argv[1:] if arguments is None else arguments
    for name in given[:1] if given and given[0] in COMMANDS else COMMANDS:
        command: Command = import_module(f"otel_quant.cli.{name}").COMMAND
        examples = "\n".join(f"  otel-quant {name} {each}".rstrip() for each in command.examples)
        subparser = subparsers.add_parser(
            command.name,
            help=command.brief,
            description=command.description,
            epilog=f"examples:\n{examples}",
            formatter_class=_formatter,
        )
        command.add_arguments(subparser)
        _Parser.known += subparser._option_string_actions
        subparser.add_argument(
            "--traceback",
            action="store_true",
            help="show where an error of otel-quant itself was raised",
        )
        subparser.set_defaults(run=command.run, prints=command.prints)
    if not given:
        parser.exit(MISUSED, parser.format_help())
    options = parser.parse_args(given)
    if sys.stdout is None and options.prints:
        print("otel-quant: standard output: closed; expected a place to write", file=sys.stderr)
        return 1
    if hasattr(sys.stdout, "reconfigure"):
        # A name that the terminal cannot show must not be an error.
        sys.stdout.reconfigure(errors="backslashreplace")
    with LastResort() as end:
        return _run(options)
    return _report_fault(end, with_traceback=options.traceback)


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
        from difflib import get_close_matches
        from re import findall

        problem, _, choices = message.partition("(choose from ")
        known = findall(r"[\w-]+", choices) or [each for each in self.known if each != "--help"]
        words = [quoted or option for quoted, option in findall(r"'([^']+)'|(--[\w-]+)", problem)]
        unknown = (word for word in words if word not in self.known)
        near = [found for word in unknown for found in get_close_matches(word, known, 1)]
        super().error(f"{message}; did you mean {near[0]}?" if near else message)


def _run(options: argparse.Namespace) -> int:
    try:
        code: int = options.run(options)
        if options.prints:
            sys.stdout.flush()
        if "torch" not in sys.modules:  # its compiler writes of what is left to standard error
            gc.freeze()  # the process ends now: what is left is not taken apart
    except UserError as error:
        from otel_quant.views.text import printable

        for line in error.lines:
            print(printable(f"otel-quant: {line}"), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()  # the reader (such as head) has stopped reading
        return 0
    except OSError as error:  # from standard output: commands handle errors of other files
        _discard_output()
        print(f"otel-quant: standard output: {error.strerror}", file=sys.stderr)
        return 1
    return code


def _report_fault(end: LastResort, *, with_traceback: bool) -> int:
    """Prints in one line what went wrong in otel-quant, and how to report it."""
    from otel_quant.views.text import printable

    if with_traceback:
        import traceback

        traceback.print_exception(end.error)
    text = f"{type(end.error).__name__}: {end.error}"
    asked = "all of this" if with_traceback else "what --traceback shows"
    print(
        f"otel-quant: {printable(text[:_SHOWN])} (at {printable(end.place())}); this is an error of "
        f"otel-quant {VERSION} itself: please send {asked}, the command and, if you may, the file "
        "to whoever maintains your otel-quant",
        file=sys.stderr,
    )
    return FAULTY


def _discard_output() -> None:
    """Redirects standard output to the null device, so that Python's flush at exit succeeds."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
