"""Makes the environment that the demo and the tests run in. Needs Python 3.11 and pip.

Everything goes into `.venv` beside this checkout. uv does the installing, because torch
from PyPI is the CUDA build: seconds instead of minutes. Run again it does nothing, until
pyproject.toml or the constraints change.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "scripts" / "constraints.txt"
MAIN = ".venv"
CACHE = Path.home() / ".cache" / "otel-quant"
"""What all checkouts share: what takes long to make, and is checked before it is used."""
CCACHE = Path("/usr/lib/ccache")
"""Where Debian's ccache has a compiler of each name, which looks first whether it has compiled that before."""
_OLDEST_PYTHON = (3, 11)

Command = dict[str, Any]
"""What `subprocess` starts a program with."""


def environment(
    extra: str,
    *,
    name: str = MAIN,
    python: str = sys.executable,
    pins: tuple[str, ...] = (),
    constrained: bool = True,
) -> Path:
    """Makes sure that a virtual environment holds this checkout with one of its extras."""
    if sys.version_info < _OLDEST_PYTHON:
        found, needed = (".".join(map(str, v[:2])) for v in (sys.version_info, _OLDEST_PYTHON))
        sys.exit(f"this is Python {found} ({sys.executable}); expected {needed} or newer")
    folder = ROOT / name
    installed = _python_in(folder)
    wanted = _fingerprint(extra, python, pins, constrained)
    stamp = folder / f"otel-quant-{extra}.stamp"
    if installed.exists() and stamp.exists() and stamp.read_text() == wanted:
        return installed.parent
    uv_command = uv()
    if not installed.exists():
        print(f"making {name} ...", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        _run(*uv_command, "venv", "--quiet", "--python", python, folder)
    print(f"installing otel-quant[{extra}] into {name} ...", flush=True)
    constraints = ("--constraints", str(CONSTRAINTS)) if constrained else ()
    _run(
        *uv_command, "pip", "install", "--quiet", "--python", installed,
        *constraints, "--editable", f"{ROOT}[{extra}]", *pins,
    )  # fmt: skip
    stamp.write_text(wanted)
    return installed.parent


def pytest_command(programs: Path, *arguments: str) -> Command:
    """Returns what `subprocess` needs to run pytest with the programs of an environment."""
    env = os.environ | {
        "PATH": os.pathsep.join((str(programs), str(CCACHE), os.environ.get("PATH", ""))),
        "PYTHONUNBUFFERED": "1",
        # Containers often forbid Python to keep compiled modules; each process that imports
        # Quark would then compile thousands of them anew, which takes longer than the tests.
        "PYTHONDONTWRITEBYTECODE": "",
        # Quark compiles its operators here, and waits for ever where a process that was killed
        # left its lock. By default all environments of a user share one folder, and each
        # would compile again what another has compiled and may be loading.
        "TORCH_EXTENSIONS_DIR": str(programs.parent / "torch_extensions"),
        # What another checkout has compiled is taken from there: a minute of CPU time.
        "CCACHE_DIR": str(CACHE / "ccache"),
        "CCACHE_BASEDIR": "/",
        "CCACHE_NOHASHDIR": "1",
        # Threads of OpenMP use a core each while they wait for each other: where more processes
        # than cores run, a program of Quark takes half the CPU time without a second thread.
        "OMP_NUM_THREADS": "1",
    }
    command = [programs / "python", "-m", "pytest", "-q", "--durations=8", *arguments]
    return {"args": command, "cwd": ROOT, "env": env}


def uv() -> tuple[str, ...]:
    """Returns the command of the uv in `MAIN`, which is made if it is not there."""
    python = _python_in(ROOT / MAIN)
    if not python.exists():
        print(f"making {MAIN} ...", flush=True)
        shutil.rmtree(ROOT / MAIN, ignore_errors=True)
        _make(ROOT / MAIN)
    if not python.with_name("uv").exists():
        _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv")
    return (str(python), "-m", "uv")


def _python_in(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _make(folder: Path) -> None:
    try:
        venv.create(folder, with_pip=True)
    except subprocess.CalledProcessError:
        # Debian's python3 comes without ensurepip; virtualenv brings a pip of its own.
        shutil.rmtree(folder, ignore_errors=True)
        if subprocess.run([sys.executable, "-m", "virtualenv", folder]).returncode:
            sys.exit(
                f"{sys.executable} can make no virtual environment: it has neither ensurepip "
                "(Debian: python3-venv) nor virtualenv"
            )


def _fingerprint(extra: str, python: str, pins: tuple[str, ...], constrained: bool) -> str:
    digest = hashlib.sha256(repr((extra, python, pins, constrained, sys.version)).encode())
    for source in (ROOT / "pyproject.toml", CONSTRAINTS):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _run(*command: str | Path) -> None:
    result = subprocess.run([str(part) for part in command])
    if result.returncode:
        sys.exit(f"failed with exit code {result.returncode}: {' '.join(map(str, command))}")
