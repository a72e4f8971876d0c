"""``run``: makes a block a run of its own, and gives its figures.

The block keeps the text of the local file and `print(run)` reads it again, so that it cannot differ
from `otel-quant show`. The libraries stay instrumented after a block: to remove the hooks takes a search
through every loaded module, and does not reach what the program has stored elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from otel_quant.base.fault_boundary import FAULTS, error_type, message_of
from otel_quant.capture.recorder.kept_run import KeptRun, RunFigures, RunStep
from otel_quant.capture.runtime import RUNTIME
from otel_quant.capture.scope import is_failure
from otel_quant.instrumentor import QuantInstrumentor
from otel_quant.recordings.profile_reader import parse, recording_of
from otel_quant.schema.records import CostedModel
from otel_quant.views.document import Document, Lines


class Run:
    """A run of the program: what has been measured so far, and after its end all of it.

    Made by :func:`otel_quant.run`. ``print(run)`` is the table of ``otel-quant show``; a notebook
    shows it as HTML. Sizes are in bytes and times in seconds. What could not be measured is None.
    """

    def __init__(self) -> None:
        self._kept = KeptRun()
        self._error: str | None = None
        self._error_message: str | None = None

    @property
    def id(self) -> str | None:
        """Identifier, the same as ``quant.run.id`` on the telemetry."""
        return self._kept.info.id if self._kept.info else None

    @property
    def steps(self) -> tuple[RunStep, ...]:
        """The steps that have ended, in the order in which they opened."""
        return self._kept.steps()

    @property
    def total(self) -> RunFigures | None:
        """Figures of the whole run; None until it has ended."""
        return self._kept.total

    @property
    def duration(self) -> float | None:
        """Seconds from the run's start to its end; None until it has ended."""
        return self.total.duration if self.total else None

    @property
    def memory_peak(self) -> int | None:
        """Highest RSS of the process tree, in bytes; None until the run has ended."""
        return self.total.memory_peak if self.total else None

    @property
    def memory_limit(self) -> int | None:
        """Memory that the process may use, in bytes: the control group's or the machine's."""
        return self._kept.info.limits.memory if self._kept.info else None

    @property
    def memory_limit_source(self) -> Literal["cgroup", "physical"] | None:
        """Which of the two the limit is."""
        return self._kept.info.limits.memory_source if self._kept.info else None

    @property
    def memory_peak_ratio(self) -> float | None:
        """Peak as a share of the limit; None until the run has ended."""
        peak, limit = self.memory_peak, self.memory_limit
        return peak / limit if peak is not None and limit else None

    @property
    def models(self) -> tuple[CostedModel, ...]:
        """Static cost of the ONNX models that were read and written."""
        return tuple(self._kept.models)

    @property
    def error(self) -> str | None:
        """Class name of the exception that ended the block; None for no error."""
        return self._error

    @property
    def error_message(self) -> str | None:
        """Its message, on one line."""
        return self._error_message

    def __repr__(self) -> str:
        from otel_quant.views.terminal import terminal_text

        return terminal_text(self._document()).rstrip("\n")

    def _repr_html_(self) -> str:
        from otel_quant.views.html import fragment

        return fragment(self._document())

    def _failed(self, error: BaseException) -> None:
        # Not the exception itself: with its traceback it would keep the block's variables alive.
        self._error = error_type(error)
        self._error_message = message_of(error, paths=RUNTIME.settings.paths)

    def _document(self) -> Document:
        from otel_quant.views.show import run_parts

        profile = parse("".join(self._kept.text)) if self._kept.text else None
        if profile is None or not profile.records:
            return Document((Lines(("the run has recorded nothing",)),))
        recording = recording_of(profile, Path())
        return Document(run_parts(recording, recording.runs[0]))


@contextmanager
def run(profile: str | None = None) -> Iterator[Run]:
    """Makes a block a run of its own: for notebooks and long-lived programs.

    The quantization libraries are instrumented, as by ``QuantInstrumentor().instrument()``, and
    stay so after the block; ``QuantInstrumentor().uninstrument()`` undoes it. No OpenTelemetry SDK
    and no local file are needed.

    A process has one run at a time. A run that is active, of another block or of automatic
    instrumentation, is ended first; what comes after the block belongs to a new one. When the
    block ends, its telemetry has been passed to the exporters, and its local profile, if one was
    requested, is complete. An exception leaves the block as it is.

    The run keeps its steps in memory, about a kilobyte for each.

    Args:
        profile: Path of the local profile to write; None uses the environment variables.

    Yields:
        The run.
    """
    with FAULTS.kept_in("instrumentation"):
        instrumentor = QuantInstrumentor()
        if not instrumentor.is_instrumented_by_opentelemetry:
            instrumentor.instrument()
    RUNTIME.end_run()
    measured = Run()
    recorder = RUNTIME.begin_run(profile, measured._kept)
    try:
        yield measured
    except BaseException as raised:
        if is_failure(raised):
            measured._failed(raised)
        raise
    finally:
        RUNTIME.end_run(measured.error, recorder)
        RUNTIME.delivery.soon()
