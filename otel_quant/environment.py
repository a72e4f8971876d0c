"""The environment variables that otel-quant reads.

OpenTelemetry's own (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER`, ...) are read
by its SDK and work as documented there. A value that cannot be understood is reported
by name, with what was expected, and the default is used.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

_log = logging.getLogger("otel_quant")

OTEL_QUANT_PROFILE: Final = "OTEL_QUANT_PROFILE"
"""Path of the local profile (YAML); setting it asks for the file."""

QUARK_PROFILING: Final = "QUARK_PROFILING"
"""``1`` asks for the local profile, as it asks Quark's own profiler for its file."""

# Private: `opentelemetry-instrument` makes an option of every public OTEL_ name here, and
# the SDK has made one of this.
_TRACES_EXPORTER: Final = "OTEL_TRACES_EXPORTER"
"""``quark_yaml`` in this comma-separated list asks for the local profile."""

OTEL_QUANT_YAML_STRICT: Final = "OTEL_QUANT_YAML_STRICT"
"""``true`` leaves out of the local profile what Quark's profiler does not write."""

OTEL_QUANT_SAMPLE_INTERVAL: Final = "OTEL_QUANT_SAMPLE_INTERVAL"
"""Milliseconds between two samples; ``0`` switches the sampler off."""

OTEL_QUANT_EXACT_PEAKS: Final = "OTEL_QUANT_EXACT_PEAKS"
"""``true`` resets the kernel's memory mark at each checkpoint, for exact peaks of steps."""

OTEL_QUANT_GPU: Final = "OTEL_QUANT_GPU"
"""``false`` leaves GPUs alone."""

OTEL_QUANT_PATHS: Final = "OTEL_QUANT_PATHS"
"""``false`` keeps file paths out of the telemetry."""

OTEL_QUANT_COST: Final = "OTEL_QUANT_COST"
"""``false`` switches the static cost of ONNX models off."""

OTEL_QUANT_COST_TIMEOUT: Final = "OTEL_QUANT_COST_TIMEOUT"
"""Milliseconds that the static cost of one model may take."""

OTEL_QUANT_EXIT_TIMEOUT: Final = "OTEL_QUANT_EXIT_TIMEOUT"
"""Milliseconds that the exit of the program may be held up by undelivered telemetry."""

OTEL_QUANT_LIBRARIES: Final = "OTEL_QUANT_LIBRARIES"
"""Comma-separated names of the libraries to instrument; all of them when it is unset."""

_T = TypeVar("_T")

_LONGEST: Final = 1e6
"""Seconds; more than any run takes, and less than the system's timers overflow at."""

_TRUE, _FALSE = frozenset({"true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off"})


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment asks for.

    Attributes:
        profile_path: Path of the local profile as the user wrote it; None if no path was
            named.
        profile_wanted: Whether the local profile is asked for.
        yaml_strict: Whether it holds only what Quark's holds.
        sample_interval: Seconds between samples; 0 for none.
        exact_peaks: Whether the kernel's memory marks may be reset.
        gpu: Whether GPUs are read.
        paths: Whether file paths may leave the process.
        cost: Whether ONNX models are costed.
        cost_timeout: Seconds that costing one model may take.
        exit_timeout: Seconds that exit may wait for exporters.
        libraries: Names of the libraries to instrument; None for all.
    """

    profile_path: str | None = None
    profile_wanted: bool = False
    yaml_strict: bool = False
    sample_interval: float = 0.05
    exact_peaks: bool = False
    gpu: bool = True
    paths: bool = True
    cost: bool = True
    cost_timeout: float = 10.0
    exit_timeout: float = 5.0
    libraries: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable, for the documentation.

    Attributes:
        name: Its name.
        default: What holds when it is unset, as a user would write it.
        brief: What it does.
    """

    name: str
    default: str
    brief: str


