"""A metric that the program adds to the profiler reaches the file, the spans and the meter."""

from __future__ import annotations

import yaml

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import Ran, Workshop

SOURCE = """
from otel_quant.quark import CheckpointMetric, GlobalProfiler, ProfileStep, SummaryMetric

class Depth(CheckpointMetric):
    name = "depth"
    def get_definition(self):
        return "Layers that are quantized."
    def collect(self, context):
        return {"Start": None, "Calibration Start": 3}.get(context.step_name, 5)

class Accuracy(SummaryMetric):
    name = "accuracy"
    def get_definition(self):
        return "Share of the images that are recognized."
    def collect(self, context):
        return 0.75

profiler = GlobalProfiler()
profiler.checkpoint_metrics.append(Depth())
profiler.summary_metrics.append(Accuracy())
with profiler.scope(ProfileStep.CALIBRATION):
    pass
"""


def test_custom_metrics_reach_the_file_the_spans_and_the_meter(
    ran: Ran, workshop: Workshop, otlp: OtlpReceiver
) -> None:
    ran(SOURCE, QUARK_PROFILING="1")

    text = (workshop.folder / "quark_profile.yaml").read_text()
    profile = yaml.safe_load(text)
    assert [record.get("depth") for record in profile["memory_usage"]] == [None, 3, 5, 5]
    assert profile["accuracy"] == 0.75
    assert "# - depth: Layers that are quantized.\n" in text
    assert "# - accuracy: Share of the images that are recognized.\n" in text

    def custom(name: str) -> dict[str, object]:
        attributes = otlp.span(name).attributes
        return {key: value for key, value in attributes.items() if ".custom." in key}

    assert custom("Calibration") == {"quant.custom.depth": 5}
    assert custom("quantization") == {"quant.custom.depth": 5, "quant.custom.accuracy": 0.75}
    step = dict.fromkeys(("quant.step.kind", "quant.step.name"), "Calibration")
    depth = otlp.point("quant.custom.depth", **step)
    assert (depth.type, depth.value) == ("gauge", 5)
    assert otlp.point("quant.custom.accuracy").value == 0.75
    records = otlp.records_of("quant.checkpoint.taken")
    assert [record.attributes.get("quant.custom.depth") for record in records] == [None, 3, 5, 5]
