"""A program that seeds Python's generator draws as without us, and its traces are its own."""

from __future__ import annotations

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver, Protocol
from tests.fixtures.programs import Workshop

SEEDED = """
import os, random
if os.environ.get("WITHOUT_US"):
    from contextlib import nullcontext as step
else:
    from otel_quant import step

drawn = []
for _ in range(3):
    random.seed(42)
    with step("Calibration"):
        drawn.append(random.random())
        with step("within"):
            drawn.append(random.gauss(0, 1))
    drawn.append(random.random())
print(drawn)
"""


THREADS = """
import random, threading
from otel_quant import step

def work():
    for _ in range(50):
        with step("work"):
            pass

random.seed(42)
before = random.getstate()
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(random.getstate() == before)
"""


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_seeded_program_draws_the_same_numbers(
    workshop: Workshop, otlp: OtlpReceiver, protocol: Protocol
) -> None:
    script = workshop.script(SEEDED)
    watched = script.run(otlp.environment(protocol))
    alone = script.run({"WITHOUT_US": "1"}, instrumented=False)

    assert (watched.returncode, watched.stderr) == (0, "")
    assert watched.stdout == alone.stdout


def test_steps_in_threads_do_not_change_the_sequence(
    workshop: Workshop, otlp: OtlpReceiver
) -> None:
    script = workshop.script(THREADS)
    watched = script.run(otlp.environment("http/protobuf"))

    assert (watched.returncode, watched.stderr, watched.stdout) == (0, "", "True\n")


def test_identifiers_are_unique_though_the_seed_is_the_same(
    workshop: Workshop, otlp: OtlpReceiver
) -> None:
    script = workshop.script(SEEDED)
    for _ in range(2):
        assert script.run(otlp.environment("http/protobuf")).returncode == 0

    roots = otlp.spans_named("quantization")
    assert len({root.trace_id for root in roots}) == 2
    assert len({span.span_id for span in otlp.spans}) == len(otlp.spans) == 2 * (1 + 3 * 2)
    for root in roots:
        steps = otlp.children(root)
        assert [step.name for step in steps] == ["Calibration"] * 3
        assert [[each.name for each in otlp.children(step)] for step in steps] == [["within"]] * 3
