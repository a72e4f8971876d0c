"""`scripts/test.py` runs every stage, those that fail soonest first, and says what it leaves out.

The real command runs here, with an interpreter that writes down what it is asked to run.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from scripts import interpreters
from scripts.servers import build

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "scripts" / "servers" / "build.py"
OTHERS = [
    version
    for version in interpreters.supported()
    if version != f"{sys.version_info.major}.{sys.version_info.minor}"
]

RunTests = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunTests:
    """Returns what runs the command and gives its exit code and what it ran, in order."""
    spec = importlib.util.spec_from_file_location("test_command", ROOT / "scripts" / "test.py")
    assert spec is not None
    assert spec.loader is not None
    command = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(command)
    log = tmp_path / "log"
    log.touch()

    def programs(folder: Path, said: str, built: bool, failing: str) -> None:
        folder.mkdir(exist_ok=True)
        for program, name in (("python", ""), ("ruff", "ruff "), ("mypy", "mypy")):
            script = folder / program
            script.write_text(
                "#!/bin/sh\n"
                f'echo "{said}{name}$*" >> {log}\n'
                f'case "$*" in *pytest*) echo "$TORCH_EXTENSIONS_DIR" >> {tmp_path}/compiled;'
                f' echo "$PYTHONDONTWRITEBYTECODE" >> {tmp_path}/forbidden;; esac\n'
                f'case "$*" in *--check) exit {0 if built else 1};; esac\n'
                f'case "{said}{name}$*" in *"{failing}") exit 3;; esac\n'
            )
            script.chmod(0o755)

    def run(
        *arguments: str,
        built: bool = True,
        failing: str = "nothing",
        pythons: Mapping[str, str] = {},
    ) -> tuple[int, list[str]]:
        programs(tmp_path, "", built, failing)
        for version in pythons:
            programs(tmp_path / version, f"{version}: ", built, failing)
        monkeypatch.setattr(
            command,
            "environment",
            lambda *_, python="", **__: tmp_path / python,
        )
        monkeypatch.setattr(interpreters, "find", pythons.get)
        code = command.main(list(arguments))
        said = log.read_text().replace("-m pytest -q --durations=8 ", "")
        return code, said.replace(str(BUILD), "build.py").splitlines()

    return run


TWO = "-n 2 --no-loadscope-reorder"
FOUR = "-n 4 --no-loadscope-reorder"
UNIT = [f"{TWO} tests/unit", "--noconftest tests/oldest"]
SIDE_BY_SIDE = f"{TWO} -m not alone tests/oldest tests/integration"
ALONE = "-m alone tests/integration"
STACK = f"{FOUR} tests/stack"


def test_if_the_servers_are_built_everything_runs(run: RunTests) -> None:
    assert run() == (0, [*UNIT, SIDE_BY_SIDE, ALONE, "build.py --check", STACK])


def test_lint_comes_first(run: RunTests) -> None:
    code, ran = run("--lint")
    assert (code, ran[:4]) == (0, ["ruff check .", "ruff format --check .", "mypy", UNIT[0]])


def test_slow_tests_run_where_they_are_asked_for(run: RunTests) -> None:
    assert run("--slow") == (
        0,
        [
            f"{TWO} --slow tests/unit",
            UNIT[1],
            f"{TWO} -m not alone --slow tests/oldest tests/integration",
            "-m alone --slow tests/integration",
            "build.py --check",
            f"{FOUR} --slow tests/stack",
        ],
    )


def test_fast_runs_only_the_unit_tests(run: RunTests) -> None:
    assert run("--fast") == (0, UNIT[:1])


def test_every_other_python_runs_the_unit_tests(run: RunTests) -> None:
    code, ran = run(pythons={version: version for version in OTHERS})
    assert (code, ran[:2], ran[4:]) == (0, UNIT, [SIDE_BY_SIDE, ALONE, "build.py --check", STACK])
    assert sorted(ran[2:4]) == [f"{version}: tests/unit" for version in OTHERS]


def test_the_summary_has_the_time_of_each_part_and_the_missing_pythons(
    run: RunTests, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    found, missing = OTHERS
    run(pythons={found: found})
    head, *table = capsys.readouterr().out.split("\n\n")[-1].splitlines()
    assert head.split() == ["stage", "seconds", "of", "CPU", "time"]
    assert [re.sub(r"( +\d+){2}$", "", line) for line in table] == [
        "environment",
        "unit tests, two at a time",
        "oldest versions",
        f"unit tests, Python {missing}: left out, none on PATH or in pyenv",
        f"unit tests, Python {found}",
        "integration tests, two at a time",
        "integration tests, one at a time",
        "tests of the stack, four at a time",
        "in all",
    ]


def test_quark_compiles_its_operators_within_the_environment(run: RunTests, tmp_path: Path) -> None:
    # The default is one place for all of a user's environments, and a process that is killed
    # while it compiles leaves a lock there that every other waits for.
    run()
    place = str(tmp_path.parent / "torch_extensions")
    assert (tmp_path / "compiled").read_text().splitlines() == [place] * 5


def test_python_keeps_its_compiled_modules_where_the_environment_forbids_it(
    run: RunTests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    run()
    assert (tmp_path / "forbidden").read_text().splitlines() == [""] * 5


def test_if_the_servers_are_not_built_one_line_explains_how_to_build_them(
    run: RunTests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(ROOT)
    capsys.readouterr()
    assert run(built=False) == (0, [*UNIT, SIDE_BY_SIDE, ALONE, "build.py --check"])
    assert (
        "tests/stack is left out: build its servers, once, in 10 minutes or more, with "
        f"{os.path.relpath(tmp_path / 'python')} scripts/servers/build.py"
    ) in capsys.readouterr().out.splitlines()


def test_an_option_builds_the_servers(run: RunTests) -> None:
    code, ran = run("--servers", built=False)
    assert code == 0
    assert [line for line in ran if line != "build.py"] == [*UNIT, SIDE_BY_SIDE, ALONE, STACK]
    # They are built beside the tests, but not beside those that measure.
    assert ran.index("build.py") < ran.index(ALONE)


@pytest.mark.parametrize(
    ("arguments", "failing", "ran"),
    [
        (["--lint"], "mypy", ["ruff check .", "ruff format --check .", "mypy"]),
        ([], "tests/unit", UNIT[:1]),
        ([], "-m alone tests/integration", [*UNIT, SIDE_BY_SIDE, ALONE]),
        (["--servers"], "servers/build.py", ["build.py", *UNIT, SIDE_BY_SIDE]),
        (["--servers"], "tests/stack", ["build.py", *UNIT, SIDE_BY_SIDE, ALONE, STACK]),
    ],
)
def test_a_failing_part_gives_the_exit_code(
    run: RunTests, arguments: list[str], failing: str, ran: list[str]
) -> None:
    code, said = run(*arguments, failing=failing)
    assert (code, sorted(said)) == (3, sorted(ran))


def test_a_failure_on_another_python_gives_the_exit_code(run: RunTests) -> None:
    version = OTHERS[0]
    assert run(
        failing=f"{version}: -m pytest -q --durations=8 tests/unit", pythons={version: version}
    ) == (
        3,
        [*UNIT, f"{version}: tests/unit"],
    )


def test_unknown_arguments_are_passed_to_pytest(run: RunTests) -> None:
    assert run("-k", "yaml") == (0, ["-k yaml"])


def test_ci_lints_and_builds_the_servers() -> None:
    last = (ROOT / ".ci" / "run").read_text().splitlines()[-1]
    assert last.endswith("scripts/test.py --lint --servers")


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