VARIABLES: Final[tuple[Variable, ...]] = (
    Variable(OTEL_QUANT_PROFILE, "", "Path of the local profile (`quark_profile.yaml`); folders that are missing are made. Setting it asks for the file. One that is there already is kept, as `quark_profile.1.yaml` and so on. The name gets the process id in a child process, and `.otel` where Quark's own profiler writes to the path."),
    Variable(QUARK_PROFILING, "0", "`1` asks for the local profile, as it asks Quark's own profiler for its file."),
    Variable(_TRACES_EXPORTER, "otlp", "`quark_yaml` in this list asks for the local profile, alone or beside `otlp`. Metrics and log records go to `otlp` all the same unless `OTEL_METRICS_EXPORTER` and `OTEL_LOGS_EXPORTER` are `none`."),
    Variable(OTEL_QUANT_YAML_STRICT, "false", "`true` leaves out of the local profile what Quark's own does not hold (`onnx_model_cost`, the errors of failed steps)."),
    Variable(OTEL_QUANT_SAMPLE_INTERVAL, "50", "Milliseconds between two samples; `0` switches the sampler off. The sampler slows down by itself to stay below 0.5 % of a core."),
    Variable(OTEL_QUANT_EXACT_PEAKS, "false", "`true` resets the kernel's memory mark at each checkpoint, so that every step's peak is the kernel's. Other tools that read the mark (`/usr/bin/time`) see the reset."),
    Variable(OTEL_QUANT_GPU, "true", "`false` leaves GPUs alone."),
    Variable(OTEL_QUANT_PATHS, "true", "`false` keeps file paths out of the telemetry."),
    Variable(OTEL_QUANT_COST, "true", "`false` switches the static cost of ONNX models off."),
    Variable(OTEL_QUANT_COST_TIMEOUT, "10000", "Milliseconds that the static cost of one model may take."),
    Variable(OTEL_QUANT_EXIT_TIMEOUT, "5000", "Milliseconds that the program's exit may be held up by telemetry that cannot be delivered."),
    Variable(OTEL_QUANT_LIBRARIES, "", "Comma-separated libraries to instrument (`quark`, `onnxruntime`, ...); unset means all."),
)  # fmt: skip
"""Every variable, in the order of the documentation."""


def settings_from(environ: Mapping[str, str]) -> Settings:
    """Reads the settings.

    Args:
        environ: The environment, as ``os.environ``.

    Returns:
        The settings; the default of each variable that is unset, empty or malformed. A
        malformed one is logged, once in a process, as a warning that names it, its value
        and what was expected.
    """
    default = Settings()

    def read(name: str, fallback: _T, expected: str, parse: Callable[[str], _T]) -> _T:
        text = environ.get(name, "").strip()
        if not text:
            return fallback
        try:
            return parse(text)
        except ValueError:
            _warn_once(name, text, expected)
            return fallback

    def flag(name: str, fallback: bool) -> bool:
        return read(name, fallback, "true or false", _parse_flag)

    def seconds(name: str, fallback: float) -> float:
        return read(name, fallback, "a number of milliseconds, 0 or more", _parse_milliseconds)

    path = environ.get(OTEL_QUANT_PROFILE, "").strip() or None
    exporters = {entry.strip() for entry in environ.get(_TRACES_EXPORTER, "").split(",")}
    libraries = frozenset(
        entry.strip() for entry in environ.get(OTEL_QUANT_LIBRARIES, "").split(",") if entry.strip()
    )
    return Settings(
        profile_path=path,
        profile_wanted=path is not None
        or environ.get(QUARK_PROFILING) == "1"  # Quark's own profiler knows no other value
        or "quark_yaml" in exporters,
        yaml_strict=flag(OTEL_QUANT_YAML_STRICT, default.yaml_strict),
        sample_interval=seconds(OTEL_QUANT_SAMPLE_INTERVAL, default.sample_interval),
        exact_peaks=flag(OTEL_QUANT_EXACT_PEAKS, default.exact_peaks),
        gpu=flag(OTEL_QUANT_GPU, default.gpu),
        paths=flag(OTEL_QUANT_PATHS, default.paths),
        cost=flag(OTEL_QUANT_COST, default.cost),
        cost_timeout=seconds(OTEL_QUANT_COST_TIMEOUT, default.cost_timeout),
        exit_timeout=seconds(OTEL_QUANT_EXIT_TIMEOUT, default.exit_timeout),
        libraries=libraries or None,
    )


@functools.cache
def _warn_once(name: str, text: str, expected: str) -> None:
    # The instrumentor reads the settings, and so does every run of the process.
    _log.warning(
        "environment variable %s is %r; expected %s; using the default", name, text, expected
    )


def _parse_flag(text: str) -> bool:
    word = text.lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(text)


def _parse_milliseconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(text)
    return min(value / 1000, _LONGEST)
