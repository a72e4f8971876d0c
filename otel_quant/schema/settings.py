"""The settings of a run: each with its environment variable, its default and its words, once.

From a field follow what :mod:`otel_quant.base.environment` reads, the documentation, and the option of
``opentelemetry-instrument``. OpenTelemetry's SDK reads its own variables
(`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER`, ...); they work as documented there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias, TypeVar

from otel_quant.schema.dataclass import dataclass

Kind: TypeAlias = Literal[
    "text", "names", "nodes", "flag", "stacks", "profiles", "milliseconds", "presence", "exporter", "quark's switch",
    "sdk's switch",
]  # fmt: skip
"""How the text of a variable is read."""

# The names that other modules need: to set a variable, or to name it in a message.
QUARK_PROFILING: Final = "QUARK_PROFILING"
OTEL_QUANT_ARGUMENTS: Final = "OTEL_QUANT_ARGUMENTS"
OTEL_QUANT_EXCLUDE: Final = "OTEL_QUANT_EXCLUDE"
OTEL_QUANT_LAUNCHER_PID: Final = "OTEL_QUANT_LAUNCHER_PID"
OTEL_QUANT_LIBRARIES: Final = "OTEL_QUANT_LIBRARIES"
OTEL_QUANT_OTLP_FILES: Final = "OTEL_QUANT_OTLP_FILES"
OTEL_QUANT_RECORD: Final = "OTEL_QUANT_RECORD"
OTEL_QUANT_SAMPLE_INTERVAL: Final = "OTEL_QUANT_SAMPLE_INTERVAL"
OTEL_TRACES_EXPORTER: Final = "OTEL_TRACES_EXPORTER"
EXPORTER: Final = "quark_yaml"  # The exporter of traces that requests the local profile

_OUR_PREFIX: Final = "OTEL_Q"
"""Shorter than ``OTEL_QUANT_``, for misspelt names; no variable of OpenTelemetry begins with it."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Setting:
    """What is known of one setting besides its value."""

    variable: str  # Name of its environment variable
    kind: Kind
    words: str  # Its effect, for the documentation
    field: str = ""  # Name in :class:`Settings`
    default: Any = None  # Value if the variable is unset

    @property
    def is_option(self) -> bool:
        """Whether ``opentelemetry-instrument`` has an option for it."""
        return self.variable.startswith("OTEL_QUANT_") and self.kind != "presence"


