"""What `otel-quant run` can start: any program, with or without a Python that has otel-quant."""

from __future__ import annotations

import json
import platform
import re
import shutil
import sys
import textwrap
from typing import Any

import pytest

from otel_quant.recordings.reader import read
from otel_quant.schema import semconv
from scripts.interpreters import find
from tests.fixtures.checkpoints import tensors
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import Launched, launcher

INSTRUMENTED = """
import multiprocessing, sys  # the first import with which libraries are instrumented
from otel_quant import QuantInstrumentor
print(QuantInstrumentor().is_instrumented_by_opentelemetry, *sys.argv[1:])
"""
NOTHING_CALLED = "no quantization library that otel-quant knows was called, nor otel_quant.step"
NO_PYTHON = "no Python was started, or one with -S, -E or -I, which keep otel-quant out of it"

TRACKER = """
import time
from multiprocessing import resource_tracker
resource_tracker.ensure_running()
statm = f"/proc/{resource_tracker._resource_tracker._pid}/statm"
pages, before = 1, 0
while pages != before:  # it has started
    time.sleep(0.5)
    pages, before = int(open(statm).read().split()[1]), pages
print(pages * 4096)
"""


def at_the_end(launched: Launched, why: str, code: int = 0) -> str:
    failed = f"the program failed with exit code {code}, and " if code else ""
    why = f"otel-quant: {failed}no step was recorded: {why}\n"
    return f"{why}recording: {launched.recording.name}\n"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "program.py", "--out", "x"], "program"),
        (["python", "-m", "package.program", "a"], "package-program"),
        (["sh", "program.sh"], "program"),
        (["./program.sh"], "program"),
        (["env", "A=B", "python", "-u", "program.py"], "program"),
    ],
)
def test_python_programs_are_instrumented_however_they_are_started(
    launched: Launched, command: list[str], name: str
) -> None:
    folder = launched.folder
    (folder / "program.py").write_text(INSTRUMENTED)
    (folder / "package").mkdir()
    shutil.copy(folder / "program.py", folder / "package")
    (folder / "program.sh").write_text("#!/bin/sh\npython program.py from a script\n")
    (folder / "program.sh").chmod(0o755)
    bare = launched.run_bare(["sh", "-c", '"$@"', "-", *command])
    ours = launched.run(command)
    assert bare.stdout.startswith("False")
    assert ours.stdout == bare.stdout.replace("False", "True", 1)
    assert ours.stderr == bare.stderr + at_the_end(launched, NOTHING_CALLED)
    assert launched.recording.name.startswith(f"otel-quant-{name}-2")


