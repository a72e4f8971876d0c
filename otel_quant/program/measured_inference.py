"""``measure_inference``: inference of PyTorch models, as tables, JSON and a page."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from otel_quant.base.environment import settings_from
from otel_quant.capture.probes.energy import MachineEnergy
from otel_quant.inference.results import InferenceResult
from otel_quant.inference.subjects import Options
from otel_quant.inference.telemetry import RunContext, report
from otel_quant.inference.torch_models import measure_models
from otel_quant.views.html import fragment, page_text, write_page
from otel_quant.views.inference import document, result_text
from otel_quant.views.writers import terminal_text

_TOP: Final = 10  # Modules of each model in tables

_FORMS: Final = {
    ".json": "json", ".csv": "csv", ".md": "markdown", ".txt": "table", ".html": "html", ".htm": "html",
}  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class MeasuredInference(InferenceResult):
    """What was measured of the inference of models.

    Made by :func:`otel_quant.measure_inference`. ``print(result)`` is the table of ``otel-quant
    inference``; a notebook shows it as HTML. Its data is in ``models`` and in ``to_json()``.
    """

    def __repr__(self) -> str:
        return terminal_text(document(self, _TOP)).rstrip("\n")

    def _repr_html_(self) -> str:
        return fragment(document(self, _TOP))

    def to_html(self) -> str:
        """Returns one HTML page that needs no network."""
        return page_text(document(self))

    def save(self, path: str | Path) -> None:
        """Writes a file in the form that its name ends with: .html, .json, .csv, .md or .txt.

        Args:
            path: The file; what is there is replaced.

        Raises:
            ValueError: The name ends with something else.
            OSError: It could not be written.
        """
        target = Path(path)
        form = _FORMS.get(target.suffix.lower())
        if form is None:
            known = ", ".join(_FORMS)
            what = f"{target.name!r} ends with {target.suffix!r}"
            raise ValueError(f"{what}; expected one of {known}")
        write_page(target, "".join(result_text(self, form, _TOP)))


def measure_inference(
    models: object, inputs: object, *, runs: int | None = None, seconds: float = 3.0,
    warmup: int = 3,
) -> MeasuredInference:  # fmt: skip
    """Measures the inference of PyTorch models, side by side, in this process.

    Each model runs in turn with the others, without a profiler, and then under torch's profiler.
    Models are as they were afterwards: modules are in eval mode and without gradients meanwhile,
    and what runs change in buffers is set back. In a program that sends telemetry, spans, log
    records and metrics of the models belong to the current span.

    Args:
        models: A module; or a mapping of names to modules, or to functions without arguments that
            make one. The first is what the others are compared with.
        inputs: What a model is called with: a tensor, a tuple of arguments, or a mapping of
            arguments by name.
        runs: Timed runs of each model; None for as many as there is time for.
        seconds: Time for the timed runs of each model.
        warmup: Runs before.

    Returns:
        What was measured. A model that raises has the reason in its row.

    Raises:
        ImportError: PyTorch is not installed.
        ValueError: There are no models, or a number makes no sense.
        RuntimeError: The program runs torch's profiler.
    """
    if find_spec("torch") is None:
        raise ImportError("PyTorch is not installed; expected: pip install otel-quant[torch]")
    if not isinstance(models, Mapping):
        models = {type(models).__name__: models}
    if not models:
        raise ValueError("there are no models; expected a module, or a mapping of names to modules")
    if seconds <= 0 or warmup < 0 or (runs is not None and runs < 1):
        raise ValueError(
            f"runs={runs}, seconds={seconds}, warmup={warmup}; expected at least one run, more than "
            "0 s, and no less than 0 runs before"
        )
    options = Options(runs=runs, seconds=seconds, warmup=warmup, joules=MachineEnergy())
    began_ns, clock_ns = time.time_ns(), time.perf_counter_ns()
    found = measure_models({str(name): each for name, each in models.items()}, inputs, options)
    settings = settings_from(os.environ, warn=False)
    if not settings.sdk_disabled:
        ended_ns = began_ns + time.perf_counter_ns() - clock_ns
        report(found, began_ns, ended_ns, RunContext(paths=settings.paths))
    return MeasuredInference(*(getattr(found, each.name) for each in fields(InferenceResult)))
