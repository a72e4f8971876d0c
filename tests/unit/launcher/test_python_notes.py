"""What the launcher says of the Pythons that the program has started."""

from __future__ import annotations

from otel_quant.launcher.python_notes import why_no_step, why_nothing_sent


def test_a_python_without_an_sdk_is_named_with_what_it_needs() -> None:
    assert why_nothing_sent(["instrumented /usr/bin/python3"]) == ""
    assert why_nothing_sent(["instrumented /usr/bin/python3", "unsent /v/bin/python"]) == (
        "no telemetry was sent: /v/bin/python has no OpenTelemetry SDK; expected pip install "
        "'otel-quant[otlp]' there (otel-quant send sends this recording later)"
    )
    assert why_no_step(["unsent /v/bin/python"]) == (
        "no quantization library that otel-quant knows was called"
    )
