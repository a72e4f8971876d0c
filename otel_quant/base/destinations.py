"""Whether telemetry is to be sent, and by which exporters: one rule for the program, the launcher and the commands.

Something is sent where an exporter, an endpoint, or what may know one, is named. OpenTelemetry's distribution alone
would send to this machine without either. Programs wait for this module.
"""

from __future__ import annotations

TYPE_CHECKING = False  # not typing's, which takes a third of Python's own start to load
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

EXPORTERS: Final = {
    f"OTEL_{signal}_EXPORTER": (
        "OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT",
    )
    for signal in ("TRACES", "METRICS", "LOGS")
}  # fmt: skip
"""The variable of each signal's exporters, and those of its endpoint."""

CONFIGURED_ELSEWHERE: Final = ("OTEL_CONFIG_FILE", "OTEL_PYTHON_CONFIGURATOR", "OTEL_PYTHON_DISTRO")
"""Variables of a file, or of another distribution, that may know where to send without another variable."""

_FILES: Final = "otel_quant_files"  # Name of our entry point for OpenTelemetry's exporters to files
_SENDS_NOTHING: Final = frozenset({"", "none", "quark_yaml"})


def exporters_in(environ: Mapping[str, str]) -> dict[str, set[str]]:
    """Returns the exporters of each signal, by its variable; those of OTLP where only an endpoint is set."""
    found = {}
    for variable, endpoints in EXPORTERS.items():
        default = "otlp" if any(map(environ.get, endpoints)) else "none"
        names = (environ.get(variable) or default).split(",")
        found[variable] = set(map(str.strip, names)) - {"none"}
    return found


def sends(environ: Mapping[str, str]) -> bool:
    """Returns whether anything is sent with these variables."""
    return any(map(environ.get, CONFIGURED_ELSEWHERE)) or any(
        names - _SENDS_NOTHING for names in exporters_in(environ).values()
    )


def exporter_variables(environ: Mapping[str, str], *, has_files: bool) -> dict[str, str]:
    """Returns the variables of all exporters, ours to files of the recording among them; none where a file names them."""
    if any(map(environ.get, CONFIGURED_ELSEWHERE)):
        return {}
    return {
        variable: ",".join(sorted(names | {_FILES} if has_files else names)) or "none"
        for variable, names in exporters_in(environ).items()
    }
