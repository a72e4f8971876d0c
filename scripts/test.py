"""All tests: sets up what they need, then runs them, those that fail soonest first.

python3 scripts/test.py            everything; the stack's tests where their servers are built
python3 scripts/test.py --servers  builds the servers that are missing, beside the other tests
python3 scripts/test.py --lint     ruff and mypy first
python3 scripts/test.py --slow     the tests too that only repeat others for the sake of rare races
python3 scripts/test.py --fast     the unit tests only, on this Python, in a minute or two
python3 scripts/test.py -k yaml    what follows goes to pytest
python3 scripts/test.py --libraries [NAME ...]   the newest of each library, in an environment of its own
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts import debian, interpreters, tested_libraries
from scripts.workspace import CACHE, CCACHE, ROOT, Command, environment, pytest_command

BUILD = ROOT / "scripts" / "servers" / "build.py"
OLDEST = (
    "opentelemetry-api==1.38.0",
    "opentelemetry-sdk==1.38.0",
    "opentelemetry-distro==0.59b0",
    "opentelemetry-exporter-otlp==1.38.0",
    "opentelemetry-instrumentation==0.59b0",
    "psutil==5.9.0",
    "wrapt==1.14.0",
    "pytest>=9",
)
"""The lower ends of the ranges that the library asks for."""
RUFF = (("check", "."), ("format", "--check", "."))
TWO = ("-n", "2", "--no-loadscope-reorder")
"""tests/fixtures/selection.py defines which tests stay together and which begin first."""
THREE = ("-n", "3", "--no-loadscope-reorder")
"""The unit tests, on two cores: part of their time is waiting, for a process or a timeout."""
FOUR = ("-n", "4", "--no-loadscope-reorder")
"""The integration tests, which wait more, for servers and networks too: 94 % of two cores is used."""
ALONE = "tests/integration/promises"
"""The folder of all tests that none runs beside: to collect the others of the integration tests takes 12 s."""
ALIKE = ("cost", "project", "recordings", "stack", "views")
"""Folders of unit tests that the other Pythons leave out: of files, documents, figures and statistics,
whose code uses nothing that differs between the versions. That it loads there is tested beside them."""
OPTIONS = ("--fast", "--lint", "--servers", "--slow")

Stage = tuple[str, Callable[[], int]]
"""A name, and what runs it and returns an exit code."""
Took = tuple[str, float, float]
"""A stage's name, the seconds that it took and its seconds of CPU time."""


def main(arguments: list[str]) -> int:
    """Runs the tests; the exit code is the first that is not 0."""
    if arguments[:1] == ["--libraries"]:
        return tested_libraries.run(arguments[1:])
    asked = {argument for argument in arguments if argument in OPTIONS}
    chosen = [argument for argument in arguments if argument not in OPTIONS]
    slow = ["--slow", "-o", "faulthandler_timeout=0"] if "--slow" in asked else []
    began = time.monotonic()
    programs = environment("test")
    took = [("environment", time.monotonic() - began, _cpu())]
    if chosen or "--fast" in asked:
        code = _build(programs) if "--servers" in asked else 0
        return code or _pytest(programs, *slow, *(chosen or [*THREE, "tests/unit"]))
    if not CCACHE.exists():
        debian.install("ccache")  # without it Quark's operators are compiled anew: a minute
    with ExitStack() as stack:
        return _in_turn(_stages(programs, asked, slow, stack), took)


def _stages(programs: Path, asked: set[str], slow: list[str], stack: ExitStack) -> Iterator[Stage]:
    builder = None
    unit_tests = pytest_command(programs, *THREE, *slow, "tests/unit")
    if "--lint" in asked:
        yield "ruff", lambda: _ruff(programs)
    if "--servers" in asked:
        builder = _start_builder(programs, stack)
    if "--lint" in asked:
        # What it has found of torch and other packages serves each checkout: 20 s of CPU time.
        kept = os.environ | {"MYPY_CACHE_DIR": str(CACHE / "mypy")}
        mypy: Command = {"args": [programs / "mypy"], "cwd": ROOT, "env": kept}
        commands = {"mypy": lambda: mypy, "unit tests": lambda: unit_tests}
        yield ", ".join(commands), lambda: _side_by_side(commands)
    else:
        yield "unit tests", lambda: subprocess.run(**unit_tests).returncode
    yield from _other_versions(slow)
    is_built = not _build(programs, "--check")
    folders = ("tests/integration", "tests/stack") if is_built else ("tests/integration",)
    yield (
        " and ".join(folders),
        lambda: _pytest(programs, *FOUR, "-m", "not alone", *slow, *folders),
    )
    if builder is not None:
        yield "waiting for the servers", builder.wait
    yield (
        "integration tests, one at a time",
        lambda: _pytest(programs, "-m", "alone", *slow, ALONE),
    )
    # Package registries have none of them, so scripts/servers/build.py cannot build them.
    for variable, what in (
        ("TEMPO_BIN", "queries of traces to a Tempo"),
        ("PYROSCOPE_BIN", "profiles in a Pyroscope"),
    ):
        if not os.environ.get(variable):
            yield f"{what}: left out, {variable} names none", lambda: 0
    for tool in ("dashboard-linter", "weaver"):
        if shutil.which(tool) is None:
            yield f"{tool}: left out, none on PATH", lambda: 0
    if builder is not None and not is_built:
        yield "tests/stack", lambda: _pytest(programs, *FOUR, *slow, "tests/stack")
    elif not is_built:
        command = shlex.join(os.path.relpath(path) for path in (programs / "python", BUILD))
        print(
            f"tests/stack is left out: build its servers, once, in 10 minutes or more, with {command}"
        )


