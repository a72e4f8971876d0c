"""The sampler in a real run."""

from __future__ import annotations

import json

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import Workshop

PRELUDE = """
import json, os, sys, threading, time
import otel_quant

def samplers():
    return [thread for thread in threading.enumerate() if thread.name == "otel-quant-sampler"]
"""


def test_the_sampler_ends_with_the_run(workshop: Workshop) -> None:
    script = workshop.script(
        PRELUDE
        + """
counts = []
for _ in range(3):
    with otel_quant.run():
        with otel_quant.step("step"):
            counts.append(len(samplers()))
    counts.append(len(samplers()))
print(counts)
"""
    )
    finished = script.run()
    assert (finished.stdout, finished.stderr) == ("[1, 0, 1, 0, 1, 0]\n", "")


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="there is no fork here")
def test_a_forked_child_has_a_run_and_a_sampler_of_its_own(
    workshop: Workshop, otlp: OtlpReceiver
) -> None:
    script = workshop.script(
        PRELUDE
        + """
with otel_quant.step("parent"):
    reading, writing = os.pipe()
    for number in range(20):  # some of them in the middle of a sample
        time.sleep(0.003)
        pid = os.fork()
        if pid == 0:
            counts = [len(samplers())]
            with otel_quant.step(f"child {number}"):
                counts.append(len(samplers()))
            counts.append(len(samplers()))
            os.write(writing, (json.dumps(counts) + "\\n").encode())
            os._exit(0)
        os.waitpid(pid, 0)
    os.close(writing)
    with os.fdopen(reading) as file:
        print(json.dumps([json.loads(line) for line in file]))
    assert len(samplers()) == 1
"""
    )
    finished = script.run({**otlp.environment("http/protobuf"), "OTEL_QUANT_SAMPLE_INTERVAL": "1"})
    assert (finished.returncode, finished.stderr) == (0, "")
    # A worker is one run, which lasts until it ends.
    assert json.loads(finished.stdout) == [[0, 1, 1]] * 20
    run_of_parent = otlp.span("parent").attributes["quant.run.id"]
    runs = {otlp.span(f"child {n}").attributes["quant.run.id"] for n in range(20)}
    assert len(runs) == 20
    assert run_of_parent not in runs
