"""The environment that this process was started with. The launcher's program waits for this module."""

from __future__ import annotations

import os
from collections.abc import Mapping


def environment_at_start(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the environment at the start, if it is known: Python itself sets ``LC_CTYPE`` in ``os.environ``."""
    try:
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123 - the program waits for pathlib
            pairs = file.read().split(b"\0")
    except OSError:
        return dict(environ)
    return {
        os.fsdecode(name): os.fsdecode(value)
        for name, equals, value in (pair.partition(b"=") for pair in pairs)
        if equals
    }
