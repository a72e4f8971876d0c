"""What is malformed or misspelt is said once, in a run that has many readers, and stops nothing."""

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
        ("QUARK_PROFILING", "yes", "expected 1 (Quark's own profiler accepts no other value) or 0"),
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


def test_misspelt_name_is_said_in_one_line(workshop: Workshop) -> None:
    finished = workshop.script(SOURCE).run({"OTEL_QUANT_PROFIL": "profile.yaml"})
    assert (finished.returncode, finished.stdout) == (0, "done\n")
    assert finished.stderr == (
        "environment variable OTEL_QUANT_PROFIL is unknown and has no effect; "
        "did you mean OTEL_QUANT_PROFILE?\n"
    )


def test_misspelt_exporter_is_named_although_the_sdk_then_loads_nothing(workshop: Workshop) -> None:
    finished = workshop.script(SOURCE).run({"OTEL_TRACES_EXPORTER": "quark_yml"})
    assert (finished.returncode, finished.stdout) == (0, "done\n")
    ours = [line for line in finished.stderr.splitlines() if "did you mean" in line]
    assert ours[0] == (
        "environment variable OTEL_TRACES_EXPORTER names 'quark_yml', which is no exporter; "
        "did you mean 'quark_yaml'?"
    )
