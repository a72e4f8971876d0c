"""What commands say of a path that holds no recording: the same in each of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from otel_quant.cli.command import UserError
from otel_quant.export.recording.event_file import EXPECTED
from otel_quant.views.text import printable


@contextmanager
def user_errors(path: str, prefix: str = "", exit_code: int = 1) -> Iterator[None]:
    """Turns what reading a recording raises into an error for the user."""
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
