"""onnxruntime.quantization reports its steps, whichever way it is used, and works as before."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from typing import Any

import pytest

from otel_quant.capture.instruments import configuration
from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import layers_of, stable_attributes
from tests.integration.libraries.conftest import Program, check_seen

pytest.importorskip("onnxruntime.quantization")

STATIC = ["Calibration", "Quantization (Static)", "Post-process"]

STEPS = {
    "static": ["Pre-process", *STATIC],
    "percentile": STATIC,
    "strided": STATIC,
    "slotted": STATIC,
    "in_memory": STATIC,
    "dynamic": ["Quantization (Dynamic)", "Post-process"],
    "configured": STATIC,
    "blocks": ["Quantization (MatMulNBits)", "Post-process"],
    "blocks_configured": ["Quantization (MatMulNBits)", "Post-process"],
    "blocks_quantizer": ["Quantization (MatMulNBits)", "Post-process"],
    "bnb4": ["Quantization (MatMulNBits)", "Post-process"],
    "half": ["Model Quantization"],
    "overridden": STATIC,
    "nothing": ["Quantization (Dynamic)", "Post-process"],
    "calibrator": ["Calibration", "Calibration"],
    "errors": [*STATIC, *["Model Evaluation"] * 5],
    "failing": ["Calibration"],
}
"""What the program does, in this order, and the steps that it is made of."""

COSTED = [
    ["pre.onnx", "out.onnx"], ["float.onnx", "out.onnx"], ["float.onnx", "out.onnx"],
    ["float.onnx", "out.onnx"], [None, "out.onnx"], ["float.onnx", "out.onnx"],
    ["float.onnx", "out.onnx"], ["float.onnx", None], ["float.onnx", "out.onnx"], ["float.onnx", None],
    ["float.onnx", "out.onnx"], ["float.onnx", "out.onnx"], ["float.onnx", "out.onnx"],
]  # fmt: skip
"""Float and quantized model of each that ends well; None for one in memory."""

MODULE = "onnxruntime.quantization."

# What is known before the model is written: nothing of its weights.
BEFORE = {
    semconv.ACTIVATION_BITS: 8, semconv.ACTIVATION_TYPE: "QInt8", semconv.CALIBRATION_METHOD: "MinMax",
    semconv.FORMAT: "QDQ", semconv.INPUT_PATH: "pre.onnx", semconv.OUTPUT_PATH: "out.onnx",
}  # fmt: skip
CONFIGURED = {
    **BEFORE, semconv.BITS: 8, semconv.GRANULARITY: "channel", semconv.PER_CHANNEL: True,
    semconv.WEIGHT_TYPE: "QInt8",
}  # fmt: skip

DYNAMIC = {
    semconv.INPUT_PATH: "float.onnx", semconv.OUTPUT_PATH: "out.onnx", semconv.BITS: 8,
    semconv.GRANULARITY: "tensor", semconv.PER_CHANNEL: False, semconv.WEIGHT_TYPE: "QInt8",
}  # fmt: skip

SIGNED = {semconv.SYMMETRIC: True, semconv.WEIGHT_COUNT: 2}
BLOCKS = {
    semconv.ALGORITHMS: ("DEFAULT",), semconv.BITS: 4, semconv.BLOCK_SIZE: 32, semconv.FORMAT: "QOperator",
    semconv.GRANULARITY: "group", semconv.SYMMETRIC: False, semconv.WEIGHT_TYPE: "uint4", semconv.WEIGHT_COUNT: 2,
}  # fmt: skip

ATTRIBUTES: dict[str, list[dict[str, Any]]] = {
    "static": [
        {
            "code.function.name": MODULE + "shape_inference.quant_pre_process",
            semconv.INPUT_PATH: "float.onnx", semconv.OUTPUT_PATH: "pre.onnx",
        },
        {
            "code.function.name": MODULE + "calibrate.MinMaxCalibrater.collect_data",
            semconv.CALIBRATION_ITEM_COUNT: 5, semconv.CALIBRATION_SAMPLE_COUNT: 5, **BEFORE,
        },
        {"code.function.name": MODULE + "qdq_quantizer.QDQQuantizer.quantize_model", **CONFIGURED, **SIGNED},
        {"code.function.name": MODULE + "onnx_model.ONNXModel.save_model_to_file", **CONFIGURED, **SIGNED},
    ],
    "dynamic": [
        {"code.function.name": MODULE + "onnx_quantizer.ONNXQuantizer.quantize_model", **DYNAMIC, **SIGNED},
        {"code.function.name": MODULE + "onnx_model.ONNXModel.save_model_to_file", **DYNAMIC, **SIGNED},
    ],
    "blocks": [
        {
            "code.function.name": MODULE + "matmul_nbits_quantizer.MatMulNBitsQuantizer.process",
            semconv.INPUT_PATH: "float.onnx", **BLOCKS,
        },
        {
            "code.function.name": MODULE + "onnx_model.ONNXModel.save_model_to_file",
            semconv.OUTPUT_PATH: "out.onnx", **BLOCKS,
        },
    ],
    "calibrator": [
        {
            "code.function.name": MODULE + "calibrate.HistogramCalibrater.collect_data",
            semconv.INPUT_PATH: "float.onnx", semconv.CALIBRATION_METHOD: "Entropy", semconv.CALIBRATION_ITEM_COUNT: 5,
            semconv.CALIBRATION_SAMPLE_COUNT: 5,
        },
        {
            "code.function.name": MODULE + "calibrate.HistogramCalibrater.compute_data",
            semconv.INPUT_PATH: "float.onnx", semconv.CALIBRATION_METHOD: "Entropy",
        },
    ],
}  # fmt: skip
"""What is known of the steps of some of them."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """The program, which has run."""
    made = Program(tmp_path_factory.mktemp("ort"), OtlpReceiver().start())
    made("ort.py")
    yield made
    made.otlp.stop()


def test_every_quantization_method_reports_its_steps(ran: Program) -> None:
    otlp = ran.otlp
    root, workers_run = otlp.spans_named("quantization")
    ways = [span for span in otlp.children(root) if span.name != "model cost"]
    assert [(way.name, [step.name for step in otlp.children(way)]) for way in ways] == [
        *STEPS.items(),
        ("pool", ["quantization"]),
    ]
    # A picklable wrapper is what the worker was given; its run is its own.
    assert [span.name for span in otlp.children(workers_run)] == [
        "Quantization (Dynamic)", "Post-process", "model cost", "model cost"
    ]  # fmt: skip

    steps = {way.name: otlp.children(way) for way in ways}
    common = {semconv.LIBRARY_NAME: "onnxruntime", semconv.LIBRARY_VERSION: _version()}
    for way, attributes in ATTRIBUTES.items():
        assert [stable_attributes(step) for step in steps[way]] == [
            {**common, **expected, semconv.STEP_NAME: name, semconv.STEP_KIND: name}
            for expected, name in zip(attributes, STEPS[way], strict=True)
        ]

    samples = {
        way: steps[way][STEPS[way].index("Calibration")].attributes
        for way in STEPS
        if "Calibration" in STEPS[way]
    }
    assert {
        way: (
            attributes.get(semconv.CALIBRATION_METHOD),
            attributes.get(semconv.CALIBRATION_SAMPLE_COUNT),
            attributes.get(semconv.CALIBRATION_SAMPLE_TOTAL),
        )
        for way, attributes in samples.items()
    } == {
        "static": ("MinMax", 5, None), "percentile": ("Percentile", 5, None),
        "strided": ("MinMax", 5, 5), "slotted": ("MinMax", 5, None),
        "in_memory": ("MinMax", 5, None), "configured": ("Entropy", 5, None),
        "calibrator": ("Entropy", 5, None), "errors": ("MinMax", 5, None),
        "overridden": ("MinMax", 5, None), "failing": ("MinMax", None, None),
    }  # fmt: skip

    failed = {span.name: span.status for span in otlp.spans if span.status == "ERROR"}
    assert failed == {"Calibration": "ERROR"}
    assert steps["failing"][0].attributes["error.type"] == "ValueError"

    costs = [span for span in otlp.children(root) if span.name == "model cost"]
    paths = [span.attributes.get(semconv.MODEL_PATH) for span in costs]
    roles = [span.attributes[semconv.MODEL_ROLE] for span in costs]
    assert [paths[n : n + 2] for n in range(0, len(paths), 2)] == COSTED
    assert roles == ["float", "quantized"] * len(COSTED)


def test_attributes_are_what_the_written_model_has(
    ran: Program, request: pytest.FixtureRequest
) -> None:
    ran.node = request.node
    [root, _] = ran.otlp.spans_named("quantization")
    uncompared = {"nothing", "calibrator", "errors", "failing", "pool"}
    ran.check_written(root, "Pre-process", "Calibration", uncompared=uncompared)
    ways = [way for way in ran.otlp.children(root) if way.name not in ("half", "model cost")]
    for step in (step for way in ways for step in ran.otlp.children(way)):
        has_written = step.name.startswith(("Quantization", "Post-process"))
        assert (semconv.WEIGHT_COUNT in step.attributes) is has_written
        if not step.attributes.get(semconv.WEIGHT_COUNT):  # it is not known yet, or there is none
            assert not step.attributes.keys() & configuration.SHOWN


def test_errors_of_tensors_and_weights_are_recorded_as_they_are_returned(ran: Program) -> None:
    otlp = ran.otlp
    activations, weights, own = json.loads((ran.cwd / "errors.json").read_text())
    expected = [
        *(
            (tensor, name, errors[name])
            for tensor, errors in activations.items()
            for name in errors
        ),
        *((name, "weight_error", error) for each in (weights, own) for name, error in each.items()),
    ]
    assert len(expected) == 10
    assert layers_of(otlp) == expected

    *_, of_tensors, of_weights, of_own = otlp.spans_named("Model Evaluation")
    errors = sorted((each["qdq_err"], tensor) for tensor, each in activations.items())
    beginning = "quant.accuracy."
    assert [
        {
            name.removeprefix(beginning): value
            for name, value in span.attributes.items()
            if name.startswith(beginning)
        }
        for span in (of_tensors, of_weights, of_own)
    ] == [
        {
            "measure": "qdq_err", "better": "higher", "unit": "dB", "count": 6,
            "minimum": errors[0][0], "median": errors[1][0], "worst": errors[0][0], "worst_layer": errors[0][1],
        },
        {
            "measure": "weight_error", "better": "higher", "unit": "dB", "count": 2,
            "minimum": min(weights.values()), "median": statistics.median(weights.values()),
            "worst": min(weights.values()), "worst_layer": min(weights, key=weights.__getitem__),
        },
        # Which values of a function of the program's are better nobody knows; one that is not finite is the worst.
        {"measure": "weight_error", "count": 2, "worst_layer": next(iter(own))},
    ]  # fmt: skip


def _version() -> str:
    import onnxruntime

    return str(onnxruntime.__version__)


@pytest.mark.parametrize("method", ["MinMax", pytest.param("Entropy", marks=pytest.mark.slow)])
def test_what_calibration_has_not_seen_is_found(program: Program, method: str) -> None:
    check_seen(program, "onnxruntime", method, script="seen_onnx.py")
