"""Makes docs/telemetry.md from the tables in the code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from otel_quant.capture.recorder.attributes import MOST_OF_STEP
from otel_quant.export.otel.delivery import METRICS_COUNT_AS, MOST, RETRY, SPACING
from otel_quant.export.otel.spans import MOST_CUSTOM
from otel_quant.schema import catalog, semconv
from otel_quant.schema.settings import SETTINGS, Setting

PAGE = Path(__file__).resolve().parent.parent / "docs" / "telemetry.md"

_PLACES = {
    "resource": "the resource of every signal",
    "run": "run span",
    "step": "step spans",
    "cost": "model cost spans",
    "checkpoint": "checkpoint records",
    "reading": "records of readings",
    "forecast": "records of forecasts",
    "lines": "records of lines of code",
    "device": "device records",
    "layer": "records of layers",
    "answer": "records of answers",
    "ending": "records of endings",
    "inference": "spans of inferences and benchmarks",
    "measured model": "model inference spans",
    "operator": "records of operators",
    "finding": "records of findings",
    "metric": "metrics",
    "program": "program span",
}

_INTRO = """\
# Telemetry

<!-- Made by scripts/docs.py from otel_quant/schema/catalog.py and
     otel_quant/schema/settings.py. Edit those. -->

What otel-quant sends, and what its environment variables do. Names in `quant.` are its
own, the others are OpenTelemetry's semantic conventions. Bytes (`By`) are integers, times
are seconds (`s`). **What could not be measured is absent, never 0.**

