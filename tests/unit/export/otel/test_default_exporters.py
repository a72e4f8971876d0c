"""Which exporters there are, from the environment, a file or only the local file; `instrument(tracer_provider=..., ...)` uses those given."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Iterator, Mapping

import pytest

from otel_quant import QuantInstrumentor, step
from otel_quant.base.destinations import sends
from otel_quant.export.otel.automatic_providers import defaults_in
from otel_quant.schema import semconv
from tests.fixtures import programs
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import Finished, Workshop, clean_environment, steps_in
from tests.unit.export.otel.signals import Signals

DISTRIBUTION = {
    "OTEL_TRACES_EXPORTER": "otlp", "OTEL_METRICS_EXPORTER": "otlp", "OTEL_LOGS_EXPORTER": "otlp",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
}  # fmt: skip
"""What OpenTelemetry's distribution sets."""

PARENT_AND_CHILD = """
import os, subprocess, sys
import otel_quant

with otel_quant.step("step"):
    if len(sys.argv) == 1:
        subprocess.run([sys.executable, __file__, "child"], check=True)
print(sorted(name for name in os.environ if name.startswith("OTEL_")), flush=True)
"""
AUTOMATIC = """
from otel_quant.export.otel.automatic_providers import AUTOMATIC_PROVIDERS
print(*AUTOMATIC_PROVIDERS)
import os
os._exit(0)
"""
OWN_EXPORTER = """
import sys
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(sys.argv[1], insecure=True)))
provider.get_tracer("program").start_span("its own").end()
"""


def run(workshop: Workshop, source: str, *arguments: str, variables: Mapping[str, str]) -> Finished:
    """Runs a script as a user does who has set nothing but the variables."""
    command = workshop.script(source).command(*arguments)
    return programs.run(command, workshop.folder, clean_environment(variables))


STEPS = ["Start", "step Start", "step End", "End"]


@pytest.mark.parametrize(
    ("variables", "file"),
    [
        ({"OTEL_QUANT_PROFILE": "profile.yaml"}, "profile"),
        ({"OTEL_TRACES_EXPORTER": "quark_yaml"}, "quark_profile"),
        ({"QUARK_PROFILING": "1"}, "quark_profile"),
    ],
)
def test_a_file_without_an_endpoint_is_written_without_logs_also_by_children(
    workshop: Workshop, variables: Mapping[str, str], file: str
) -> None:
    finished = run(workshop, PARENT_AND_CHILD, variables=variables)

    asked = [name for name in variables if name.startswith("OTEL_")]
    assert (finished.returncode, finished.stderr) == (0, "")
    child = sorted([*asked, "OTEL_QUANT_RUN_NAME"])
    assert finished.stdout == f"{child}\n{asked}\n", "what the distribution added is taken out"
    files = sorted(workshop.folder.glob("*.yaml"))
    assert len(files) == 2
    assert workshop.folder / f"{file}.yaml" in files
    for each in files:
        assert steps_in(each) == STEPS


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OTEL_QUANT_PROFILE": "p.yaml", "OTEL_TRACES_EXPORTER": "otlp"},
        {"OTEL_TRACES_EXPORTER": "quark_yaml,otlp"},
        {"OTEL_QUANT_PROFILE": "p.yaml", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"},
    ],
)
def test_telemetry_is_sent_without_a_file_or_with_an_exporter_or_an_endpoint(
    workshop: Workshop, variables: Mapping[str, str]
) -> None:
    finished = run(workshop, AUTOMATIC, variables=variables)

    assert (finished.stdout, finished.stderr) == ("logs traces metrics\n", "")


def test_an_exporter_configured_by_the_program_still_sends(
    workshop: Workshop, otlp: OtlpReceiver
) -> None:
    variables = {"OTEL_QUANT_PROFILE": "profile.yaml"}
    finished = run(workshop, OWN_EXPORTER, otlp.grpc_endpoint, variables=variables)

    assert (finished.returncode, finished.stderr) == (0, "")
    assert otlp.span_names() == ["its own"]


@pytest.mark.parametrize(
    ("at_start", "now", "expected"),
    [
        ({}, DISTRIBUTION, set(DISTRIBUTION)),
        ({}, {}, set()),
        ({"OTEL_TRACES_EXPORTER": ""}, DISTRIBUTION, set(DISTRIBUTION)),
        ({"OTEL_TRACES_EXPORTER": "quark_yaml"}, {**DISTRIBUTION, "OTEL_TRACES_EXPORTER": "quark_yaml"}, set(DISTRIBUTION) - {"OTEL_TRACES_EXPORTER"}),
        ({"OTEL_TRACES_EXPORTER": "none"}, {**DISTRIBUTION, "OTEL_TRACES_EXPORTER": "none"}, set(DISTRIBUTION) - {"OTEL_TRACES_EXPORTER"}),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, DISTRIBUTION, None),
        ({"OTEL_LOGS_EXPORTER": "console"}, {**DISTRIBUTION, "OTEL_LOGS_EXPORTER": "console"}, None),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, DISTRIBUTION, set(DISTRIBUTION) - {"OTEL_EXPORTER_OTLP_PROTOCOL"}),
        ({"OTEL_CONFIG_FILE": "otel.yaml"}, {"OTEL_CONFIG_FILE": "otel.yaml"}, None),
        ({"OTEL_PYTHON_DISTRO": "vendor"}, {**DISTRIBUTION, "OTEL_PYTHON_DISTRO": "vendor"}, None),
        # Set by the program, or by a distribution that knows its endpoint:
        ({}, {**DISTRIBUTION, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4317"}, None),
        ({}, {**DISTRIBUTION, "OTEL_METRICS_EXPORTER": "prometheus"}, None),
    ],
)  # fmt: skip
def test_only_what_the_distribution_added_counts_as_not_configured(
    at_start: Mapping[str, str], now: Mapping[str, str], expected: set[str] | None
) -> None:
    added = defaults_in(now, at_start)
    is_sent = sends({name: value for name, value in now.items() if name not in added})
    assert (None if is_sent else added) == expected


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


