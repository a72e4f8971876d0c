"""Profiles as JSON and CSV, for programs."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from otel_quant.recordings.profile_steps import steps_of
from otel_quant.recordings.quark_yaml import Profile
from otel_quant.views.model_cost import with_ratios
from otel_quant.views.profile_document import run_facts
from otel_quant.views.step_columns import COLUMNS, columns_of
from otel_quant.views.text import listed, printable

_NONE: Final[Mapping[str, Mapping[str, object]]] = MappingProxyType({})


def as_json(
    profiles: Mapping[str, Profile], recordings: Mapping[str, Mapping[str, object]] = _NONE
) -> str:
    """Returns profiles as JSON."""
    documents: list[dict[str, object]] = []
    for name, profile in profiles.items():
        steps = steps_of(profile.records)
        columns = list(columns_of(profile, steps))
        documents.append(
            {
                "file": name,
                "truncated": not profile.complete,
                "run": run_facts(profile),
                "steps": [
                    {
                        "step": step.name,
                        "depth": step.depth,
                        **{column.key: column.value(profile, step) for column in columns},
                    }
                    for step in steps
                ],
                "summary": profile.summary,
                "onnx_model_cost": with_ratios(profile.costs),
                **({"last_reading": profile.last_reading} if profile.last_reading else {}),
                **({"state": profile.state} if profile.state else {}),
                **({"recording": recording} if (recording := recordings.get(name)) else {}),
            }
        )
    documents += [
        {"file": name, "recording": recording}
        for name, recording in recordings.items()
        if name not in profiles
    ]
    return json.dumps(_finite(documents), indent=2, default=str) + "\n"


def _finite(value: object) -> object:
    """Replaces numbers that JSON does not have (NaN, infinity) by their names."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value


def as_csv(profiles: Mapping[str, Profile]) -> str:
    """Returns the steps of profiles as CSV; what is known of a run is on each of its steps."""
    rows: list[dict[str, object]] = []
    for name, profile in profiles.items():
        steps = steps_of(profile.records)
        columns = list(columns_of(profile, steps))
        run = {f"run_{key}": listed(value) for key, value in run_facts(profile).items()}
        for step in steps:
            row: dict[str, object] = {"file": name, "step": step.name, "depth": step.depth}
            for column in columns:
                row[column.key] = column.value(profile, step)
            row |= run
            rows.append({key: printable(str(v)) for key, v in row.items() if v is not None})
    order = ["file", "step", "depth", *(column.key for column in COLUMNS), "status"]
    present = {key for row in rows for key in row}
    fields = [key for key in order if key in present]
    fields += [key for row in rows for key in row if key not in order]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(dict.fromkeys(fields)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()
