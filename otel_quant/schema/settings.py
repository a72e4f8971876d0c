"""The environment variables that otel-quant reads.

OpenTelemetry's SDK reads its own (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER`, ...);
they work as documented there. A malformed value is logged with the name of the variable and the
expected form, and the default is used. A name or an exporter that is nearly one of ours is logged
with the one that is meant.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from otel_quant.base.log import LOG

OTEL_QUANT_PROFILE: Final = "OTEL_QUANT_PROFILE"
"""Path of the local profile (YAML); setting it requests the file."""

QUARK_PROFILING: Final = "QUARK_PROFILING"
"""``1`` requests the local profile, as it does in Quark's own profiler."""

_EXPORTER: Final = "quark_yaml"
_OTHER_EXPORTERS: Final = frozenset({"", "otlp", "console", "none"})
"""The usual ones: for these, no similar name is searched."""

_TRACES_EXPORTER: Final = "OTEL_TRACES_EXPORTER"
"""``quark_yaml`` in this comma-separated list requests the local profile."""

# Private for the same reason.
_SDK_DISABLED: Final = "OTEL_SDK_DISABLED"
"""``true`` switches the SDK off, and with it all but a local profile that is requested."""

OTEL_QUANT_YAML_STRICT: Final = "OTEL_QUANT_YAML_STRICT"
"""``true`` limits the local profile to what Quark's profiler writes."""

OTEL_QUANT_RUN_NAME: Final = "OTEL_QUANT_RUN_NAME"
"""Name of the run, for people."""

OTEL_QUANT_SAMPLE_INTERVAL: Final = "OTEL_QUANT_SAMPLE_INTERVAL"
"""Milliseconds between two samples; ``0`` switches the sampler off."""

OTEL_QUANT_EXACT_PEAKS: Final = "OTEL_QUANT_EXACT_PEAKS"
"""``true`` resets the kernel's memory mark at each checkpoint, for exact peaks of steps."""

OTEL_QUANT_GPU: Final = "OTEL_QUANT_GPU"
"""``false`` switches the reading of GPUs off."""

OTEL_QUANT_PATHS: Final = "OTEL_QUANT_PATHS"
"""``false`` keeps file paths out of the telemetry."""

OTEL_QUANT_COST: Final = "OTEL_QUANT_COST"
"""``false`` switches the static cost of ONNX models off."""

OTEL_QUANT_COST_TIMEOUT: Final = "OTEL_QUANT_COST_TIMEOUT"
"""Milliseconds that the static cost of one model may take."""

OTEL_QUANT_EXIT_TIMEOUT: Final = "OTEL_QUANT_EXIT_TIMEOUT"
"""Milliseconds for which undelivered telemetry may delay the exit of the program."""

OTEL_QUANT_LIBRARIES: Final = "OTEL_QUANT_LIBRARIES"
"""Comma-separated names of the libraries to instrument; all if it is unset."""

OTEL_QUANT_RECORD: Final = "OTEL_QUANT_RECORD"
"""Folder of the recording; setting it requests one."""

OTEL_QUANT_OTLP_FILES: Final = "OTEL_QUANT_OTLP_FILES"
"""``true`` adds OpenTelemetry's own files to the recording."""

OTEL_QUANT_ARGUMENTS: Final = "OTEL_QUANT_ARGUMENTS"
"""``false`` keeps the arguments of the command line out of what made a run."""

OTEL_QUANT_HASH: Final = "OTEL_QUANT_HASH"
"""``true`` adds the SHA-256 of the files of ONNX models to their static cost."""

OTEL_QUANT_LAUNCHER_PID: Final = "OTEL_QUANT_LAUNCHER_PID"
"""Process id of the ``otel-quant run`` that has started the program."""

_T = TypeVar("_T")

_LONGEST: Final = 1e6
"""Seconds; longer than any run, and short enough not to overflow the system's timers."""

_ONE: Final = "1 (Quark's own profiler accepts no other value) or 0"

_TRUE, _FALSE = frozenset({"true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off"})


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings in the environment."""

    # Path of the local profile as the user wrote it; None if it is unset
    profile_path: str | None = None
    profile_wanted: bool = False  # Whether the local profile is requested
    sdk_disabled: bool = False  # Whether OpenTelemetry's SDK is switched off
    yaml_strict: bool = False  # Whether it contains only what Quark's contains
    run_name: str = ""  # Name of the run; empty for one made of service, model and start time
    sample_interval: float = 0.05  # Seconds between samples; 0 for no samples
    exact_peaks: bool = False  # Whether the kernel's memory marks may be reset
    gpu: bool = True  # Whether GPUs are read
    paths: bool = True  # Whether file paths may leave the process
    cost: bool = True  # Whether ONNX models are costed
    cost_timeout: float = 10.0  # Seconds that costing one model may take
    exit_timeout: float = 5.0  # Seconds that exit may wait for exporters
    libraries: frozenset[str] | None = None  # Names of the libraries to instrument; None for all
    otlp_files: bool = False  # Whether OpenTelemetry's own files are added to the recording
    record: str | None = None  # Folder of the recording; None for no recording
    launched: bool = False  # Whether `otel-quant run` has started the program: it takes the curve
    arguments: bool = True  # Whether the arguments of the command line are recorded
    hashes: bool = False  # Whether the files of ONNX models are hashed


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable, for the documentation."""

    name: str  # Its name
    default: str  # Its value when it is unset, as a user would write it
    brief: str  # Its effect


