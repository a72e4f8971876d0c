"""The sampler in a real run."""

from __future__ import annotations

import json

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import Ran

PRELUDE = """
import json, os, sys, threading, time
import otel_quant

def samplers():
    return [thread for thread in threading.enumerate() if thread.name == "otel-quant-sampler"]
"""


def test_a_forked_child_has_a_run_and_a_sampler_of_its_own(ran: Ran, otlp: OtlpReceiver) -> None:
    printed = ran(
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
""",
        OTEL_QUANT_SAMPLE_INTERVAL="1",
    )
    # A worker is one run, which lasts until it ends.
    assert json.loads(printed) == [[0, 1, 1]] * 20
    run_of_parent = otlp.span("parent").attributes["quant.run.id"]
    runs = {otlp.span(f"child {n}").attributes["quant.run.id"] for n in range(20)}
    assert len(runs) == 20
    assert run_of_parent not in runs
