"""All tests: sets up what they need, then runs the fast ones, then the real ones.

python3 scripts/test.py            everything
python3 scripts/test.py --fast     the unit tests only, within a minute
python3 scripts/test.py -k yaml    what follows goes to pytest
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from workspace import ROOT, environment

OLDEST = (
    "opentelemetry-api==1.38.0",
    "opentelemetry-sdk==1.38.0",
    "opentelemetry-instrumentation==0.59b0",
    "psutil==5.9.0",
    "wrapt==1.14.0",
    "pytest>=8",
)
"""The lower ends of the ranges that the library asks for."""


def main() -> int:
    """Runs the tests; the exit code is the first that is not 0."""
    fast = "--fast" in sys.argv
    chosen = [argument for argument in sys.argv[1:] if argument != "--fast"]
    programs = environment("test")
    if chosen or fast:
        return _pytest(programs, *(chosen or ["tests/unit"]))
    # The servers take minutes to build the first time, and one core: the tests have the other.
    servers = subprocess.Popen(
        [programs / "python", ROOT / "scripts" / "servers" / "build.py"], preexec_fn=_step_back
    )
    try:
        code = (
            _pytest(programs, "tests/unit")
            or _oldest()
            or _pytest(programs, "tests/oldest", "tests/integration")
        )
        if code:
            return code
        return servers.wait() or _pytest(programs, "tests/stack")
    finally:
        servers.terminate()


def _oldest() -> int:
    programs = environment("core", name=".venv-oldest", pins=OLDEST, constrained=False)
    print("the lower ends of the ranges:", ", ".join(OLDEST[:-1]), flush=True)
    # The shared fixtures want grpc and more; the oldest environment holds the library alone.
    return _pytest(programs, "--noconftest", "tests/oldest")


def _pytest(programs: Path, *arguments: str) -> int:
    env = os.environ | {
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONUNBUFFERED": "1",
    }
    return subprocess.run(
        [programs / "python", "-m", "pytest", "-q", "--durations=8", *arguments], cwd=ROOT, env=env
    ).returncode


def _step_back() -> None:
    os.nice(10)


if __name__ == "__main__":
    sys.exit(main())
