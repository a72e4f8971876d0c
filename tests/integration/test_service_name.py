"""A service that the user has not named has the name of the program, in its children too."""

from __future__ import annotations

import subprocess

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import Script, Workshop

STEP = """
import os
import otel_quant

with otel_quant.step("step"):
    pass
print(os.environ.get("OTEL_SERVICE_NAME"), os.environ.get("OTEL_RESOURCE_ATTRIBUTES"),
      os.environ.get("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS"))
"""
SPAWNING = """
import multiprocessing
import otel_quant

def work():
    with otel_quant.step("step of the child"):
        pass

if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=work)
    child.start()
    child.join()
"""


def run(script: Script, otlp: OtlpReceiver, *command: str, **variables: str) -> str:
    launcher, python, _ = script.command()
    environment = script.environment(
        {**otlp.environment("http/protobuf"), "OTEL_SERVICE_NAME": "", **variables}
    )
    done = subprocess.run(
        [launcher, python, *command],
        env=environment,
        cwd=script.path.parent,
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


def names(otlp: OtlpReceiver) -> dict[str, set[object]]:
    sent = {"spans": otlp.spans, "log records": otlp.records, "metrics": otlp.points}
    return {signal: {one.resource["service.name"] for one in of} for signal, of in sent.items()}


def everywhere(name: str) -> dict[str, set[object]]:
    return {"spans": {name}, "log records": {name}, "metrics": {name}}


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["quantize.py", "--fast"], "quantize"),
        (["-X", "utf8", "quantize.py"], "quantize"),
        (["-W", "ignore", "-m", "package.tools", "-m", "other"], "package.tools"),
        (["-mpackage"], "package"),
        (["-c", STEP], "unknown_service:python"),
    ],
)
def test_unnamed_service_has_the_name_of_the_program(
    workshop: Workshop, otlp: OtlpReceiver, command: list[str], name: str
) -> None:
    (workshop.folder / "package").mkdir()
    for file in ("__init__.py", "tools.py", "__main__.py"):
        (workshop.folder / "package" / file).write_text("" if file == "__init__.py" else STEP)
    script = workshop.script(STEP, "quantize.py")

    assert run(script, otlp, *command) == " None None\n"
    assert names(otlp) == everywhere(name)


@pytest.mark.parametrize(
    "variables",
    [{"OTEL_SERVICE_NAME": "mine"}, {"OTEL_RESOURCE_ATTRIBUTES": "a=b,service.name=mine"}],
)
def test_name_that_the_user_has_given_is_kept(
    workshop: Workshop, otlp: OtlpReceiver, variables: dict[str, str]
) -> None:
    run(workshop.script(STEP), otlp, "script.py", **variables)
    assert names(otlp) == everywhere("mine")


@pytest.mark.parametrize("command", [["spawning.py"], ["-m", "spawning"]])
def test_spawned_child_belongs_to_the_service_of_its_parent(
    workshop: Workshop, otlp: OtlpReceiver, command: list[str]
) -> None:
    run(workshop.script(SPAWNING, "spawning.py"), otlp, *command)
    assert names(otlp) == everywhere("spawning")
    assert "step of the child" in otlp.span_names()
