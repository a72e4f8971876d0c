"""A configuration file (OTEL_CONFIG_FILE) replaces OpenTelemetry's variables, and not ours."""

from __future__ import annotations

import yaml

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import Workshop

CONFIGURATION = """
file_format: "1.0"
tracer_provider:
  processors:
    - batch: {exporter: {otlp_grpc: {endpoint: "ENDPOINT"}}}
    - simple: {exporter: {quark_yaml: {path: declared.yaml}}}
meter_provider:
  readers:
    - periodic: {exporter: {otlp_grpc: {endpoint: "ENDPOINT"}}}
logger_provider:
  processors:
    - batch: {exporter: {otlp_grpc: {endpoint: "ENDPOINT"}}}
"""
OPTIONS = """
instrumentation/development:
  python:
    otel_quant: {sample_interval: 10}
"""
STEP = """
import otel_quant
with otel_quant.step("step"):
    print(otel_quant.capture.scope.RUNTIME.settings.sample_interval)
"""
IGNORED = (
    "OTEL_CONFIG_FILE is set; ignoring configurator kwargs: ['auto_instrumentation_version']\n"
)
"""What the SDK says of each file."""


def test_all_signals_and_the_file_come_as_the_configuration_says_and_settings_from_the_environment(
    workshop: Workshop, otlp: OtlpReceiver
) -> None:
    (workshop.folder / "otel.yaml").write_text(
        CONFIGURATION.replace("ENDPOINT", otlp.grpc_endpoint)
    )
    finished = workshop.script(STEP).run(
        {"OTEL_CONFIG_FILE": "otel.yaml", "OTEL_QUANT_SAMPLE_INTERVAL": "20"}
    )

    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "0.02\n", IGNORED)
    assert otlp.tree() == [("quantization", [("step", [])])]
    assert [record.body for record in otlp.records_of("quant.checkpoint.taken")] == [
        "Start", "step Start", "step End", "End"
    ]  # fmt: skip
    assert otlp.point("quant.step.duration", quant__step__kind="User-Defined").count == 1
    profile = yaml.safe_load((workshop.folder / "declared.yaml").read_text())
    assert [record["step"] for record in profile["memory_usage"]] == [
        "Start", "step Start", "step End", "End"
    ]  # fmt: skip


def test_a_setting_in_the_configuration_is_refused_with_the_place_where_it_belongs(
    workshop: Workshop,
) -> None:
    (workshop.folder / "otel.yaml").write_text('file_format: "1.0"\n' + OPTIONS)
    finished = workshop.script(STEP).run({"OTEL_CONFIG_FILE": "otel.yaml"})

    assert (finished.returncode, finished.stdout) == (0, "0.05\n")
    assert finished.stderr.startswith(
        IGNORED
        + "instrument() is given sample_interval=10, which is ignored; expected tracer_provider, "
        "meter_provider, logger_provider; all settings are environment variables (OTEL_QUANT_...)\n"
    )
