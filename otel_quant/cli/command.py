"""What subcommands share: their interface, the errors of their users, and arguments of several."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager

TYPE_CHECKING = False  # as in run.py
if TYPE_CHECKING:
    from typing import Final

    from otel_quant.cost import CostError, InputSpec
    from otel_quant.recordings.model import Recording

MISUSED: Final = 2
"""Exit code: the command line makes no sense. argparse exits with the same."""


class UserError(Exception):
    """An error that the user can correct. Caught once, in ``main``."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Command:
    """One subcommand."""

    def __init__(
        self,
        name: str,  # The name that the user types
        brief: str,  # One line for the list of commands
        add_arguments: Callable[[argparse.ArgumentParser], None],  # Adds its arguments to a parser
        # Runs it; returns the exit code or raises :class:`UserError`
        run: Callable[[argparse.Namespace], int],
        description: str,  # First lines of its help
        examples: tuple[str, str],  # Arguments, for the last lines of it
        prints: bool = True,  # Whether it cannot do without standard output
    ) -> None:
        self.name, self.brief, self.description, self.examples = name, brief, description, examples
        self.add_arguments, self.run, self.prints = add_arguments, run, prints


@contextmanager
def user_errors(path: str, prefix: str = "", exit_code: int = 1) -> Iterator[None]:
    """Turns what reading a recording raises into an error for the user."""
    from otel_quant.export.recording.event_file import EXPECTED
    from otel_quant.views.text import printable

    try:
        yield
    except BrokenPipeError:
        raise  # of standard output
    except OSError as error:
        reason = error.strerror or str(error)
        text = f"{prefix}{printable(path)}: cannot be opened: {reason}; {EXPECTED}"
        raise UserError(text, exit_code) from error
    except ValueError as error:
        raise UserError(f"{prefix}{printable(str(error))}", exit_code) from error


def whole_number(what: str, most: int | None = None) -> Callable[[str], int]:
    """Returns what reads a whole number from 1 on, for ``type`` of an argument."""

    def read(text: str) -> int:
        value = int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0
        if not 0 < value <= (most or value):
            limit = f" to {most}" if most is not None else ""
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of {what} from 1{limit}")
        return value

    return read


def seconds(most: float) -> Callable[[str], float]:
    """Returns what reads a time above 0, for ``type`` of an argument."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not 0 < value <= most:  # not a number fails as well
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a number of seconds above 0, at most {most:.0f}"
            )
        return value

    return read


def read_recording(path: str, prefix: str = "", exit_code: int = 1) -> Recording:
    """Returns the recording or the profile that the user names."""
    from pathlib import Path

    from otel_quant.recordings.reader import read

    with user_errors(path, prefix, exit_code):
        return read(Path(path))


@contextmanager
def writing(path: str, hint: str = "", exit_code: int = MISUSED) -> Iterator[None]:
    """Turns what keeps a file from being written into an error for the user."""
    from otel_quant.views.text import printable

    try:
        yield
    except OSError as error:
        text = f"{printable(path)}: {error.strerror}; expected a file that can be written{hint}"
        raise UserError(text, exit_code) from error


def add_format(parser: argparse.ArgumentParser) -> None:
    """Adds ``--format``, for what is printed."""
    from otel_quant.views.writers import FORMATS

    parser.add_argument(
        "--format", choices=FORMATS, default=FORMATS[0], help="default: %(default)s"
    )


def add_model_shapes(
    parser: argparse.ArgumentParser, *, of_inputs: str, of_dims: str, metavar: str = "NAME=SHAPE"
) -> None:
    """Adds the two arguments."""
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar=metavar,
        dest="inputs",
        help=f"shape of an input{of_inputs}; may be repeated",
    )
    parser.add_argument(
        "--dim",
        action="append",
        default=[],
        metavar="NAME=LENGTH",
        dest="dims",
        help=f"length of a dimension that has a name{of_dims}; may be repeated",
    )


def model_shapes(options: argparse.Namespace) -> tuple[dict[str, InputSpec], dict[str, int]]:
    """Returns the shapes of inputs and the lengths of dimensions that the arguments give, by name."""
    from otel_quant.cost import CostError, parse_dims, parse_inputs

    option = "--input"
    try:
        inputs = parse_inputs(options.inputs, option=option)
        option = "--dim"
        return inputs, parse_dims(options.dims)
    except CostError as error:
        raise misused(option, error) from error


def misused(option: str, error: CostError) -> UserError:
    """Returns the error for an argument that makes no sense."""
    from otel_quant.views.text import printable

    return UserError(f"{option}: {printable(error.reason)}", MISUSED)
