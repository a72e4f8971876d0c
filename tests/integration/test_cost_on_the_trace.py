"""A real quantization puts the cost of its models on the trace and into the local file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
import yaml

from otel_quant.cost import analyze
from otel_quant.cost.graph import runtime_here
from otel_quant.schema import semconv
from tests.fixtures.onnx_builder import floats, model_of_text
from tests.fixtures.otlp_messages import Span
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import WITHOUT_TORCHAO, Workshop, reader

FLOAT = """
    <ir_version: 8, opset_import: ["" : 17]>
    agraph (float[1, 3, 16, 16] x) => (float[1, 8, 16, 16] y)
    { y = Conv <pads = [1, 1, 1, 1]> (x, weight) }
"""

STATIC = """
import sys
from LIBRARY import quantize_static

for name in sys.argv[1:]:
    quantize_static("float.onnx", name, Reader())
"""
DYNAMIC = FLOAT.replace("float[1, ", "float[N, ")

ONNXRUNTIME = "onnxruntime.quantization"
SCRIPT = reader(1, 3, 16, 16) + STATIC.replace("LIBRARY", ONNXRUNTIME)

WITHOUT_CALIBRATION = """
from onnxruntime.quantization import QuantType, quantize_dynamic

quantize_dynamic("float.onnx", "int8.onnx", weight_type=QuantType.QUInt8)
"""


def quantize(
    folder: Path,
    otlp: OtlpReceiver,
    *outputs: str,
    model: str = FLOAT,
    script: str = SCRIPT,
    **env: str,
) -> None:
    onnx.save(model_of_text(model, **floats(0, weight=(8, 3, 3, 3))), folder / "float.onnx")
    variables = {**otlp.environment("grpc"), "OTEL_QUANT_PROFILE": "profile.yaml", **env}
    done = Workshop(folder).script(script).run(variables, *outputs, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]


def models_costed(otlp: OtlpReceiver, *names: str) -> Iterator[tuple[Span, str, str]]:
    """Yields the span of each model's cost, its role and the name of its file."""
    pairs = [pair for name in names for pair in (("float", "float.onnx"), ("quantized", name))]
    for span, (role, name) in zip(otlp.spans_named("model cost"), pairs, strict=True):
        yield span, role, name


def model_attributes(attributes: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in attributes.items() if key.startswith("quant.model.")}


def test_both_models_are_costed_beside_the_steps(tmp_path: Path, otlp: OtlpReceiver) -> None:
    quantize(tmp_path, otlp, "int8.onnx")

    root = otlp.span("quantization")
    spans = otlp.spans_named("model cost")
    expected: dict[str, Any] = {}
    for span, role, name in models_costed(otlp, "int8.onnx"):
        cost = analyze(tmp_path / name)
        share, stored = (1.0, "int8") if role == "quantized" else (0.0, "float32")
        known = ("params", "macs", "backward_macs", "weight_bytes", "peak_activation_bytes", "max_memory_node")  # fmt: skip
        totals = {
            semconv.of_model(role, figure): value
            for figure, value in {
                **{name: getattr(cost, name) for name in known}, "nodes": len(cost.nodes),
                "size": (tmp_path / name).stat().st_size, "macs_contraction": 8 * 16 * 16 * 27,
                "memory": cost.memory_bytes, "qdq_nodes": cost.quantize_nodes + cost.dequantize_nodes,
                "input_shapes": ("x=1x3x16x16",), "integer_mac_share": share,
                f"precision.{stored}": 1.0, "expected_integer_mac_share": share,
                f"expected_precision.{stored}": 1.0,
                **{f"stored.{dtype}": round(part, 6) for dtype, part in cost.stored.items()},
            }.items()
        }  # fmt: skip
        if role == "quantized":
            totals["quant.model.quantized.runtime"] = runtime_here().title
            size = f"{totals[semconv.of_model(role, 'size')] / 1000:.2f} kB"
            totals |= {
                semconv.of_model(role, "audit.problem_count"): 0,
                semconv.of_model(
                    role, "audit.answer"
                ): "no fault found, without a configuration to compare "
                f"with: 1 of 1 layer int8, {size} as forecast",
            }
        assert span.parent_id == root.span_id
        assert model_attributes(span.attributes) == {
            **totals, semconv.MODEL_ROLE: role, semconv.MODEL_PATH: name
        }  # fmt: skip
        expected |= totals
    assert model_attributes(root.attributes) == expected

    # No part of that time is charged to a step.
    for step in otlp.children(root):
        if step.name != "model cost":
            for span in spans:
                assert step.end_ns <= span.start_ns or span.end_ns <= step.start_ns

    records = otlp.records_of(semconv.MODEL_COST_EVENT)
    assert [record.attributes[semconv.MODEL_ROLE] for record in records] == ["float", "quantized"]
    assert records[0].body["heaviest"][0]["macs"] == 8 * 16 * 16 * 27
    for role in ("float", "quantized"):
        for figure in ("size", "params", "macs_contraction"):
            point = otlp.point(f"quant.model.{figure}", **{semconv.MODEL_ROLE: role})
            assert point.value == expected[f"quant.model.{role}.{figure}"]

    section = yaml.safe_load((tmp_path / "profile.yaml").read_text())["onnx_model_cost"]
    assert [(entry["role"], entry["path"]) for entry in section] == [
        ("float", "float.onnx"), ("quantized", "int8.onnx")
    ]  # fmt: skip
    for entry in section:
        for figure, value in entry.items():
            if figure not in ("role", "path"):
                sent = expected[f"quant.model.{entry['role']}.{figure}"]
                assert value == (list(sent) if isinstance(sent, tuple) else sent)