| signal | what | name |
|---|---|---|
| span | one per run, root of its trace or child of `TRACEPARENT` | `{root}` |
| span | one per program of `otel-quant run` that is no Python itself (a shell script, `torchrun`), above the runs of its processes; sent at its end | `{program}` |
| span | one per step, nested as it happened | the step's label |
| span | one per ONNX model that was costed | `{cost}` |
| span | one per `otel-quant inference` or benchmark, a child like a run | `{inference}`, `{benchmark}` |
| span | one per model that it measures, a child of it; none per operator | `{model}` |
| log records | see [Events](#events) | `quant.*` |
| metrics | see [Metrics](#metrics) | `quant.*`, `hw.*` |

A service that has a name neither in `OTEL_SERVICE_NAME` nor in `OTEL_RESOURCE_ATTRIBUTES` has, under
`opentelemetry-instrument`, the name of the program: `quantize` for `python quantize.py`,
`package.tool` for `python -m package.tool`. Code in no file (`python -c`) stays
`unknown_service:python`. There the resource has the process and its machine too, so that ranks on two
hosts with one Collector can be told apart; what `OTEL_RESOURCE_ATTRIBUTES` has on the machine is kept. A
program that makes its providers itself chooses its resource.

What is known of the memory of a run that is killed is at most 30 s old at the backend, and 2 s in the
file beside the local profile (`NAME.RUN-ID.last_reading.json`, which `otel-quant show` reads and the
end of the run removes). Both come from the sampler: there is none with
`OTEL_QUANT_SAMPLE_INTERVAL=0`, then the last checkpoint is what is known; a longer interval
makes them older; and while something holds the GIL no reading is taken.

The instrumentation scope is `{scope}`; its schema URL is `{schema}`. `docs/registry` has the names of this page in the
form of OpenTelemetry's weaver.

A span keeps a limited number of attributes (`OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT`, 128 by default). What
may be many is therefore not on spans: figures by GPU are metrics and log records. Of a step's
attributes the first {most_of_step} are shown, of custom metrics the first {most_custom}; a warning reports once if
there are more. With a lower limit the SDK drops the attributes that were set first, which identify the step or
the run.

## When it is sent, and what a killed run leaves

| | under `opentelemetry-instrument` | in a program that makes its providers itself |
|---|---|---|
| log records, ended spans | at once, every {spacing} s at most | when its processors send: with the SDK's batch processors after `OTEL_BLRP_SCHEDULE_DELAY` and `OTEL_BSP_SCHEDULE_DELAY` milliseconds (1000 and 5000, in older versions 5000 for both) |
| metrics | once a minute (`OTEL_METRIC_EXPORT_INTERVAL`), and once after the first step has begun | when its readers export |
| at the end of the program | everything, within `OTEL_QUANT_EXIT_TIMEOUT` | what its SDK sends at its shutdown |
| what an endpoint did not take for `OTEL_EXPORTER_OTLP_TIMEOUT` (10 s) | kept in memory and sent again after {retry} s, and at the end, the oldest first: of each exporter {most} spans or log records, or {exports} exports of metrics (an hour) | what its exporters do: OpenTelemetry's drop it |

SIGTERM ends a Python program at once unless the program handles it, and otel-quant sets no handler
for it; SIGKILL (of the kernel's out-of-memory killer too) cannot be handled. Both have the same effect:

- Lost are the run's span, the spans of the steps that were open, their figures in metrics, and what
  had not been sent by then.
- Kept are the spans of steps that ended, the checkpoint records up to the last one, and the event
  `{run_started}`. That event has the trace id, the span id and the attributes of the run's span as it
  started, so a backend can name the run of steps whose parent never arrives: they have its trace id,
  and the outermost have its span id as their parent's.

A program that handles SIGTERM by an exit (`signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))`)
ends like any other, and nothing is lost, if it is given the time: Python runs the handler once the C
call that is in progress has returned.
"""

_VARIABLES = """\
Every setting of otel-quant is an environment variable, also where a configuration file
(`OTEL_CONFIG_FILE`) replaces OpenTelemetry's own variables. In that file, `quark_yaml` is an exporter
of spans and requests the local file:

```yaml
tracer_provider:
  processors:
    - simple:
        exporter:
          quark_yaml: {path: quark_profile.yaml}  # the path can be left out
```
"""


def document() -> str:
    """Returns the page."""
    parts = [
        _INTRO.format(
            program=semconv.PROGRAM_SPAN,
            root=semconv.ROOT_SPAN,
            cost=semconv.COST_SPAN,
            inference=semconv.INFERENCE_SPAN,
            benchmark=semconv.BENCHMARK_SPAN,
            model=semconv.MODEL_SPAN,
            run_started=semconv.RUN_STARTED_EVENT,
            scope=semconv.SCOPE,
            schema=semconv.SCHEMA_URL,
            most_of_step=MOST_OF_STEP,
            most_custom=MOST_CUSTOM,
            spacing=SPACING,
            retry=f"{RETRY:g}",
            most=MOST,
            exports=MOST // METRICS_COUNT_AS,
        ),
        "## Environment variables\n",
        _VARIABLES,
        *_each(_variables()),
        "## Events\n",
        *_each(_events()),
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
    for setting in SETTINGS:
        default = _default(setting)
        shown = f"`{default}`" if default else "unset"
        yield setting.variable, [setting.words, "", f"Default: {shown}."]


def _default(setting: Setting) -> str:
    """Returns the default as a user would write it; empty for unset."""
    if setting.kind == "milliseconds":
        return f"{1000 * setting.default:g}"
    otherwise = "" if setting.default is None else str(setting.default).lower()
    fixed = {"quark's switch": "0", "exporter": "otlp", "profiles": "none", "presence": ""}
    return fixed.get(setting.kind, otherwise)


def _events() -> Iterator[tuple[str, list[str]]]:
    for event in semconv.EVENTS:
        yield event.name, [event.brief]


def _metrics() -> Iterator[tuple[str, list[str]]]:
    for metric in catalog.METRICS:
        labels = ", ".join(f"`{name}`" for name in metric.attributes) or "none"
        lines = [
            metric.brief,
            "",
            f"- instrument: {metric.instrument.replace('_', ' ')}",
            f"- unit: {f'`{metric.unit}`' if metric.unit else 'the unit of the custom metric'}",
            f"- attributes: {labels}",
        ]
        if metric.former:
            lines.append(f"- former name: {', '.join(f'`{name}`' for name in metric.former)}")
        if metric.instrument == "histogram":
            bounds = ", ".join(f"{bound:g}" for bound in metric.buckets)
            lines.append(f"- buckets: {bounds or 'none, but for the count and the sum'}")
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
