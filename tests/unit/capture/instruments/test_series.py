"""Calls for one layer after another are one step outside of a step, and its layers within one."""

from __future__ import annotations

import json
from pathlib import Path

from otel_quant.schema import semconv
from tests.fixtures.programs import run_script

TOOL = """
def layer(bits):
    if bits is None:
        raise ValueError("no bits")
def model():
    layer(4)
    layer(4)
"""

PROGRAM = f"""
import json, threading, time
from otel_quant.capture.instruments.hooks import HOOKS, LAYER, LAYERS, STEP, Hook, Library
HOOKS.set([Library("test", "test", (
    Hook("tool", "layer", LAYERS, "Model Quantization", config=("bits",), before=LAYER),
    Hook("tool", "model", STEP, "Model Quantization"),
))])
import otel_quant, tool
from otel_quant.capture.runtime import RUNTIME
from otel_quant.schema.events import Sink

class Seen(Sink):
    name = "seen"
    def step_ended(self, event):
        found = event.attributes
        names = ("{semconv.LAYER_COUNT}", "{semconv.BITS}", "{semconv.PARTS_BITS}")
        seen.append([event.step.label, *(found.get(name) for name in names), event.error])
        odd.extend(name for name in found if "." not in name)  # an argument of a call

seen, odd = [], []
RUNTIME.recorder.add_sink(Seen())
tool.layer(4)
tool.layer(4)
# CPython warns a program that forks of each other thread; the sampler's ends meanwhile.
assert {{each.name for each in threading.enumerate()}} == {{"MainThread", "otel-quant-sampler"}}
with otel_quant.step("another"):  # ends the series, at its last call
    pass
tool.model()  # the layers of its step
thread = threading.Thread(target=lambda: (tool.layer(8), tool.layer(2)))
thread.start(); thread.join()
while len(seen) < 4:
    time.sleep(0.01)
tool.layer(4)
[waiting] = RUNTIME.recorder._ongoing.open.values()
waiting.between = waiting.between._replace(clock_ns=waiting.between.clock_ns - 6_000_000_000)
while len(seen) < 5:  # no other call for long
    time.sleep(0.01)
try:
    tool.layer(None)
except ValueError:
    pass
tool.layer(4)
otel_quant.QuantInstrumentor().uninstrument()
RUNTIME.recorder.end()
print(json.dumps(seen + odd))
"""


def test_calls_in_a_row_are_one_step_with_layers(tmp_path: Path) -> None:
    (tmp_path / "tool.py").write_text(TOOL)
    output, _ = run_script(tmp_path, PROGRAM)
    step = "Model Quantization"
    assert json.loads(output) == [
        [step, 2, 4, None, None],
        ["another", None, None, None, None],
        [step, 2, None, None, None],
        [step, 2, None, [2, 8], None],  # its thread ended
        [step, 1, 4, None, None],  # no other call came
        [step, 1, None, None, "ValueError"],
        [step, 1, 4, None, None],  # the run ended
    ]
