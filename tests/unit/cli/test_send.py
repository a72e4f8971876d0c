"""``otel-quant send``: the error in one line if nothing can be sent."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from otel_quant.cli import main
from tests.fixtures.recorded import RecordedFolder


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordedFolder:
    monkeypatch.chdir(tmp_path)
    folder = RecordedFolder(Path("recording"))
    process = folder.process()
    process.begin().end(2.0)
    process.gone()
    return folder


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Returns the line that the command prints on standard error when it fails."""
    assert main(["send", *arguments]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    return line.removeprefix("otel-quant: ")


def test_a_local_file_cannot_be_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("quark_profile.yaml").write_text("memory_usage:\n- step: Start\n")
    assert said(capsys, "quark_profile.yaml") == (
        "quark_profile.yaml: Expecting value: line 1 column 1 (char 0); expected the folder of a recording, "
        "which has the ids and attributes of spans (`otel-quant run -- PROGRAM` makes one), or a result of "
        "`otel-quant inference`"
    )


def test_a_recording_that_is_still_running_is_not_sent(
    recording: RecordedFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    going_on = recording.process(4712).begin(run="89abcdef01234567")
    line = said(capsys, "recording")
    assert line == "recording: is still being made; expected one that is over: send it then"
    going_on.gone()


@pytest.mark.parametrize("settings", [{}, {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}])
def test_the_error_without_an_endpoint_names_the_setting(
    recording: RecordedFolder,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, str],
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert said(capsys, "recording") == (
        "recording: no endpoint is set; expected one in OTEL_EXPORTER_OTLP_ENDPOINT, "
        "such as http://localhost:4317, or other settings of OpenTelemetry"
    )


def test_the_error_without_the_sdk_names_the_package_to_install(
    recording: RecordedFolder,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    assert said(capsys, "recording") == (
        "sending needs OpenTelemetry's SDK and an exporter: pip install 'otel-quant[otlp]'"
    )
