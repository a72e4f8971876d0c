"""`otel-quant inference` sends what it measured where an endpoint is configured, and nothing elsewhere."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import Mode, OtlpReceiver
from tests.fixtures.programs import Finished, clean_environment
from tests.fixtures.programs import run as run_command
from tests.fixtures.recorded import RecordedFolder
from tests.integration.inference.planted import unsupported_operator_between

RUN = "nightly 17"
ID = {semconv.RUN_NAME: RUN}
LIBRARY = "onnxruntime"
CPU = "CPUExecutionProvider"
TRACE, ABOVE = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def run(folder: Path, environment: dict[str, str], *arguments: str) -> Finished:
    """Runs the command without the OpenTelemetry variables of the environment of the tests."""
    command = [sys.executable, "-m", "otel_quant", "inference", "--runs", "4", *arguments]
    return run_command(command, folder, clean_environment(environment))


@pytest.fixture
def folder(tmp_path: Path, files: tuple[str, str]) -> Path:
    unsupported_operator_between().save(tmp_path / "exp.onnx")
    return tmp_path


def known(found: dict[str, Any]) -> dict[str, Any]:
    """Returns what is there, with numbers as precise as in the JSON."""
    return {
        name: float(f"{value:.6g}") if isinstance(value, float) else value
        for name, value in found.items()
        if value is not None
    }


def figures(model: dict[str, Any]) -> dict[str, Any]:
    """Returns what the gauges of a model show, from the command's JSON."""
    latency = model["latency"]
    kernels = model["ran"]["kernels"]
    converting = [
        each["share"]
        for each in kernels
        if each["op_type"] in ("QuantizeLinear", "DequantizeLinear")
        or (each["op_type"] == "Transpose" and "node" not in each)
    ]
    errors = model.get("accuracy", {}).get("outputs", [])
    return {
        semconv.INFERENCE_MEDIAN: latency["median"],
        semconv.INFERENCE_P10: latency["p10"],
        semconv.INFERENCE_P90: latency["p90"],
        semconv.INFERENCE_MEMORY_PEAK: model["memory"]["peak"],
        semconv.INFERENCE_FINDINGS: len(model["findings"]),
        semconv.INFERENCE_CONVERSIONS: pytest.approx(sum(converting), rel=1e-4),
        **({semconv.INFERENCE_SQNR: errors[0]["sqnr"]} if errors else {}),
        **(
            {semconv.INFERENCE_SPEEDUP: pytest.approx(1 / latency["ratio"], rel=1e-4)}
            if latency.get("is_apart")
            else {}
        ),
    }