OTHERS = {
    "not Python": (["ls", "-d", "/"], NO_PYTHON),
    "-S": ([sys.executable, "-S", "-c", "print(1)"], NO_PYTHON),
    "-E": ([sys.executable, "-E", "-c", "print(1)"], NO_PYTHON),
    "-I": ([sys.executable, "-I", "-c", "print(1)"], NO_PYTHON),
    "cleared environment": (["env", "-i", sys.executable, "-c", "print(1)"], NO_PYTHON),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_a_program_that_cannot_be_instrumented_runs_unchanged(
    launched: Launched, kind: str
) -> None:
    command, why = OTHERS[kind]
    bare, ours = launched.run_bare(command), launched.run(command)
    assert (ours.returncode, ours.stdout) == (bare.returncode, bare.stdout)
    assert ours.stderr == bare.stderr + at_the_end(launched, why, bare.returncode)


LOOK = "import sys; print(sys.path, sorted(m for m in sys.modules if 'otel' in m or 'custom' in m))"


def test_multiprocessings_resource_tracker_is_not_instrumented(launched: Launched) -> None:
    command = [sys.executable, "-c", TRACKER]
    bare, ours = (int(ran(command).stdout) for ran in (launched.run_bare, launched.run))
    assert ours - bare < 5_000_000


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.8", "3.10", "3.12", "3.13"])
def test_any_python_without_otel_quant_runs_unchanged(launched: Launched, version: str) -> None:
    python = find(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    command = [python, "-c", LOOK]
    bare, ours = launched.run_bare(command), launched.run(command)
    assert (bare.returncode, bare.stderr) == (0, "")
    assert ours.stdout == bare.stdout
    problem = (
        f"{python} has no otel-quant: install it in that environment"
        if tuple(map(int, version.split("."))) >= (3, 11)
        else f"{python} is older than Python 3.11"
    )
    assert ours.stderr == at_the_end(launched, problem)


@pytest.mark.parametrize("code", ["print(__name__)", "1 / 0", "import missing"])
def test_the_programs_own_sitecustomize_still_runs(launched: Launched, code: str) -> None:
    own = launched.folder / "own"
    own.mkdir()
    # The launcher is a Python program too, and has it as any other has.
    (own / "sitecustomize.py").write_text(f"import sys\nif 'run' not in sys.orig_argv:\n    {code}")
    command = [sys.executable, "-c", LOOK.replace("'otel'", "'no such'")]
    for path in (str(own), f"missing:{own}:"):
        variables = {"PYTHONPATH": path}
        bare = launched.run_bare(command, variables=variables)
        ours = launched.run(command, "--quiet", variables=variables)
        assert "sitecustomize" in bare.stdout + bare.stderr
        assert (ours.stdout, ours.stderr) == (bare.stdout, bare.stderr)


@pytest.mark.parametrize(("imported", "is_loaded"), [("textwrap", False), ("packaging", True)])
def test_threading_is_loaded_with_what_is_no_standard_library(
    launched: Launched, imported: str, is_loaded: bool
) -> None:
    code = f"import sys, {imported}; print('threading' in sys.modules)"
    ours = launched.run([sys.executable, "-c", code], "--quiet")
    assert (ours.stdout, ours.stderr) == (f"{is_loaded}\n", "")


def test_no_exporter_is_made_without_an_endpoint(launched: Launched) -> None:
    code = """
        import multiprocessing, os, sys, threading
        before = {k: v for k, v in os.environ.items() if k.startswith("OTEL_")}
        from otel_quant import QuantInstrumentor, step
        with step("A step"):
            pass
        print(sorted(before), threading.active_count(),
              sorted(m for m in sys.modules if m.startswith(("opentelemetry.sdk", "grpc"))))
    """
    ours = launched.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        "--quiet",
        variables={"OTEL_QUANT_SAMPLE_INTERVAL": "0"},
    )
    names = ["OTEL_QUANT_LAUNCHER_PID", "OTEL_QUANT_RECORD", "OTEL_QUANT_SAMPLE_INTERVAL"]
    assert (ours.stdout, ours.stderr) == (f"{names} 1 []\n", "")


STEP = """
import os
import platform
import otel_quant
with otel_quant.step("A step"):
    pass
print(sorted(name for name in os.environ if name.startswith("OTEL_EXPORTER_OTLP") or
             name.endswith(("_EXPORTER", "_INTERVAL"))))
"""


def test_an_endpoint_that_is_configured_is_used(launched: Launched, otlp: OtlpReceiver) -> None:
    endpoint = otlp.environment("http/protobuf")
    variables = {
        name: value for name, value in endpoint.items() if name.startswith("OTEL_EXPORTER_OTLP_")
    }
    ours = launched.run([sys.executable, "-c", STEP], "--quiet", variables=variables)
    # The settings that make it so are gone before the program's code runs.
    assert (ours.stdout, ours.stderr) == (f"{sorted(variables)}\n", "")
    assert otlp.span_names() == ["quantization", "A step"]
    assert otlp.records
    assert semconv.STEP_DURATION in otlp.metric_names()


def test_otlp_files_equal_the_files_of_opentelemetrys_exporter(launched: Launched) -> None:
    ours = launched.run([sys.executable, "-c", STEP], "--otlp-files", "--quiet")
    assert (ours.returncode, ours.stderr) == (0, "")
    found = {
        path.name.split(".")[0]: [json.loads(line) for line in path.read_text().splitlines()]
        for path in launched.recording.glob("*.jsonl")
        if path.name.startswith(("traces", "metrics", "logs"))
    }
    assert {name: {key for line in lines for key in line} for name, lines in found.items()} == {
        "traces": {"resourceSpans"}, "metrics": {"resourceMetrics"}, "logs": {"resourceLogs"},
    }  # fmt: skip
    assert sorted(span["name"] for span in spans_in(found["traces"])) == ["A step", "quantization"]


def spans_in(lines: list[Any]) -> list[Any]:
    """Returns the spans in lines of a file of traces."""
    resources = [resource for line in lines for resource in line["resourceSpans"]]
    return [span for each in resources for scope in each["scopeSpans"] for span in scope["spans"]]


KILLED = """
import os, otel_quant
with otel_quant.step("Outer"), otel_quant.step("Inner"):
    os.kill(os.getpid(), 9)
"""


def test_otlp_files_of_a_killed_program_have_its_open_steps_and_its_root(
    launched: Launched,
) -> None:
    launched.run([sys.executable, "-c", KILLED], "--otlp-files", "--quiet")
    files = [each.read_text() for each in launched.recording.glob("traces.*.jsonl")]
    spans = spans_in([json.loads(line) for text in files for line in text.splitlines()])
    ids = {span["spanId"]: span["name"] for span in spans}
    assert sorted((span["name"], ids.get(span.get("parentSpanId"))) for span in spans) == [
        ("Inner", "Outer"), ("Outer", "quantization"), ("quantization", None),
    ]  # fmt: skip
    assert {span["status"]["code"] for span in spans} == {2}  # an error
    logs = [each.read_text() for each in launched.recording.glob("logs.*.jsonl")]
    assert sum(semconv.ENDING_EVENT in each for each in logs) == 1
    assert not [*launched.folder.glob("otel-quant-*-1")]  # what writes them makes no recording


def test_a_run_without_a_step_tells_why_in_every_answer(launched: Launched) -> None:
    failing = [sys.executable, "-c", "import sys; sys.exit(3)"]
    ours = launched.run(failing, "--brief")
    *terminal, brief = ours.stderr.splitlines()
    why = f"no step was recorded: {NOTHING_CALLED}"
    assert f"otel-quant: the program failed with exit code 3, and {why}" in terminal
    for answer in (brief, launched.otel_quant("show", launched.recording.name).stdout):
        assert f"{why.capitalize()}." in answer


MANY = """
import time
import otel_quant
with otel_quant.step("All"):
    for number in range(60):
        try:
            with otel_quant.step(f"Layer {number}"):
                time.sleep(0.05 * (number in (7, 40)))
                assert number != 20
        except AssertionError:
            pass
"""


def test_failed_steps_and_the_longest_are_printed_if_there_are_many(launched: Launched) -> None:
    ours = launched.run([sys.executable, "-c", MANY])
    rows = [line.split() for line in ours.stderr.splitlines() if line.startswith("  Layer")]
    assert len(rows) == 49
    assert {"7", "20", "40"} <= {row[1] for row in rows}
    assert "11 steps of 61 left out, the shortest" in ours.stderr
    name = launched.recording.name
    assert f"\nmore steps: otel-quant show {name}\nrecording: {name}\n" in ours.stderr
    every = launched.otel_quant("show", name)
    assert every.stdout.count("\n  Layer") == 60


def test_a_call_that_fails_before_its_first_step_is_a_failed_step_of_a_failed_run(
    launched: Launched,
) -> None:
    (launched.folder / "quantize.py").write_text(
        "from onnxruntime.quantization import quantize_dynamic\n"
        "quantize_dynamic('missing.onnx', 'out.onnx')\n"
    )
    ours = launched.run(["sh", "-c", "python quantize.py; exit 0"], "--out", "made")
    assert ours.returncode == 0
    outcome = "^.* finished in .*, but 1 run within it did not end well.$"
    assert len(re.findall(outcome, ours.stderr, re.M)) == 1
    [run] = read(launched.folder / "made").runs
    [step] = run.steps
    assert (run.state, step.name, step.state) == ("failed", "quantize_dynamic", "failed")
    assert "missing.onnx" in str(step.error_message)


DYNAMIC = """
import numpy, onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import quantize_dynamic
value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])
weight = numpy_helper.from_array(numpy.ones((8, 8), numpy.float32), "w")
node = helper.make_node("MatMul", ["x", "w"], ["y"], "m")
result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8])
graph = helper.make_graph([node], "g", [value], [result], [weight])
opsets = [helper.make_opsetid("", 17)]
onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), "float.onnx")
quantize_dynamic("float.onnx", "int8.onnx", nodes_to_exclude=EXCLUDED)
"""


@pytest.mark.parametrize(
    ("excluded", "answer"),
    [
        ([], "no fault found, without a configuration to compare with: 1 of 1 layer int8, "),
        (["m"], "the model has no quantized layer; 0 of 0 layers quantized, m left out, "),
    ],
)
def test_a_run_that_wrote_a_model_ends_with_what_an_audit_of_it_says(
    excluded: list[str], answer: str, launched: Launched
) -> None:
    pytest.importorskip("onnxruntime")
    code = DYNAMIC.replace("EXCLUDED", repr(excluded))
    (launched.folder / "q.py").write_text(code)
    ended = launched.run(["python", "q.py"], "--out", "made")
    assert f"\naudit:     int8.onnx: {answer}" in ended.stderr
    assert ended.stderr.count("audit: ") == 1  # not of the float model
    audited = launched.otel_quant("audit", "int8.onnx", "--against", "made")
    assert (audited.returncode, audited.stdout[: len(answer)]) == (int(bool(excluded)), answer)


EXPORT = """
import os, shutil, otel_quant
with otel_quant.step("Export", attributes={"quant.output.path": "int4"}):
    shutil.copytree("made4", "int4", copy_function=shutil.copyfile)
"""
WITHOUT = 'open("int4/model.safetensors", "r+b").truncate(200_000)\n'


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (EXPORT, "as configured: 28 of 28 layers int4, lm_head left out, "),
        (EXPORT + WITHOUT, "model.safetensors is truncated: "),
    ],
    ids=["as it was", "changed since"],
)
def test_a_checkpoint_is_audited_in_the_program_and_again_where_it_was_changed_since(
    code: str, answer: str, launched: Launched
) -> None:
    tensors("gptq4").write(launched.folder / "made4")
    (launched.folder / "q.py").write_text(code)
    ended = launched.run(["python", "q.py"], "--out", "made")
    assert f"\naudit:     int4: {answer}" in ended.stderr
    [model] = read(launched.folder / "made").runs[0].models
    assert model["figures"]["audit.problem_count"] == 0
    assert (
        f"audit: {model['figures']['audit.answer']}" in launched.otel_quant("show", "made").stdout
    )


