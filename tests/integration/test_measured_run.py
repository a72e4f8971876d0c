"""``otel_quant.run()``: it instruments the libraries itself, and gives the figures of its block."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from otel_quant.recordings import summary
from otel_quant.recordings.profile_reader import parse
from otel_quant.recordings.reader import read
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import FLOAT_MODEL, Workshop, run_script

WITHOUT_SDK = "import sys\nsys.modules['opentelemetry.sdk'] = None\n"

QUANTIZING = f"""{FLOAT_MODEL}
def quantize():
    from onnxruntime.quantization import quantize_dynamic
    quantize_dynamic("float.onnx", "int8.onnx")
"""

NOTEBOOK_SNIPPET = """
import otel_quant
with otel_quant.run() as run:
    quantize()
"""

FIGURES = """
import dataclasses, json
print(json.dumps({
    "id": run.id,
    "steps": [dataclasses.asdict(step) for step in run.steps],
    "total": dataclasses.asdict(run.total),
    "models": [model.role for model in run.models],
    "memory_peak": run.memory_peak,
    "memory_limit": run.memory_limit,
    "memory_limit_source": run.memory_limit_source,
    "memory_peak_ratio": run.memory_peak_ratio,
    "error": run.error,
}))
"""


def figures_of(out: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


@pytest.mark.parametrize("imports", ["", "import onnxruntime.quantization\n"])
def test_a_block_instruments_the_libraries_itself_and_needs_no_sdk_and_no_file(
    tmp_path: Path, imports: str
) -> None:
    out, _ = run_script(tmp_path, WITHOUT_SDK + imports + QUANTIZING + NOTEBOOK_SNIPPET + FIGURES)

    found = figures_of(out)
    assert [(step["name"], step["library"], step["error"]) for step in found["steps"]] == [
        ("Quantization (Dynamic)", "onnxruntime", None),
        ("Post-process", "onnxruntime", None),
    ]
    assert found["models"] == ["float", "quantized"]
    assert len(found["id"]) == 16
    for figures in (*found["steps"], found["total"]):
        assert figures["memory_delta"] == figures["memory_end"] - figures["memory_start"]
        assert figures["memory_peak"] >= max(figures["memory_start"], figures["memory_end"])
        assert figures["memory_peak_source"] in ("kernel", "sampled")
        assert figures["duration"] > 0 <= figures["cpu_user"] + figures["cpu_system"]
    first, second = found["steps"]
    assert 0 <= first["start"] < first["start"] + first["duration"] <= second["start"]
    assert second["start"] + second["duration"] <= found["total"]["duration"]
    assert found["memory_peak"] == found["total"]["memory_peak"]
    assert found["memory_peak_ratio"] == round(found["memory_peak"] / found["memory_limit"], 6)
    assert found["memory_limit_source"] in ("cgroup", "physical")
    assert found["error"] is None
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "float.onnx", "int8.onnx", "script.py",
    ]  # fmt: skip


def test_a_block_has_the_same_values_as_all_commands(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    code = QUANTIZING + NOTEBOOK_SNIPPET + FIGURES
    found = figures_of(run_script(tmp_path, code, OTEL_QUANT_RECORD=str(folder))[0])
    recording = read(folder)
    assert summary.value(recording, "memory.peak") == found["memory_peak"]
    assert summary.limit(recording) == (found["memory_limit"], found["memory_limit_source"])
    known = {name: value for name, value in found["total"].items() if value is not None}
    attributes = {
        name.removeprefix("quant.").replace(".", "_"): value
        for name, value in recording.runs[0].attributes.items()
    }
    assert known.pop("duration") > 0
    assert known.items() <= attributes.items()
    assert {"memory_delta", "disk_read_chars", "cpu_wait", "page_faults_major"} <= known.keys()


def test_each_of_two_blocks_has_its_own_steps_and_a_later_call_has_none(
    tmp_path: Path,
) -> None:
    out, err = run_script(
        tmp_path,
        QUANTIZING
        + "first = None\n"
        + NOTEBOOK_SNIPPET.replace(" run:", " first:")
        + NOTEBOOK_SNIPPET
        + "quantize()\nprint([len(r.steps) for r in (first, run)], first.id != run.id)",
    )

    assert (out.splitlines()[-1], "otel_quant" in err) == ("[2, 2] True", False)


def test_a_requested_file_shows_the_same_table_as_the_run(tmp_path: Path) -> None:
    out, _ = run_script(
        tmp_path,
        QUANTIZING
        + NOTEBOOK_SNIPPET.replace("run()", "run(profile='p.yaml')")
        + "print(run)\n"
        + "from otel_quant.cli import main\nprint('=====')\nmain(['show', 'p.yaml'])\n",
    )

    printed, _, shown = out.partition("=====\n")
    assert printed == shown.partition("\n")[2]  # the name of the program is that of a file
    for expected in (
        "Quantization (Dynamic)",
        "Memory peaked at",
        "libraries     onnxruntime ",
        "Before (float)",
    ):
        assert expected in printed


@pytest.mark.parametrize(
    ("path", "environ"),
    [("p.yaml", {}), ("p.yaml", {"OTEL_QUANT_YAML_STRICT": "true"}), ("/proc/none/p.yaml", {})],
    ids=["a file", "a strict file", "a file that cannot be written"],
)
def test_a_run_prints_its_table_if_the_file_is_lost(
    tmp_path: Path, path: str, environ: dict[str, str]
) -> None:
    out, _ = run_script(
        tmp_path,
        f"""
