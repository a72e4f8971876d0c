"""Names that otel-quant puts on spans, metrics and log records.

The names of measured resources are made from the resources' declarations;
:mod:`otel_quant.schema.catalog` has all names. Names that begin with ``quant.`` are ours; the
others are OpenTelemetry's semantic conventions.

Bytes are integers (``By``), times are seconds (``s``). A figure that could not be measured is
absent; it is never replaced by 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from otel_quant.schema.figures import MODEL_FIGURES, Metric
from otel_quant.schema.figures import PREFIX as PREFIX

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.37.0"
"""Version of OpenTelemetry's semantic conventions whose names are used here."""

SCOPE: Final = "otel_quant"
"""Name of the instrumentation scope of every signal."""

Type = Literal["string", "int", "double", "boolean", "string[]", "int[]"]
Place = Literal[
    "run", "step", "cost", "checkpoint", "reading", "forecast", "device", "ending", "inference",
    "measured model", "operator", "finding", "metric",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute name."""

    name: str  # The key. ``<...>`` is a variable part (a model's role, a custom metric's name).
    type: Type  # Type of the value
    unit: str  # UCUM unit, empty for values without one
    brief: str  # Meaning of the value
    # Where it is used: the run's root span, a step's span, a model cost span, a checkpoint log
    # record, a log record of a reading, of a forecast, of one device or of the end of a program,
    # the span of an inference or of a model in it, a log record of an operator or of what went
    # wrong in it, metric points
    places: tuple[Place, ...]
    example: str  # An example value
    former: tuple[str, ...] = ()  # Names that it had in older recordings


@dataclass(frozen=True, slots=True)
class Event:
    """One kind of log record."""

    name: str  # Its event name
    brief: str  # What one record tells


# --- attributes ---------------------------------------------------------------------------

RUN_ID: Final = "quant.run.id"
RUN_NAME: Final = "quant.run.name"
RUN_TRACE_ID: Final = "quant.run.trace_id"
RUN_RANK: Final = "quant.run.rank"
RUN_WORLD_SIZE: Final = "quant.run.world_size"
RUN_STEPS: Final = "quant.run.steps"
RUN_FAILED_STEPS: Final = "quant.run.failed_steps"

STEP_NAME: Final = "quant.step.name"
STEP_KIND: Final = "quant.step.kind"
STEP_INDEX: Final = "quant.step.index"

LIBRARY_NAME: Final = "quant.library.name"
LIBRARY_VERSION: Final = "quant.library.version"
CODE_FUNCTION_NAME: Final = "code.function.name"
ERROR_TYPE: Final = "error.type"
PROCESS_PID: Final = "process.pid"

EXCEPTION_EVENT: Final = "exception"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"

PROCESS_COMMAND_LINE: Final = "process.command_line"
PYTHON_VERSION: Final = "process.runtime.version"
HOST_NAME: Final = "host.name"
OS_DESCRIPTION: Final = "os.description"
CPU_MODEL: Final = "host.cpu.model.name"
CPU_COUNT: Final = "quant.host.cpu_count"
CPU_LIMIT: Final = "quant.host.cpu_limit"
ADDRESS_SPACE_LIMIT: Final = "quant.host.address_space_limit"
FILE_SIZE_LIMIT: Final = "quant.host.file_size_limit"
LIBRARIES: Final = "quant.libraries"
OTEL_QUANT_VERSION: Final = "quant.otel_quant.version"
GPU_NAMES: Final = "quant.gpu.names"
GPU_DRIVERS: Final = "quant.gpu.drivers"
VCS_REVISION: Final = "vcs.ref.head.revision"
VCS_REF: Final = "vcs.ref.head.name"
VCS_REPOSITORY: Final = "vcs.repository.url.full"
VCS_CHANGE: Final = "vcs.change.id"
VCS_DIRTY: Final = "quant.vcs.dirty"
CI_PIPELINE: Final = "cicd.pipeline.name"
CI_RUN: Final = "cicd.pipeline.run.id"
CI_RUN_URL: Final = "cicd.pipeline.run.url.full"
CI_TASK: Final = "cicd.pipeline.task.name"
CI_TASK_RUN: Final = "cicd.pipeline.task.run.id"
CI_WORKER: Final = "cicd.worker.name"

CALIBRATION_METHOD: Final = "quant.calibration.method"
CALIBRATION_SAMPLE_COUNT: Final = "quant.calibration.sample_count"
CALIBRATION_ITEM_COUNT: Final = "quant.calibration.item_count"
CALIBRATION_SAMPLE_TOTAL: Final = "quant.calibration.sample_total"
CALIBRATION_SAMPLE_RATE: Final = "quant.calibration.sample_rate"
CONFIG_NAME: Final = "quant.config.name"
FORMAT: Final = "quant.format"
WEIGHT_TYPE: Final = "quant.weight.type"
ACTIVATION_TYPE: Final = "quant.activation.type"
PER_CHANNEL: Final = "quant.per_channel"
BITS: Final = "quant.bits"
BLOCK_SIZE: Final = "quant.block_size"
ALGORITHMS: Final = "quant.algorithms"
LAYER_COUNT: Final = "quant.layer_count"
INPUT_NAME: Final = "quant.input.name"
INPUT_PATH: Final = "quant.input.path"
OUTPUT_PATH: Final = "quant.output.path"

# Of the names that resources make, only those that dashboards and spans refer to are here.
MEMORY_START: Final = "quant.memory.start"
MEMORY_DELTA: Final = "quant.memory.delta"
MEMORY_PEAK: Final = "quant.memory.peak"
MEMORY_PEAK_SOURCE: Final = "quant.memory.peak_source"
MEMORY_PROCESS_PEAK: Final = "quant.memory.process_peak"
MEMORY_LIMIT: Final = "quant.memory.limit"
MEMORY_LIMIT_SOURCE: Final = "quant.memory.limit_source"
MEMORY_PEAK_RATIO: Final = "quant.memory.peak_ratio"

GPU_COUNT: Final = "quant.gpu.count"
GPU_MEMORY_PEAK: Final = "quant.gpu.memory.peak"
GPU_MEMORY_LIMIT: Final = "quant.gpu.memory.limit"
DEVICE_INDEX: Final = "index"
"""Last part of the name of the attribute that has a device's position."""

DISK_READ: Final = "quant.disk.read"
DISK_WRITE: Final = "quant.disk.write"
CPU_USER: Final = "quant.cpu.user"
CPU_SYSTEM: Final = "quant.cpu.system"
CPU_WAIT: Final = "quant.cpu.wait"
MAJOR_FAULTS: Final = "quant.page_faults.major"

MODEL_ROLE: Final = "quant.model.role"
MODEL_PATH: Final = "quant.model.path"
MODEL_NAME: Final = "quant.model.name"

INFERENCE_PROVIDER: Final = "quant.inference.provider"
INFERENCE_MODELS: Final = "quant.inference.models"
INFERENCE_NOISE: Final = "quant.inference.noise"
INFERENCE_RUNS: Final = "quant.inference.runs"
INFERENCE_WEIGHTS: Final = "quant.inference.weights"
INFERENCE_KERNEL_TIME: Final = "quant.inference.kernel_time"
INFERENCE_PROBLEM: Final = "quant.inference.problem"

OPERATOR_TYPE: Final = "quant.inference.operator.type"
OPERATOR_NAME: Final = "quant.inference.operator.name"
OPERATOR_KERNELS: Final = "quant.inference.operator.kernels"
OPERATOR_DURATION: Final = "quant.inference.operator.duration"
OPERATOR_SHARE: Final = "quant.inference.operator.share"
OPERATOR_TYPES: Final = "quant.inference.operator.types"
OPERATOR_MAC_RATE: Final = "quant.inference.operator.mac_rate"

FINDING_KIND: Final = "quant.inference.finding.kind"
FINDING_NODE: Final = "quant.inference.finding.node"
FINDING_SHARE: Final = "quant.inference.finding.share"

CHECKPOINT_PREFIX: Final = "quant.checkpoint."

CHECKPOINT_NAME: Final = "quant.checkpoint.name"
CHECKPOINT_PHASE: Final = "quant.checkpoint.phase"
CHECKPOINT_SEQUENCE: Final = "quant.checkpoint.sequence"
CHECKPOINT_ELAPSED: Final = "quant.checkpoint.elapsed"
CHECKPOINT_MEMORY: Final = "quant.checkpoint.memory"
CHECKPOINT_MEMORY_LIMIT: Final = "quant.checkpoint.memory_limit"

READING_EVENT: Final = "quant.reading.taken"

ENDING_SIGNAL: Final = "quant.ending.signal"
ENDING_OUT_OF_MEMORY: Final = "quant.ending.out_of_memory"
ENDING_EVIDENCE: Final = "quant.ending.evidence"
ENDING_OPEN_STEPS: Final = "quant.ending.open_steps"
ENDING_MEMORY: Final = "quant.ending.memory"
ENDING_MEMORY_LIMIT: Final = "quant.ending.memory_limit"
ENDING_MEMORY_LIMIT_SOURCE: Final = "quant.ending.memory_limit_source"
ENDING_MEMORY_PER_SAMPLE: Final = "quant.ending.memory_per_sample"
READING_PREFIX: Final = "quant.reading."

READING_ELAPSED: Final = "quant.reading.elapsed"
READING_MEMORY_LIMIT: Final = "quant.reading.memory_limit"
READING_MEMORY_PEAK: Final = "quant.reading.memory_peak"
READING_OPEN_STEPS: Final = "quant.reading.open_steps"

FORECAST_EVENT: Final = "quant.forecast.exceeded"

FORECAST_TIME_LEFT: Final = "quant.forecast.time_left"
FORECAST_MEMORY: Final = "quant.forecast.memory.at_end"
FORECAST_MEMORY_PER_SAMPLE: Final = "quant.forecast.memory.per_sample"
FORECAST_MEMORY_LIMIT: Final = "quant.forecast.memory.limit"
FORECAST_GPU_MEMORY: Final = "quant.forecast.gpu.memory.at_end"
FORECAST_GPU_MEMORY_LIMIT: Final = "quant.forecast.gpu.memory.limit"

CUSTOM_PREFIX: Final = "quant.custom."

HW_ID: Final = "hw.id"
HW_NAME: Final = "hw.name"
GPU_SLOWED_BY: Final = "quant.gpu.device.slowed_by"
GPU_MEMORY_ERRORS: Final = "quant.gpu.device.memory_errors"
DISK_IO_DIRECTION: Final = "disk.io.direction"
CPU_MODE: Final = "cpu.mode"

_RUN_STEP: tuple[Place, ...] = ("run", "step")
_CUSTOM: Final = (
    "Value of a custom metric, by its name: on spans the last one, elsewhere the one at that time. In "
    "a metric's name, what an instrument's name may not have is `_`."
)

INFERENCE_START: Final = "quant.inference.start"
INFERENCE_MEDIAN: Final = "quant.inference.duration.median"
INFERENCE_P10: Final = "quant.inference.duration.p10"
INFERENCE_P90: Final = "quant.inference.duration.p90"
INFERENCE_MEMORY_PEAK: Final = "quant.inference.memory.peak"
INFERENCE_SPEEDUP: Final = "quant.inference.speedup"
INFERENCE_SQNR: Final = "quant.inference.sqnr"
INFERENCE_FINDINGS: Final = "quant.inference.findings"
INFERENCE_CONVERSIONS: Final = "quant.inference.conversions"

_MODEL_LABELS: Final = (RUN_NAME, MODEL_NAME, MODEL_ROLE, INFERENCE_PROVIDER)
_OF_MODELS: Final = tuple(
    (Metric(name, "gauge", unit, brief, _MODEL_LABELS), example)
    for name, unit, brief, example in (
        (INFERENCE_MEDIAN, "s", "Time of a run of the model without the profiler: half of the runs were faster.", "0.0112"),
        (INFERENCE_P10, "s", "The same: a tenth of the runs was faster.", "0.0109"),
        (INFERENCE_P90, "s", "The same: nine tenths of the runs were faster.", "0.0131"),
        (INFERENCE_MEMORY_PEAK, "By", "Highest RSS of the model's process while the model ran; on a GPU, the most that its allocator held.", "183500800"),
        (INFERENCE_SPEEDUP, "1", "How many times as fast as the first model, the baseline; absent where the machine was too noisy to tell.", "2.7"),
        (INFERENCE_SQNR, "dB", "Signal to quantization noise of the outputs against those of the first model, the worst of them; absent where they are equal.", "31.4"),
        (INFERENCE_FINDINGS, "{finding}", "What went wrong: kernels and conversions that ran otherwise than the model promises.", "3"),
        (INFERENCE_CONVERSIONS, "1", "Share of the time of all kernels in those that only convert: quantize, dequantize, cast, reorder or copy.", "0.12"),
    )
)  # fmt: skip
"""The gauges of a model at work, which are attributes of its span as well, each with an example."""

ATTRIBUTES: Final[tuple[Attribute, ...]] = (
    Attribute(RUN_ID, "string", "", "Identifier of the run, the same on its spans and its checkpoint log records.", ("run", "step", "cost", "checkpoint", "reading", "forecast", "device"), "3f2a9c0e5b7d4a16"),
    Attribute(RUN_NAME, "string", "", "Name of the run, for people: service, model and start time, or `OTEL_QUANT_RUN_NAME`. Child processes and ranks have that of their run, an inference that of the run or the recording that it belongs to.", ("run", "step", "cost", "checkpoint", "reading", "forecast", "device", "inference", "measured model", "operator", "finding", "metric"), "quantize resnet50 2026-11-22T09:30:00.123Z"),
    Attribute(RUN_TRACE_ID, "string", "", "Trace of the run's span; absent without one.", ("metric",), "0af7651916cd43dd8448eb211c80319c"),
    Attribute(RUN_RANK, "int", "", "Rank of the process, where a launcher such as torchrun sets it.", ("run", "step", "cost", "checkpoint", "reading", "forecast", "device", "metric"), "0"),
    Attribute(RUN_WORLD_SIZE, "int", "", "Number of processes that the launcher started.", ("run",), "8"),
    Attribute(RUN_STEPS, "int", "{step}", "Steps that the run has finished.", ("run",), "7"),
    Attribute(RUN_FAILED_STEPS, "int", "{step}", "Steps of the run that ended with an exception.", ("run",), "0"),
    Attribute(STEP_NAME, "string", "", "Label of the step: its kind, or the user's message for a User-Defined step. On metrics only a label that is one of the 26 kinds: any other is free text, of which there may be any number.", ("step", "checkpoint", "reading", "forecast", "device", "metric"), "Calibration"),
    Attribute(STEP_KIND, "string", "", "Kind of the step: the ProfileStep constant that it was opened with, `User-Defined` for any other name.", ("step", "checkpoint", "reading", "forecast", "device", "metric"), "Calibration"),
    Attribute(STEP_INDEX, "int", "", "Position of the step in the run, counted from 0 as the steps opened.", ("step", "checkpoint", "reading", "forecast", "device"), "3"),
    Attribute(LIBRARY_NAME, "string", "", "Distribution that the step's code belongs to; on the run, that of its first step that has one; on an inference, the runtime.", ("run", "step", "checkpoint", "reading", "forecast", "device", "inference", "measured model", "metric"), "amd-quark"),
    Attribute(LIBRARY_VERSION, "string", "", "Version of that distribution.", ("step", "inference", "measured model"), "0.13"),
    Attribute(CODE_FUNCTION_NAME, "string", "", "Qualified name of the function that is the step.", ("step",), "quark.onnx.calibration.interface.run_calibration"),
    Attribute(ERROR_TYPE, "string", "", "Class of the exception that ended the step.", ("run", "step", "metric"), "MemoryError"),
    Attribute(PROCESS_PID, "int", "", "Process id of the run.", ("run", "checkpoint", "reading", "metric"), "4711"),
    Attribute(PROCESS_COMMAND_LINE, "string", "", "Command line, without passwords and tokens. Without its arguments when OTEL_QUANT_ARGUMENTS is off, without paths when OTEL_QUANT_PATHS is off.", ("run",), "python quantize.py --samples 128"),
    Attribute(PYTHON_VERSION, "string", "", "Version of Python.", ("run",), "3.12.4"),
    Attribute(HOST_NAME, "string", "", "Name of the machine.", ("run",), "build-7"),
    Attribute(OS_DESCRIPTION, "string", "", "Operating system, its release and the architecture.", ("run",), "Linux 6.1.0 x86_64"),
    Attribute(CPU_MODEL, "string", "", "Name of the processor.", ("run",), "AMD EPYC 9654"),
    Attribute(CPU_COUNT, "int", "{cpu}", "Processors of the machine.", ("run",), "96"),
    Attribute(CPU_LIMIT, "double", "{cpu}", "Processors that the process may use: the fewer of those that it is bound to and the quota of the control group.", ("run",), "8"),
    Attribute(ADDRESS_SPACE_LIMIT, "int", "By", "Limit of the process's addresses (`RLIMIT_AS`), where there is one.", ("run",), "34359738368"),
    Attribute(FILE_SIZE_LIMIT, "int", "By", "Limit of the size of a file (`RLIMIT_FSIZE`), where there is one.", ("run",), "10737418240"),
    Attribute(OTEL_QUANT_VERSION, "string", "", "Version of otel-quant.", ("run",), "1.0.0"),
    Attribute(LIBRARIES, "string[]", "", "Libraries for quantization, their runtimes and OpenTelemetry, each with its version: those that the program has loaded, at the end of the run as at its start.", ("run",), "onnxruntime 1.20.1"),
    Attribute(GPU_NAMES, "string[]", "", "Product names of the visible GPUs.", ("run",), "NVIDIA H200"),
    Attribute(GPU_DRIVERS, "string[]", "", "GPU drivers, each with its version.", ("run",), "nvidia 550.54.15"),
    Attribute(VCS_REVISION, "string", "", "Commit: that of the git repository of the current folder, else what the CI system says.", ("run",), "9d59409acf479dfa0df1aa568182e43e43df8bbe"),
    Attribute(VCS_REF, "string", "", "Branch or tag.", ("run",), "main"),
    Attribute(VCS_DIRTY, "boolean", "", "Whether files of the repository differ from the commit. `otel-quant run` asks `git` when it starts the program, and writes it into the recording.", ("run",), "false"),
    Attribute(VCS_REPOSITORY, "string", "", "Address of the repository, as the CI system says.", ("run",), "https://github.com/example/models"),
    Attribute(VCS_CHANGE, "string", "", "Number of the pull or merge request, as the CI system says.", ("run",), "17"),
    Attribute(CI_PIPELINE, "string", "", "Name of the CI pipeline or workflow.", ("run",), "nightly"),
    Attribute(CI_RUN, "string", "", "Identifier of the pipeline's run.", ("run",), "8400000001"),
    Attribute(CI_RUN_URL, "string", "", "Its address.", ("run",), "https://github.com/example/models/actions/runs/8400000001"),
    Attribute(CI_TASK, "string", "", "Name of the job or stage.", ("run",), "quantize"),
    Attribute(CI_TASK_RUN, "string", "", "Identifier of the job.", ("run",), "7312"),
    Attribute(CI_WORKER, "string", "", "Machine of the CI system that runs the job.", ("run",), "runner-3"),
    Attribute(CALIBRATION_METHOD, "string", "", "Method that chooses the activation ranges; on the run, that of the first step that has one; on metrics, that of the step that begins the run.", ("run", "step", "metric"), "Percentile"),
    Attribute(CALIBRATION_SAMPLE_COUNT, "int", "{sample}", "Calibration samples that the step consumed, at a reading so far. A sample is one call of the data reader that returned data, or one item that a data loader yielded: a batch, however many items it has.", ("step", "reading", "forecast"), "128"),
    Attribute(CALIBRATION_ITEM_COUNT, "int", "{item}", "Items in these samples: the sum of the first dimension of their tensors. Absent if a sample does not tell (no arrays, arrays that differ in it, a list that may be one of items).", ("step",), "1024"),
    Attribute(CALIBRATION_SAMPLE_TOTAL, "int", "{sample}", "Length of the data reader or loader, where it has one: samples, not items.", ("step", "reading", "forecast"), "128"),
    Attribute(CALIBRATION_SAMPLE_RATE, "double", "{sample}/s", "Samples (batches) consumed per second of the step.", ("step",), "42.7"),
    Attribute(CONFIG_NAME, "string", "", "Name of the quantization configuration; on the run, that of the first step that has one; on metrics, that of the step that begins the run.", ("run", "step", "metric"), "XINT8"),
    Attribute(FORMAT, "string", "", "Format of the quantized graph.", ("step",), "QDQ"),
    Attribute(WEIGHT_TYPE, "string", "", "Type of the quantized weights.", ("step",), "QInt8"),
    Attribute(ACTIVATION_TYPE, "string", "", "Type of the quantized activations.", ("step",), "QUInt8"),
    Attribute(PER_CHANNEL, "boolean", "", "Whether weights have one scale for each channel.", ("step",), "true"),
    Attribute(BITS, "int", "bit", "Width of the quantized weights.", ("step",), "4"),
    Attribute(BLOCK_SIZE, "int", "{element}", "Number of weights that share one scale.", ("step",), "128"),
    Attribute(ALGORITHMS, "string[]", "", "Advanced algorithms that were configured.", ("step",), "adaround"),
    Attribute(LAYER_COUNT, "int", "{layer}", "Calls for single layers that the step contains.", ("step",), "161"),
    Attribute(INPUT_NAME, "string", "", "Last part of the path of the float model of the step that begins the run, without `.onnx`. Absent when OTEL_QUANT_PATHS is off.", ("metric",), "resnet50"),
    Attribute(INPUT_PATH, "string", "", "File of the float model; on the run, that of the first step that has one. Absent when OTEL_QUANT_PATHS is off.", _RUN_STEP, "models/resnet50.onnx"),
    Attribute(OUTPUT_PATH, "string", "", "File of the quantized model. Absent when OTEL_QUANT_PATHS is off.", ("step",), "models/resnet50_int8.onnx"),
    Attribute(MEMORY_PEAK_SOURCE, "string", "", "`kernel`: the high-water mark of a process that had no child during the step, exact. `sampled`: the highest that was seen; the true peak may be higher.", _RUN_STEP, "kernel"),
    Attribute(MEMORY_PROCESS_PEAK, "int", "By", "Highest RSS of the main process alone.", ("run",), "1881145344"),
    Attribute(MEMORY_LIMIT, "int", "By", "Memory the process may use: the smaller of the cgroup's limit and physical memory.", ("run",), "25769803776"),
    Attribute(MEMORY_LIMIT_SOURCE, "string", "", "Which of the two is the smaller: `cgroup` or `physical`.", ("run",), "cgroup"),
    Attribute(MEMORY_PEAK_RATIO, "double", "1", "Peak as a share of the limit.", _RUN_STEP, "0.073"),
    Attribute(GPU_COUNT, "int", "{gpu}", "GPUs that the process can see.", ("run",), "1"),
    Attribute(GPU_MEMORY_LIMIT, "int", "By", "Size of the memory of all visible GPUs.", ("run",), "150754820096"),
    Attribute(MODEL_ROLE, "string", "", "`float` or `quantized`. At work a model is quantized if it converts to or from integers, or multiplies numbers of 8 bits or fewer.", ("cost", "measured model", "operator", "finding", "metric"), "quantized"),
    Attribute(MODEL_PATH, "string", "", "File that was costed or measured. Absent when OTEL_QUANT_PATHS is off.", ("cost", "measured model"), "models/resnet50_int8.onnx"),
    Attribute(MODEL_NAME, "string", "", "What the program calls the model, else the last part of its path without `.onnx`; by its position, `model 2`, when OTEL_QUANT_PATHS is off.", ("measured model", "operator", "finding", "metric"), "resnet50_int8"),
    *(Attribute(f"quant.model.<role>.{each.name}", each.type, each.unit, each.brief, ("run", "cost"), each.example) for each in MODEL_FIGURES),
    Attribute(CHECKPOINT_NAME, "string", "", "Name of the checkpoint, as in the YAML file.", ("checkpoint",), "Calibration Start"),
    Attribute(CHECKPOINT_PHASE, "string", "", "`start` or `end` of a step or of the run; `point` for any other checkpoint.", ("checkpoint",), "start"),
    Attribute(CHECKPOINT_SEQUENCE, "int", "", "Position of the checkpoint in the run, from 0.", ("checkpoint",), "5"),
    Attribute(CHECKPOINT_ELAPSED, "double", "s", "Time since the run's first checkpoint.", ("checkpoint",), "12.4"),
    Attribute(CHECKPOINT_MEMORY_LIMIT, "int", "By", "Memory the process may use.", ("checkpoint",), "25769803776"),
    Attribute(READING_ELAPSED, "double", "s", "Time from the run's first checkpoint to the reading.", ("reading",), "95.2"),
    Attribute(READING_MEMORY_LIMIT, "int", "By", "Memory the process may use.", ("reading",), "25769803776"),
    Attribute(READING_MEMORY_PEAK, "int", "By", "Highest RSS of the process tree since the run began.", ("reading",), "2115145344"),
    Attribute(READING_OPEN_STEPS, "string[]", "", "Labels of the open steps, in the order in which they opened.", ("reading",), "Calibration"),
    Attribute(ENDING_SIGNAL, "string", "", "Signal that ended the program, or the process that was killed or failed first.", ("run", "ending"), "SIGKILL"),
    Attribute(ENDING_OUT_OF_MEMORY, "string", "", "Whether the kernel's out-of-memory killer did it: `known` by its counter, `guessed` from memory at the limit; absent if neither.", ("run", "ending"), "known"),
    Attribute(ENDING_EVIDENCE, "string", "", "What that is concluded from.", ("run", "ending"), "the kernel has counted 1 out-of-memory kill"),
    Attribute(ENDING_OPEN_STEPS, "string[]", "", "Labels of the steps that were open, outermost first.", ("run", "ending"), "Calibration"),
    Attribute(ENDING_MEMORY, "int", "By", "RSS of the process tree then.", ("run", "ending"), "7530872832"),
    Attribute(ENDING_MEMORY_LIMIT, "int", "By", "The limit in force.", ("run", "ending"), "8000000000"),
    Attribute(ENDING_MEMORY_LIMIT_SOURCE, "string", "", "Its source: `cgroup`, `physical`, `RLIMIT_AS`, `gpu <index>`.", ("run", "ending"), "cgroup"),
    Attribute(ENDING_MEMORY_PER_SAMPLE, "int", "By", "Growth of memory with each calibration sample.", ("run", "ending"), "188000000"),
    Attribute(FORECAST_MEMORY, "int", "By", "Estimate of the RSS of the process tree after the last calibration sample; absent unless memory grows with the samples. On the span of a step: what the warning said.", ("step", "forecast", "reading"), "31138512896"),
    Attribute(FORECAST_MEMORY_PER_SAMPLE, "int", "By", "Growth with each calibration sample, estimated.", ("step", "forecast", "reading"), "56623104"),
    Attribute(FORECAST_MEMORY_LIMIT, "int", "By", "Memory the process may use.", ("step", "forecast", "reading"), "25769803776"),
    Attribute(FORECAST_GPU_MEMORY, "int", "By", "Estimate of all memory in use on one GPU after the last calibration sample; absent unless it grows with the samples.", ("step", "forecast", "reading"), "90194313216"),
    Attribute("quant.forecast.gpu.memory.per_sample", "int", "By", "Growth with each calibration sample, estimated.", ("step", "forecast", "reading"), "104857600"),
    Attribute(FORECAST_GPU_MEMORY_LIMIT, "int", "By", "Size of that GPU's memory.", ("step", "forecast", "reading"), "85899345920"),
    Attribute(FORECAST_TIME_LEFT, "double", "s", "Estimate of the time until the last calibration sample of the step.", ("forecast", "reading"), "1830.5"),
    Attribute(INFERENCE_PROVIDER, "string", "", "What ran the model for most of the time, or the operator: an execution provider of onnxruntime, an engine of PyTorch.", ("measured model", "operator", "metric"), "CPUExecutionProvider"),
    Attribute(INFERENCE_MODELS, "int", "{model}", "Models that were to be measured.", ("inference",), "2"),
    Attribute(INFERENCE_NOISE, "double", "1", "Noise of the machine: half the distance between the quartiles of the rounds' medians, as a share of the median; of the noisiest model.", ("inference",), "0.012"),
    Attribute(INFERENCE_RUNS, "int", "{run}", "Runs of the model that were timed.", ("measured model",), "300"),
    Attribute(INFERENCE_WEIGHTS, "int", "By", "Bytes of the model's weights as its file has them.", ("measured model",), "25557032"),
    Attribute(INFERENCE_KERNEL_TIME, "double", "s", "Time of all kernels in a run, by the profiler.", ("measured model",), "0.0119"),
    Attribute(INFERENCE_PROBLEM, "string", "", "Why the model could not be measured. Absent when OTEL_QUANT_PATHS is off.", ("measured model",), "crashed with SIGSEGV"),
    *(Attribute(metric.name, "int" if metric.unit in ("By", "{finding}") else "double", metric.unit, metric.brief, ("measured model",), example) for metric, example in _OF_MODELS),
    Attribute(OPERATOR_TYPE, "string", "", "The operator.", ("operator",), "QLinearConv"),
    Attribute(OPERATOR_NAME, "string", "", "Node of the model that the kernel does the work of; the kernel's own name where the runtime has put it in. Absent where the record is of all kernels of the operator.", ("operator",), "/layer1/conv1/Conv"),
    Attribute(OPERATOR_KERNELS, "int", "{kernel}", "Kernels that the record is of.", ("operator",), "53"),
    Attribute(OPERATOR_DURATION, "double", "s", "Their time in a run, by the profiler.", ("operator",), "0.0081"),
    Attribute(OPERATOR_SHARE, "double", "1", "Their share of the time of all kernels.", ("operator",), "0.68"),
    Attribute(OPERATOR_TYPES, "string", "", "Types and shapes of the kernel's operands, without scalars, and of its results.", ("operator",), "uint8 1x64x56x56 -> uint8 1x64x56x56"),
    Attribute(OPERATOR_MAC_RATE, "double", "{mac}/s", "MACs per second.", ("operator",), "145000000000"),
    Attribute(FINDING_KIND, "string", "", "Kind of what went wrong: see [inference](inference.md).", ("finding",), "unfused"),
    Attribute(FINDING_NODE, "string", "", "Node of the model.", ("finding",), "/layer1/exp/Exp"),
    Attribute(FINDING_SHARE, "double", "1", "Share of the time of all kernels.", ("finding",), "0.13"),
    Attribute(CUSTOM_PREFIX + "<name>", "double", "", _CUSTOM, ("run", "step", "checkpoint"), "97.8"),
    Attribute(HW_ID, "string", "", "Stable identifier of the GPU: its UUID or PCI address.", ("step", "forecast", "reading", "device", "metric"), "GPU-8f6d7a52-..."),
    Attribute(HW_NAME, "string", "", "Product name of the GPU.", ("device",), "NVIDIA H200"),
    Attribute(GPU_SLOWED_BY, "string[]", "", "What makes the GPU slower than it could be: `heat (by software)`, `heat (by hardware)`, `power brake`, `hardware slowdown`.", ("device",), "heat (by hardware)"),
    Attribute(GPU_MEMORY_ERRORS, "int", "{error}", "Errors of the GPU's memory that could not be corrected, since the driver was loaded.", ("device",), "2"),
)  # fmt: skip
"""Attributes that do not come from a resource, in the order of the documentation."""

ORIGIN: Final = frozenset(
    {
        PROCESS_COMMAND_LINE, PYTHON_VERSION, HOST_NAME, OS_DESCRIPTION, CPU_MODEL, CPU_COUNT, CPU_LIMIT,
        ADDRESS_SPACE_LIMIT, FILE_SIZE_LIMIT, OTEL_QUANT_VERSION, LIBRARIES, GPU_NAMES, GPU_DRIVERS,
        VCS_REVISION, VCS_REF, VCS_DIRTY, VCS_REPOSITORY, VCS_CHANGE, CI_PIPELINE, CI_RUN, CI_RUN_URL,
        CI_TASK, CI_TASK_RUN, CI_WORKER,
    }
)  # fmt: skip
"""The attributes that say what made a run."""

COPIED_TO_RUN: Final = (LIBRARY_NAME, INPUT_PATH, CALIBRATION_METHOD, CONFIG_NAME)
"""Attributes of steps that the run's span has as well, with the first value in the run."""

# --- events -------------------------------------------------------------------------------

RUN_STARTED_EVENT: Final = "quant.run.started"
ENDING_EVENT: Final = "quant.run.killed"
CHECKPOINT_EVENT: Final = "quant.checkpoint.taken"
DEVICE_EVENT: Final = "quant.device.used"
IMPAIRED_EVENT: Final = "quant.device.impaired"
MODEL_COST_EVENT: Final = "quant.model.cost"
COST_FAILED_EVENT: Final = "quant.model.cost_failed"
OPERATOR_EVENT: Final = "quant.inference.operator.timed"
FINDING_EVENT: Final = "quant.inference.finding.made"
INFERENCE_FAILED_EVENT: Final = "quant.inference.failed"

EVENTS: Final[tuple[Event, ...]] = (
    Event(RUN_STARTED_EVENT, "The run's span has started: its ids, and the attributes that it has by then."),
    Event(CHECKPOINT_EVENT, "One checkpoint."),
    Event(READING_EVENT, "A reading between two checkpoints, at most every 28 s, if memory has moved by more than 1 % since the last record."),
    Event(FORECAST_EVENT, "A warning: memory that grows with the calibration samples would exceed the limit before the last one."),
    Event(DEVICE_EVENT, "What a step, or the run, used of one GPU; sent when it ends."),
    Event(IMPAIRED_EVENT, "A warning: something has begun to slow a GPU down, or its memory has failed."),
    Event(MODEL_COST_EVENT, "The nodes of a costed model with the most MACs, and those with the largest memory."),
    Event(ENDING_EVENT, "How a program has ended that was killed or ran out of memory, with what would help; sent by `otel-quant run`, in the span that was open."),
    Event(OPERATOR_EVENT, "One of the operators, or of the kernels, that a model at work spends most time in: of each the ten slowest."),
    Event(FINDING_EVENT, "Something that went wrong while a model was at work: of each model the twenty that take most time."),
    Event(INFERENCE_FAILED_EVENT, "A warning: a model could not be measured, and why."),
    Event(COST_FAILED_EVENT, "A warning: why a model could not be costed (`message`). The model's span has an event of that name too."),
)  # fmt: skip
"""Every kind of log record, in the order of the documentation."""

# --- metrics ------------------------------------------------------------------------------

STEP_DURATION: Final = "quant.step.duration"
STEP_MEMORY_PEAK: Final = "quant.step.memory.peak"
STEP_MEMORY_GROWTH: Final = "quant.step.memory.growth"
STEP_DISK_IO: Final = "quant.step.disk.io"
STEP_CPU_TIME: Final = "quant.step.cpu.time"
RUN_START: Final = "quant.run.start"
RUN_MEMORY_PEAK: Final = "quant.run.memory.peak"
RUN_END: Final = "quant.run.end"
STEP_ACTIVE: Final = "quant.step.active"
RUN_MEMORY_USAGE: Final = "quant.run.memory.usage"
RUN_MEMORY_LIMIT: Final = "quant.run.memory.limit"
STEP_GPU_MEMORY_PEAK: Final = "quant.step.gpu.memory.peak"
RUN_GPU_MEMORY_USAGE: Final = "quant.run.gpu.memory.usage"
RUN_GPU_MEMORY_LIMIT: Final = "quant.run.gpu.memory.limit"
RUN_DISK_IO: Final = "quant.run.disk.io"
CALIBRATION_SAMPLES: Final = "quant.calibration.samples"
CALIBRATION_PROGRESS: Final = "quant.calibration.progress"
MODEL_SIZE: Final = "quant.model.size"
MODEL_PARAMS: Final = "quant.model.params"
MODEL_MACS_CONTRACTION: Final = "quant.model.macs_contraction"

STEP_LABELS: Final = (STEP_KIND, STEP_NAME, LIBRARY_NAME)
"""Attributes of the points of every metric of steps."""

_MINUTE, _HOUR = 60, 3600
DURATION_BUCKETS: Final[tuple[float, ...]] = (
    0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 1 * _MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE,
    20 * _MINUTE, 40 * _MINUTE, 1 * _HOUR, 2 * _HOUR, 5 * _HOUR, 10 * _HOUR,
)  # fmt: skip
"""Seconds: steps last from 10 ms to 10 h."""

METRICS: Final[tuple[Metric, ...]] = (
    Metric(STEP_DURATION, "histogram", "s", "Time from a step's start to its end.", (*STEP_LABELS, ERROR_TYPE), DURATION_BUCKETS),
    Metric(STEP_ACTIVE, "observable_gauge", "{step}", "Steps of that kind that are open now; 0 after the last of them has ended.", STEP_LABELS),
    Metric(RUN_START, "observable_gauge", "s", "When the run began, in seconds since the epoch. Its attributes say which run a process belongs to: other metrics are joined with it by process.", (RUN_NAME, RUN_RANK, PROCESS_PID, RUN_TRACE_ID, INPUT_NAME, CALIBRATION_METHOD, CONFIG_NAME)),
    Metric(RUN_MEMORY_PEAK, "observable_gauge", "By", "Highest RSS of the process tree since the run began.", (RUN_NAME,)),
    Metric(RUN_END, "observable_gauge", "s", "When the run ended, in seconds since the epoch; absent while it goes on, and for ever if it is killed.", (RUN_NAME,)),
    Metric(RUN_MEMORY_LIMIT, "observable_gauge", "By", "Memory the process may use.", ()),
    Metric(CALIBRATION_SAMPLES, "counter", "{sample}", "Calibration samples consumed: calls of the data reader that returned data, a batch each.", STEP_LABELS),
    Metric(CALIBRATION_PROGRESS, "observable_gauge", "1", "Share of its calibration samples that the latest step of that kind has consumed; absent if the data reader has no length, or has returned more samples than its length.", STEP_LABELS),
    Metric(FORECAST_TIME_LEFT, "observable_gauge", "s", "Estimate of the time until the last calibration sample of the step.", STEP_LABELS),
    Metric(FORECAST_MEMORY, "observable_gauge", "By", "Estimate of the RSS of the process tree after the last calibration sample; absent unless memory grows with the samples. On the span of a step: what the warning said.", STEP_LABELS),
    Metric(FORECAST_GPU_MEMORY, "observable_gauge", "By", "Estimate of all memory in use on one GPU after the last calibration sample; absent unless it grows with the samples.", (*STEP_LABELS, HW_ID)),
    Metric(MODEL_SIZE, "gauge", "By", "Size of the model's file, external data included.", (MODEL_ROLE,)),
    Metric(MODEL_PARAMS, "gauge", "{element}", "Elements of the model's static tensors, each counted once.", (MODEL_ROLE,)),
    Metric(MODEL_MACS_CONTRACTION, "gauge", "{mac}", "Forward MACs of contractions only (Conv, Gemm, MatMul, recurrent, attention).", (MODEL_ROLE,)),
    Metric(INFERENCE_START, "gauge", "s", "When models at work began to be measured, in seconds since the epoch.", (RUN_NAME,)),
    *(metric for metric, _ in _OF_MODELS),
    Metric(CUSTOM_PREFIX + "<name>", "gauge", "", _CUSTOM, (STEP_KIND, STEP_NAME)),
)  # fmt: skip
"""Metrics that do not come from a resource, in the order of the documentation."""

ROOT_SPAN: Final = "quantization"
"""Name of a run's root span."""

COST_SPAN: Final = "model cost"
"""Name of the span of one model's costing; it is a child of the root span, never of a step."""

INFERENCE_SPAN: Final = "inference"
BENCHMARK_SPAN: Final = "benchmark"
MODEL_SPAN: Final = "model inference"
"""Names of the span of models that were measured beside each other, and of its child for each."""
