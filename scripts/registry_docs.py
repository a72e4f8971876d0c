"""Makes docs/registry: every name of ours in the form of OpenTelemetry's weaver, from `otel_quant/schema/catalog.py`.

`weaver registry check -r docs/registry` reads it. Names of the semantic conventions are references to their registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, get_args, get_type_hints

import yaml

from otel_quant.schema import catalog, semconv
from otel_quant.schema.readings import CostedModel
from otel_quant.schema.semconv import Attribute, Place
from otel_quant.version import VERSION

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/registry/quant.yaml"
MANIFEST = ROOT / "docs" / "registry" / "manifest.yaml"

CONVENTIONS = semconv.SCHEMA_URL.rpartition("/")[2]
STABILITY = {"stability": "development"}
ROLES = get_args(get_type_hints(CostedModel)["role"])
PARSE: dict[str, Callable[[str], Any]] = {
    "int": int,
    "double": float,
    "boolean": lambda text: text == "true",
    "string": str,
}

SPANS: dict[str, tuple[Place, str]] = {
    semconv.PROGRAM_SPAN: (
        "program",
        "A program that is no Python itself, from its start to its end.",
    ),
    semconv.ROOT_SPAN: ("run", "A run, from its first step to its end."),
    "step": ("step", "A step; the name of the span is the step's."),
    semconv.COST_SPAN: ("cost", "The static cost of one model."),
    semconv.INFERENCE_SPAN: ("inference", "The measurement of models beside each other."),
    semconv.MODEL_SPAN: ("measured model", "The measurement of one model."),
}
EVENTS: dict[str, Place] = {
    semconv.RUN_STARTED_EVENT: "run",
    semconv.CHECKPOINT_EVENT: "checkpoint",
    semconv.READING_EVENT: "reading",
    semconv.FORECAST_EVENT: "forecast",
    semconv.LINES_EVENT: "lines",
    semconv.DEVICE_EVENT: "device",
    semconv.LAYER_EVENT: "layer",
    semconv.IMPAIRED_EVENT: "device",
    semconv.ANSWER_EVENT: "answer",
    semconv.ENDING_EVENT: "ending",
    semconv.OPERATOR_EVENT: "operator",
    semconv.FINDING_EVENT: "finding",
}
"""What each kind of log record has, where that is more than the attributes of its run."""

HEAD = "# Made by scripts/docs.py from otel_quant/schema. Edit that.\n"


def document() -> str:
    """Returns the registry."""
    groups = [
        {
            "id": "registry.quant", "type": "attribute_group", "display_name": "Quantization",
            "brief": "Attributes of quantization runs.",
            "attributes": [
                *(each for row in catalog.ATTRIBUTES if is_defined_here(row.name) for each in _declared(row)),
                *(_renamed(old, new) for old, new in catalog.FORMER.items() if is_ours(old)),
            ],
        },
        *(
            {
                "id": f"span.quant.{place.replace(' ', '_')}", "type": "span", "span_kind": "internal",
                "brief": brief, **STABILITY, "attributes": _references(place), "note": f"Its name: {name}.",
            }
            for name, (place, brief) in SPANS.items()
        ),
        *(
            {
                "id": f"event.{event.name}", "type": "event", "name": event.name, "brief": event.brief,
                **STABILITY, "attributes": _references(EVENTS[event.name]) if event.name in EVENTS else [],
            }
            for event in semconv.EVENTS
        ),
        *(
            {
                "id": f"metric.{name}", "type": "metric", "metric_name": name,
                "instrument": metric.instrument.removeprefix("observable_"), "unit": metric.unit,
                "brief": metric.brief, **STABILITY,
                "attributes": [{"ref": each} for each in metric.attributes],
                **({"deprecated": {"reason": "renamed", "renamed_to": metric.name}} if name in metric.former else {}),
            }
            for metric in catalog.METRICS for name in (metric.name, *metric.former)
            if is_ours(name) and "<" not in name
        ),
    ]  # fmt: skip
    return HEAD + yaml.safe_dump({"groups": groups}, sort_keys=False, allow_unicode=True, width=120)


def manifest() -> str:
    """Returns what the registry is called, and what it refers to."""
    url = "https://github.com/open-telemetry/semantic-conventions"
    made = {
        "description": "Names of otel-quant, beside OpenTelemetry's semantic conventions.",
        "schema_url": f"https://otel-quant.invalid/schemas/{VERSION}",  # it is published nowhere yet
        "dependencies": [
            {
                "schema_url": semconv.SCHEMA_URL,
                "registry_path": f"{url}/archive/refs/tags/v{CONVENTIONS}.zip[model]",
            }
        ],
    }
    return HEAD + yaml.safe_dump(made, sort_keys=False)


def is_ours(name: str) -> bool:
    """Whether a name is ours, and not OpenTelemetry's."""
    return name.startswith(semconv.PREFIX)


def is_defined_here(name: str) -> bool:
    """Whether no registry that ours refers to defines an attribute: Pyroscope, whose name it is, publishes none."""
    return is_ours(name) or name == semconv.PYROSCOPE_PROFILE_ID


def _names(name: str) -> Iterable[str]:
    """Returns the names that a name with variable parts stands for; what is left of them is at its end."""
    roles = ROLES if "<role>" in name else [""]
    return [name.replace("<role>", role).partition(".<")[0] for role in roles]


def _declared(attribute: Attribute) -> Iterable[dict[str, Any]]:
    is_open = attribute.name.endswith(">")
    for name in _names(attribute.name):
        element = attribute.type.removesuffix("[]")
        example = PARSE[element](attribute.example)
        yield {
            "id": name,
            "type": f"template[{attribute.type}]" if is_open else attribute.type,
            **STABILITY,
            "brief": attribute.brief,
            **({"note": f"Unit: {attribute.unit}."} if attribute.unit else {}),
            "examples": [[example]] if attribute.type.endswith("[]") else [example],
        }


def _renamed(old: str, new: str) -> dict[str, Any]:
    kind = next(each.type for each in catalog.ATTRIBUTES if each.name == new)
    return {
        "id": old, "type": kind, **STABILITY, "brief": f"The former name of {new}.", "examples": ["1"] if kind == "string" else [1],
        "deprecated": {"reason": "renamed", "renamed_to": new},
    }  # fmt: skip


def _references(place: Place) -> list[dict[str, Any]]:
    names = (name for each in catalog.attributes_on(place) for name in _names(each.name))
    return [{"ref": name} for name in dict.fromkeys(names)]
