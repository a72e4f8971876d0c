"""``otel-quant send``: the error in one line if nothing can be sent."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixtures.commands import Commands
from tests.fixtures.recorded import RecordedFolder

Said = Callable[[str], str]


@pytest.fixture
def recording() -> RecordedFolder:
    folder = RecordedFolder(Path("recording"))
    process = folder.process()
    process.begin().end(2.0)
    process.gone()
    return folder


@pytest.fixture
def said(command: Commands) -> Said:
    """Sends something, which fails; returns the line on standard error."""

    def said(path: str) -> str:
        code, out, err = command("send", path)
        assert (code, out) == (1, "")
        (line,) = err.splitlines()
        return line.removeprefix("otel-quant: ")

    return said


def test_a_local_file_cannot_be_sent(said: Said) -> None:
    Path("quark_profile.yaml").write_text("memory_usage:\n- step: Start\n")
    assert said("quark_profile.yaml") == (
        "quark_profile.yaml: Expecting value: line 1 column 1 (char 0); expected the folder of a recording, "
        "which has the ids and attributes of spans (`otel-quant run -- PROGRAM` makes one), or a result of "
        "`otel-quant inference`"
    )


def test_a_recording_that_is_still_running_is_not_sent(
    recording: RecordedFolder, said: Said
) -> None:
    going_on = recording.process(4712).begin(run="89abcdef01234567")
    line = said("recording")
    assert line == "recording: is still being made; expected one that is over: send it then"
    going_on.gone()


@pytest.mark.parametrize("settings", [{}, {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}])
def test_the_error_without_an_endpoint_names_the_setting(
    recording: RecordedFolder, said: Said, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert said("recording") == (
        "recording: no endpoint is set; expected one in OTEL_EXPORTER_OTLP_ENDPOINT, "
        "such as http://localhost:4317, or other settings of OpenTelemetry"
    )


def test_the_error_without_the_sdk_names_the_package_to_install(
    recording: RecordedFolder, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    assert said("recording") == (
        "sending needs OpenTelemetry's SDK and an exporter: pip install 'otel-quant[otlp]'"
    )