def test_all_three_signals_have_the_results_of_the_command(
    folder: Path, otlp: OtlpReceiver
) -> None:
    environment = otlp.environment() | {
        "OTEL_QUANT_RUN_NAME": RUN,
        "TRACEPARENT": f"00-{TRACE}-{ABOVE}-01",
    }
    arguments = ("float.onnx", "int8.onnx", "exp.onnx", "none.onnx", "--format", "json")
    done = run(folder, environment, *arguments)
    problem = (
        "loading it failed: cannot be opened: No such file or directory; expected an ONNX file"
    )
    assert (done.returncode, done.stderr) == (1, f"otel-quant: none.onnx: {problem}\n")
    result = json.loads(done.stdout)
    of_all = {**ID, semconv.LIBRARY_NAME: LIBRARY, semconv.LIBRARY_VERSION: result["version"]}

    span = otlp.span("inference")
    assert (span.trace_id, span.parent_id, span.status) == (TRACE, ABOVE, "UNSET")
    assert known(span.attributes) == {
        **of_all,
        semconv.INFERENCE_MODELS: 4,
        semconv.INFERENCE_NOISE: pytest.approx(result["noise"], rel=1e-4),
    }
    spans = {each.attributes[semconv.MODEL_NAME]: each for each in otlp.children(span)}
    assert sorted(otlp.span_names()) == ["inference", *["model inference"] * 4]
    labels = {
        name: {**ID, semconv.MODEL_NAME: name, semconv.MODEL_ROLE: role}
        for name, role in (("float", "float"), ("int8", "quantized"), ("exp", "quantized"))
    }
    points: dict[str, dict[str, Any]] = {}
    for point in otlp.points:
        if point.metric == semconv.INFERENCE_START:
            assert (point.attributes, point.value) == (ID, span.start_ns / 1e9)
        else:
            name = point.attributes[semconv.MODEL_NAME]
            assert point.attributes == {**labels[name], semconv.INFERENCE_PROVIDER: CPU}
            points.setdefault(name, {})[point.metric] = point.value
            assert [each.span_id for each in point.exemplars] == [spans[name].span_id]
    types = {
        "float": "float32 8x64, float32 64x64 -> float32 8x64",
        "int8": "uint8 8x64, int8 64x64 -> uint8 8x64",
        "exp": "uint8 1x32x32x16, int8 16x16x3x3 -> uint8 1x32x32x16",
    }
    for model in result["models"][:3]:
        name = model["path"].removesuffix(".onnx")
        ran = model["ran"]
        assert known(points[name]) == figures(model)
        assert known(spans[name].attributes) == {
            **of_all,
            **labels[name],
            **figures(model),
            semconv.INFERENCE_PROVIDER: CPU,
            semconv.MODEL_PATH: model["path"],
            semconv.INFERENCE_RUNS: 4,
            semconv.INFERENCE_WEIGHTS: model["memory"]["weights_on_disk"],
            semconv.INFERENCE_KERNEL_TIME: pytest.approx(ran["kernel_micros"] / 1e6, rel=1e-4),
        }
        records = [each for each in otlp.records if each.span_id == spans[name].span_id]
        assert [(each.event_name, each.body) for each in records] == [
            *((semconv.OPERATOR_EVENT, each["op_type"]) for each in ran["operators"]),
            *((semconv.OPERATOR_EVENT, each.get("node", each["name"])) for each in ran["kernels"]),
            *((semconv.FINDING_EVENT, each["sentence"]) for each in model["findings"]),
        ]
        # The contraction: which kernel takes longest differs on a busy machine.
        macs = [each.get("macs", 0) for each in ran["kernels"]]
        at = macs.index(max(macs))
        kernel, record = ran["kernels"][at], records[len(ran["operators"]) + at]
        assert known(record.attributes) == {
            **labels[name],
            semconv.INFERENCE_PROVIDER: CPU,
            semconv.OPERATOR_TYPE: kernel["op_type"],
            semconv.OPERATOR_NAME: kernel["node"],
            semconv.OPERATOR_KERNELS: 1,
            semconv.OPERATOR_DURATION: pytest.approx(kernel["micros"] / 1e6, rel=1e-4),
            semconv.OPERATOR_SHARE: kernel["share"],
            semconv.OPERATOR_TYPES: types[name],
            semconv.OPERATOR_MAC_RATE: pytest.approx(
                1e6 * kernel["macs"] / kernel["micros"], rel=1e-4
            ),
        }
    # Beside it, on a busy machine, either quantized model may be slower than the float one.
    kind = semconv.FINDING_KIND
    (finding,) = (each for each in result["models"][2]["findings"] if each["kind"] == "unfused")
    (made,) = (
        each.attributes
        for each in otlp.records_of(semconv.FINDING_EVENT)
        if each.attributes[kind] == "unfused"
    )
    assert known(made) == {
        **labels["exp"], kind: "unfused", semconv.FINDING_NODE: "exp",
        semconv.FINDING_SHARE: finding["share"],
    }  # fmt: skip
    failed = spans["none"]
    assert (failed.status, failed.status_message) == ("ERROR", problem)
    assert failed.attributes == {
        **of_all, semconv.MODEL_NAME: "none", semconv.MODEL_PATH: "none.onnx",
        semconv.INFERENCE_PROBLEM: problem,
    }  # fmt: skip
    (record,) = otlp.records_of(semconv.INFERENCE_FAILED_EVENT)
    assert (record.body, record.severity, record.span_id) == (problem, "WARN", failed.span_id)


def test_a_result_in_a_recording_is_a_child_of_its_run(folder: Path, otlp: OtlpReceiver) -> None:
    recorded = RecordedFolder(folder / "recording")
    process = recorded.process().begin(
        trace_id=TRACE, span_id=ABOVE, attributes={semconv.RUN_NAME: "quantize float"}
    )
    process.end(2.0)
    done = run(folder, otlp.environment(), "float.onnx", "--record", "recording")
    assert (done.returncode, done.stderr) == (0, "")
    span = otlp.span("inference")
    assert (span.trace_id, span.parent_id) == (TRACE, ABOVE)
    assert span.attributes[semconv.RUN_NAME] == "quantize float"


