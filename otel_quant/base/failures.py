"""The type and the message of an exception, as telemetry, files and tables may show them."""

from __future__ import annotations

from typing import Final

from otel_quant.base.fault_boundary import FAULTS

_LONGEST: Final = 500
"""Characters that are kept."""


def message_of(error: BaseException, *, paths: bool) -> str | None:
    """Returns the message of an exception on one line of 500 characters at most."""
    if not paths:
        return None
    with FAULTS.kept_in("message of an exception"):
        text = " ".join(str(error)[: 2 * _LONGEST].split())
        return (text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…") or None
    return None


def error_type(error: BaseException) -> str:
    """Returns the qualified name of an exception's class, for `error.type`."""
    kind = type(error)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}"
