"""``run``: makes a block a run of its own, and gives its figures.

The block keeps the text of the local file and `print(run)` reads it again, so that it cannot differ
from `otel-quant show`. The libraries stay instrumented after a block: to remove the hooks takes a search
through every loaded module, and does not reach what the program has stored elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from otel_quant.base.fault_boundary import error_type, message_of
from otel_quant.capture.runtime import RUNTIME
from otel_quant.capture.scope import is_failure
from otel_quant.program.instrumenting import hook_libraries
from otel_quant.recordings.profile_reader import parse, recording_of
from otel_quant.schema import semconv
from otel_quant.schema.catalog import ATTRIBUTES
from otel_quant.schema.events import Attributes, Event, Sink
from otel_quant.schema.readings import CostedModel, RunInfo, StepInfo
from otel_quant.views.document import Document, Lines

_FIGURES: Final = {
    each.name.removeprefix(semconv.PREFIX).replace(".", "_"): each
    for each in ATTRIBUTES
    if each.places == ("run", "step") and (each.unit or each.name == semconv.MEMORY_PEAK_SOURCE)
}
"""What runs and steps have in common, by the name of its field."""

_TYPES: Final = {"int": "int", "double": "float", "string": "str"}
_UNITS: Final = {"By": " (bytes)", "s": " (seconds)"}

_DOCUMENTATION: Final = "\n    ".join(
    (
        "What was measured between two readings. A figure that could not be measured is None.\n",
        "Attributes:",
        "    duration: Seconds.",
        *(
            f"    {field}: {each.brief.removesuffix('.')}{_UNITS.get(each.unit, '')}."
            for field, each in _FIGURES.items()
        ),
    )
)

if TYPE_CHECKING:

    class RunFigures:
        """Made below, with the figures of the schema; a type checker takes any name for one."""

        duration: float

        def __init__(self, *, duration: float, **figures: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

else:
    RunFigures = make_dataclass(
        "RunFigures",
        [
            ("duration", "float"),
            *(
                (name, f"{_TYPES[each.type]} | None", field(default=None))
                for name, each in _FIGURES.items()
            ),
        ],
        namespace={"__module__": __name__, "__doc__": _DOCUMENTATION},
        frozen=True, slots=True, kw_only=True,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStep(RunFigures):
    """A step that has ended, with the fields of :class:`RunFigures`.

    Attributes:
        index: Position in the run, from 0, in order of opening.
        name: Label of the step: its kind, or the message of a User-Defined step.
        kind: The ``ProfileStep`` constant.
        parent: Index of the enclosing step; None at the top.
        library: Distribution that the step's code belongs to; None for the program's own.
        library_version: Its version.
        start: Seconds from the run's start to the step's.
        samples: Calibration samples consumed, each a batch; None if none were counted.
        items: Items in these samples; None if one of them did not tell.
        error: Class name of the exception that ended the step; None for no error.
        error_message: Its message, on one line.
    """

    index: int
    name: str
    kind: str
    parent: int | None
    library: str | None
    library_version: str | None
    start: float
    samples: int | None
    items: int | None
    error: str | None
    error_message: str | None


class KeptRun(Sink):
    """Keeps a run. Memory grows with the number of steps."""

    name = "kept run"

    def __init__(self) -> None:
        # Of ended steps what `RunStep` is made of, which takes longer to make.
        self._steps: list[tuple[StepInfo, Attributes, dict[str, Any]]] = []
        self.info: RunInfo | None = None
        self.models: list[CostedModel] = []
        self.total: RunFigures | None = None
        self.text: list[str] = []

    def run_started(self, event: Event) -> None:
        """Keeps the description."""
        self.info = event.run

    def step_ended(self, event: Event) -> None:
        """Keeps the step; of its exception, not what the traceback holds."""
        assert event.step is not None
        more = {
            "start": event.elapsed - event.duration, "duration": event.duration,
            "samples": event.counts.samples, "items": event.items, "error": event.error,
            "error_message": event.error_message,
        }  # fmt: skip
        self._steps.append((event.step, event.attributes, more))

    def models_costed(self, event: Event) -> None:
        """Keeps the costs."""
        self.models.extend(event.models)

    def run_ended(self, event: Event) -> None:
        """Keeps the totals."""
        self.total = RunFigures(duration=event.duration, **_figures(event.attributes))

    def steps(self) -> tuple[RunStep, ...]:
        """Returns the steps that have ended, in the order in which they opened."""
        return tuple(
            RunStep(
                index=info.index,
                name=info.label,
                kind=info.kind,
                parent=info.parent,
                library=info.library,
                library_version=info.library_version,
                **more,
                **_figures(attributes),
            )
            for info, attributes, more in sorted(self._steps, key=lambda step: step[0].index)
        )


def _figures(attributes: Attributes) -> dict[str, Any]:
    return {field: attributes.get(each.name) for field, each in _FIGURES.items()}


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
        """Figures of the run; None until it has ended."""
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
        return self.total.memory_peak_ratio if self.total else None

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
        from otel_quant.views.writers import terminal_text

        return terminal_text(self._document()).rstrip("\n")

    def _repr_html_(self) -> str:
        from otel_quant.views.html import fragment

        return fragment(self._document())

    def _failed(self, error: BaseException) -> None:
        # Not the exception itself: with its traceback it would keep the block's variables alive.
        self._error = error_type(error)
        self._error_message = message_of(error, paths=RUNTIME.settings.paths)

    def _document(self) -> Document:
        from otel_quant.views.show import block_parts

        profile = parse("".join(self._kept.text)) if self._kept.text else None
        if profile is None or not profile.records:
            return Document((Lines(("the run has recorded nothing",)),))
        return Document(block_parts(recording_of(profile, Path("block"))))


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
    hook_libraries()
    RUNTIME.end_run()
    measured = Run()
    recorder = RUNTIME.begin_run(profile, measured._kept, measured._kept.text)
    error: BaseException | None = None
    try:
        yield measured
    except BaseException as raised:
        if is_failure(raised):
            measured._failed(error := raised)
        raise
    finally:
        RUNTIME.end_run(error, recorder)
        RUNTIME.delivery.soon()
