"""Names a run for people: service, model and start time, or what OTEL_QUANT_RUN_NAME says.

The name is given when the run begins and does not change, because log records have it from the
first on, and a metric whose labels change is another series.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from otel_quant.export.otel.service_name import service_name
from otel_quant.schema import semconv
from otel_quant.schema.records import AttributeValue, RunInfo

CARRIER_KEY = "otel_quant_run_name"
"""A child process finds the name under this key beside the trace context. In capitals it is
OTEL_QUANT_RUN_NAME."""

_FOLDERS = re.compile(r".*[/\\]")
_BLANK = re.compile(r"[\x00-\x20\x7f]+")


def described(info: RunInfo, attributes: Mapping[str, AttributeValue], time_ns: int) -> RunInfo:
    """Returns the description of a run that begins, with its name and its model."""

    def text(key: str) -> str | None:
        value = attributes.get(key)
        return value if isinstance(value, str) else None

    path = text(semconv.INPUT_PATH)
    model = model_name(path) if path is not None else None
    return replace(
        info,
        name=_queried(info.name or made_name(model, info.launched_ns or time_ns)),
        model=model,
        method=text(semconv.CALIBRATION_METHOD),
        config=text(semconv.CONFIG_NAME),
    )


def made_name(model: str | None, time_ns: int, service: str | None = None) -> str:
    """Returns a name for what has none."""
    words = (service or service_name(), model, _instant(time_ns))
    return " ".join(word for word in words if word)


def _queried(name: str) -> str:
    """Returns a name in one line and without backticks, which end a name in the stores' queries."""
    return _BLANK.sub(" ", name).strip().replace("`", "'")


def model_name(path: str) -> str | None:
    """Returns the last part of a model's path without `.onnx`; None if there is none."""
    return _FOLDERS.sub("", path.rstrip("/\\")).removesuffix(".onnx") or None


def _instant(time_ns: int) -> str:
    """Returns a time in UTC. Milliseconds tell runs apart that a launcher begins together."""
    moment = datetime.fromtimestamp(time_ns / 1e9, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
