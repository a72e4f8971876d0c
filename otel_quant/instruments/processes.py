"""Child processes: which calls start one.

The child finds the trace context in its own environment or in its process object; the
environment of this process is never changed.
"""

from __future__ import annotations

from typing import Final

from otel_quant.instruments.library import Hook, Library

_CHILDREN: Final = "otel_quant.instruments.children:"
_PROCESS: Final = "multiprocessing.process"

PROCESSES: Final = Library(
    name="processes",
    distribution="python",
    hooks=(
        Hook("subprocess", "Popen.__init__", _CHILDREN + "popen"),
        Hook(_PROCESS, "BaseProcess.start", _CHILDREN + "start"),
        Hook(_PROCESS, "BaseProcess._bootstrap", _CHILDREN + "bootstrap"),
    ),
)
