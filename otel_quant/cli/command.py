"""What subcommands share: their interface, the errors of their users, and arguments of several."""

from __future__ import annotations

TYPE_CHECKING = False  # as in run.py
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from typing import Any, Final

    AddArgument = Callable[[Any], object]
    """Adds an argument, or several, to a parser or a group of it."""

    from otel_quant.cost import InputSpec
    from otel_quant.recordings.model import Recording
    from otel_quant.views.document import Document

COMMANDS: Final = (
    "run", "watch", "show", "report", "stacks", "compare", "runs", "upload", "export", "send",
    "cost", "estimate", "inference", "bench", "fix", "advise", "audit", "mcp",
)  # fmt: skip
"""The subcommands, in the order of the help; each is the module of this folder with its name."""

MISUSED: Final = 2  # Exit code: the command line makes no sense. argparse exits with the same


class UserError(Exception):
    """An error that the user can correct, in one line or several. Caught once, in ``main``."""

    def __init__(self, lines: str | Sequence[str], exit_code: int = 1) -> None:
        super().__init__(lines)
        self.lines = [lines] if isinstance(lines, str) else lines
        self.exit_code = exit_code


class Command:
    """One subcommand; its name is that of its module."""

    def __init__(
        self,
        brief: str,  # One line for the list of commands
        arguments: Sequence[AddArgument],
        # Runs it; returns the exit code or raises :class:`UserError`. It imports what only it needs
        # itself: the other commands are not to wait for that.
        run: Callable[[Any], int],
        description: str,  # First lines of its help
        examples: tuple[str, str],  # Arguments, for the last lines of it
        prints: bool = True,  # Whether it cannot do without standard output
    ) -> None:
        self.brief, self.description, self.examples = brief, description, examples
        self.arguments, self.run, self.prints = arguments, run, prints

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Adds its arguments to a parser."""
        _add_all(self.arguments, parser)


def option(*names: str, **how: Any) -> AddArgument:
    """Declares an argument, as argparse's ``add_argument`` takes it."""
    return lambda parser: parser.add_argument(*names, **how)


def titled(title: str, *options: AddArgument) -> AddArgument:
    """Declares arguments that have a heading of their own in the help."""
    return lambda parser: _add_all(options, parser.add_argument_group(title))


def either(*options: AddArgument) -> AddArgument:
    """Declares arguments of which one may be given."""
    return lambda parser: _add_all(options, parser.add_mutually_exclusive_group())


def _add_all(options: Sequence[AddArgument], to: Any) -> None:
    for add in options:
        add(to)


class user_errors:  # noqa: N801 - it reads as a function, and does without contextlib, as in run.py
    """Turns errors of a kind into those of the user; where a file is expected, those of opening it, too."""

    def __init__(
        self, kind: type[Exception], prefix: str = "", exit_code: int = MISUSED, *,
        path: object = "", expected: str = "",
    ) -> None:  # fmt: skip
        self._kind, self._prefix, self._exit_code = kind, prefix, exit_code
        self._path, self._expected = path, expected

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, BrokenPipeError):
            return  # of standard output
        if isinstance(error, self._kind):
            raise UserError(f"{self._prefix}{error}", self._exit_code) from error
        if isinstance(error, OSError) and self._expected:
            what = f"{self._path or error.filename}: cannot be opened: {error.strerror or error}"
            text = f"{self._prefix}{what}; {self._expected}"
            raise UserError(text, self._exit_code) from error


def number(
    what: str, most: float, *, least: float = 1, of: type[int | float] = int
) -> Callable[[str], Any]:
    """Returns what reads a number of something, for ``type`` of an argument."""

    def read(text: str) -> float:
        try:
            if least <= (value := of(text)) <= most:
                return value
        except ValueError:
            pass
        import argparse  # as in run.py

        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of {what} from {least} to {most:.0f}"
        )

    return read


def read_recording(path: str, prefix: str = "", exit_code: int = 1) -> Recording:
    """Returns the recording or the profile that the user names."""
    import gc

    from otel_quant.format.event_file import EXPECTED
    from otel_quant.recordings.reader import local, read

    gc.disable()  # all that is read stays to the end: to look through it for garbage took a fifth
    with user_errors(ValueError, prefix, exit_code, path=path, expected=EXPECTED):
        return read(local(path, is_one=True))


def print_document(document: Document, form: str) -> None:
    """Prints a document in a format, as wide as the terminal."""
    import sys
    from itertools import islice

    from otel_quant.views.text import terminal_width
    from otel_quant.views.writers import written

    pieces = written(document, form, terminal_width(sys.stdout))
    while text := "".join(islice(pieces, _PIECES)):  # standard output may be unbuffered
        sys.stdout.write(text)


_PIECES: Final = 4096  # Pieces of a document that are written at once


def add_format(parser: Any, for_tools: Sequence[str] = (), note: str = "") -> None:
    """Adds ``--format``, for what is printed; with more formats, and a note on them."""
    from otel_quant.views.writers import FORMATS

    forms, words = (*FORMATS, *for_tools), f"default: %(default)s{note}"
    parser.add_argument("--format", choices=forms, default=forms[0], help=words)
    parser.add_argument(
        "--brief",
        action="store_const",
        dest="format",
        const="brief",
        help="one JSON object of at most 2 kB, for programs: verdict, evidence, what would help, and the next commands",
    )


def shapes_of_models(
    *, of_inputs: str, of_dims: str, metavar: str = "NAME=SHAPE"
) -> tuple[AddArgument, AddArgument]:
    """Returns the two arguments that :func:`model_shapes` reads."""
    more = {"action": "append", "default": []}
    return (
        option("--input", **more, metavar=metavar, help=f"shape of an input{of_inputs}; may be repeated"),
        option("--dim", **more, metavar="NAME=LENGTH", help=f"length of a dimension that has a name{of_dims}; may be repeated"),
    )  # fmt: skip


def model_shapes(options: argparse.Namespace) -> tuple[dict[str, InputSpec], dict[str, int]]:
    """Returns the shapes of inputs and the lengths of dimensions that the arguments give, by name."""
    from otel_quant.cost import CostError, parse_dims, parse_inputs

    with user_errors(CostError):
        return parse_inputs(options.input, option="--input"), parse_dims(options.dim)
