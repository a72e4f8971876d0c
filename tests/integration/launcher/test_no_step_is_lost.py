"""Steps that are easily lost: with a name that is no text, at exit, without a free descriptor."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from otel_quant.recordings.reader import read
from otel_quant.schema import semconv
from tests.fixtures.programs import Launched, run_script

AT_EXIT = """
import atexit

def leave():
    import otel_quant
    with otel_quant.step("Save"):
        print("saved")

atexit.register(leave)
import otel_quant
with otel_quant.step("Calibration"):
    pass
{more}
"""

NO_DESCRIPTOR = """
import os, resource, sys
import otel_quant
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
for _ in range({free}):
    os.close(held.pop())
for number in range(2):
    with otel_quant.step("Calibration"):
        print("in the step")
for each in held:
    os.close(each)
with otel_quant.step("Export"):
    pass
"""


def steps_of(launched: Launched, script: str) -> tuple[list[str], str]:
    """Runs a script; returns the names of its recorded steps, and what it printed."""
    (launched.folder / "q.py").write_text(script)
    done = launched.run(["python", "q.py"], "--out", "made", "--quiet")
    assert done.returncode == 0
    recording = read(launched.folder / "made")
    assert recording.problems == ()
    return [step.name for run in recording.runs for step in run.steps], done.stdout + done.stderr


def test_a_steps_name_may_be_any_value(launched: Launched) -> None:
    script = "import otel_quant\nfor name in (0, None, ['a', 1]):\n    with otel_quant.step(name): pass\n"
    names, _ = steps_of(launched, f"{script}with otel_quant.step('Export', 7): pass")
    assert names == ["0", "None", "['a', 1]", "7"]


def test_a_step_of_a_function_that_was_given_to_atexit_before_the_first_is_recorded(
    launched: Launched,
) -> None:
    names, output = steps_of(launched, AT_EXIT.format(more=""))
    assert (names, output) == (["Calibration", "Save"], "saved\n")


def test_a_failing_programs_step_at_exit_is_recorded(launched: Launched) -> None:
    (launched.folder / "q.py").write_text(AT_EXIT.format(more="raise ValueError('bad')"))
    launched.run(["python", "q.py"], "--out", "made")
    (run,) = read(launched.folder / "made").runs
    assert [step.name for step in run.steps] == ["Calibration", "Save"]
    assert (run.state, run.error, run.error_message) == ("failed", "ValueError", "bad")


def test_a_step_after_the_end_of_its_run_is_named(launched: Launched) -> None:
    script = AT_EXIT.format(more="")
    output, said = run_script(launched.folder, script, OTEL_QUANT_RECORD="made")
    (run,) = read(launched.folder / "made").runs
    assert (output, [step.name for step in run.steps]) == ("saved\n", ["Calibration"])
    assert said.startswith("step 'Save' is not recorded: the program is ending, and its run has")
    assert said.count("\n") == 1


@pytest.mark.parametrize("free", [0, 1, 3])
def test_without_a_free_descriptor_the_program_goes_on_and_later_steps_are_recorded(
    launched: Launched, free: int
) -> None:
    names, output = steps_of(launched, NO_DESCRIPTOR.format(free=free))
    assert names == ["Export"]
    assert output.count("in the step") == 2
    assert "Too many open files" in output
    assert "Traceback" not in output


CUT_OFF = """
import errno, sys

class Full:
    def find_spec(self, name, path, target=None):
        if name == "asyncio.timeouts":
            raise OSError(errno.EMFILE, "Too many open files")

import otel_quant
full = Full()
sys.meta_path.insert(0, full)
with otel_quant.step("Calibration"):
    print("in the step")
sys.meta_path.remove(full)
with otel_quant.step("Export"):
    import asyncio
"""


def test_a_module_that_was_cut_off_for_want_of_a_descriptor_is_loaded_again(
    launched: Launched,
) -> None:
    names, output = steps_of(launched, CUT_OFF)
    assert (names, "Traceback" in output) == (["Export"], False)
    assert output.count("otel-quant: steps are not recorded: Too many open files") == 1


def test_a_failure_without_a_free_descriptor_stays_within_our_code(tmp_path: Path) -> None:
    script = """
        import errno, sys
        from otel_quant.base.fault_boundary import FAULTS

        class Full:
            def find_spec(self, name, path, target=None):
                raise OSError(errno.EMFILE, "Too many open files")

        sys.meta_path.insert(0, Full())
        fail = FAULTS.kept_in("probe").around(lambda why: int(why))
        fail("first")
        sys.meta_path.pop(0)
        fail("second")
        fail("third")
    """
    output, said = run_script(tmp_path, dedent(script))
    assert (output, said.count("\n")) == ("", 1)
    assert said.startswith(
        "probe failed and is skipped; the program goes on without it: ValueError"
    )
    assert "'second'" in said


FORKS = """
import os, sys
import otel_quant

with otel_quant.step("Outer"):
    for number in range(2):
        if os.fork() == 0:
            try:
                with otel_quant.step("Child"):
                    1 / (1 - number)
            except ZeroDivisionError:
                os._exit(1)
            os._exit(0)
    os.wait()
    os.wait()
if "exits" in sys.argv:
    os._exit(0)
"""


@pytest.mark.parametrize("argument", ["", "exits"])
def test_a_process_that_ends_by_os_exit_has_an_end_and_a_forked_one_the_name_of_the_run(
    launched: Launched, argument: str
) -> None:
    (launched.folder / "q.py").write_text(FORKS)
    launched.run(["python", "q.py", argument], "--out", "made")
    runs = read(launched.folder / "made").runs
    errors = sorted((str(run.error), run.end is not None) for run in runs)
    assert errors == [("None", True), ("None", True), ("ZeroDivisionError", True)]
    assert len({run.attributes[semconv.RUN_NAME] for run in runs}) == 1