GOES_ON = """
import json, os, pathlib, signal, sys, otel_quant
file = pathlib.Path("ck/group_0/resume_manifest.json")
done = len(json.loads(file.read_text())["completed_blocks"]) if file.exists() else 0
place = {"quant.resume.path": os.path.abspath("ck"), "quant.resume.done": done}
file.parent.mkdir(parents=True, exist_ok=True)
with otel_quant.step("Model Quantization", attributes=place):
    for layer in range(done, 4):
        file.write_text(json.dumps({"completed_blocks": ["layer"] * (layer + 1)}))
        if layer == int(sys.argv[1]):
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    "given", [(), ("--continues", "first"), ("--continues", "file://{}/store/first")]
)
def test_a_run_that_goes_on_after_a_kill_is_joined_with_the_one_before(
    given: tuple[str, ...], launched: Launched
) -> None:
    (launched.folder / "q.py").write_text(GOES_ON)
    killed = launched.run(["python", "q.py", "2"], "--out", "first")
    place = launched.folder / "ck"
    assert f"on disk  3 layers are in {place}: the same command goes on from there" in " ".join(
        killed.stderr.split("\n")
    ).replace("   ", "  ")
    first, url = launched.folder / "first", f"file://{launched.folder}/store"
    launched.otel_quant("upload", "first", url)
    given = tuple(each.format(launched.folder) for each in given)
    went_on = launched.run(["python", "q.py", "9"], *given, "--out", "second")
    assert went_on.returncode == 0
    named = f"{url}/first" if url in " ".join(given) else str(first)
    assert f"It continues {named}, which was killed by SIGKILL after " in went_on.stderr
    durations = [read(launched.folder / name).duration for name in ("first", "second")]
    [shown] = json.loads(launched.otel_quant("show", "second", "--format", "json").stdout)
    assert shown["recording"]["continues"] == [named]
    assert shown["recording"]["duration_in_all_seconds"] == pytest.approx(sum(durations))


def test_what_is_continued_has_to_be_a_recording(launched: Launched) -> None:
    refused = launched.run(["true"], "--continues", "nowhere")
    assert (refused.returncode, refused.stderr[:38]) == (
        125,
        "otel-quant: --continues: nowhere: cann",
    )


STAGES = {
    "good.py": "import otel_quant\nwith otel_quant.step('Calibration'): pass",
    "early.py": "raise ValueError('no data')",  # before it imports a library
    "late.py": "import otel_quant\nwith otel_quant.step('Export'): pass\n1 / 0",
}


def test_each_stage_that_raises_is_shown_as_failed_by_every_command_and_in_the_report(
    launched: Launched, otlp: OtlpReceiver
) -> None:
    for name, code in STAGES.items():
        (launched.folder / name).write_text(f"{code}\n")
    script = "; ".join(f"python {name}" for name in STAGES)
    command = [each for each in launcher("--out", "made") if each != "--no-report"]
    ours = launched.run_bare(
        [*command, "sh", "-c", f"{script}; exit 0"], variables=otlp.environment()
    )
    shown = launched.otel_quant("show", "made").stdout
    assert ours.returncode == 0
    assert ours.stderr.endswith(
        "recording: made\ncompare:   otel-quant compare made OTHER\nreport:    made/report.html\n"
    )
    for text in (ours.stderr, shown):
        assert "finished in" in text
        assert (
            ", but 2 runs within it did not end well.\nearly.py failed with ValueError: no data, at <module> (early.py:1).\n"
            in text
        )
        found = re.findall(r"^\w+\.py +(ok|failed), memory peak .*: python (.*)$", text, re.M)
        assert found == [("ok", "good.py"), ("failed", "early.py"), ("failed", "late.py")]
        steps = re.findall(r"^(Calibration|Export) +(\w+\.py) .* ok$", text, re.M)
        assert steps == [("Calibration", "good.py"), ("Export", "late.py")]
    assert "ended, 2 failed" in launched.otel_quant("runs", "made").stdout
    report = (launched.folder / "made" / "report.html").read_text()
    assert report.count('<tr class="failed">') == 2
    assert "Calibration" in report
    roots = [(span.status, span.status_message) for span in otlp.spans_named("quantization")]
    assert roots == [("UNSET", ""), ("ERROR", "no data"), ("ERROR", "division by zero")]


ENDS = {
    "fits": ("print('ok')", "ok"), "early": ("", "failed"), "exits": ("sys.exit(3)", "failed"),
    "leaves": ("os._exit(4)", "failed"), "aborts": ("os.abort()", "killed"),
}  # fmt: skip
KERNEL = tuple(map(int, re.findall("[0-9]+", platform.release())[:2]))


@pytest.mark.skipif(KERNEL < (6, 15), reason="the kernel keeps exit codes from 6.15 on")
def test_each_stage_that_fails_without_an_exception_is_shown_as_failed(launched: Launched) -> None:
    for name, (end, _) in ENDS.items():
        (launched.folder / f"{name}.py").write_text(
            f"import os, sys, otel_quant\nwith otel_quant.step('Calibration'): pass\n{end}\n"
        )
    (launched.folder / "early.py").write_text("import time\ntime.sleep(1)\nexit(5)\n")
    script = "; ".join(f"python {name}.py" for name in ENDS)
    command = [each for each in launcher("--out", "made") if each != "--no-report"]
    ours = launched.run_bare([*command, "sh", "-c", f"{script}; false | grep -q x; exit 0"])
    shown = launched.run_bare(["otel-quant", "show", "made"]).stdout
    for text in (ours.stderr, shown):
        assert "but 4 runs within it did not end well.\nearly.py failed with exit code 5.\n" in text
        found = re.findall(r"^\w+\.py +(\w+).*: python (\w+).py$", text, re.M)
        assert found == [(how, name) for name, (_, how) in ENDS.items()]
    assert "ended, 4 failed" in launched.run_bare(["otel-quant", "runs", "made"]).stdout
    runs = read(launched.folder / "made").runs
    errors = [None, "exit code 5", "exit code 3", "exit code 4", "SIGABRT"]
    assert [run.error for run in runs] == errors
    report = (launched.folder / "made" / "report.html").read_text()
    assert "early.py failed with exit code 5." in report


@pytest.mark.skipif(KERNEL < (6, 15), reason="the kernel keeps exit codes from 6.15 on")
def test_a_worker_that_leaves_within_a_step_is_a_failed_process(launched: Launched) -> None:
    (launched.folder / "pool.py").write_text(
        "import multiprocessing, os, time, otel_quant\n"
        "def work():\n"
        "    with otel_quant.step('Calibration'):\n        time.sleep(1)\n        os._exit(7)\n"
        "if __name__ == '__main__':\n"
        "    worker = multiprocessing.Process(target=work)\n"
        "    worker.start()\n    worker.join()\n"
    )
    ours = launched.run([sys.executable, "pool.py"], "--out", "made")
    [run] = read(launched.folder / "made").runs
    [step] = run.steps
    assert (run.state, run.error, step.state) == ("failed", "exit code 7", "failed")
    assert f"\nworker {run.pid} failed with exit code 7.\n" in ours.stderr


WORKERS = """
import multiprocessing, sys, time
import otel_quant