def test_a_configuration_file_sets_the_signals_and_the_environment_our_settings(
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
    assert [record.body for record in otlp.records_of(semconv.CHECKPOINT_EVENT)] == STEPS
    assert otlp.point(semconv.STEP_DURATION, quant__step__kind="User-Defined").count == 1
    assert steps_in(workshop.folder / "declared.yaml") == STEPS


def test_a_misplaced_setting_in_the_configuration_is_rejected_with_the_right_place(
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


LIVE = {semconv.RUN_MEMORY_USAGE, semconv.RUN_DISK_IO, semconv.STEP_ACTIVE}


class Backend(Signals):
    """Providers of the three signals, and what reached them."""

    def instrument(self) -> None:
        QuantInstrumentor().instrument(
            tracer_provider=self.tracers, meter_provider=self.meters, logger_provider=self.loggers
        )

    def span_names(self) -> list[str]:
        return [span.name for span in self.all_spans()]

    def bodies(self) -> list[str]:
        return [str(body) for _, body, *_ in self.records()]

    def metrics(self) -> set[str]:
        return {name for name, _ in self.points()}


@pytest.fixture(autouse=True)
def uninstrumented() -> Iterator[None]:
    QuantInstrumentor().uninstrument()
    yield
    QuantInstrumentor().uninstrument()


def test_all_signals_go_to_the_providers_that_were_given() -> None:
    backend = Backend()
    backend.instrument()
    with step("step"):
        live = backend.metrics()
    QuantInstrumentor().uninstrument()

    assert backend.span_names() == ["step", "quantization"]
    first, *checkpoints, answer, last = backend.bodies()
    assert (first, *checkpoints, last) == ("quantization started", *STEPS)
    assert answer.startswith("Memory peaked at ")
    assert live >= LIVE
    assert semconv.STEP_DURATION in backend.metrics()


def test_nothing_goes_to_them_after_uninstrument() -> None:
    backend, other = Backend(), Backend()
    backend.instrument()
    with step("before"):
        pass
    QuantInstrumentor().uninstrument()
    spans, records = backend.span_names(), backend.bodies()
    other.instrument()
    with step("after"):
        assert not backend.metrics() & LIVE
    QuantInstrumentor().uninstrument()

    assert (backend.span_names(), backend.bodies()) == (spans, records)
    assert other.span_names() == ["after", "quantization"]


def test_an_active_run_ends_before_the_providers_change() -> None:
    backend, other = Backend(), Backend()
    backend.instrument()
    with step("open"):
        QuantInstrumentor().uninstrument()
        other.instrument()
    with step("next"):
        pass
    QuantInstrumentor().uninstrument()

    assert backend.span_names() == ["open", "quantization"]
    assert other.span_names() == ["next", "quantization"]


def test_a_meter_provider_that_is_given_twice_shows_the_second_run_live_too() -> None:
    backend = Backend()
    for _ in range(2):
        backend.instrument()
        with step("step"):
            assert backend.metrics() >= LIVE
        QuantInstrumentor().uninstrument()


def test_a_point_of_a_counter_names_the_span_of_the_last_step() -> None:
    backend = Backend()
    backend.instrument()
    for steps in (1, 2):
        for _ in range(steps):
            with step("step"):
                pass
        exemplars = backend.exemplars(semconv.STEP_CPU_TIME)
    last = backend.all_spans()[-1].context
    QuantInstrumentor().uninstrument()
    assert last is not None
    assert set(exemplars) == {last.span_id}


def test_the_last_steps_are_in_the_metrics_of_the_replaced_providers() -> None:
    backend = Backend()
    backend.instrument()
    for seconds in (0.0, 0.1):
        with step("step"):
            began = time.process_time()
            while time.process_time() < began + seconds:
                pass
    QuantInstrumentor().uninstrument()
    assert sum(value for _, value in backend.points()[semconv.STEP_CPU_TIME, "s"]) >= 0.09


def test_uninstrument_keeps_no_reference_to_them() -> None:
    backend = Backend()
    backend.instrument()
    with step("step"):
        pass
    QuantInstrumentor().uninstrument()
    providers = [weakref.ref(each) for each in (backend.tracers, backend.meters, backend.loggers)]
    del backend
    gc.collect()

    assert [provider() for provider in providers] == [None, None, None]
