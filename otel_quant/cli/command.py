"""What a subcommand is, and how it tells its user that something is wrong."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass


class UserError(Exception):
    """Something that the user can put right. Caught once, in ``main``.

    Args:
        message: The value, what was expected and where it came from, in one line.
        exit_code: What the process exits with.
    """

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class Command:
    """One subcommand.

    Attributes:
        name: What the user types.
        brief: One line for the list of commands.
        add_arguments: Adds its arguments to a parser.
        run: Does it; returns the exit code or raises :class:`UserError`.
        description: What its own help says first; the brief if empty.
    """

    name: str
    brief: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    description: str = ""
