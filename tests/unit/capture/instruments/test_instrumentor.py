"""``OTEL_QUANT_LIBRARIES`` chooses the libraries, and a name that is none is logged."""

from __future__ import annotations

import os
import subprocess
import sys

from otel_quant.capture.instruments import PACKAGES

NAMES = ", ".join(sorted(PACKAGES))


def warnings_with(libraries: str) -> list[str]:
    finished = subprocess.run(
        [sys.executable, "-c", "import otel_quant; otel_quant.QuantInstrumentor().instrument()"],
        env={**os.environ, "OTEL_QUANT_LIBRARIES": libraries},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return finished.stderr.splitlines()


def test_name_of_a_library_is_taken_without_a_warning() -> None:
    assert warnings_with("hqq") == []


def test_unknown_name_is_logged_with_those_that_are_expected() -> None:
    assert warnings_with("hqq,quack") == [
        f"environment variable OTEL_QUANT_LIBRARIES names 'quack'; expected names out of {NAMES}"
    ]


def test_if_no_library_is_instrumented_a_warning_explains_what_to_do() -> None:
    assert warnings_with("quack") == [
        f"environment variable OTEL_QUANT_LIBRARIES names 'quack'; expected names out of {NAMES}",
        "no library is instrumented: environment variable OTEL_QUANT_LIBRARIES is 'quack'; "
        f"expected one or more of {NAMES}; unset it to instrument all",
    ]