def work(done):
    with otel_quant.step("Calibration"):
        pass
    done.set()
    time.sleep(60)

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    with otel_quant.step("Model Quantization"):
        for _ in range(2):
            done = context.Event()
            worker = context.Process(target=work, args=(done,))
            worker.start()
            done.wait()
            worker.terminate()  # as a pool does at its end
            worker.join()
"""


@pytest.mark.parametrize("start", ["fork", "forkserver"])
def test_workers_that_were_ended_on_purpose_are_not_failures_or_other_programs(
    launched: Launched, start: str
) -> None:
    (launched.folder / "quantize.py").write_text(WORKERS)
    ours = launched.run(["python", "quantize.py", start], "--out", "made")
    assert re.search(r"^quantize\.py finished in \S+ m?s\.$", ours.stderr, re.M)
    assert re.search(r"^3 steps (in 3 processes )?took .* Model Quantization: ", ours.stderr, re.M)
    program, *workers = read(launched.folder / "made").runs
    assert [(run.state, run.parent_pid) for run in workers] == [("lost", program.pid)] * 2


def test_a_run_within_a_run_has_no_failed_process_of_its_launcher(launched: Launched) -> None:
    inner = ["otel-quant", "run", "--quiet", "--no-report", "--out", "inner", "--"]
    script = " ".join([*inner, "python -c 'import time; time.sleep(2); exit(3)'; exit 0"])
    ours = launched.run(["sh", "-c", script], "--out", "outer")
    assert re.search(
        r"^sh -c finished in .*, but 1 run within it did not end well\.$", ours.stderr, re.M
    )
    assert re.search(r"^process \d+ failed with exit code 3\.$", ours.stderr, re.M)


BESIDE = """
import multiprocessing, sys, time
import otel_quant

