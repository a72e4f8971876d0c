"""The interface of a subcommand, and the error that it raises for its user."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final, NamedTuple

MISUSED: Final = 2
"""Exit code: the command line makes no sense. argparse exits with the same."""


class UserError(Exception):
    """An error that the user can correct. Caught once, in ``main``."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Command(NamedTuple):
    """One subcommand."""

    name: str  # The name that the user types
    brief: str  # One line for the list of commands
    add_arguments: Callable[[argparse.ArgumentParser], None]  # Adds its arguments to a parser
    # Runs it; returns the exit code or raises :class:`UserError`
    run: Callable[[argparse.Namespace], int]
    description: str = ""  # First lines of its help; the brief if empty
    prints: bool = True  # Whether it cannot do without standard output
