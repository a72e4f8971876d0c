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


HOSTILE = """
import math
import otel_quant
from otel_quant.quark import CheckpointMetric, GlobalProfiler

class Metric(CheckpointMetric):
    def __init__(self, name, value):
        self.given, self.value = name, value
    @property
    def name(self):
        return self.given() if callable(self.given) else self.given
    def get_definition(self):
        return "A metric."
    def collect(self, context):
        return self.value() if callable(self.value) else self.value

def fail():
    raise RuntimeError("made to fail")

profiler = GlobalProfiler()
profiler.checkpoint_metrics += [
    Metric("first", 1), Metric("layer 3 (fp8)", 2), Metric("layer 3 [fp8]", 3), Metric("nan", math.nan),
    Metric("list", [1, 2]), Metric("object", object()), Metric("fails", fail), Metric(fail, 4),
    Metric("many bits", 10**30), Metric("lone", "\\ud800"), Metric("last", 5),
]
with profiler.scope("Calibration"):
    pass
"""


def test_no_metric_silences_those_after_it(workshop: Workshop, otlp: OtlpReceiver) -> None:
    finished = workshop.script(HOSTILE).run(
        {**otlp.environment("http/protobuf"), "QUARK_PROFILING": "1"}
    )
    assert finished.returncode == 0
    lines = finished.stderr.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "metric fails failed and is skipped; the program goes on without it",
        "metric Metric failed and is skipped; the program goes on without it",
        "custom metric 'layer 3 (fp8)' is sent as the metric 'quant.custom.layer_3__fp8_'",
        "custom metric 'layer 3 [fp8]' is sent as the metric 'quant.custom.layer_3__fp8__2'",
        "custom metric 'many bits' is sent as the metric 'quant.custom.many_bits'",
        "definition of Metric failed and is skipped; the program goes on without it",
    ]
    points = {
        point.metric.removeprefix("quant.custom."): point.value
        for point in otlp.points
        if ".custom." in point.metric and "quant.step.name" in point.attributes
    }
    assert points == {
        "first": 1,
        "layer_3__fp8_": 2,
        "layer_3__fp8__2": 3,
        "many_bits": 1e30,
        "last": 5,
    }
    attributes = otlp.span("Calibration").attributes
    assert {key for key in attributes if ".custom." in key} == {
        f"quant.custom.{name}" for name in (
            "first", "layer 3 (fp8)", "layer 3 [fp8]", "nan", "many bits", "lone", "last"
        )
    }  # fmt: skip
    record = yaml.safe_load((workshop.folder / "quark_profile.yaml").read_text())["memory_usage"][1]
    assert (record["layer 3 (fp8)"], record["layer 3 [fp8]"], record["last"]) == (2, 3, 5)


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
