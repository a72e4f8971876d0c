"""What is known of a run when it begins."""

from __future__ import annotations

import os
import platform
import sys
import uuid
from collections.abc import Mapping

import psutil

from otel_quant.probes.limits import read_limits
from otel_quant.recording.command_line import shown_command
from otel_quant.records import Origin, RunInfo


def new_run_info(
    environ: Mapping[str, str],
    carrier: Mapping[str, str] | None = None,
    *,
    name: str = "",
    paths: bool = True,
) -> RunInfo:
    """Describes the run that is about to begin in this process.

    Args:
        environ: The environment: ``RANK`` and ``WORLD_SIZE`` as torchrun sets them, and
            the W3C trace context to continue.
        carrier: Trace context to use instead of the environment's, by header name.
        name: Name of the run that the user, or the parent process, has given; empty for none.
        paths: Whether paths of files, and texts that may name one, may leave the process.

    Returns:
        The description, with a new identifier.
    """
    rank = _integer(environ.get("RANK"))
    return RunInfo(
        id=uuid.uuid4().hex[:16],
        pid=os.getpid(),
        name=name,
        launched_ns=_launched_ns() if rank is not None else None,
        limits=read_limits(),
        rank=rank,
        world_size=_integer(environ.get("WORLD_SIZE")),
        parent_carrier=carrier
        or {
            header: environ[header.upper()]
            for header in ("traceparent", "tracestate", "baggage")
            if environ.get(header.upper())
        },
        paths=paths,
        origin=_origin(paths),
    )


def _origin(paths: bool) -> Origin:
    machine = platform.uname()
    return Origin(
        command=shown_command(sys.orig_argv, paths=paths),
        host=machine.node,
        system=f"{machine.system} {machine.release} {machine.machine}",
        python=platform.python_version(),
    )


def _launched_ns() -> int | None:
    """Returns when the parent was started: the ranks of a host have the same, and no other run."""
    try:
        return int(psutil.Process(os.getppid()).create_time() * 1e9)
    except psutil.Error:
        return None


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and text.strip().isdecimal() else None
