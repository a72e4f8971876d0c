"""Child processes: which functions start one.

The child finds the trace context in its own environment or in its process object; the
environment of this process is never changed.
"""

from __future__ import annotations

from typing import Final

from otel_quant.capture.instruments.shared.library import Hook, Library, Wrapper

_CALLS: Final = "otel_quant.capture.instruments.processes.calls:"
_POPEN: Final = Wrapper(_CALLS + "popen", "the child's environment has the trace context")
_START: Final = Wrapper(_CALLS + "start", "the process object has the trace context")
_BOOTSTRAP: Final = Wrapper(_CALLS + "bootstrap", "the child sends its telemetry at its end")

_PROCESS: Final = "multiprocessing.process"

PROCESSES: Final = Library(
    name="processes",
    distribution="python",
    hooks=(
        Hook("subprocess", "Popen.__init__", _POPEN),
        Hook(_PROCESS, "BaseProcess.start", _START),
        Hook(_PROCESS, "BaseProcess._bootstrap", _BOOTSTRAP),
    ),
)
