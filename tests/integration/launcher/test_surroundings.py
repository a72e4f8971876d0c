"""What a program finds around it is what it finds without `otel-quant run`, which notes the repository."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from otel_quant.launcher.start import ON_PYTHONPATH
from otel_quant.schema import semconv
from tests.fixtures.git import new_repository
from tests.fixtures.programs import PYTHON, Launched, launcher

LOOK = """
import json, os, resource, sys
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines())
files = {name: os.readlink("/proc/self/fd/" + name) for name in os.listdir("/proc/self/fd")
         if os.path.exists("/proc/self/fd/" + name)}
# The pipes that another process holds have a number of their own each time.
print(json.dumps({
    "signals": {name: status[name] for name in ("SigBlk", "SigIgn", "SigCgt")},
    "files": {name: target.split(":")[0] for name, target in sorted(files.items())
              if not target.startswith("/proc/")},
    "environment": dict(os.environ),
    "folder": os.getcwd(), "mask": os.umask(0o22), "nice": os.nice(0),
    "group": os.getpgrp() == int(sys.argv[1]) if len(sys.argv) > 1 else None,
    "session": os.getsid(0), "limits": [resource.getrlimit(n) for n in range(16)],
    "arguments": sys.argv[1:],
}, sort_keys=True))
"""

OURS = ("OTEL_QUANT_RECORD", "OTEL_QUANT_LAUNCHER_PID", "PYTHONPATH")


def seen(launched: Launched, by_shell: str, *command: str) -> dict[str, Any]:
    ended = launched.run_bare(
        ["bash", "-c", f'{by_shell} "$@"', "-", *command],
        variables={"LC_ALL": "", "LANG": "C", "EMPTY": "", "_": "x"},
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


@pytest.mark.parametrize(
    "by_shell",
    [
        "exec",
        "exec 3</dev/null 7>/dev/null <&-; exec",
        "trap '' HUP INT USR1 TERM; exec",
        "umask 077; ulimit -n 100; ulimit -c 0; exec nice -n 3",
        "exec env --block-signal=USR2 --ignore-signal=QUIT",
        "exec setsid --wait",
    ],
)
def test_the_program_sees_the_same_environment(launched: Launched, by_shell: str) -> None:
    program = (*PYTHON, "-c", LOOK)
    bare = seen(launched, by_shell, *program)
    ours = seen(launched, by_shell, *launcher("--quiet"), *program)
    assert ours["environment"].pop("PYTHONPATH") == ON_PYTHONPATH
    for name in OURS[:2]:
        ours["environment"].pop(name)
    for each in (bare, ours):  # what a new session and the shell give anew each time
        each.pop("session")
        each["environment"].pop("_", None)
    assert ours == bare


@pytest.mark.parametrize(
    ("change", "is_dirty"),
    [
        ("echo b > a.txt", True),
        ("echo c > new.txt; git add .", True),
        ("echo c > new.txt", False),
        ("head -c 500 /dev/zero > .git/index", None),
    ],
)
def test_uncommitted_changes_are_recorded_at_the_start_of_the_program(
    tmp_path: Path, change: str, is_dirty: bool | None
) -> None:
    repository = new_repository(tmp_path / "repository")
    subprocess.run(["sh", "-c", change], cwd=repository, check=True)
    launched = Launched(repository)
    assert launched.run(["true"], "--out", str(tmp_path / "r")).returncode == 0
    manifest = json.loads((tmp_path / "r" / "manifest.json").read_text())
    assert manifest["origin"].get(semconv.VCS_DIRTY) is is_dirty


@pytest.mark.parametrize("programs", ["", None], ids=["without git", "outside of a repository"])
def test_no_git_attributes_are_recorded_if_git_fails(
    launched: Launched, programs: str | None
) -> None:
    if programs is not None:
        new_repository(launched.folder / "repository")
    variables = {} if programs is None else {"PATH": programs}
    where = Launched(launched.folder / "repository") if programs is not None else launched
    ended = where.run(["/bin/true"], "--out", "r", variables=variables)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (0, 2)
    manifest = json.loads((where.folder / "r" / "manifest.json").read_text())
    assert manifest["origin"].keys() == {"process.command_line"}
