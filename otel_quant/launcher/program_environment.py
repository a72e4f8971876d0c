"""The environment of a program that is recorded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from otel_quant.base.environment import environment_at_start
from otel_quant.schema.settings import OTEL_QUANT_LAUNCHER_PID, OTEL_QUANT_RECORD

ON_PYTHONPATH: Final = str(Path(__file__).parents[1] / "capture" / "on_pythonpath")
"""The folder whose sitecustomize instruments a Python program."""


def program_environment(folder: Path, settings: Mapping[str, str]) -> Mapping[str, str]:
    """Returns what this process was started with, and what makes the program's recording.

    ``os.environ`` is not that: Python itself sets ``LC_CTYPE`` where the locale is ``C``.
    """
    environ = dict(environment_at_start(os.environ))
    path = environ.get("PYTHONPATH")
    # An empty entry is the current folder: `PYTHONPATH=` has none, `PYTHONPATH=a:` has one.
    entries = [each for each in path.split(os.pathsep) if each != ON_PYTHONPATH] if path else []
    environ["PYTHONPATH"] = os.pathsep.join([ON_PYTHONPATH, *entries])
    environ[OTEL_QUANT_RECORD] = str(folder)
    environ[OTEL_QUANT_LAUNCHER_PID] = str(os.getpid())
    environ.update(settings)
    return environ
