"""Makes docs/telemetry.md from the tables in the code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from otel_quant.environment import VARIABLES
from otel_quant.telemetry import catalog, semconv

PAGE = Path(__file__).resolve().parent.parent / "docs" / "telemetry.md"

_PLACES = {
    "run": "run span",
    "step": "step spans",
    "cost": "model cost spans",
    "checkpoint": "checkpoint records",
    "reading": "records of readings",
    "metric": "metrics",
}

_INTRO = """\
# Telemetry

<!-- Made by scripts/docs.py from otel_quant/telemetry/catalog.py and
     otel_quant/environment.py. Edit those. -->

What otel-quant sends, and what its environment variables do. Names in `quant.` are its
own, the others are OpenTelemetry's semantic conventions. Bytes (`By`) are integers, times
are seconds (`s`). **What could not be measured is absent, never 0.**

| signal | what | name |
|---|---|---|
| span | one per run, root of its trace or child of `TRACEPARENT` | `{root}` |
| span | one per step, nested as it happened | the step's label |
| span | one per ONNX model that was costed | `{cost}` |
| log record | one per checkpoint | event `{checkpoint}` |
| log record | a reading between checkpoints, at most every 28 s, if memory has moved by more than 1 % since the last record | event `{reading}` |
| log record | the heaviest nodes of a costed model | event `{model_cost}` |
| log record and span event | a warning: why a model could not be costed | `{cost_failed}` |
| metrics | see below | `quant.*` |

Under `opentelemetry-instrument`, checkpoint records and ended spans are sent at once. A program that
makes its providers itself sends them when its own processors do, and flushes before it ends.

What is known of the memory of a run that is killed is at most 30 s old at the backend, and 2 s in the
file beside the local profile (`NAME.RUN-ID.last_reading.json`, which `otel-quant show` reads and the
end of the run removes). Both come from the sampler: there is none with
`OTEL_QUANT_SAMPLE_INTERVAL=0`, then the last checkpoint is what is known; a longer interval
makes them older; and while something holds the GIL no reading is taken.

The instrumentation scope is `{scope}`; its schema URL is `{schema}`.
"""


def document() -> str:
    """Returns the page."""
    parts = [
        _INTRO.format(
            root=semconv.ROOT_SPAN,
            cost=semconv.COST_SPAN,
            checkpoint=semconv.CHECKPOINT_EVENT,
            reading=semconv.READING_EVENT,
            model_cost=semconv.MODEL_COST_EVENT,
            cost_failed=semconv.COST_FAILED_EVENT,
            scope=semconv.SCOPE,
            schema=semconv.SCHEMA_URL,
        ),
        "## Environment variables\n",
        *_each(_variables()),
        "## Metrics\n",
        *_each(_metrics()),
        "## Attributes\n",
        *_each(_attributes()),
    ]
    return "\n".join(parts)


def _each(entries: Iterable[tuple[str, list[str]]]) -> Iterator[str]:
    for title, lines in entries:
        yield f"### `{title}`\n\n" + "\n".join(lines) + "\n"


def _variables() -> Iterator[tuple[str, list[str]]]:
    for variable in VARIABLES:
        default = f"`{variable.default}`" if variable.default else "unset"
        yield variable.name, [variable.brief, "", f"Default: {default}."]


def _metrics() -> Iterator[tuple[str, list[str]]]:
    for metric in catalog.METRICS:
        labels = ", ".join(f"`{name}`" for name in metric.attributes) or "none"
        lines = [
            metric.brief,
            "",
            f"- instrument: {metric.instrument.replace('_', ' ')}",
            f"- unit: {f'`{metric.unit}`' if metric.unit else 'that of the custom metric'}",
            f"- attributes: {labels}",
        ]
        if metric.buckets:
            lines.append(f"- buckets: {', '.join(f'{bound:g}' for bound in metric.buckets)}")
        yield metric.name, lines


def _attributes() -> Iterator[tuple[str, list[str]]]:
    for attribute in catalog.ATTRIBUTES:
        places = ", ".join(_PLACES[place] for place in attribute.places)
        lines = [
            attribute.brief,
            "",
            f"- type: {attribute.type}" + (f", unit `{attribute.unit}`" if attribute.unit else ""),
            f"- on: {places}",
            f"- example: `{attribute.example}`",
        ]
        yield attribute.name, lines
