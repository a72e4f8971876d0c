"""``otel_quant.run()``, in a program and in a real notebook: it instruments the libraries itself, and gives the figures of its block."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from otel_quant.recordings import summary
from otel_quant.recordings.reader import read
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import FLOAT_MODEL, Workshop, run_script, steps_in

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
    assert summary.value(recording, summary.MEMORY_PEAK) == found["memory_peak"]
    assert summary.limit(recording) == (found["memory_limit"], found["memory_limit_source"])
    known = {name: value for name, value in found["total"].items() if value is not None}
    attributes = {
        name.removeprefix("quant.").replace(".", "_"): value
        for name, value in recording.runs[0].attributes.items()
    }
    assert known.pop("duration") > 0
    assert known.items() <= attributes.items()
    assert {"memory_delta", "disk_read_chars", "cpu_wait", "page_faults_major"} <= known.keys()


def test_a_requested_file_shows_the_same_table_as_the_run_without_the_calls_after_it(
    tmp_path: Path,
) -> None:
    out, err = run_script(
        tmp_path,
        QUANTIZING
        + NOTEBOOK_SNIPPET.replace(" run:", " first:")
        + NOTEBOOK_SNIPPET.replace("run()", "run(profile='p.yaml')")
        + "quantize()\nprint([len(r.steps) for r in (first, run)], first.id != run.id)\n"
        + "from otel_quant.cli import main\nprint(run)\nprint('=====')\nmain(['show', 'p.yaml'])\n",
    )

    assert "otel_quant" not in err
    _, found, printed = out.partition("[2, 2] True\n")
    assert found
    printed, _, shown = printed.partition("=====\n")
    assert printed == shown.partition("\n")[2]  # the name of the program is that of a file
    for expected in (
        "Quantization (Dynamic)",
        "Memory peaked at",
        "libraries     onnxruntime ",
        "Before (float)",
    ):
        assert expected in printed


LOST = """
import otel_quant, os
with otel_quant.run(profile="{path}") as run:
    if os.path.exists("{path}"):
        os.remove("{path}")
    with otel_quant.step("a"):
        pass
print(run)
"""
OPEN = """
import otel_quant
with otel_quant.run() as run, otel_quant.step("a"):
    print(run)
"""


@pytest.mark.parametrize(
    ("script", "environ", "status"),
    [
        (LOST.format(path="p.yaml"), {}, "ok"),
        (LOST.format(path="p.yaml"), {"OTEL_QUANT_YAML_STRICT": "true"}, "ok"),
        (LOST.format(path="/proc/none/p.yaml"), {}, "ok"),
        (OPEN, {}, "open"),
    ],
    ids=["a lost file", "a lost strict file", "a file that cannot be written", "a run that goes on"],
)  # fmt: skip
def test_a_run_prints_its_table_without_a_file(
    tmp_path: Path, script: str, environ: dict[str, str], status: str
) -> None:
    out, _ = run_script(tmp_path, script, **environ)
    [line] = [line for line in out.splitlines() if line.startswith("a  ")]
    assert line.endswith(f"  {status}")
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
print(said, step[0], step[-2:])
""",
        """[('a', 'KeyError', "'no such layer'")] KeyError 'no such layer'
['a', 'raised', 'KeyError:', "'no", 'such', "layer'."] a ['failed:', 'KeyError']
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
    "a run that has not ended has no total, and one that recorded nothing no table": (
        """
with otel_quant.run() as run:
    with otel_quant.step("a"):
        pass
    print(run.total, run.memory_peak, run.duration, len(run.steps))
print(otel_quant.Run())
""",
        "None None None 1\nthe run has recorded nothing\n",
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
    assert {path.name: steps_in(path) for path in workshop.folder.glob("*.yaml")} == {
        "first.yaml": ["Start", "a Start", "a End", "End"],
        "second.yaml": ["Start", "b Start", "b End", "End"],
    }


TAGS = {"div", "p", "br", "table", "thead", "tbody", "tr", "th", "td"}


def cells_of(html: str) -> list[str]:
    """Returns the cells of the tables in a piece of HTML, which has the tags of a table and no colours."""
    assert set(re.findall(r"<(\w+)", html)) == TAGS
    for tag in TAGS - {"br"}:
        assert len(re.findall(rf"<{tag}[ >]", html)) == html.count(f"</{tag}>")
    # The page's own colours are readable, light or dark.
    assert not any(
        "color" in style or "background" in style for style in re.findall('style="(.*?)"', html)
    )
    return [unescape(cell) for cell in re.findall(r"<t[hd](?: [^>]*)?>(.*?)</t[hd]>", html)]


def outputs_of(folder: Path, *cells: str) -> list[list[dict[str, Any]]]:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in cells],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    return [cell.outputs for cell in notebook.cells]


def test_the_snippet_of_the_readme_shows_its_steps_as_a_table(tmp_path: Path) -> None:
    *_, shown, printed, figures, failed = outputs_of(
        tmp_path,
        QUANTIZING,
        "import otel_quant\nwith otel_quant.run() as run:\n    quantize()",
        "run",
        "print(run)",
        "[step.name for step in run.steps], run.memory_peak > 0, run.error",
        "with otel_quant.run() as other:\n"
        "    try:\n"
        "        with otel_quant.step('<b>| bold'):\n"
        "            raise ValueError('<script>alert(1)</script>')\n"
        "    except ValueError:\n"
        "        pass\n"
        "other",
    )

    [result] = shown
    cells = cells_of(result["data"]["text/html"])
    assert cells[:4] == ["STEP", "START s", "TIME s", "%"]
    assert "Quantization (Dynamic)" in cells
    [text] = printed
    assert result["data"]["text/plain"] + "\n" == text["text"]
    assert re.search(r"^Memory peaked at .* after the start", text["text"], re.M)
    [values] = figures
    assert values["data"]["text/plain"] == (
        "(['Quantization (Dynamic)', 'Post-process'], True, None)"
    )
    [result] = failed
    cells = cells_of(result["data"]["text/html"])
    assert "<b>| bold" in cells
    assert "failed: ValueError" in cells
    # The message is in the first line.
    [first] = re.findall(r"<div><p>(.*?)<br>", result["data"]["text/html"])
    assert (
        unescape(first)
        == "<b>| bold raised ValueError: <script>alert(1)</script>; the program survived it."
    )