def work(seconds):
    with otel_quant.step("Calibration"): time.sleep(seconds)
    with otel_quant.step("Export"): pass

if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        pool.map(work, [0.3, 0.6], chunksize=1)
"""


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_the_steps_of_workers_beside_each_other_are_one_table_and_one_sum(
    launched: Launched, start: str
) -> None:
    (launched.folder / "q.py").write_text(BESIDE)
    launched.run(["python", "q.py", start], "--out", "made")
    shown = launched.otel_quant("show", "made").stdout
    took = r"^4 steps in 2 processes took \d+ ms of .*, most of it Calibration: 6\d\d ms in one process, "
    assert re.search(took, shown, re.M), shown
    steps = re.findall(r"^(Calibration|Export) +(worker \d+) .* ok$", shown, re.M)
    runs = read(launched.folder / "made").runs
    workers = [f"worker {run.process}" for run in runs if run.steps]
    assert steps == [(name, each) for each in workers for name in ("Calibration", "Export")]


SECRETS = """
import argparse, multiprocessing
parser = argparse.ArgumentParser()
parser.add_argument("-p", "--password")
parser.add_argument("-k", dest="api_key")
parser.add_argument("-n")
parser.parse_args()
import otel_quant
with otel_quant.step("Login"):
    raise PermissionError("https://me:hunter2@host refuses token=hunter2, as hunter2hunter2")
