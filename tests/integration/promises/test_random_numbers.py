"""A program that seeds Python's generator draws as without us, and its traces are its own."""

from __future__ import annotations

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import Ran, Workshop

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


def test_a_seeded_program_draws_the_same_numbers_and_its_identifiers_are_unique_all_the_same(
    workshop: Workshop, ran: Ran, otlp: OtlpReceiver
) -> None:
    alone = workshop.script(SEEDED).run({"WITHOUT_US": "1"}, instrumented=False)
    assert [ran(SEEDED, protocol) for protocol in ("grpc", "http/protobuf")] == [alone.stdout] * 2

    roots = otlp.spans_named("quantization")
    assert len({root.trace_id for root in roots}) == 2
    assert len({span.span_id for span in otlp.spans}) == len(otlp.spans) == 2 * (1 + 3 * 2)
    for root in roots:
        steps = otlp.children(root)
        assert [step.name for step in steps] == ["Calibration"] * 3
        assert [[each.name for each in otlp.children(step)] for step in steps] == [["within"]] * 3


def test_steps_in_threads_do_not_change_the_sequence(ran: Ran) -> None:
    assert ran(THREADS) == "True\n"
