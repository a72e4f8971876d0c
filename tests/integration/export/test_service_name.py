"""What every process of a run sends has the run's name, and the service's where none was given."""

from __future__ import annotations

import platform
import re
import sys

import pytest

from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import PROGRAMS, Workshop, clean_environment, run

OF_THIS_MACHINE = {
    "host.arch": platform.machine(),
    "os.type": "linux",
    "os.description": f"{platform.system()} {platform.release()} {platform.machine()}",
    "process.runtime.name": "cpython",
    "process.runtime.version": platform.python_version(),
}
"""What the resource of every signal has, beside the host's name."""
STEP = """
import os
import otel_quant

with otel_quant.step("step"):
    pass
print(os.environ.get("OTEL_SERVICE_NAME"), os.environ.get("OTEL_RESOURCE_ATTRIBUTES"),
      os.environ.get("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS"))
"""
STARTING = """
import multiprocessing, subprocess, sys
import otel_quant
from otel_quant.schema import semconv

def work():
    with otel_quant.step("of a child"):
        pass

if __name__ == "__main__":
    if sys.argv[1:]:
        work()
    else:
        model = {semconv.INPUT_PATH: "models/small.onnx"}
        with otel_quant.step("of the parent", attributes=model):
            for how in ("fork", "spawn"):
                child = multiprocessing.get_context(how).Process(target=work)
                child.start()
                child.join()
            subprocess.run([sys.executable, __file__, "child"], check=True)
"""


def ran(workshop: Workshop, otlp: OtlpReceiver, *command: str, **variables: str) -> str:
    """Runs a Python command, in a folder with a package and two scripts."""
    (workshop.folder / "package").mkdir()
    for file in ("__init__.py", "tools.py", "__main__.py"):
        (workshop.folder / "package" / file).write_text("" if file == "__init__.py" else STEP)
    workshop.script(STEP, "quantize.py")
    workshop.script(STARTING, "starting.py")
    unnamed = {**otlp.environment("http/protobuf"), "OTEL_SERVICE_NAME": ""}
    start = [PROGRAMS / "opentelemetry-instrument", sys.executable, *command]
    done = run(start, workshop.folder, clean_environment({**unnamed, **variables}))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def services(otlp: OtlpReceiver) -> list[set[object]]:
    """Returns the names of the services of spans, log records and metrics."""
    sent = (otlp.spans, otlp.records, otlp.points)
    return [{one.resource["service.name"] for one in signal} for signal in sent]


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
def test_a_service_without_a_name_is_named_after_the_program(
    workshop: Workshop, otlp: OtlpReceiver, command: list[str], name: str
) -> None:
    assert ran(workshop, otlp, *command) == " None None\n"
    assert services(otlp) == [{name}] * 3


@pytest.mark.parametrize(
    ("command", "variables", "service", "name"),
    [
        (["starting.py"], {}, "starting", r"starting small 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"),
        (["-m", "starting"], {"OTEL_SERVICE_NAME": "nightly"}, "nightly", "nightly small 20.*"),
        (
            ["starting.py"], {"OTEL_RESOURCE_ATTRIBUTES": "service.instance.id=pod-7.main,service.name=mine,host.name=node"},
            "mine", "mine small 20.*",
        ),
        (
            ["starting.py"], {"OTEL_QUANT_RUN_NAME": "resnet on Friday", "RANK": "0", "WORLD_SIZE": "1"},
            "starting", "resnet on Friday",
        ),
    ],
)  # fmt: skip
def test_processes_share_the_service_and_the_generated_or_given_run_name(
    workshop: Workshop,
    otlp: OtlpReceiver,
    command: list[str],
    variables: dict[str, str],
    service: str,
    name: str,
) -> None:
    ran(workshop, otlp, *command, **variables)
    assert services(otlp) == [{service}] * 3
    assert otlp.span_names().count("of a child") == 3
    starts = [point for point in otlp.points if point.metric == semconv.RUN_START]
    given = variables.get("OTEL_RESOURCE_ATTRIBUTES")
    processes = {point.resource["process.pid"]: point.resource for point in starts}
    ids = {str(resource["service.instance.id"]) for resource in processes.values()}
    assert len(processes) == len(ids) == 4
    assert {each.startswith("pod-7.main.") for each in ids} == {given is not None}
    machine = platform.uname()
    for one in (*otlp.spans, *otlp.records, *starts):
        assert {**one.resource, **processes[one.resource["process.pid"]]} == one.resource
        assert OF_THIS_MACHINE.items() <= one.resource.items()
        assert one.resource["host.name"] == ("node" if given else machine.node)
    for record in otlp.records:
        assert (
            record.attributes.get("process.pid", record.resource["process.pid"])
            == record.resource["process.pid"]
        )
    sent = (*otlp.spans, *otlp.records, *starts)
    (found,) = {one.attributes.get(semconv.RUN_NAME) for one in sent}
    assert re.fullmatch(name, str(found))
