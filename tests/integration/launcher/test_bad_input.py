"""Invalid requests are rejected in one line with a remedy, before the program has run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fixtures.programs import Launched, launcher

FOLDER = "expected a new or empty folder to write to; choose one with --out DIR"
EXPECTED = "expected otel-quant run [options] -- PROGRAM ARGS..., as python quantize.py"

CASES = {
    "no program": ([], 2, f"no program is given; {EXPECTED}"),
    "not found": (["nosuch", "a"], 127, f"nosuch: no such program; {EXPECTED}"),
    "not found, by path": (["./no/such"], 127, f"./no/such: no such program; {EXPECTED}"),
    "a folder": (["./folder"], 126, f"./folder: Permission denied; {EXPECTED}"),
    "not executable": (["./data"], 126, f"./data: Permission denied; {EXPECTED}"),
    "a script": (
        ["script.py"],
        127,
        "script.py: is no program by itself; write otel-quant run -- python script.py",
    ),
    "no interpreter": (
        ["./job"],
        126,
        "./job: the interpreter in its first line (#!) does not exist",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_program_that_cannot_be_started(launched: Launched, case: str) -> None:
    (launched.folder / "folder").mkdir()
    (launched.folder / "data").write_text("data")
    (launched.folder / "script.py").write_text("print(1)")
    (launched.folder / "job").write_text("#!/no/such\n")
    (launched.folder / "job").chmod(0o755)
    before = sorted(path.name for path in launched.folder.iterdir())
    program, code, message = CASES[case]
    ended = launched.run(program)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert ended.stderr == f"otel-quant: {message}\n"
    assert sorted(path.name for path in launched.folder.iterdir()) == before


def test_the_dashes_may_be_missing_and_the_interval_a_fraction(launched: Launched) -> None:
    program = ["python", "-c", "import os; print(os.environ['OTEL_QUANT_SAMPLE_INTERVAL'])"]
    ended = launched.run_bare([*launcher("--interval", "12.5")[:-1], *program])
    assert (ended.returncode, ended.stdout) == (0, "12.5\n")


@pytest.mark.parametrize("program", [["python", "nope.py"], ["sh", "nope.sh"]])
@pytest.mark.parametrize("out", [[], ["--out", "r"]])
def test_a_typo_leaves_no_recording(launched: Launched, program: list[str], out: list[str]) -> None:
    (launched.folder / "r").mkdir()
    bare = launched.run_bare(program)
    ended = launched.run(program, *out)
    said = f"otel-quant: {program[1]} does not exist: nothing was recorded\n"
    assert (ended.returncode, ended.stderr) == (bare.returncode, bare.stderr + said)
    assert [path.name for path in launched.folder.rglob("*")] == ["r"]


def test_what_was_not_recorded_is_told_to_programs_and_not_at_all_if_so_asked(
    launched: Launched,
) -> None:
    program = ["python", "nope.py"]
    bare = launched.run_bare(program)
    assert launched.run(program, "--quiet").stderr == bare.stderr
    answer = {
        "subject": "otel-quant run", "verdict": "nope.py does not exist: nothing was recorded",
        "is_bad": True, "certainty": "known", "evidence": [], "help": [], "next": [],
    }  # fmt: skip
    ended = launched.run(program, "--quiet", "--brief")
    assert ended.stderr.startswith(bare.stderr)
    assert json.loads(ended.stderr.removeprefix(bare.stderr)) == answer
    assert launched.run(program, "--quiet", "--brief", "answer.json").stderr == bare.stderr
    assert json.loads((launched.folder / "answer.json").read_text()) == answer


@pytest.mark.parametrize(
    ("out", "problem"),
    [
        (".", "{folder}: holds files"),
        ("file", "{folder}/file: File exists"),
        ("file/below", "{folder}/file/below: Not a directory"),
        ("/proc/x", "/proc/x: No such file or directory"),
    ],
)
def test_a_folder_that_cannot_be_used(launched: Launched, out: str, problem: str) -> None:
    (launched.folder / "file").touch()
    ended = launched.run(["touch", "ran"], "--out", out)
    message = f"otel-quant: {problem.format(folder=launched.folder)}; {FOLDER}\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (125, "", message)
    assert not (launched.folder / "ran").exists()


def test_a_current_folder_that_cannot_be_written(launched: Launched) -> None:
    ended = launched.run_bare([*launcher(), "true"], folder="/proc")
    assert ended.returncode == 125
    assert ended.stderr.startswith("otel-quant: /proc/otel-quant-true-")
    assert ended.stderr.endswith(f"; {FOLDER}\n")
    assert ended.stderr.count("\n") == 1


def test_the_programs_options_reach_it_with_and_without_dashes(launched: Launched) -> None:
    for command in (launcher("--quiet"), launcher("--quiet")[:-1]):
        ended = launched.run_bare([*command, "echo", "--quiet", "--out", "--", "x"])
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "--quiet --out -- x\n", "")


def test_a_full_disk_does_not_affect_the_program(launched: Launched) -> None:
    code = "import otel_quant\nwith otel_quant.step('A'): print('done')"
    limited = 'trap "" XFSZ; ulimit -f 0; exec "$@"'
    (launched.folder / "p.py").write_text(code)
    ended = launched.run_bare(
        ["bash", "-c", limited, "-", *launcher(), "python", "p.py"],
        variables={"PYTHONDONTWRITEBYTECODE": "1"},  # of ours, cut, which later runs would load
    )
    assert (ended.returncode, ended.stdout) == (0, "done\n")
    lost = "otel-quant: no step was recorded: the recording could not be written\n"
    assert lost in ended.stderr


def test_quiet_prints_nothing_and_the_default_prints_on_standard_error_at_the_end(
    launched: Launched,
) -> None:
    code = "import otel_quant, sys\nwith otel_quant.step('A step'): print('out'); print('err', file=sys.stderr)"
    quiet = launched.run(["python", "-c", code], "--quiet", "--out", "one")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "out\n", "err\n")
    ended = launched.run(["python", "-c", code], "--out", "two")
    assert ended.stdout == "out\n"
    program, blank, outcome, *rest = ended.stderr.splitlines()
    assert (program, blank, outcome[:22]) == ("err", "", "python -c finished in ")
    assert any(line.startswith("A step ") for line in rest)
    assert rest[-2:] == ["recording: two", "compare:   otel-quant compare two OTHER"]


def test_arguments_can_be_left_out_of_the_recording(launched: Launched) -> None:
    code = "import otel_quant\nwith otel_quant.step('A step'): pass"
    (launched.folder / "p.py").write_text(code)
    launched.run(["python", "p.py", "--customer", "Smith"], "--out", "with")
    launched.run(["python", "p.py", "--customer", "Smith"], "--out", "without", "--no-command")

    def holds(name: str) -> set[str]:
        files = Path(launched.folder, name).iterdir()
        return {path.name.split(".")[0] for path in files if "Smith" in path.read_text()}

    assert holds("with") == {"manifest", "events", "quark_profile"}
    assert holds("without") == set()