def test_a_run_without_a_name_is_named_after_service_model_and_time(
    folder: Path, otlp: OtlpReceiver
) -> None:
    environment = otlp.environment()
    del environment["OTEL_SERVICE_NAME"]
    assert run(folder, environment, "float.onnx").returncode == 0
    span = otlp.span("inference")
    service, model, time = span.attributes[semconv.RUN_NAME].split(" ")
    assert (service, model, time[-1], span.parent_id) == ("otel-quant", "float", "Z", "")
    assert span.resource["service.name"] == "otel-quant"


def test_no_text_that_may_contain_a_path_is_sent_if_paths_are_off(
    folder: Path, otlp: OtlpReceiver
) -> None:
    environment = otlp.environment() | {"OTEL_QUANT_PATHS": "false"}
    assert run(folder, environment, "float.onnx", "int8.onnx", "none.onnx").returncode == 1
    names = [span.attributes[semconv.MODEL_NAME] for span in otlp.spans_named("model inference")]
    assert sorted(names) == ["model 1", "model 2", "model 3"]
    assert ".onnx" not in str([otlp.spans, otlp.records, otlp.points])


def test_log_records_and_metrics_of_an_unsampled_trace_are_sent(
    folder: Path, otlp: OtlpReceiver
) -> None:
    environment = otlp.environment() | {"TRACEPARENT": f"00-{TRACE}-{ABOVE}-00"}
    done = run(folder, environment, "float.onnx")
    assert (done.returncode, done.stderr) == (0, "")
    assert otlp.spans == []
    assert {record.trace_id for record in otlp.records} == {TRACE}
    assert semconv.INFERENCE_MEDIAN in otlp.metric_names()


@pytest.mark.parametrize(
    ("mode", "protocol"),
    [
        *((mode, "grpc") for mode in (Mode.REFUSE, Mode.HANG, Mode.ERROR)),
        (Mode.REFUSE, "http/protobuf"),
    ],
)
def test_telemetry_for_an_unreachable_endpoint_is_kept_and_sent_later(
    folder: Path, otlp: OtlpReceiver, protocol: Any, mode: Mode
) -> None:
    environment = otlp.environment(protocol) | {"OTEL_QUANT_EXIT_TIMEOUT": "1000"}
    otlp.become(mode)
    done = run(folder, environment, "float.onnx", "--format", "json")
    assert done.returncode == 0
    result = json.loads(done.stdout)
    (model,) = result["models"]
    assert model["path"] == "float.onnx"
    (line,) = done.stderr.splitlines()
    kept_in = re.fullmatch(
        r"the telemetry of the inference was not sent: .+; `otel-quant send (\S+)` sends it", line
    )
    assert kept_in is not None, line
    kept = kept_in[1]

    otlp.become(Mode.ACCEPT)
    sent = run_command([sys.executable, "-m", "otel_quant", "send", kept], folder, environment)
    assert (sent.returncode, sent.stdout, sent.stderr) == (0, f"{kept}: sent\n", "")
    assert sorted(otlp.span_names()) == ["inference", "model inference"]
    assert (otlp.span("inference").start_ns, otlp.span("inference").end_ns) == (
        result["began_ns"], result["ended_ns"],
    )  # fmt: skip
    assert {p.metric: p.value for p in otlp.points} == {
        semconv.INFERENCE_START: result["began_ns"] / 1e9, **figures(model),
    }  # fmt: skip
    assert otlp.records_of(semconv.OPERATOR_EVENT)
    ids = {(span.trace_id, span.span_id) for span in otlp.spans}
    again = run_command([sys.executable, "-m", "otel_quant", "send", kept], folder, environment)
    assert again.returncode == 0
    assert {(span.trace_id, span.span_id) for span in otlp.spans} == ids


@pytest.mark.parametrize(
    "environment",
    [{}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:1", "OTEL_SDK_DISABLED": "true"}],
    ids=["nothing is configured", "the SDK is switched off"],
)
def test_opentelemetry_is_not_loaded_if_nothing_is_sent(
    folder: Path, environment: dict[str, str]
) -> None:
    code = (
        "import sys; from otel_quant.cli import main; code = main(sys.argv[1:]);"
        "print(*[name for name in sys.modules if name.startswith('opentelemetry')], file=sys.stderr);"
        "sys.exit(code)"
    )
    command = [sys.executable, "-c", code, "inference", "--runs", "2", "float.onnx"]
    done = run_command(command, folder, clean_environment(environment))
    assert (done.returncode, done.stderr) == (0, "\n")