VARIABLES: Final[tuple[Variable, ...]] = (
    Variable(OTEL_QUANT_PROFILE, "", "Path of the local profile (`quark_profile.yaml`); missing folders are created. Setting it requests the file; where no endpoint and no exporter is configured (`OTEL_EXPORTER_OTLP_...`, `OTEL_TRACES_EXPORTER` and its like, `OTEL_CONFIG_FILE`), the file is all: nothing is sent. An existing file is kept as `quark_profile.1.yaml`, one that was kept before moves up to `.2`, and so on. The name gets the process id in a child process, and `.otel` if Quark's own profiler writes to the path."),
    Variable(QUARK_PROFILING, "0", "`1` requests the local profile, as it does in Quark's own profiler."),
    Variable(_TRACES_EXPORTER, "otlp", "`quark_yaml` in this list requests the local profile, alone or with `otlp`. Alone, nothing is sent unless an endpoint or an exporter of metrics or log records is configured."),
    Variable(_SDK_DISABLED, "false", "`true` switches the SDK off. Nothing is measured then, unless the local profile or a recording is requested."),
    Variable(OTEL_QUANT_YAML_STRICT, "false", "`true` limits the local profile to what Quark's own contains (no `onnx_model_cost`, no errors of failed steps)."),
    Variable(OTEL_QUANT_RUN_NAME, "", "Name of the run in dashboards, on spans, log records and metrics. Unset, it is made of service, model and start time: `quantize resnet50 2026-11-22T09:30:00.123Z`. The model is that of the step that begins the run, and not in the name where that step has none or `OTEL_QUANT_PATHS` is off. Child processes and the ranks that one launcher starts on a host have the name of their run; set it for ranks on several hosts. Processes with the same name are shown as one run. It may have any characters; line breaks become spaces and backticks apostrophes, which queries cannot hold."),
    Variable(OTEL_QUANT_SAMPLE_INTERVAL, "50", "Milliseconds between two samples; `0` switches the sampler off: peaks are then those of the kernel and of the checkpoints, and the last reading of a run that is killed is that of its last checkpoint. The sampler slows down by itself to use about 0.5 % of a core, to two samples a second at least."),
    Variable(OTEL_QUANT_EXACT_PEAKS, "false", "`true` resets the kernel's memory mark at each checkpoint, so that every step has an exact peak. Other tools that read the mark (`/usr/bin/time`) are affected."),
    Variable(OTEL_QUANT_GPU, "true", "`false` switches the reading of GPUs off."),
    Variable(OTEL_QUANT_PATHS, "true", "`false` keeps file paths out of the telemetry and the local file. Texts that may name a file go as well: message and stack trace of an exception, text of a span's status, and of our log lines what an exception says; its class stays. What the program itself calls its steps, attributes and metrics is sent as it is, and what other instrumentations send is theirs (the SDK's logging handler adds `code.file.path` to each record)."),
    Variable(OTEL_QUANT_COST, "true", "`false` switches the static cost of ONNX models off."),
    Variable(OTEL_QUANT_COST_TIMEOUT, "10000", "Milliseconds that the static cost of one model may take."),
    Variable(OTEL_QUANT_EXIT_TIMEOUT, "5000", "Milliseconds for which undelivered telemetry may delay the program's exit; Ctrl-C ends the wait."),
    Variable(OTEL_QUANT_LIBRARIES, "", "Comma-separated libraries to instrument (`quark`, `onnxruntime`, ...); unset means all."),
    Variable(OTEL_QUANT_OTLP_FILES, "false", "`true` adds traces, metrics and log records in files of OpenTelemetry's own JSON-lines exporter to the recording of `otel-quant run`, which sets it for `--otlp-files`."),
    Variable(OTEL_QUANT_RECORD, "", "Folder of the [recording](recording.md); missing folders are created. Setting it requests one, with the local profile in it unless that has a path. Processes that run at the same time share it; one that is there from an earlier run is kept, and the new one gets a number. `otel-quant run` sets it."),
    Variable(OTEL_QUANT_ARGUMENTS, "true", "`false` keeps the arguments of the command line out of the telemetry, the local file and the recording; the program's name stays."),
    Variable(OTEL_QUANT_HASH, "false", "`true` adds the SHA-256 of the files of ONNX models to their static cost. A gigabyte takes about a second."),
    Variable(OTEL_QUANT_LAUNCHER_PID, "", "Process id of `otel-quant run`, which sets it: the launcher takes the curve of the recording."),
)  # fmt: skip
"""Every variable, in the order of the documentation."""

