"""What every process of a run sends has the run's name."""

from __future__ import annotations

import re

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import Workshop

PROGRAM = """
import multiprocessing, subprocess, sys
import otel_quant

def work():
    with otel_quant.step("of a child"):
        pass

if __name__ == "__main__":
    if sys.argv[1:]:
        work()
    else:
        model = {"quant.input.path": "models/small.onnx"}
        with otel_quant.step("of the parent", attributes=model):
            for how in ("fork", "spawn"):
                child = multiprocessing.get_context(how).Process(target=work)
                child.start()
                child.join()
            subprocess.run([sys.executable, __file__, "child"], check=True)
"""


def run(workshop: Workshop, otlp: OtlpReceiver, **variables: str) -> None:
    finished = workshop.script(PROGRAM).run(variables={**otlp.environment(), **variables})
    assert (finished.returncode, finished.stderr) == (0, "")


def names(otlp: OtlpReceiver) -> set[object]:
    assert otlp.span_names().count("of a child") == 3
    starts = [point for point in otlp.points if point.metric == "quant.run.start"]
    assert len({point.resource["service.instance.id"] for point in starts}) == 4
    return {one.attributes.get("quant.run.name") for one in (*otlp.spans, *otlp.records, *starts)}


def test_processes_of_a_run_have_the_name_of_service_model_and_start(
    workshop: Workshop, otlp: OtlpReceiver
) -> None:
    run(workshop, otlp, OTEL_SERVICE_NAME="nightly")
    (name,) = names(otlp)
    assert re.fullmatch(r"nightly small 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(name))


@pytest.mark.parametrize("rank", [{}, {"RANK": "0", "WORLD_SIZE": "1"}])
def test_a_name_that_the_user_has_given_is_kept_in_every_process(
    workshop: Workshop, otlp: OtlpReceiver, rank: dict[str, str]
) -> None:
    run(workshop, otlp, OTEL_QUANT_RUN_NAME="resnet on Friday", **rank)
    assert names(otlp) == {"resnet on Friday"}
