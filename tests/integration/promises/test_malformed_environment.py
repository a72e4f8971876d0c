"""A malformed value is said once in a run that has many readers of it, and stops nothing."""

from __future__ import annotations

import pytest

from tests.fixtures.instrumented import Workshop
from tests.fixtures.otlp_receiver import OtlpReceiver

SOURCE = """
import otel_quant

for _ in range(3):
    with otel_quant.step("step"):
        pass
print("done")
"""


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("OTEL_QUANT_YAML_STRICT", "maybe", "true or false"),
        ("OTEL_QUANT_EXACT_PEAKS", "exactly", "true or false"),
        ("OTEL_QUANT_GPU", "2", "true or false"),
        ("OTEL_QUANT_PATHS", "nein", "true or false"),
        ("OTEL_QUANT_COST", "free", "true or false"),
        ("OTEL_QUANT_SAMPLE_INTERVAL", "often", "a number of milliseconds, 0 or more"),
        ("OTEL_QUANT_COST_TIMEOUT", "-5", "a number of milliseconds, 0 or more"),
        ("OTEL_QUANT_EXIT_TIMEOUT", "5s", "a number of milliseconds, 0 or more"),
        ("OTEL_QUANT_LIBRARIES", "quark,nosuch", "names out of"),
        ("TRACEPARENT", "00-zz-1-01", "00-<32 hexadecimal digits>-<16 hexadecimal digits>"),
    ],
)
def test_one_warning_names_variable_value_and_what_was_expected(
    workshop: Workshop, otlp: OtlpReceiver, name: str, value: str, expected: str
) -> None:
    finished = workshop.script(SOURCE).run({**otlp.environment("http/protobuf"), name: value})
    assert (finished.returncode, finished.stdout) == (0, "done\n")
    (line,) = finished.stderr.splitlines()
    assert name in line
    assert value.rpartition(",")[2] in line
    assert expected in line
    assert otlp.tree() == [("quantization", [("step", [])] * 3)]
