"""All tests: sets up what they need, then runs the fast ones, then the real ones.

python3 scripts/test.py            everything; the stack's tests where their servers are built
python3 scripts/test.py --servers  builds the servers that are missing, beside the other tests
python3 scripts/test.py --fast     the unit tests only, within a minute
python3 scripts/test.py -k yaml    what follows goes to pytest
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.workspace import ROOT, environment

BUILD = ROOT / "scripts" / "servers" / "build.py"
OLDEST = (
    "opentelemetry-api==1.38.0",
    "opentelemetry-sdk==1.38.0",
    "opentelemetry-instrumentation==0.59b0",
    "psutil==5.9.0",
    "wrapt==1.14.0",
    "pytest>=8",
)
"""The lower ends of the ranges that the library asks for."""


def main(arguments: list[str]) -> int:
    """Runs the tests; the exit code is the first that is not 0."""
    fast, servers = "--fast" in arguments, "--servers" in arguments
    chosen = [argument for argument in arguments if argument not in ("--fast", "--servers")]
    programs = environment("test")
    if fast or chosen:
        code = _build(programs) if servers else 0
        return code or _pytest(programs, *(chosen or ["tests/unit"]))
    if servers:
        return _beside_the_build(programs)
    code = _without_servers(programs)
    if code:
        return code
    if _build(programs, "--check"):
        command = shlex.join(os.path.relpath(path) for path in (programs / "python", BUILD))
        print(f"tests/stack is left out: build its servers, once, in minutes, with {command}")
        return 0
    return _pytest(programs, "tests/stack")


def _build(programs: Path, *arguments: str) -> int:
    return subprocess.run([programs / "python", BUILD, *arguments]).returncode


def _beside_the_build(programs: Path) -> int:
    # The servers take minutes to build the first time, and one core: the tests have the other.
    servers = subprocess.Popen([programs / "python", BUILD], preexec_fn=_step_back)
    try:
        return _without_servers(programs) or servers.wait() or _pytest(programs, "tests/stack")
    finally:
        servers.terminate()


def _without_servers(programs: Path) -> int:
    return (
        _pytest(programs, "tests/unit")
        or _oldest()
        or _pytest(programs, "tests/oldest", "tests/integration")
    )


def _oldest() -> int:
    programs = environment("core", name=".venv-oldest", pins=OLDEST, constrained=False)
    print("the lower ends of the ranges:", ", ".join(OLDEST[:-1]), flush=True)
    # The shared fixtures want grpc and more; the oldest environment holds the library alone.
    return _pytest(programs, "--noconftest", "tests/oldest")


def _pytest(programs: Path, *arguments: str) -> int:
    env = os.environ | {
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONUNBUFFERED": "1",
        # Quark compiles its operators here, and waits for ever where a process that was killed
        # left its lock. By default all environments of a user share one place, and each
        # compiles again what another has, under the feet of who is loading it.
        "TORCH_EXTENSIONS_DIR": str(programs.parent / "torch_extensions"),
    }
    return subprocess.run(
        [programs / "python", "-m", "pytest", "-q", "--durations=8", *arguments], cwd=ROOT, env=env
    ).returncode


def _step_back() -> None:
    os.nice(10)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