BFLOAT16 = """
from quark.onnx import ModelQuantizer
from quark.onnx.quantization.config import Config, get_default_config

config = Config(global_quant_config=get_default_config("BF16"))
ModelQuantizer(config).quantize_model("float.onnx", "bf16.onnx", Reader())
"""


@pytest.mark.parametrize(
    ("library", "more"),
    [pytest.param("quark.onnx", BFLOAT16, marks=pytest.mark.quark), (ONNXRUNTIME, "")],
)
def test_open_lengths_of_a_model_are_taken_from_the_samples(
    library: str, more: str, tmp_path: Path, otlp: OtlpReceiver
) -> None:
    """Also for a format that is not calibrated, as BF16 is not."""
    script = WITHOUT_TORCHAO + reader(4, 3, 16, 16) + STATIC.replace("LIBRARY", library) + more
    quantize(tmp_path, otlp, "int8.onnx", model=DYNAMIC, script=script)

    names = ("int8.onnx", "bf16.onnx") if more else ("int8.onnx",)
    for span, role, name in models_costed(otlp, *names):
        cost = analyze(tmp_path / name, inputs={"x": (4, 3, 16, 16)})
        prefix = f"quant.model.{role}."
        assert span.attributes[prefix + "input_shapes"] == ("x=4x3x16x16",)
        assert span.attributes[prefix + "macs_contraction"] == 4 * 8 * 16 * 16 * 27
        assert span.attributes[prefix + "macs"] == cost.macs
        assert span.attributes[prefix + "peak_activation_bytes"] == cost.peak_activation_bytes
        assert prefix + "assumed" not in span.attributes


def test_open_lengths_are_assumed_without_a_calibration(tmp_path: Path, otlp: OtlpReceiver) -> None:
    quantize(tmp_path, otlp, model=DYNAMIC, script=WITHOUT_CALIBRATION)

    for span, role, _ in models_costed(otlp, ""):
        prefix = f"quant.model.{role}."
        assert span.attributes[prefix + "assumed"] == ("N=1",)
        assert span.attributes[prefix + "macs_contraction"] == 8 * 16 * 16 * 27
        assert prefix + "input_shapes" not in span.attributes
    section = yaml.safe_load((tmp_path / "profile.yaml").read_text())["onnx_model_cost"]
    assert [entry["assumed"] for entry in section] == [["N=1"], ["N=1"]]


def test_models_that_cannot_be_costed_are_warnings_and_the_script_continues(
    tmp_path: Path, otlp: OtlpReceiver
) -> None:
    off = {"OTEL_QUANT_COST_TIMEOUT": "0", "OTEL_QUANT_PATHS": "false"}
    quantize(tmp_path, otlp, "int8.onnx", **off)

    late = (
        "the time limit passed; expected a longer one: --time-limit, in a quantization "
        "OTEL_QUANT_COST_TIMEOUT"
    )
    reason = {"message": late}
    identity = [{semconv.MODEL_ROLE: "float"}, {semconv.MODEL_ROLE: "quantized"}]
    spans = otlp.spans_named("model cost")
    assert [model_attributes(span.attributes) for span in spans] == identity
    for span in spans:
        assert [(event.name, event.attributes) for event in span.events] == [
            (semconv.COST_FAILED_EVENT, reason)
        ]
    records = otlp.records_of(semconv.COST_FAILED_EVENT)
    assert [model_attributes(record.attributes) for record in records] == identity
    assert [(record.severity, record.body) for record in records] == [("WARN", reason)] * 2
    assert model_attributes(otlp.span("quantization").attributes) == {}
    section = yaml.safe_load((tmp_path / "profile.yaml").read_text())["onnx_model_cost"]
    assert section == [{"role": role, "error": late} for role in ("float", "quantized")]


def test_cost_can_be_switched_off(tmp_path: Path, otlp: OtlpReceiver) -> None:
    quantize(tmp_path, otlp, "int8.onnx", OTEL_QUANT_COST="false")
    assert otlp.spans_named("model cost") == []
    assert "onnx_model_cost" not in yaml.safe_load((tmp_path / "profile.yaml").read_text())