def _setting(variable: str, default: _T, kind: Kind, words: str) -> _T:
    about = Setting(variable, kind, words)
    return dataclasses.field(default=default, metadata={"setting": about})


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run. Times are in seconds, whatever a variable has."""

    profile_path: str | None = _setting("OTEL_QUANT_PROFILE", None, "text", "Path of the local profile (`quark_profile.yaml`); missing folders are created. Setting it requests the file; where no endpoint and no exporter is configured (`OTEL_EXPORTER_OTLP_...`, `OTEL_TRACES_EXPORTER` and its like, `OTEL_CONFIG_FILE`), the file is all: nothing is sent. An existing file is kept as `quark_profile.1.yaml`, the next one as `.2`, and so on. The name gets the process id in a child process, and `.otel` if Quark's own profiler writes to the path.")  # fmt: skip
    quark_profiling: bool = _setting(QUARK_PROFILING, False, "quark's switch", "`1` requests the local profile, as it does in Quark's own profiler.")  # fmt: skip
    yaml_exporter: bool = _setting(OTEL_TRACES_EXPORTER, False, "exporter", "`quark_yaml` in this list requests the local profile, alone or with `otlp`. Alone, nothing is sent unless an endpoint or an exporter of metrics or log records is configured.")  # fmt: skip
    sdk_disabled: bool = _setting("OTEL_SDK_DISABLED", False, "sdk's switch", "`true` switches the SDK off. Nothing is measured then, unless the local profile or a recording is requested.")  # fmt: skip
    yaml_strict: bool = _setting("OTEL_QUANT_YAML_STRICT", False, "flag", "`true` limits the local profile to what Quark's own contains (no `onnx_model_cost`, no errors of failed steps).")  # fmt: skip
    run_name: str = _setting("OTEL_QUANT_RUN_NAME", "", "text", "Name of the run in dashboards, on spans, log records and metrics. Unset, it is made of service, model and start time: `quantize resnet50 2026-11-22T09:30:00.123Z`. The model is the input of the step that begins the run; the name has no model where that step has none or `OTEL_QUANT_PATHS` is off. Child processes and the ranks that one launcher starts on a host have the name of their run; set it for ranks on several hosts. Processes with the same name are shown as one run. It may have any characters; line breaks become spaces and backticks apostrophes, which queries cannot hold.")  # fmt: skip
    sample_interval: float = _setting(OTEL_QUANT_SAMPLE_INTERVAL, 0.05, "milliseconds", "Milliseconds between two samples; `0` switches the sampler off: peaks then come from the kernel and the checkpoints, and the last reading of a killed run comes from its last checkpoint. The sampler slows down by itself to use about 0.5 % of a core (0.6 % with stacks), to two samples a second at least.")  # fmt: skip
    stacks: str = _setting("OTEL_QUANT_STACKS", "true", "stacks", "Which Python lines the sampler notes ([stacks](stacks.md)): `true` of the threads with an open step, `all` of every Python thread, `false` none.")  # fmt: skip
    profiles: bool = _setting("OTEL_QUANT_PROFILES", False, "profiles", "`otlp` sends for each step a profile of time and one of memory growth by Python line ([stacks](stacks.md#over-opentelemetry)), to the path `/v1development/profiles` of the endpoint (`OTEL_EXPORTER_OTLP_ENDPOINT` and its like, or `OTEL_EXPORTER_OTLP_PROFILES_...` alone). OpenTelemetry's signal of profiles is in development; `none` sends none.")  # fmt: skip
    process_context: bool = _setting("OTEL_QUANT_PROCESS_CONTEXT", False, "flag", "`true` publishes the run and the open step for profilers outside of the process, as OpenTelemetry's process context (OTEP 4719, in development): what an eBPF profiler sees of native code then has `quant.step.name`. Linux only.")  # fmt: skip
    exact_peaks: bool = _setting("OTEL_QUANT_EXACT_PEAKS", False, "flag", "`true` resets the kernel's memory mark at each checkpoint, so that every step has an exact peak. Other tools that read the mark (`/usr/bin/time`) are affected.")  # fmt: skip
    gpu: bool = _setting("OTEL_QUANT_GPU", True, "flag", "`false` switches the reading of GPUs off.")  # fmt: skip
    paths: bool = _setting("OTEL_QUANT_PATHS", True, "flag", "`false` keeps file paths out of the telemetry and the local file. Texts that may name a file go as well: message and stack trace of an exception, text of a span's status, and the message of an exception in our log lines; its class stays. What the program itself calls its steps, attributes and metrics is sent as it is, and what other instrumentations send is theirs (the SDK's logging handler adds `code.file.path` to each record).")  # fmt: skip
    observers: bool = _setting("OTEL_QUANT_OBSERVERS", True, "flag", "`false` notes nothing of what reaches each layer in a calibration ([what calibration has seen](calibration.md)): no function of ours is set on the classes of observers.")  # fmt: skip
    cost: bool = _setting("OTEL_QUANT_COST", True, "flag", "`false` switches the static cost of ONNX models off.")  # fmt: skip
    cost_timeout: float = _setting("OTEL_QUANT_COST_TIMEOUT", 10.0, "milliseconds", "Milliseconds that the static cost of one model may take.")  # fmt: skip
    exit_timeout: float = _setting("OTEL_QUANT_EXIT_TIMEOUT", 5.0, "milliseconds", "Milliseconds for which undelivered telemetry may delay a program and its forked workers, together; Ctrl-C ends the wait.")  # fmt: skip
    exclude: tuple[str, ...] | None = _setting(OTEL_QUANT_EXCLUDE, None, "nodes", "Names of nodes, as a list in JSON, that `quantize_static` of onnxruntime and of AMD Quark leaves in float, too: its arguments are changed, and the recording has `quant.config.excluded`. `otel-quant advise --rerun` sets it.")  # fmt: skip
    libraries: frozenset[str] | None = _setting(OTEL_QUANT_LIBRARIES, None, "names", "Comma-separated libraries to instrument (`quark`, `onnxruntime`, ...); unset means all.")  # fmt: skip
    otlp_files: bool = _setting(OTEL_QUANT_OTLP_FILES, False, "flag", "`true` adds traces, metrics and log records in files of OpenTelemetry's own JSON-lines exporter to the recording of `otel-quant run`, which sets it for `--otlp-files`.")  # fmt: skip
    record: str | None = _setting(OTEL_QUANT_RECORD, None, "text", "Folder of the [recording](recording.md); missing folders are created. Setting it requests one, with the local profile in it unless that has a path. Processes that run at the same time share it; one that is there from an earlier run is kept, and the new one gets a number. `otel-quant run` sets it.")  # fmt: skip
    arguments: bool = _setting(OTEL_QUANT_ARGUMENTS, True, "flag", "`false` keeps the arguments of the command line out of the telemetry, the local file and the recording; the program's name stays.")  # fmt: skip
    hashes: bool = _setting("OTEL_QUANT_HASH", False, "flag", "`true` adds the SHA-256 of the files of ONNX models to their static cost. A gigabyte takes about a second.")  # fmt: skip
    launched: bool = _setting(OTEL_QUANT_LAUNCHER_PID, False, "presence", "Process id of `otel-quant run`, which sets it: the launcher takes the curve of the recording.")  # fmt: skip

    @property
    def profile_wanted(self) -> bool:
        """Whether the local profile is requested."""
        return self.profile_path is not None or self.quark_profiling or self.yaml_exporter

    @property
    def file_wanted(self) -> bool:
        """Whether any file is requested, which is written without an SDK too."""
        return self.profile_wanted or self.record is not None


SETTINGS: Final[tuple[Setting, ...]] = tuple(
    dataclasses.replace(field.metadata["setting"], field=field.name, default=field.default)
    for field in dataclasses.fields(Settings)
)
"""Every setting, in the order of the documentation."""

_OUR_NAMES: Final = tuple(it.variable for it in SETTINGS if it.variable.startswith(_OUR_PREFIX))


def misspelt_names(environ: Mapping[str, str]) -> Iterator[str]:
    """Yields a line for each variable whose name is nearly one of ours."""
    for name in environ:
        if name.upper().startswith(_OUR_PREFIX) and name not in _OUR_NAMES:
            import difflib  # rarely needed, and this module is loaded in every instrumented program

            near = difflib.get_close_matches(name.upper(), _OUR_NAMES, 1, 0.8)
            meant = (
                f"did you mean {near[0]}?" if near else f"expected one of {', '.join(_OUR_NAMES)}"
            )
            yield f"environment variable {name} is unknown and has no effect; {meant}"
