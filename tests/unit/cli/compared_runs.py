"""How the tests of ``otel-quant compare`` call it, and a profile of Quark that they compare."""

from __future__ import annotations

import pytest

from otel_quant.cli import main
from tests.fixtures.recorded import CUT_PROFILE

GATE = ["--fail-over", "memory.peak=10%", "--fail-over", "duration=20%"]

PROFILE = f"""\
{CUT_PROFILE}- step: "End"
  timestamp: 1700000004.5
  relative_time_secs: 4.0
  cpu_memory_mb: 250.0

# Summary Metrics
total_quantization_time_seconds: 4.0
peak_memory_mb: 310.0

# Metric Definitions:
# - step: the point
# - timestamp: the time
# - relative_time_secs: seconds
# - cpu_memory_mb: MiB
# - total_quantization_time_seconds: seconds
# - peak_memory_mb: MiB
"""


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        code = main(["compare", *arguments])
    except SystemExit as end:
        code = int(str(end.code))
    printed = capsys.readouterr()
    return code, printed.out, printed.err
