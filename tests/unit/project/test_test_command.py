"""What runs by itself, before a commit and on GitHub; `scripts/test.py` runs every stage in its order.

The real command runs here, with an interpreter that writes down what it is asked to run.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml

from otel_quant.capture.instruments.tables import LIBRARIES
from scripts import debian, interpreters
from scripts.test import ALIKE
from scripts.tested_libraries import TESTED, note, outcome_of

ROOT = Path(__file__).resolve().parents[3]
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
        monkeypatch.setattr(command, "environment", lambda *_, python="", **__: tmp_path / python)
        monkeypatch.setattr(interpreters, "find", pythons.get)
        monkeypatch.setattr(debian, "install", lambda *_: "")
        code = command.main(list(arguments))
        said = log.read_text().replace("-m pytest -q --durations=8 ", "")
        said = said.replace(f"{UNIT}\nmypy\n", f"mypy\n{UNIT}\n")  # they run side by side
        return code, said.replace(str(BUILD), "build.py").splitlines()

    return run


SLOW = "--slow -o faulthandler_timeout=0"
THREE = "-n 3 --no-loadscope-reorder"
UNIT = f"{THREE} tests/unit"
OLDEST = "--noconftest tests/oldest"
CHECK = "build.py --check"
FOUR = THREE.replace("3", "4")
TOGETHER = f"{FOUR} -m not alone tests/integration tests/stack"
INTEGRATION = f"{FOUR} -m not alone tests/integration"
ALONE = "-m alone tests/integration/promises"
STACK = f"{FOUR} tests/stack"
EVERYTHING = [UNIT, OLDEST, CHECK, TOGETHER, ALONE]
OF_OTHERS = " ".join(
    ["-n 2 --no-loadscope-reorder tests/unit", *(f"--ignore=tests/unit/{name}" for name in ALIKE)]
)


@pytest.mark.parametrize(
    ("arguments", "ran"),
    [
        ([], EVERYTHING),
        (["--lint"], ["ruff check .", "ruff format --check .", "mypy", *EVERYTHING]),
        (
            ["--slow"],
            [
                f"{THREE} {SLOW} tests/unit", OLDEST, CHECK,
                f"{FOUR} -m not alone {SLOW} tests/integration tests/stack",
                f"-m alone {SLOW} tests/integration/promises",
            ],
        ),
        (["--fast"], [UNIT]),
        (["-k", "yaml"], ["-k yaml"]),
    ],
    ids=" ".join,
)  # fmt: skip
def test_an_argument_decides_what_runs(run: RunTests, arguments: list[str], ran: list[str]) -> None:
    assert run(*arguments) == (0, ran)


def test_every_other_python_runs_the_unit_tests_that_depend_on_it(run: RunTests) -> None:
    assert all((ROOT / "tests" / "unit" / name).is_dir() for name in ALIKE)  # they leave these out
    code, ran = run(pythons={version: version for version in OTHERS})
    beside = 2 + len(OTHERS)
    assert (code, ran[0], ran[beside:]) == (0, UNIT, EVERYTHING[2:])
    assert sorted(ran[1:beside]) == [OLDEST, *(f"{version}: {OF_OTHERS}" for version in OTHERS)]


def test_the_summary_names_each_part_and_the_missing_pythons(
    run: RunTests, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, *missing = OTHERS
    for variable in ("TEMPO_BIN", "PYROSCOPE_BIN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("shutil.which", lambda _: None)
    run(pythons={found: found})
    table = capsys.readouterr().out.split("\n\n")[-1].splitlines()
    assert [re.sub(r"( +\d+){2}$", "", line) for line in table[2:-1]] == [
        "unit tests",
        *(f"unit tests, Python {each}: left out, none on PATH or in pyenv" for each in missing),
        f"oldest versions, Python {found}",
        "tests/integration and tests/stack",
        "integration tests, one at a time",
        "queries of traces to a Tempo: left out, TEMPO_BIN names none",
        "profiles in a Pyroscope: left out, PYROSCOPE_BIN names none",
        "dashboard-linter: left out, none on PATH",
        "weaver: left out, none on PATH",
    ]


def test_missing_servers_are_built_only_on_request(
    run: RunTests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(ROOT)
    without = [UNIT, OLDEST, CHECK, INTEGRATION, ALONE]
    assert run(built=False) == (0, without)
    assert (
        "tests/stack is left out: build its servers, once, in 10 minutes or more, with "
        f"{os.path.relpath(tmp_path / 'python')} scripts/servers/build.py"
    ) in capsys.readouterr().out.splitlines()
    code, ran = run("--servers", built=False)
    del ran[: len(without)]
    assert (code, [line for line in ran if line != "build.py"]) == (0, [*without, STACK])
    # They are built beside the tests, but not beside those that measure.
    assert ran.index("build.py") < ran.index(ALONE)


@pytest.mark.parametrize(
    ("arguments", "failing", "ran"),
    [
        (["--lint"], "mypy", ["ruff check .", "ruff format --check .", "mypy", UNIT]),
        ([], "tests/unit", EVERYTHING[:1]),
        ([], "tests/oldest", EVERYTHING[:2]),
        ([], "-m alone tests/integration/promises", EVERYTHING),
        (["--servers"], "servers/build.py", EVERYTHING[:4]),
        (["--servers"], "tests/stack", EVERYTHING[:4]),
    ],
)
def test_a_failing_part_gives_the_exit_code(
    run: RunTests, arguments: list[str], failing: str, ran: list[str]
) -> None:
    code, said = run(*arguments, failing=failing)
    assert (code, [line for line in said if line != "build.py"]) == (3, ran)


def test_the_interpreter_on_path_is_used_or_else_the_newest_from_pyenv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program(place: str, script: str = f'exec {sys.executable} "$@"') -> str:
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return str(path)

    this = f"{sys.version_info.major}.{sys.version_info.minor}"
    for variable in ("PATH", "PYENV_ROOT"):
        monkeypatch.setenv(variable, str(tmp_path))
    assert interpreters.find(this) is None
    python = program(f"python{this}")
    assert interpreters.find(this) == python
    program(f"python{this}", 'echo "pyenv: command not found" >&2; exit 127')
    *_, newest = (program(f"versions/{this}.{patch}/bin/python{this}") for patch in ("9", "10"))
    assert interpreters.find(this) == newest
    program("python3.99")  # of another version
    assert interpreters.find("3.99") is None


@pytest.mark.parametrize(
    ("options", "passed"), [((), "1 passed, 1 deselected"), (("--slow",), "2 passed")]
)
def test_a_slow_test_runs_only_on_request(
    tmp_path: Path, options: tuple[str, ...], passed: str
) -> None:
    test = "import pytest\ndef test_1(): pass\n@pytest.mark.slow\ndef test_2(): pass\n"
    (tmp_path / "test_it.py").write_text(test)
    plugins = ("-p", "tests.fixtures.selection", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path,
         *plugins, *options, tmp_path],
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # which takes half of the time
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1].startswith(passed), done.stdout + done.stderr


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_ci_runs_on_github_with_every_python_that_the_classifiers_name() -> None:
    assert (ROOT / ".ci" / "run").read_text().endswith(" scripts/test.py --lint --servers\n")
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    job = workflow["jobs"]["test"]
    *prepared, last = job["steps"]
    assert last == {"run": ".ci/run"}
    [pythons] = [step["with"]["python-version"] for step in prepared if "python" in step["uses"]]
    named = {
        classifier.rpartition(" ")[2]
        for classifier in PROJECT["classifiers"]
        if classifier.startswith("Programming Language :: Python :: 3.")
    }
    assert set(pythons.split()) == named


def test_every_library_is_tried_every_week() -> None:
    beside = ["openvino", "mlflow", "wandb", "prefect", "apache-airflow"]
    assert list(TESTED) == [*(library.name for library in LIBRARIES.values()), *beside]
    for library in LIBRARIES.values():
        tested = TESTED[library.name]
        assert (ROOT / tested.tests).exists()
        assert tested.requirements[0].partition("[")[0] == library.distribution
    jobs = yaml.safe_load((ROOT / ".github/workflows/libraries.yml").read_text())["jobs"]
    assert "docs/libraries_tried.json" in jobs["names"]["steps"][-1]["run"]  # it has them all
    each = jobs["library"]
    assert each["strategy"]["matrix"]["library"] == "${{ fromJSON(needs.names.outputs.libraries) }}"
    command = "python scripts/test.py --libraries ${{ matrix.library }}"
    assert command in [step.get("run") for step in each["steps"]]


def test_a_try_of_a_library_takes_the_place_of_the_last_one_of_that_version(tmp_path: Path) -> None:
    report, tried = tmp_path / "report.xml", tmp_path / "tried.json"
    assert outcome_of(report)["failed"] == ["the tests did not end"]
    tests = "import pytest\ndef test_1(record_property): record_property('compared', 7)\ndef test_2(): 1 / 0\ndef test_3(): pytest.skip()\n"
    (tmp_path / "test_it.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--junit-xml={report}"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    outcome = outcome_of(report)
    assert outcome == {"passed": 1, "failed": ["test_2"], "skipped": ["test_3"], "compared": 7}
    tried.write_text("{}")
    for version, failed in (("1.9", []), ("1.10", []), ("1.9", ["test_2"])):
        note("hqq", outcome | {"version": version, "failed": failed}, tried)
    noted = json.loads(tried.read_text())["hqq"]
    assert [(row["version"], row["failed"]) for row in noted] == [("1.10", []), ("1.9", ["test_2"])]