import otel_quant, os
with otel_quant.run(profile={path!r}) as run:
    if {path!r} == "p.yaml":
        os.remove("p.yaml")
    with otel_quant.step("a"):
        pass
print(run)
""",
        **environ,
    )

    [line] = [line for line in out.splitlines() if line.startswith("a  ")]
    assert line.endswith("  ok")
    assert "truncated" not in out


IN_ONE_LINE = """
import os, sys
import otel_quant

def show(run):
    print([(step.name, step.error, step.error_message) for step in run.steps], run.error, run.error_message)
"""
UNFINISHED = "otel_quant.capture.recorder.recorder.UnfinishedStepError"
BLOCKS = {
    "an exception is the same and the run shows it": (
        """
raised = KeyError("no such layer")
try:
    with otel_quant.run() as run:
        with otel_quant.step("a"):
            raise raised
except KeyError as error:
    assert error is raised and error.__context__ is error.__cause__ is None
show(run)
said, step = (line.split() for line in str(run).splitlines() if "KeyError" in line)
print(said[:3], step[0], step[-4:])
""",
        """[('a', 'KeyError', "'no such layer'")] KeyError 'no such layer'
['a', 'raised', 'KeyError:'] a ['KeyError:', "'no", 'such', "layer'"]
""",
    ),
    "nothing that was used is kept alive": (
        """
import gc, weakref

class Model:
    pass

def quantize():
    model = Model()
    models.append(weakref.ref(model))
    with otel_quant.step("a"):
        raise ValueError(model)

models = []
try:
    with otel_quant.run() as run:
        quantize()
except ValueError:
    pass
gc.collect()
print(models[0]() is None, run.error)
""",
        "True ValueError\n",
    ),
    "an exit with success is no failure": (
        """
try:
    with otel_quant.run() as run:
        sys.exit(0)
finally:
    show(run)
""",
        "[] None None\n",
    ),
    "a block within another ends it, and the outer one no other": (
        """
from otel_quant.capture.runtime import RUNTIME
with otel_quant.step("before"):
    pass
with otel_quant.run() as outer:
    with otel_quant.step("a"):
        with otel_quant.run() as inner:
            with otel_quant.step("b"):
                pass
    with otel_quant.step("c"):
        pass
print(RUNTIME.is_running)
show(outer)
show(inner)
""",
        f"True\n[('a', '{UNFINISHED}', 'the run ended while the step was open')] None None\n"
        "[('b', None, None)] None None\n",
    ),
    "a forked child does not end or change the run": (
        """
with otel_quant.run() as run:
    with otel_quant.step("a"):
        pass
    if (child := os.fork()) == 0:
        with otel_quant.step("child"):
            pass
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    with otel_quant.step("b"):
        pass
show(run)
""",
        "[('a', None, None), ('b', None, None)] None None\n",
    ),
    "no message is kept where paths are switched off": (
        """
os.environ["OTEL_QUANT_PATHS"] = "false"
try:
    with otel_quant.run() as run, otel_quant.step("a"):
        open("/home/me/model.onnx")
except OSError:
    pass
show(run)
print("/home" in str(run) or "script.py" in str(run))
""",
        "[('a', 'FileNotFoundError', None)] FileNotFoundError None\nFalse\n",
    ),
}


@pytest.mark.parametrize(("script", "printed"), BLOCKS.values(), ids=BLOCKS)
def test_a_block(tmp_path: Path, script: str, printed: str) -> None:
    assert run_script(tmp_path, IN_ONE_LINE + script) == (printed, "")


def test_a_run_that_is_still_going_and_one_that_recorded_nothing_can_be_printed(
    tmp_path: Path,
) -> None:
    out, _ = run_script(
        tmp_path,
        """
import otel_quant
with otel_quant.run() as run:
    with otel_quant.step("a"):
        print(run)
    print(run.total, run.memory_peak, run.duration, len(run.steps))
print(otel_quant.Run())
""",
    )

    assert "a     " in out
    [line] = [line for line in out.splitlines() if line.startswith("a  ")]
    assert line.endswith("  open")
    assert out.splitlines()[-2:] == ["None None None 1", "the run has recorded nothing"]


def test_each_block_in_an_instrumented_program_has_its_own_trace_and_file(
    workshop: Workshop, otlp: OtlpReceiver
) -> None:
    script = """
from otel_quant import run, step
with step("before"):
    pass
with run(profile="first.yaml"):
    with step("a"):
        pass
with step("between"):
    pass
with run(profile="second.yaml"), step("b"):
    pass
"""
    workshop.script(script).run(otlp.environment("http/protobuf"))

    names = ["before", "a", "between", "b"]
    assert otlp.tree() == [("quantization", [(name, [])]) for name in names]
    runs = otlp.spans_named("quantization")
    assert len({run.trace_id for run in runs}) == len(runs)
    assert {frozenset(run.attributes) for run in runs} == {frozenset(runs[0].attributes)}
    steps = {path.name: parse(path.read_text()).records for path in workshop.folder.glob("*.yaml")}
    assert {name: [record["step"] for record in records] for name, records in steps.items()} == {
        "first.yaml": ["Start", "a Start", "a End", "End"],
        "second.yaml": ["Start", "b Start", "b End", "End"],
    }
