"""``OTEL_TRACES_EXPORTER=quark_yaml``: the file comes with no server, and whatever is sampled."""

from __future__ import annotations

import pytest

from otel_quant.recordings.profile_reader import parse
from tests.fixtures.instrumented import Workshop
from tests.fixtures.otlp_receiver import OtlpReceiver

SOURCE = """
import otel_quant

with otel_quant.step("Model Quantization"):
    with otel_quant.step(otel_quant.ProfileStep.CALIBRATION):
        pass
"""
STEPS = [
    "Start", "Model Quantization Start", "Calibration Start", "Calibration End",
    "Model Quantization End", "End",
]  # fmt: skip


def assert_file_is_whole(workshop: Workshop) -> None:
    profile = parse((workshop.folder / "quark_profile.yaml").read_text())
    assert [record["step"] for record in profile.records] == STEPS
    assert profile.complete


def test_the_exporter_alone_writes_the_file(workshop: Workshop) -> None:
    finished = workshop.script(SOURCE).run({"OTEL_TRACES_EXPORTER": "quark_yaml"})
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")
    assert_file_is_whole(workshop)


@pytest.mark.parametrize(("sampler", "spans"), [("always_on", 3), ("always_off", 0)])
def test_beside_otlp_the_file_does_not_depend_on_sampling(
    workshop: Workshop, otlp: OtlpReceiver, sampler: str, spans: int
) -> None:
    finished = workshop.script(SOURCE).run(
        {
            **otlp.environment("http/protobuf"),
            "OTEL_TRACES_EXPORTER": "otlp,quark_yaml",
            "OTEL_TRACES_SAMPLER": sampler,
        }
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    assert len(otlp.spans) == spans
    assert [record.body for record in otlp.records_of("quant.checkpoint.taken")] == STEPS
    assert_file_is_whole(workshop)