_OUR_PREFIX: Final = "OTEL_Q"
"""Shorter than ``OTEL_QUANT_``, for misspelt names; no variable of OpenTelemetry begins with it."""

_OUR_NAMES: Final = tuple(
    variable.name for variable in VARIABLES if variable.name.startswith(_OUR_PREFIX)
)


def settings_from(environ: Mapping[str, str], *, warn: bool = True) -> Settings:
    """Reads the settings."""
    default = Settings()
    say = _warn_once if warn else _say_nothing
    for line in (*_misspelt_names(environ), *misspelt_exporters(environ)):
        say(line)

    def read(name: str, fallback: _T, expected: str, parse: Callable[[str], _T]) -> _T:
        text = environ.get(name, "").strip()
        if not text:
            return fallback
        try:
            return parse(text)
        except ValueError:
            say(f"environment variable {name} is {text!r}; expected {expected}; using the default")
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
        or read(QUARK_PROFILING, False, _ONE, _parse_one)
        or _EXPORTER in exporters,
        # As the SDK reads it: no other word switches it off.
        sdk_disabled=environ.get(_SDK_DISABLED, "").strip().lower() == "true",
        yaml_strict=flag(OTEL_QUANT_YAML_STRICT, default.yaml_strict),
        run_name=environ.get(OTEL_QUANT_RUN_NAME, "").strip(),
        sample_interval=seconds(OTEL_QUANT_SAMPLE_INTERVAL, default.sample_interval),
        exact_peaks=flag(OTEL_QUANT_EXACT_PEAKS, default.exact_peaks),
        gpu=flag(OTEL_QUANT_GPU, default.gpu),
        paths=flag(OTEL_QUANT_PATHS, default.paths),
        cost=flag(OTEL_QUANT_COST, default.cost),
        cost_timeout=seconds(OTEL_QUANT_COST_TIMEOUT, default.cost_timeout),
        exit_timeout=seconds(OTEL_QUANT_EXIT_TIMEOUT, default.exit_timeout),
        libraries=libraries or None,
        otlp_files=flag(OTEL_QUANT_OTLP_FILES, default.otlp_files),
        record=environ.get(OTEL_QUANT_RECORD, "").strip() or None,
        launched=bool(environ.get(OTEL_QUANT_LAUNCHER_PID, "").strip()),
        arguments=flag(OTEL_QUANT_ARGUMENTS, default.arguments),
        hashes=flag(OTEL_QUANT_HASH, default.hashes),
    )


def misspelt_exporters(environ: Mapping[str, str]) -> Iterator[str]:
    """Yields a line for each exporter of traces whose name is nearly that of the local profile."""
    for entry in environ.get(_TRACES_EXPORTER, "").split(","):
        name = entry.strip()
        if name not in (_EXPORTER, *_OTHER_EXPORTERS) and _nearest(name.lower(), (_EXPORTER,), 0.6):
            yield (
                f"environment variable {_TRACES_EXPORTER} names {name!r}, which is no exporter; "
                f"did you mean {_EXPORTER!r}?"
            )


def _misspelt_names(environ: Mapping[str, str]) -> Iterator[str]:
    for name in environ:
        if name.upper().startswith(_OUR_PREFIX) and name not in _OUR_NAMES:
            near = _nearest(name.upper(), _OUR_NAMES, 0.8)
            meant = f"did you mean {near}?" if near else f"expected one of {', '.join(_OUR_NAMES)}"
            yield f"environment variable {name} is unknown and has no effect; {meant}"


def _nearest(text: str, known: Sequence[str], similarity: float) -> str | None:
    import difflib  # rarely needed, and this module is loaded in every instrumented program

    return next(iter(difflib.get_close_matches(text, known, 1, similarity)), None)


@functools.cache
def _warn_once(line: str) -> None:
    # The settings are read by the instrumentor and again by every run of the process.
    LOG.warning("%s", line)


def environment_at_start(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the environment that this process was started with."""
    try:
        pairs = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return environ
    return {
        os.fsdecode(name): os.fsdecode(value)
        for name, equals, value in (pair.partition(b"=") for pair in pairs)
        if equals
    }


def _say_nothing(line: str) -> None:
    pass


def _parse_flag(text: str) -> bool:
    value = text.lower()
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise ValueError(text)


def _parse_one(text: str) -> bool:
    if text == "1":
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(text)


def _parse_milliseconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(text)
    return min(value / 1000, _LONGEST)