"""


@pytest.mark.parametrize("is_sent", [True, False])
def test_secrets_of_options_and_messages_are_nowhere_in_a_recording(
    launched: Launched, otlp: OtlpReceiver, is_sent: bool
) -> None:
    (launched.folder / "q.py").write_text(SECRETS)
    command = ["python", "q.py", "-p", "hunter2hunter2", "-n", "3", "-khunter2"]
    launched.run(command, "--out", "made", variables=otlp.environment() if is_sent else {})
    for path in (launched.folder / "made").iterdir():
        assert b"hunter2" not in path.read_bytes(), path.name
    recording = read(launched.folder / "made")
    (run,) = recording.runs
    for origin in (recording.origin, run.attributes):
        assert origin["process.command_line"] == "python q.py -p *** -n 3 -k***"
    assert run.error_message == "https://***@host refuses token=***, as ***"
    if not is_sent:
        return
    (span,) = otlp.spans_named("Login")
    assert span.status_message == run.error_message
    assert "hunter2" not in str(span)


def test_options_that_a_parser_hides_are_hidden_of_a_program_without_a_step(
    launched: Launched,
) -> None:
    (launched.folder / "q.py").write_text(SECRETS.partition("import otel_quant")[0])
    done = launched.run(["python", "q.py", "-p", "hunter2", "-n", "3"], "--out", "made")
    assert "nor otel_quant.step\n" in done.stderr
    origin = read(launched.folder / "made").origin
    assert origin["process.command_line"] == "python q.py -p *** -n 3"


def test_a_run_within_another_is_named_by_it(launched: Launched) -> None:
    (launched.folder / "q.py").write_text("import otel_quant\nwith otel_quant.step('A'): pass\n")
    inner = ["otel-quant", "run", "--out", "inner", "--", "python", "q.py"]
    done = launched.run(inner, "--out", "outer")
    why = f"what `otel-quant run` has started within it is in {launched.folder / 'inner'}"
    assert f"\notel-quant: no step was recorded: {why}\n" in done.stderr
    assert f"\nNo step was recorded: {why}.\n" in launched.otel_quant("show", "outer").stdout
