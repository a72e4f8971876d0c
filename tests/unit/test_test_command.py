"""`scripts/test.py` asks nobody to build servers, and CI leaves none of their tests out.

The real command runs here, with an interpreter that writes down what it is asked to run.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.servers import build

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "scripts" / "servers" / "build.py"

RunTests = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunTests:
    """Returns what runs the command and gives its exit code and what it ran, in order."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    spec = importlib.util.spec_from_file_location("test_command", ROOT / "scripts" / "test.py")
    assert spec is not None
    assert spec.loader is not None
    command = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(command)
    log = tmp_path / "log"
    python = tmp_path / "python"

    def run(*arguments: str, built: bool = True, failing: str = "nothing") -> tuple[int, list[str]]:
        python.write_text(
            "#!/bin/sh\n"
            f'echo "$*" >> {log}\n'
            f'case "$*" in *pytest*) echo "$TORCH_EXTENSIONS_DIR" >> {tmp_path}/compiled;; esac\n'
            f'case "$*" in *--check) exit {0 if built else 1};; *"{failing}") exit 3;; esac\n'
        )
        python.chmod(0o755)
        monkeypatch.setattr(command, "environment", lambda *_, **__: tmp_path)
        code = command.main(list(arguments))
        said = log.read_text().replace("-m pytest -q --durations=8 ", "")
        return code, said.replace(str(BUILD), "build.py").splitlines()

    return run


WITHOUT_SERVERS = ["tests/unit", "--noconftest tests/oldest", "tests/oldest tests/integration"]


def test_where_the_servers_are_built_everything_runs(run: RunTests) -> None:
    assert run() == (0, [*WITHOUT_SERVERS, "build.py --check", "tests/stack"])


def test_quark_compiles_its_operators_within_the_environment(run: RunTests, tmp_path: Path) -> None:
    # The default is one place for all of a user's environments, and a process that is killed
    # while it compiles leaves a lock there that every other waits for.
    run()
    place = str(tmp_path.parent / "torch_extensions")
    assert (tmp_path / "compiled").read_text().splitlines() == [place] * 4


def test_where_they_are_not_one_line_says_how_to_build_them(
    run: RunTests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(ROOT)
    capsys.readouterr()
    assert run(built=False) == (0, [*WITHOUT_SERVERS, "build.py --check"])
    assert capsys.readouterr().out.splitlines()[1:] == [
        "tests/stack is left out: build its servers, once, in minutes, with "
        f"{os.path.relpath(tmp_path / 'python')} scripts/servers/build.py"
    ]


def test_it_can_be_asked_to_build_them(run: RunTests) -> None:
    code, ran = run("--servers", built=False)
    assert (code, sorted(ran)) == (0, sorted(["build.py", *WITHOUT_SERVERS, "tests/stack"]))
    assert ran[-1] == "tests/stack"


@pytest.mark.parametrize(
    ("arguments", "failing", "ran"),
    [
        ([], "tests/unit", WITHOUT_SERVERS[:1]),
        ([], "tests/integration", WITHOUT_SERVERS),
        (["--servers"], "servers/build.py", ["build.py", *WITHOUT_SERVERS]),
        (["--servers"], "tests/stack", ["build.py", *WITHOUT_SERVERS, "tests/stack"]),
    ],
)
def test_what_fails_is_its_exit_code(
    run: RunTests, arguments: list[str], failing: str, ran: list[str]
) -> None:
    code, said = run(*arguments, failing=failing)
    assert (code, sorted(said)) == (3, sorted(ran))


def test_what_it_does_not_know_goes_to_pytest(run: RunTests) -> None:
    assert run("-k", "yaml") == (0, ["-k yaml"])


def test_ci_builds_them() -> None:
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1].endswith("scripts/test.py --servers")


def build_servers(folder: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, BUILD, *arguments],
        env={"OTEL_QUANT_SERVERS": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_the_build_says_whether_there_is_something_to_do_and_is_quiet_if_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_QUANT_SERVERS", str(tmp_path))
    assert build_servers(tmp_path, "--check") == (1, "")
    assert list(tmp_path.iterdir()) == []
    for server in build.SERVERS:
        server.folder().mkdir()
        for binary in server.binaries:
            (server.folder() / binary).touch()
    assert build_servers(tmp_path, "--check") == (0, "")
    assert build_servers(tmp_path) == (0, "")
