"""A run with a beginning and an end of its own, for programs that outlive it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from otel_quant.readings import error_type
from otel_quant.runtime import RUNTIME


@contextmanager
def run(profile: str | None = None) -> Iterator[None]:
    """Makes a block a run of its own: for notebooks and long-lived programs.

    A run that is under way is ended first. When the block ends its telemetry has been
    handed to the exporters, and its local profile, if one was asked for, is complete.

    Args:
        profile: Path of the local profile to write; None leaves that to the environment.
    """
    RUNTIME.end_run()
    RUNTIME.begin_run(profile)
    error: str | None = None
    try:
        yield
    except BaseException as raised:
        error = error_type(raised)
        raise
    finally:
        RUNTIME.end_run(error)
        RUNTIME.delivery.soon()