def _in_turn(stages: Iterator[Stage], took: list[Took]) -> int:
    """Runs stages until one fails, and prints how long each took, those before included."""
    code = 0
    for name, run in stages:
        print(f"--- {name}", flush=True)
        began, cpu = time.monotonic(), _cpu()
        code = run()
        took.append((name, time.monotonic() - began, _cpu() - cpu))
        if code:
            break
    if code:
        print(f"\n{took[-1][0]}: failed with exit code {code}")
    took.append(("in all", sum(row[1] for row in took), sum(row[2] for row in took)))
    width = max(len(name) for name, *_ in took)
    print(f"\n{'stage':{width}}   seconds  of CPU time")
    for name, seconds, cpu in took:
        print(f"{name:{width}} {seconds:9.0f} {cpu:12.0f}")
    return code


def _cpu() -> float:
    """Returns the CPU time of all processes that have been waited for, in seconds."""
    used = os.times()
    return used.children_user + used.children_system


def _ruff(programs: Path) -> int:
    codes = (subprocess.run([programs / "ruff", *rest], cwd=ROOT).returncode for rest in RUFF)
    return next(filter(None, codes), 0)


def _build(programs: Path, *arguments: str) -> int:
    return subprocess.run([programs / "python", BUILD, *arguments]).returncode


def _start_builder(programs: Path, stack: ExitStack) -> subprocess.Popen[bytes]:
    """Builds the servers beside the tests, which go first where both want a core."""
    builder = subprocess.Popen([programs / "python", BUILD], preexec_fn=_step_back)
    stack.callback(builder.terminate)
    return builder


def _other_versions(slow: list[str]) -> Iterator[Stage]:
    """Yields the tests with the oldest versions, and beside them, on other Pythons, what may differ there."""
    this = f"{sys.version_info.major}.{sys.version_info.minor}"
    started: dict[str, Callable[[], Command]] = {"oldest versions": _oldest}
    for version in interpreters.supported():
        python = None if version == this else interpreters.find(version)
        if python is not None:
            started[f"Python {version}"] = partial(_unit_tests, version, python, slow)
        elif version != this:
            yield f"unit tests, Python {version}: left out, none on PATH or in pyenv", lambda: 0
    yield ", ".join(started), lambda: _side_by_side(started)


def _oldest() -> Command:
    programs = environment("otlp", name=".venv-oldest", pins=OLDEST, constrained=False)
    # The shared fixtures want more packages than the oldest environment holds.
    return pytest_command(programs, "--noconftest", "tests/oldest")


def _unit_tests(version: str, python: str, slow: list[str]) -> Command:
    programs = environment("unit", name=f".venv-{version}", python=python)
    left_out = (f"--ignore=tests/unit/{name}" for name in ALIKE)
    return pytest_command(programs, *TWO, *slow, "tests/unit", *left_out)


def _side_by_side(started: dict[str, Callable[[], Command]]) -> int:
    """Runs several commands at once, and prints the output of each in turn."""
    with ExitStack() as stack:
        running: dict[str, tuple[subprocess.Popen[Any], IO[bytes]]] = {}
        for name, command in started.items():
            output: IO[bytes] = stack.enter_context(TemporaryFile())
            process = subprocess.Popen(**command(), stdout=output, stderr=subprocess.STDOUT)
            stack.callback(process.kill)
            running[name] = (process, output)
        codes = []
        for name, (process, output) in running.items():
            codes.append(process.wait())
            output.seek(0)
            print(f"{name}:\n{output.read().decode(errors='replace')}", flush=True)
    return next(filter(None, codes), 0)


def _pytest(programs: Path, *arguments: str) -> int:
    return subprocess.run(**pytest_command(programs, *arguments)).returncode


def _step_back() -> None:
    os.nice(10)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
