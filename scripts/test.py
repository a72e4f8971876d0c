"""All tests: sets up what they need, then runs the fast ones, then the real ones.

python3 scripts/test.py            everything
python3 scripts/test.py --fast     the unit tests only, within a minute
python3 scripts/test.py -k yaml    what follows goes to pytest
"""

from __future__ import annotations

import os
import subprocess
import sys

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
    if chosen:
        return _pytest(programs / "python", "tests", *chosen)
    code = _pytest(programs / "python", "tests/unit")
    if code or fast:
        return code
    oldest = environment("core", name=".venv-oldest", pins=OLDEST, constrained=False)
    print("the lower ends of the ranges:", ", ".join(OLDEST[:-1]), flush=True)
    # The shared fixtures want grpc and more; the oldest environment holds the library alone.
    return _pytest(oldest / "python", "--noconftest", "tests/oldest") or _pytest(
        programs / "python", "tests/oldest", "tests/integration"
    )


def _pytest(python: object, *arguments: str) -> int:
    env = os.environ | {"PYTHONUNBUFFERED": "1"}
    return subprocess.run(
        [str(python), "-m", "pytest", "-q", "--durations=8", *arguments], cwd=ROOT, env=env
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
