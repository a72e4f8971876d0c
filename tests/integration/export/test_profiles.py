"""Profiles arrive with what the recording has: lines, values, and the span of each step."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from otel_quant.recordings.reader import read, stacks_in
from otel_quant.schema import semconv
from tests.fixtures.otlp_messages import Frame, Profile
from tests.fixtures.otlp_receiver import Mode, OtlpReceiver, Protocol
from tests.fixtures.programs import PROGRAMS, Workshop, clean_environment, run

PROGRAM: Final = """
import multiprocessing, sys, time
import otel_quant

held = []

def grow():
    held.append(bytearray(b"x") * 20_000_000)
    time.sleep(0.1)

def work():
    with otel_quant.step("Working"):
        time.sleep(0.6)

if __name__ == "__main__":
    time.sleep(0.5)  # before the first step
    with otel_quant.step("Holding"):
        for _ in range(8):
            grow()
    with otel_quant.step("Waiting"):
        child = multiprocessing.get_context("fork").Process(target=work)
        child.start()
        child.join()
    time.sleep(0.4)
    loaded = [name for name in sys.modules if "profiles" in name]
    print(*sorted(name for name in loaded if name.startswith(("otel_quant", "opentelemetry"))))
"""

ON: Final = {"OTEL_QUANT_PROFILES": "otlp"}

Seen = dict[tuple[str, str], dict[tuple[Frame, ...], int]]
"""By the span of a step and the type of the profile."""


def recorded(folder: Path) -> Seen:
    """Returns what the stacks of the steps of a recording have; outside of them the program was seen too."""
    found: Seen = {}
    stacks = stacks_in(read(folder))
    outside = [each for each in stacks if each.where == "outside of steps"]
    assert sum(each.seen.time for each in outside) > 0.2e9
    for each in stacks:
        if each in outside:
            continue
        assert each.step is not None
        span = each.step.step.span_id
        assert span is not None
        frames = tuple((line.function, line.file, line.line) for line in each.lines)
        for type_, value in (("time", each.seen.time), ("growth", each.seen.grown)):
            if value:
                found.setdefault((span, type_), {})[frames] = value
    return found


def arrived(profiles: list[Profile]) -> Seen:
    found: Seen = {}
    for profile in profiles:
        ((_, span),) = profile.links
        assert (span, profile.type) not in found
        found[span, profile.type] = profile.values
    return found


def check_recorded(profiles: list[Profile], otlp: OtlpReceiver, folder: Path) -> None:
    """Checks that the profiles of a run of PROGRAM are whole."""
    assert arrived(profiles) == recorded(folder)
    for profile in profiles:
        ((trace, span_id),) = profile.links
        (span,) = (each for each in otlp.spans if each.span_id == span_id)
        assert (trace, profile.time_ns) == (span.trace_id, span.start_ns)
        assert span.attributes["pyroscope.profile.id"] == span_id
        assert profile.duration_ns == pytest.approx(span.end_ns - span.start_ns, abs=1e6)
        kept = (semconv.RUN_ID, semconv.RUN_NAME)
        kept += (semconv.STEP_NAME, semconv.STEP_KIND, semconv.STEP_INDEX)
        assert profile.attributes == {name: span.attributes[name] for name in kept}
        assert profile.sample_attributes == [{semconv.STEP_NAME: span.name}]
        assert (profile.scope, profile.resource) == (span.scope, span.resource)
        units = {"time": ("nanoseconds", "wall"), "growth": ("bytes", "memory")}
        unit, period = units[profile.type]
        assert (profile.unit, profile.period) == (unit, (period, unit, 1))
    by_name = {profile.attributes[semconv.STEP_NAME] for profile in profiles}
    assert by_name == {"Holding", "Waiting", "Working"}


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_each_step_has_a_time_and_a_growth_profile_and_send_sends_them_again(
    workshop: Workshop, otlp: OtlpReceiver, protocol: Protocol
) -> None:
    recording = workshop.folder / "recording"
    variables = {**otlp.environment(protocol), **ON, "OTEL_QUANT_RECORD": str(recording)}
    done = workshop.script(PROGRAM).run(variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert "opentelemetry.proto.profiles.v1development.profiles_pb2" in done.stdout.split()
    check_recorded(otlp.profiles, otlp, recording)
    profiles = list(otlp.profiles)
    otlp.clear()
    asked = clean_environment({**otlp.environment(protocol), **ON})
    done = run([PROGRAMS / "otel-quant", "send", recording], workshop.folder, asked)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(f" points of metrics, {len(profiles)} profiles sent\n")
    check_recorded(otlp.profiles, otlp, recording)


def test_profiles_are_neither_sent_nor_loaded_by_default(
    workshop: Workshop, otlp: OtlpReceiver
) -> None:
    done = workshop.script(PROGRAM).run(otlp.environment())
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")
    assert otlp.span_names() == ["quantization", "Holding", "Waiting", "quantization", "Working"]
    assert otlp.profiles == []


@pytest.mark.parametrize(
    ("protocol", "words"),
    [
        ("grpc", "Failed to export profiles to {address}, error code: StatusCode.UNIMPLEMENTED"),
        ("http/protobuf", "Failed to export profiles batch code: 404, reason: Not Found"),
    ],
)
def test_a_receiver_without_profiles_is_logged_once_and_gets_the_other_signals(
    workshop: Workshop, protocol: Protocol, words: str
) -> None:
    otlp = OtlpReceiver(takes_profiles=False).start()
    source = """
        import time
        import otel_quant
        for _ in range(2):
            with otel_quant.run():
                with otel_quant.step("Holding"):
                    time.sleep(0.5)
    """
    done = workshop.script(source).run({**otlp.environment(protocol), **ON})
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    address = otlp.grpc_endpoint.removeprefix("http://")
    assert words.format(address=address) in line
    assert otlp.span_names() == ["quantization", "Holding"] * 2
    otlp.stop()


def test_a_recording_is_sent_without_profiles_if_the_receiver_refuses_them(
    workshop: Workshop,
) -> None:
    otlp = OtlpReceiver(takes_profiles=False).start()
    recording = workshop.folder / "recording"
    script = workshop.script("import otel_quant, time\nwith otel_quant.step('a'): time.sleep(0.5)")
    script.run({"OTEL_QUANT_RECORD": str(recording)})
    asked = clean_environment({**otlp.environment("http/protobuf"), **ON})
    done = run([PROGRAMS / "otel-quant", "send", recording], workshop.folder, asked)
    assert done.returncode == 1
    assert f"{otlp.http_endpoint}/v1development/profiles: " in done.stderr
    assert "404" in done.stderr
    assert otlp.span_names() == ["quantization", "a"]
    otlp.stop()


def test_profile_settings_override_the_settings_for_all_signals(
    workshop: Workshop, otlp: OtlpReceiver
) -> None:
    otlp.become(Mode.HANG)
    own = OtlpReceiver().start()
    script = workshop.script("import otel_quant, time\nwith otel_quant.step('a'): time.sleep(0.5)")
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": otlp.http_endpoint,
        "OTEL_EXPORTER_OTLP_PROFILES_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT": f"{own.http_endpoint}/v1development/profiles",
        **ON,
    }
    done = script.run(variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert {profile.attributes[semconv.STEP_NAME] for profile in own.profiles} == {"a"}
    assert otlp.requests == []
    own.stop()
