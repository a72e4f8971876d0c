"""The ``otel-quant`` command. Each subcommand is one module with a ``COMMAND``."""

from __future__ import annotations

import gc
import os
import sys

from otel_quant.base.fault_boundary import LastResort
from otel_quant.cli.command import UserError
from otel_quant.version import VERSION

TYPE_CHECKING = False  # as in run.py
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence
    from types import SimpleNamespace
    from typing import Final

FAULTY: Final = 70
"""Exit code of an error of otel-quant itself; BSD's sysexits.h has it for errors of software."""

INTERRUPTED: Final = 130  # Exit code of a command that was stopped with Ctrl-C, as shells have it
_SHOWN: Final = 300  # Characters of an error that are shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line."""
    given = sys.argv[1:] if arguments is None else arguments
    options = _options_of(given)
    if sys.stdout is None and options.prints:
        print("otel-quant: standard output: closed; expected a place to write", file=sys.stderr)
        return 1
    if hasattr(sys.stdout, "reconfigure"):
        # A name that the terminal cannot show must not be an error.
        sys.stdout.reconfigure(errors="backslashreplace")
    with LastResort() as end:
        return _run(options)
    return _report_fault(end, with_traceback=options.traceback)


def _options_of(given: Sequence[str]) -> Namespace | SimpleNamespace:
    # The program waits: its own start takes no longer than argparse's import.
    if given[:1] == ["run"]:
        from otel_quant.cli.run import plain_options

        if (plain := plain_options(given[1:])) is not None:
            return plain
    from otel_quant.cli.parser import parsed

    return parsed(given)


def _run(options: Namespace | SimpleNamespace) -> int:
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
