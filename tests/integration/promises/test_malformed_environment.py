"""What is malformed or misspelt is said once, in a run that has many readers, and stops nothing."""

from __future__ import annotations

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import Workshop

SOURCE = """
import otel_quant

for _ in range(3):
    with otel_quant.step("step"):
        pass
print("done")
"""


MALFORMED = {
    "OTEL_QUANT_YAML_STRICT": ("maybe", "true or false"),
    "OTEL_QUANT_EXACT_PEAKS": ("exactly", "true or false"),
    "OTEL_QUANT_GPU": ("2", "true or false"),
    "OTEL_QUANT_PATHS": ("nein", "true or false"),
    "OTEL_QUANT_COST": ("free", "true or false"),
    "OTEL_QUANT_SAMPLE_INTERVAL": ("often", "a number of milliseconds, 0 or more"),
    "OTEL_QUANT_COST_TIMEOUT": ("-5", "a number of milliseconds, 0 or more"),
    "OTEL_QUANT_EXIT_TIMEOUT": ("5s", "a number of milliseconds, 0 or more"),
    "QUARK_PROFILING": ("yes", "1 (Quark's own profiler accepts no other value) or 0"),
    "OTEL_QUANT_LIBRARIES": ("quark,nosuch", "names out of "),
    "TRACEPARENT": ("00-zz-1-01", "00-<32 hexadecimal digits>-<16 hexadecimal digits>"),
}


def test_one_warning_each_names_variable_value_and_what_was_expected(
    workshop: Workshop, otlp: OtlpReceiver
) -> None:
    values = {name: value for name, (value, _) in MALFORMED.items()}
    finished = workshop.script(SOURCE).run({**otlp.environment("http/protobuf"), **values})
    assert (finished.returncode, finished.stdout) == (0, "done\n")
    lines = finished.stderr.splitlines()
    assert len(lines) == len(MALFORMED)
    for name, (value, expected) in MALFORMED.items():
        (line,) = (line for line in lines if f"variable {name} " in line)
        assert value.rpartition(",")[2] in line
        assert f"expected {expected}" in line
    assert otlp.tree() == [("quantization", [("step", [])] * 3)]
    assert otlp.span("quantization").parent_id == ""


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (
            "OTEL_QUANT_PROFIL", "profile.yaml",
            "OTEL_QUANT_PROFIL is unknown and has no effect; did you mean OTEL_QUANT_PROFILE?",
        ),
        (  # although the SDK then loads nothing
            "OTEL_TRACES_EXPORTER", "quark_yml",
            "OTEL_TRACES_EXPORTER names 'quark_yml', which is no exporter; did you mean 'quark_yaml'?",
        ),
    ],
)  # fmt: skip
def test_a_misspelt_name_is_said_in_one_line(
    workshop: Workshop, name: str, value: str, said: str
) -> None:
    finished = workshop.script(SOURCE).run({name: value})
    assert (finished.returncode, finished.stdout) == (0, "done\n")
    ours = [line for line in finished.stderr.splitlines() if "did you mean" in line]
    assert ours[0] == f"environment variable {said}"
