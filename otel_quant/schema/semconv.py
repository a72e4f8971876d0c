"""Names that otel-quant puts on spans, metrics and log records.

The names of measured resources are made from the resources' declarations;
:mod:`otel_quant.schema.catalog` has all names. Names that begin with ``quant.`` are ours; the
others are OpenTelemetry's semantic conventions.

Bytes are integers (``By``), times are seconds (``s``). A figure that could not be measured is
absent; it is never replaced by 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, ParamSpec, TypeVar

from otel_quant.schema import figures
from otel_quant.schema.dataclass import dataclass
from otel_quant.schema.figures import MODEL_FIGURES, Metric
from otel_quant.schema.figures import PREFIX as PREFIX

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
"""Version of OpenTelemetry's semantic conventions whose names are used here; a test holds that it has them."""

SCOPE: Final = "otel_quant"  # Name of the instrumentation scope of every signal
MOST_LAYERS: Final = 10_000  # Values of layers that are recorded of a step; more are only counted
Type = Literal["string", "int", "double", "boolean", "string[]", "int[]"]
Place = Literal[
    "resource", "run", "step", "cost", "checkpoint", "reading", "forecast", "lines", "device", "layer", "answer", "ending",
    "inference", "measured model", "operator", "finding", "metric", "program",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute name."""

    name: str  # The key. ``<...>`` is a variable part (a model's role, a custom metric's name).
    type: Type  # Type of the value
    unit: str  # UCUM unit, empty for values without one
    brief: str  # Meaning of the value
    # Where it is used: the resource of every signal, the run's root span, a step's span, a model cost span, a checkpoint log
    # record, a log record of a reading, of a forecast, of lines of code, of one device, of a layer or of the end of a program,
    # the span of an inference or of a model in it, a log record of an operator or of what went
    # wrong in it, metric points, the span of a whole program
    places: tuple[Place, ...]
    example: str  # An example value
    former: tuple[str, ...] = ()  # Names that it had in older recordings


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One kind of log record."""

    name: str  # Its event name
    brief: str  # What one record tells


# Tables: a line defines an attribute, a kind of log record or a metric completely.
_ATTRIBUTES: Final[list[Attribute]] = []
_EVENTS: Final[list[LogEvent]] = []
_METRICS: Final[list[Metric]] = []


_P = ParamSpec("_P")
_Row = TypeVar("_Row", Attribute, LogEvent, Metric)


def _adder(make: Callable[_P, _Row], table: list[_Row]) -> Callable[_P, str]:
    """Returns what adds a row to a table and returns its name."""

    def add(*args: _P.args, **kwargs: _P.kwargs) -> str:
        table.append(row := make(*args, **kwargs))
        return row.name

    return add


_attribute = _adder(Attribute, _ATTRIBUTES)
_event = _adder(LogEvent, _EVENTS)
_metric = _adder(Metric, _METRICS)

# fmt: off

# --- attributes ---------------------------------------------------------------------------

RUN_PREFIX: Final = "quant.run."
CHECKPOINT_PREFIX: Final = "quant.checkpoint."
READING_PREFIX: Final = "quant.reading."
CUSTOM_PREFIX: Final = "quant.custom."

# Of the names that resources make, only those that other code refers to are here.
MEMORY_START: Final = figures.TREE_MEMORY.attribute("start")
MEMORY_END: Final = figures.TREE_MEMORY.attribute("end")
MEMORY_DELTA: Final = figures.TREE_MEMORY.attribute("delta")
MEMORY_PEAK: Final = figures.TREE_MEMORY.attribute("peak")
GPU_MEMORY_PEAK: Final = figures.ALL_GPUS_MEMORY.attribute("peak")
GPU_TREE_PEAK: Final = figures.TREE_GPU_MEMORY.attribute("peak")
GPU_DEVICE_TREE_PEAK: Final = figures.PROCESS_GPU_MEMORY.attribute("peak", figures.GPU.device_stem)
GPU_DEVICE_RESERVED_PEAK: Final = figures.TORCH_RESERVED.attribute("peak", figures.GPU.device_stem)
GPU_DEVICE_RETRIES: Final = figures.TORCH_RETRIES.attribute(stem=figures.GPU.device_stem)
GPU_ALLOCATED_PEAK: Final = figures.TORCH_ALLOCATED.attribute("peak", figures.GPU.device_stem)
GPU_ENERGY: Final = figures.GPU_ENERGY.attribute()
CPU_ENERGY: Final = figures.CPU_ENERGY.attribute()
DISK_READ: Final = figures.DISK_READ.attribute()
DISK_WRITE: Final = figures.DISK_WRITE.attribute()
CPU_USER: Final = figures.CPU_USER.attribute()
CPU_SYSTEM: Final = figures.CPU_SYSTEM.attribute()
CPU_WAIT: Final = figures.CPU_WAIT.attribute()
MAJOR_FAULTS: Final = figures.MAJOR_FAULTS.attribute()
CACHE_GROWTH: Final = figures.CACHE_GROWTH.attribute("peak")
DISK_IO_DIRECTION: Final = "disk.io.direction"
CPU_MODE: Final = "cpu.mode"
CHECKPOINT_MEMORY: Final = CHECKPOINT_PREFIX + figures.TREE_MEMORY.checkpoint
READING_MEMORY: Final = READING_PREFIX + figures.TREE_MEMORY.checkpoint
DEVICE_INDEX: Final = "index"  # Last part of the name of the attribute that has a device's position
MODEL_PREFIX: Final = "quant.model."


def short(name: str) -> str:
    """Returns a name without ``quant.``, as users write it and as quantities have it."""
    return name.removeprefix(PREFIX)


def of_model(role: str, name: str = "") -> str:
    """Returns the attribute of a figure of a costed model; without a figure, the beginning of all of them."""
    return f"{MODEL_PREFIX}{role}.{name}"


EXCEPTION_EVENT: Final = "exception"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"
EXCEPTION_STACKTRACE: Final = "exception.stacktrace"

_RUN_STEP: Final[tuple[Place, ...]] = ("run", "step")
_CUSTOM: Final = (
    "Value of a custom metric, by its name: on spans the last one, elsewhere the one at that time. In "
    "a metric's name, what an instrument's name may not have is `_`."
)


INFERENCE_MEDIAN: Final = "quant.inference.duration.median"
INFERENCE_P10: Final = "quant.inference.duration.p10"
INFERENCE_P90: Final = "quant.inference.duration.p90"
INFERENCE_MEMORY_PEAK: Final = "quant.inference.memory.peak"
INFERENCE_GPU_ENERGY: Final = "quant.inference.gpu.energy"
INFERENCE_CPU_ENERGY: Final = "quant.inference.cpu.energy"
INFERENCE_SPEEDUP: Final = "quant.inference.speedup"
INFERENCE_SQNR: Final = "quant.inference.sqnr"
INFERENCE_FINDINGS: Final = "quant.inference.findings"
INFERENCE_CONVERSIONS: Final = "quant.inference.conversions"

RUN_ID: Final = _attribute("quant.run.id", "string", "", "Identifier of the run, the same on its spans and its checkpoint log records.", ("run", "step", "cost", "checkpoint", "reading", "forecast", "lines", "device", "layer"), "3f2a9c0e5b7d4a16")
RUN_NAME: Final = _attribute("quant.run.name", "string", "", "Name of the run, for people: service, model and start time, or `OTEL_QUANT_RUN_NAME`. Child processes and ranks share the name of their run; an inference has the name of its run or its recording.", ("run", "step", "cost", "checkpoint", "reading", "forecast", "lines", "device", "layer", "inference", "measured model", "operator", "finding", "metric"), "quantize resnet50 2026-11-22T09:30:00.123Z")
RUN_TRACE_ID: Final = _attribute("quant.run.trace_id", "string", "", "Trace of the run's span; absent without one.", ("metric",), "0af7651916cd43dd8448eb211c80319c")
RUN_RANK: Final = _attribute("quant.run.rank", "int", "", "Rank of the process, where a launcher such as torchrun sets it.", ("run", "step", "cost", "checkpoint", "reading", "forecast", "lines", "device", "layer", "metric"), "0")
RUN_JOB: Final = _attribute("quant.run.job", "string", "", "Job that the rank belongs to, the same on all of its nodes: ids of Slurm, Kubernetes, Ray and torchrun, as far as they are in the environment.", ("run",), "slurm 4711, torchrun quantize")
RUN_WORLD_SIZE: Final = _attribute("quant.run.world_size", "int", "", "Number of processes that the launcher started.", ("run",), "8")
RUN_STEPS: Final = _attribute("quant.run.steps", "int", "{step}", "Steps that the run has finished.", ("run",), "7")
RUN_ANSWER: Final = _attribute("quant.run.answer", "string", "", "What the run came to, in plain sentences: the exception that ended it, the peak of its memory and in which step, and how long its steps took. The first lines of `otel-quant show`, as far as the program itself knows them.", ("run", "answer"), "Memory peaked at 1.37 GB in Calibration: 5.4 % of the limit of 25.3 GB. 3 steps took 3.17 s, most of it Calibration: 2.77 s.")
ERROR_LINE: Final = _attribute("quant.error.line", "string", "", "Innermost line of the program's own code in the traceback of the exception that ended the step or the run. Absent if the traceback has library code only.", ("run", "step"), "export (quantize.py:38)")
RUN_DEAD_THREAD: Final = _attribute("quant.run.dead_thread", "string", "", "First thread of the process that an exception has ended, with the exception and its line. Under `otel-quant run`, and with `OTEL_QUANT_RECORD`.", ("run", "reading"), "producer died of ValueError: bad image, at produce (quantize.py:12)")
RUN_FAILED_STEPS: Final = _attribute("quant.run.failed_steps", "int", "{step}", "Steps of the run that ended with an exception.", ("run",), "0")
STEP_NAME: Final = _attribute("quant.step.name", "string", "", "Label of the step: its kind, or the user's message for a User-Defined step. On metrics only a label that is one of the 26 kinds: any other is free text, of which there may be any number.", ("step", "checkpoint", "reading", "forecast", "lines", "device", "layer", "metric"), "Calibration")
STEP_KIND: Final = _attribute("quant.step.kind", "string", "", "Kind of the step: the ProfileStep constant that it was opened with, `User-Defined` for any other name.", ("step", "checkpoint", "reading", "forecast", "lines", "device", "layer", "metric"), "Calibration")
STEP_INDEX: Final = _attribute("quant.step.index", "int", "", "Position of the step in the run, counted from 0 as the steps opened.", ("step", "checkpoint", "reading", "forecast", "lines", "device", "layer"), "3")
STEP_BOUND_BY: Final = _attribute("quant.step.bound_by", "string", "", "What bounded the step, of its own time: `stalled`, `lock_file`, `other_build`, `compiling`, `importing`, `startup` (of the time before the first step, in recordings alone), `memory_growth`, `calibration_data`, `gpu`, `gpu_copies`, `garbage_collector`, `gpu_launches`, `gpu_waits`, `gpu_idle`, `throttled`, `pinned`, `oversubscribed`, `gil`, `other_programs`, `all_processors`, `page_faults`, `child`, `network`, `lock`, `own_threads`, `disk`, `waiting`, `one_processor`; `nothing_stands_out` if none did. Absent if the sampler has seen less than a second of it.", ("step", "lines"), "calibration_data")
STEP_BOUND_EVIDENCE: Final = _attribute("quant.step.bound_evidence", "string", "", "The evidence for it.", ("step", "lines"), "63 % of its time, most at Reader.get_next (quantize.py:17)")
LIBRARY_NAME: Final = _attribute("quant.library.name", "string", "", "Distribution that the step's code belongs to; on the run, taken from its first step that has one; on an inference, the runtime.", ("run", "step", "checkpoint", "reading", "forecast", "lines", "device", "layer", "inference", "measured model", "metric"), "amd-quark")
LIBRARY_VERSION: Final = _attribute("quant.library.version", "string", "", "Version of that distribution.", ("step", "inference", "measured model"), "0.13")
CODE_FUNCTION_NAME: Final = _attribute("code.function.name", "string", "", "Qualified name of the function that is the step; where a step has stalled, of the function that it is in.", ("step", "forecast"), "quark.onnx.calibration.interface.run_calibration")
CODE_FILE_PATH: Final = _attribute("code.file.path", "string", "", "Where a step has stalled, the file of the line that it is at: below the folder of an installed library, else as Python has it; its name alone when OTEL_QUANT_PATHS is off.", ("forecast",), "torch/utils/data/dataloader.py")
CODE_LINE_NUMBER: Final = _attribute("code.line.number", "int", "", "The line's number.", ("forecast",), "312")
ERROR_TYPE: Final = _attribute("error.type", "string", "", "Class of the exception that ended the step.", ("run", "step", "metric", "program"), "MemoryError")
PYROSCOPE_PROFILE_ID: Final = _attribute("pyroscope.profile.id", "string", "", "Identifier of the step's span, under which Pyroscope has its profiles. Grafana links the span to them where it is there: with OTEL_QUANT_PROFILES=otlp.", ("step",), "00f067aa0ba902b7")
SERVICE_INSTANCE: Final = _attribute("service.instance.id", "string", "", "Identifier of the process, in no other. One that the environment gives is its beginning, because processes share that: `pod-7.main` becomes `pod-7.main.1f0c9a3e`.", ("resource",), "627cc493-f310-47de-96bd-71410b7dec09")
PROCESS_PID: Final = _attribute("process.pid", "int", "", "Process id of the run.", ("resource", "run", "checkpoint", "reading", "metric"), "4711")
PROCESS_EXIT_CODE: Final = _attribute("process.exit.code", "int", "", "Exit code of the program; absent where a signal ended it.", ("program",), "0")
PROCESS_COMMAND_LINE: Final = _attribute("process.command_line", "string", "", "Command line, without passwords and tokens. Without its arguments when OTEL_QUANT_ARGUMENTS is off, without paths when OTEL_QUANT_PATHS is off.", ("run", "program"), "python quantize.py --samples 128")
PYTHON_NAME: Final = _attribute("process.runtime.name", "string", "", "Which Python.", ("resource",), "cpython")
PYTHON_VERSION: Final = _attribute("process.runtime.version", "string", "", "Version of Python.", ("resource", "run"), "3.12.4")
HOST_NAME: Final = _attribute("host.name", "string", "", "Name of the machine.", ("resource", "run"), "build-7")
HOST_ARCH: Final = _attribute("host.arch", "string", "", "Its architecture.", ("resource",), "x86_64")
OS_TYPE: Final = _attribute("os.type", "string", "", "Kind of operating system.", ("resource",), "linux")
OS_DESCRIPTION: Final = _attribute("os.description", "string", "", "Operating system, its release and the architecture.", ("resource", "run"), "Linux 6.1.0 x86_64")
CPU_MODEL: Final = _attribute("host.cpu.model.name", "string", "", "Name of the processor.", ("run",), "AMD EPYC 9654")
CPU_COUNT: Final = _attribute("quant.host.cpu_count", "int", "{cpu}", "Processors of the machine.", ("run",), "96")
CPU_LIMIT: Final = _attribute("quant.host.cpu_limit", "double", "{cpu}", "Processors that the process may use: the fewer of those that it is bound to and the quota of the control group.", ("run",), "8")
ADDRESS_SPACE_LIMIT: Final = _attribute("quant.host.address_space_limit", "int", "By", "Limit of the process's addresses (`RLIMIT_AS`), where there is one.", ("run",), "34359738368")
ADDRESS_SPACE_PEAK: Final = _attribute("quant.host.address_space_peak", "int", "By", "The most addresses that the process has had, where they are limited (Linux).", ("run",), "34351349760")
FILE_SIZE_LIMIT: Final = _attribute("quant.host.file_size_limit", "int", "By", "Limit of the size of a file (`RLIMIT_FSIZE`), where there is one.", ("run",), "10737418240")
OTEL_QUANT_VERSION: Final = _attribute("quant.otel_quant.version", "string", "", "Version of otel-quant.", ("run",), "1.0.0")
LIBRARIES: Final = _attribute("quant.libraries", "string[]", "", "Libraries for quantization, their runtimes and OpenTelemetry, each with its version: those that the program has loaded, at the end of the run as at its start.", ("run",), "onnxruntime 1.20.1")
GPU_NAMES: Final = _attribute("quant.gpu.names", "string[]", "", "Product names of the visible GPUs.", ("run",), "NVIDIA H200")
GPU_DRIVERS: Final = _attribute("quant.gpu.drivers", "string[]", "", "GPU drivers, each with its version.", ("run",), "nvidia 550.54.15")
VCS_REVISION: Final = _attribute("vcs.ref.head.revision", "string", "", "Commit of the git repository of the current folder; without one, as the CI system reports it.", ("run",), "9d59409acf479dfa0df1aa568182e43e43df8bbe")
VCS_REF: Final = _attribute("vcs.ref.head.name", "string", "", "Branch or tag.", ("run",), "main")
VCS_DIRTY: Final = _attribute("quant.vcs.dirty", "boolean", "", "Whether files of the repository differ from the commit. `otel-quant run` asks `git` when it starts the program, and writes it into the recording.", ("run",), "false")
VCS_REPOSITORY: Final = _attribute("vcs.repository.url.full", "string", "", "Address of the repository, as the CI system reports it.", ("run",), "https://github.com/example/models")
VCS_CHANGE: Final = _attribute("vcs.change.id", "string", "", "Number of the pull or merge request, as the CI system reports it.", ("run",), "17")
CI_PIPELINE: Final = _attribute("cicd.pipeline.name", "string", "", "Name of the CI pipeline or workflow.", ("run",), "nightly")
CI_RUN: Final = _attribute("cicd.pipeline.run.id", "string", "", "Identifier of the pipeline's run.", ("run",), "8400000001")
CI_RUN_URL: Final = _attribute("cicd.pipeline.run.url.full", "string", "", "Its address.", ("run",), "https://github.com/example/models/actions/runs/8400000001")
CI_TASK: Final = _attribute("cicd.pipeline.task.name", "string", "", "Name of the job or stage.", ("run",), "quantize")
CI_TASK_RUN: Final = _attribute("cicd.pipeline.task.run.id", "string", "", "Identifier of the job.", ("run",), "7312")
CI_WORKER: Final = _attribute("cicd.worker.name", "string", "", "Machine of the CI system that runs the job.", ("run",), "runner-3")
CALIBRATION_METHOD: Final = _attribute("quant.calibration.method", "string", "", "Method that chooses the activation ranges; on the run, those of all steps; on metrics, from the step that begins the run.", ("run", "step", "metric"), "Percentile")
CALIBRATION_SAMPLE_COUNT: Final = _attribute("quant.calibration.sample_count", "int", "{sample}", "Calibration samples that the step consumed, at a reading so far. A sample is one call of the data reader that returned data, or one item that a data loader yielded: a batch, however many items it has.", ("step", "reading", "forecast"), "128")
CALIBRATION_ITEM_COUNT: Final = _attribute("quant.calibration.item_count", "int", "{item}", "Items in these samples: the sum of the first dimension of their tensors. Absent if a sample does not tell (no arrays, arrays that differ in it, a list that may be one of items).", ("step",), "1024")
CALIBRATION_SAMPLE_TOTAL: Final = _attribute("quant.calibration.sample_total", "int", "{sample}", "Length of the data reader or loader, where it has one: samples, not items.", ("step", "reading", "forecast"), "128")
CALIBRATION_SAMPLE_RATE: Final = _attribute("quant.calibration.sample_rate", "double", "{sample}/s", "Samples (batches) consumed per second of the step.", ("step",), "42.7")
CONFIG_NAME: Final = _attribute("quant.config.name", "string", "", "Name of the quantization configuration; on the run, those of all steps; on metrics, from the step that begins the run.", ("run", "step", "metric"), "XINT8")
CONFIG_HASH: Final = _attribute("quant.config.hash", "string", "", "Hash of the configuration, without models, data and files: equal configurations of a library have the same hash in every process and on every machine. It begins with the version of what is hashed: only hashes of one version are compared. On the run, those of all steps.", _RUN_STEP, "5e0c1a94b7d2f386")
CONFIG_EXCLUDED: Final = _attribute("quant.config.excluded", "string[]", "", "Nodes that `OTEL_QUANT_EXCLUDE` has added to those that a call leaves in float: its arguments were changed.", ("step",), "/layer1/conv1/Conv")
CONFIG_SAMPLES: Final = _attribute("quant.config.samples", "int", "{sample}", "Calibration samples that the configuration asks for; there may be fewer.", ("step",), "300")
FORMAT: Final = _attribute("quant.format", "string", "", "Format of the quantized graph.", ("step",), "QDQ")
WEIGHT_TYPE: Final = _attribute("quant.weight.type", "string", "", "Type of the quantized weights.", ("step",), "QInt8")
ACTIVATION_TYPE: Final = _attribute("quant.activation.type", "string", "", "Type of the quantized activations.", ("step",), "QUInt8")
ACTIVATION_BITS: Final = _attribute("quant.activation.bits", "int", "bit", "Width of the quantized activations.", ("step",), "8")
BACKEND: Final = _attribute("quant.backend", "string", "", "What the quantized model is made for: PyTorch's engine, NNCF's device.", ("step",), "x86")
WEIGHT_COUNT: Final = _attribute("quant.weight.count", "int", "{weight}", "Quantized weights in the ONNX model that the step has made; 0 where nothing was quantized.", ("step",), "54")
PER_CHANNEL: Final = _attribute("quant.per_channel", "boolean", "", "Whether weights have one scale for each channel.", ("step",), "true")
BITS: Final = _attribute("quant.bits", "int", "bit", "Width of the quantized weights.", ("step",), "4")
BLOCK_SIZE: Final = _attribute("quant.block_size", "int", "{element}", "Number of weights that share one scale.", ("step",), "128")
PARTS_BITS: Final = _attribute("quant.parts.bits", "int[]", "bit", "Widths of the quantized weights, sorted, where parts of the model differ; `quant.bits` is absent then.", ("step",), "4")
PARTS_BLOCK_SIZE: Final = _attribute("quant.parts.block_size", "int[]", "{element}", "Numbers of weights that share one scale, sorted, where parts of the model differ; `quant.block_size` is absent then.", ("step",), "32")
GRANULARITY: Final = _attribute("quant.granularity", "string", "", "What of the weights has a scale of its own: `tensor`, `channel`, `group`, `block`, `row`, `token` or `axis`, as the library calls it.", ("step",), "group")
SYMMETRIC: Final = _attribute("quant.symmetric", "boolean", "", "Whether the quantized weights have no zero point.", ("step",), "true")
ACTIVATION_SYMMETRIC: Final = _attribute("quant.activation.symmetric", "boolean", "", "Whether the quantized activations have no zero point.", ("step",), "false")
ALGORITHMS: Final = _attribute("quant.algorithms", "string[]", "", "Advanced algorithms that were configured.", ("step",), "adaround")
LAYER_COUNT: Final = _attribute("quant.layer_count", "int", "{layer}", "Layers that the step has begun, at a reading so far: decoder layers, linear layers or parts, as the library goes through them. Of several loops over layers the last one counts.", ("step", "reading", "forecast"), "17")
LAYER_TOTAL: Final = _attribute("quant.layer_total", "int", "{layer}", "Layers that the library goes through in that loop, where it knows their number.", ("step", "reading", "forecast"), "32")
PASS_COUNT: Final = _attribute("quant.pass_count", "int", "{pass}", "Forward passes that the step has begun, of one batch through one part of the model each. Only of libraries that take all samples through one part after another.", ("step", "reading", "forecast"), "300")
PASS_TOTAL: Final = _attribute("quant.pass_total", "int", "{pass}", "Forward passes in all: samples times parts, twice as many where the outputs of a part are computed again once it is quantized.", ("step", "reading", "forecast"), "1024")
CALIBRATION_FINDINGS: Final = _attribute("quant.calibration.findings", "string[]", "", "What is wrong with the data of a calibration: experts and other layers that none or few tokens reached, the first value that is not finite, ranges that still grew in the last tenth of the samples. Of an open step, the findings so far. Absent if there are none.", ("step", "reading"), "41 of 128 experts of layer 12 saw fewer than 8 tokens")
CALIBRATION_SETTLED: Final = _attribute("quant.calibration.settled", "int", "{sample}", "The sample after which no range grew by more than 1 %: so many samples would have given the same ranges. Only if that was within the first quarter of 32 samples or more, all observers keep a range that only grows, and there are no findings.", ("step",), "24")
CALIBRATION_LAYER: Final = _attribute("quant.calibration.layer.name", "string", "", "A layer that has an observer, by its name in the model; of ONNX models a tensor.", ("layer",), "model.layers.12.mlp.experts.41.up_proj")
CALIBRATION_LAYER_SAMPLES: Final = _attribute("quant.calibration.layer.samples", "int", "{sample}", "Samples that reached the layer.", ("layer",), "3")
CALIBRATION_LAYER_TOKENS: Final = _attribute("quant.calibration.layer.tokens", "int", "{token}", "Tokens that reached the layer, from the shapes of its inputs: vectors of features, or images. Absent if the shapes are not known.", ("layer",), "5")
CALIBRATION_LAYER_FINITE: Final = _attribute("quant.calibration.layer.finite", "boolean", "", "Whether the range that the library's observer keeps is finite.", ("layer",), "true")
CALIBRATION_LAYER_SAMPLE: Final = _attribute("quant.calibration.layer.not_finite_sample", "int", "", "The first sample, counted from 1, after which the range was not finite. Absent if it is finite, and for tensors on a GPU, whose ranges are read at the end.", ("layer",), "17")
CALIBRATION_LAYER_GROWTH: Final = _attribute("quant.calibration.layer.growth", "double", "1", "Factor by which the range became wider in the last tenth of the samples. Absent if fewer than 10 samples reached the layer, or if it is not known.", ("layer",), "9.8")
CALIBRATION_LAYER_SETTLED: Final = _attribute("quant.calibration.layer.settled", "int", "{sample}", "The sample after which the range grew by 1 % at most. Absent if the observer keeps more than a range, or a range that may shrink.", ("layer",), "24")
OF_LAYER_SEEN: Final = (CALIBRATION_LAYER, CALIBRATION_LAYER_SAMPLES, CALIBRATION_LAYER_TOKENS, CALIBRATION_LAYER_FINITE, CALIBRATION_LAYER_SAMPLE, CALIBRATION_LAYER_GROWTH, CALIBRATION_LAYER_SETTLED)
ACCURACY_MEASURE: Final = _attribute("quant.accuracy.measure", "string", "", "What the library has computed of the layer, by its own name; on a step, of several measures the first.", ("step", "layer"), "loss")
ACCURACY_BETTER: Final = _attribute("quant.accuracy.better", "string", "", "Which values of the measure are better: `lower` or `higher`. Absent if that is not known.", ("step", "layer"), "lower")
ACCURACY_UNIT: Final = _attribute("quant.accuracy.unit", "string", "", "Unit of the measure, as UCUM has it; absent if it has none.", ("step", "layer"), "dB")
ACCURACY_LAYER: Final = _attribute("quant.accuracy.layer", "string", "", "What the value is of, as the library names it: a layer, a tensor, a trial of a search.", ("layer",), "model.layers.0.mlp.down_proj")
ACCURACY_VALUE: Final = _attribute("quant.accuracy.value", "double", "", "The value, as the library computes it. Absent if it is not finite.", ("layer",), "0.0117")
ACCURACY_INDEX: Final = _attribute("quant.accuracy.index", "int", "", "Position among the values of the step, from 0.", ("layer",), "6")
ACCURACY_COUNT: Final = _attribute("quant.accuracy.count", "int", "{layer}", f"Values of all measures that the library has computed in the step. The first {MOST_LAYERS:,} have log records, and the other attributes are of those.", ("step",), "224")
ACCURACY_MINIMUM: Final = _attribute("quant.accuracy.minimum", "double", "", "Lowest value of the measure in the step, of those that are finite.", ("step",), "0.0004")
ACCURACY_MEDIAN: Final = _attribute("quant.accuracy.median", "double", "", "Their median.", ("step",), "0.0031")
ACCURACY_WORST: Final = _attribute("quant.accuracy.worst", "double", "", "The worst value: the highest or the lowest. Absent if it is not finite, or if it is not known which values are better.", ("step",), "0.0117")
ACCURACY_WORST_LAYER: Final = _attribute("quant.accuracy.worst_layer", "string", "", "What the worst value is of.", ("step",), "model.layers.0.mlp.down_proj")
INPUT_NAME: Final = _attribute("quant.input.name", "string", "", "Last part of the path of the float model of the step that begins the run, without `.onnx`. Absent when OTEL_QUANT_PATHS is off.", ("metric",), "resnet50")
RESUME_PATH: Final = _attribute("quant.resume.path", "string", "", "Folder with the checkpoints that the library writes while it quantizes; after a kill the same program continues from them. Absent when OTEL_QUANT_PATHS is off.", _RUN_STEP, "/models/checkpoints")
RESUME_DONE: Final = _attribute("quant.resume.done", "int", "", "Layers or files that the checkpoints in `quant.resume.path` had when the step began. Absent if there were none.", _RUN_STEP, "31")
INPUT_PATH: Final = _attribute("quant.input.path", "string", "", "File of the float model; on the run, taken from the first step that has one. Absent when OTEL_QUANT_PATHS is off.", _RUN_STEP, "models/resnet50.onnx")
OUTPUT_PATH: Final = _attribute("quant.output.path", "string", "", "File of the quantized model. Absent when OTEL_QUANT_PATHS is off.", ("step",), "models/resnet50_int8.onnx")
MEMORY_PEAK_SOURCE: Final = _attribute("quant.memory.peak_source", "string", "", "`kernel`: the high-water mark of a process that had no child during the step, exact. `sampled`: the highest that was seen; the true peak may be a little higher. `at_least`: the true peak may be much higher, because the process has touched many more pages between two readings than it was seen to hold; OTEL_QUANT_EXACT_PEAKS would tell.", _RUN_STEP, "kernel")
MEMORY_PEAK_LINE: Final = _attribute("quant.memory.peak_line", "string", "", "Line of code at which the memory of the step was seen to be highest, and what it had called. Absent where it did not rise in the step, where no sample saw it rise to its peak, or where nobody knows which thread had taken it.", ("step",), "Reader.get_next (quantize.py:16), in ones")
MEMORY_HIGHEST_KNOWN: Final = _attribute("quant.memory.highest_known", "int", "By", "Highest RSS of the process tree that a recording knows, where that is above `quant.memory.peak`, which the process has sent itself: `otel-quant run` has seen it from outside, or the kernel before the run. The higher of the two is the peak. Sent by `otel-quant send` alone.", _RUN_STEP, "269800000")
MEMORY_PROCESS_PEAK: Final = _attribute("quant.memory.process_peak", "int", "By", "Highest RSS of the main process alone.", ("run",), "1881145344")
MEMORY_LIMIT: Final = _attribute("quant.memory.limit", "int", "By", "Memory the process may use: the smaller of the cgroup's limit and physical memory.", ("run",), "25769803776")
MEMORY_LIMIT_SOURCE: Final = _attribute("quant.memory.limit_source", "string", "", "Which of the two is the smaller: `cgroup` or `physical`.", ("run",), "cgroup")
MEMORY_PEAK_RATIO: Final = _attribute("quant.memory.peak_ratio", "double", "1", "Peak as a share of the limit.", _RUN_STEP, "0.073")
GPU_TREE_PEAK_SOURCE: Final = _attribute("quant.gpu.process_memory.peak_source", "string", "", "`allocator`: torch's own mark of a single process on a single GPU rose during the step, exact; what the process holds outside of the allocator is of the reading after it. `sampled`: the highest value that was seen.", ("run", "step"), "allocator")
GPU_COUNT: Final = _attribute("quant.gpu.count", "int", "{gpu}", "GPUs that the process can see.", ("run",), "1")
GPU_MEMORY_LIMIT: Final = _attribute("quant.gpu.memory.limit", "int", "By", "What programs can have of the memory of all visible GPUs: its size less what the driver keeps for itself.", ("run",), "150754820096")
GPU_MEMORY_SOURCE: Final = _attribute("quant.gpu.memory.source", "string", "", "What the memory in use on the GPUs was read from: `nvmlMemory_v2`, as nvidia-smi and CUDA have it; `nvmlMemory_v1` of older drivers, which counts what the driver keeps for itself too; `amdgpu`. Older recordings of NVIDIA GPUs lack it, and are of version 1.", ("run",), "nvmlMemory_v2")
MODEL_ROLE: Final = _attribute("quant.model.role", "string", "", "`float` or `quantized`. In inference a model is quantized if it converts to or from integers, or multiplies numbers of 8 bits or fewer.", ("cost", "measured model", "operator", "finding", "metric"), "quantized")
MODEL_PATH: Final = _attribute("quant.model.path", "string", "", "File that was costed or measured. Absent when OTEL_QUANT_PATHS is off.", ("cost", "measured model"), "models/resnet50_int8.onnx")
MODEL_NAME: Final = _attribute("quant.model.name", "string", "", "What the program calls the model, else the last part of its path without `.onnx`; by its position, `model 2`, when OTEL_QUANT_PATHS is off. On the run, of a model of torch, the last part of its `name_or_path`, else its class.", ("run", "measured model", "operator", "finding", "metric"), "resnet50_int8")
for _each in MODEL_FIGURES:
    _attribute(of_model("<role>", _each.name), _each.type, _each.unit, _each.brief, ("run", "cost"), _each.example)
CHECKPOINT_NAME: Final = _attribute("quant.checkpoint.name", "string", "", "Name of the checkpoint, as in the YAML file.", ("checkpoint",), "Calibration Start")
CHECKPOINT_PHASE: Final = _attribute("quant.checkpoint.phase", "string", "", "`start` or `end` of a step or of the run; `point` for any other checkpoint.", ("checkpoint",), "start")
CHECKPOINT_SEQUENCE: Final = _attribute("quant.checkpoint.sequence", "int", "", "Position of the checkpoint in the run, from 0.", ("checkpoint",), "5")
CHECKPOINT_ELAPSED: Final = _attribute("quant.checkpoint.elapsed", "double", "s", "Time since the run's first checkpoint.", ("checkpoint",), "12.4")
CHECKPOINT_MEMORY_LIMIT: Final = _attribute("quant.checkpoint.memory_limit", "int", "By", "Memory the process may use.", ("checkpoint",), "25769803776")
READING_ELAPSED: Final = _attribute("quant.reading.elapsed", "double", "s", "Time from the run's first checkpoint to the reading.", ("reading",), "95.2")
READING_MEMORY_LIMIT: Final = _attribute("quant.reading.memory_limit", "int", "By", "Memory the process may use.", ("reading",), "25769803776")
READING_MEMORY_PEAK: Final = _attribute("quant.reading.memory_peak", "int", "By", "Highest RSS of the process tree since the run began.", ("reading",), "2115145344")
READING_OPEN_STEPS: Final = _attribute("quant.reading.open_steps", "string[]", "", "Labels of the open steps, in the order in which they opened.", ("reading",), "Calibration")
ENDING_SIGNAL: Final = _attribute("quant.ending.signal", "string", "", "Signal that ended the program, or the process that was killed or failed first.", ("run", "ending", "program"), "SIGKILL")
ENDING_CAUSE: Final = _attribute("quant.ending.cause", "string", "", "What ended it, if not the kernel's out-of-memory killer: `out of memory` and `out of GPU memory` by an exception, `limit of CPU time`, `limit of the size of a file`, `limit of the address space`, `disk full`, `shared memory full`, `a hang`; absent if that is not known.", ("run", "ending"), "limit of CPU time")
ENDING_OUT_OF_MEMORY: Final = _attribute("quant.ending.out_of_memory", "string", "", "Whether the kernel's out-of-memory killer did it: `known` by the counter of the control group, `guessed` by the counter of the machine, or where none can be read from memory at the limit; absent if neither.", ("run", "ending"), "known")
ENDING_EVIDENCE: Final = _attribute("quant.ending.evidence", "string", "", "What that is concluded from, or is known beside.", ("run", "ending"), "the kernel has counted 1 out-of-memory kill")
ENDING_OPEN_STEPS: Final = _attribute("quant.ending.open_steps", "string[]", "", "Labels of the steps that were open, outermost first.", ("run", "ending"), "Calibration")
ENDING_MEMORY: Final = _attribute("quant.ending.memory", "int", "By", "RSS of the process tree then.", ("run", "ending"), "7530872832")
ENDING_MEMORY_LIMIT: Final = _attribute("quant.ending.memory_limit", "int", "By", "The limit in force.", ("run", "ending"), "8000000000")
ENDING_MEMORY_LIMIT_SOURCE: Final = _attribute("quant.ending.memory_limit_source", "string", "", "Its source: `cgroup`, `physical`, `RLIMIT_AS`, `gpu <index>`.", ("run", "ending"), "cgroup")
ENDING_MEMORY_PER_SAMPLE: Final = _attribute("quant.ending.memory_per_sample", "int", "By", "Growth of memory with each calibration sample.", ("run", "ending"), "188000000")
ENDING_MEMORY_PER_LAYER: Final = _attribute("quant.ending.memory_per_layer", "int", "By", "Growth of memory with each layer.", ("run", "ending"), "1400000000")
FORECAST_MEMORY: Final = _attribute("quant.forecast.memory.at_end", "int", "By", "Estimate of the RSS of the process tree after the last calibration sample or layer; absent unless memory grows with them. On the span of a step: the value in the warning.", ("step", "forecast", "reading"), "31138512896")
FORECAST_MEMORY_PER_SAMPLE: Final = _attribute("quant.forecast.memory.per_sample", "int", "By", "Growth with each calibration sample, estimated.", ("step", "forecast", "reading"), "56623104")
FORECAST_MEMORY_PER_LAYER: Final = _attribute("quant.forecast.memory.per_layer", "int", "By", "Growth with each layer, estimated.", ("step", "forecast", "reading"), "1400000000")
FORECAST_MEMORY_LIMIT: Final = _attribute("quant.forecast.memory.limit", "int", "By", "Memory the process may use.", ("step", "forecast", "reading"), "25769803776")
FORECAST_GPU_MEMORY: Final = _attribute("quant.forecast.gpu.memory.at_end", "int", "By", "Estimate of all memory in use on one GPU after the last calibration sample or layer; absent unless it grows with them.", ("step", "forecast", "reading"), "90194313216")
FORECAST_GPU_MEMORY_PER_SAMPLE: Final = _attribute("quant.forecast.gpu.memory.per_sample", "int", "By", "Growth with each calibration sample, estimated.", ("step", "forecast", "reading"), "104857600")
FORECAST_GPU_MEMORY_PER_LAYER: Final = _attribute("quant.forecast.gpu.memory.per_layer", "int", "By", "Growth with each layer, estimated.", ("step", "forecast", "reading"), "1400000000")
FORECAST_GPU_MEMORY_LIMIT: Final = _attribute("quant.forecast.gpu.memory.limit", "int", "By", "Size of that GPU's memory.", ("step", "forecast", "reading"), "85899345920")
FORECAST_TIME_LEFT: Final = _attribute("quant.forecast.time_left", "double", "s", "Estimate of the time until the last calibration sample of the step, or until its last layer is done.", ("forecast", "reading"), "1830.5")
FORECAST_STALLED: Final = _attribute("quant.forecast.stalled", "double", "s", "Time without progress, if the step has stalled: no further calibration sample or layer came for 20 s and for ten times as long as the longest so far took; or it was at one line for 30 s while its thread was blocked and nothing of the program ran. Absent otherwise.", ("forecast", "reading"), "312.4")
INFERENCE_PROVIDER: Final = _attribute("quant.inference.provider", "string", "", "What ran the model for most of the time, or the operator: an execution provider of onnxruntime, an engine of PyTorch.", ("measured model", "operator", "metric"), "CPUExecutionProvider")
INFERENCE_MODELS: Final = _attribute("quant.inference.models", "int", "{model}", "Models that were to be measured.", ("inference",), "2")
INFERENCE_NOISE: Final = _attribute("quant.inference.noise", "double", "1", "Noise of the machine: half the distance between the quartiles of the rounds' medians, as a share of the median; of the noisiest model.", ("inference",), "0.012")
INFERENCE_RUNS: Final = _attribute("quant.inference.runs", "int", "{run}", "Runs of the model that were timed.", ("measured model",), "300")
INFERENCE_WEIGHTS: Final = _attribute("quant.inference.weights", "int", "By", "Bytes of the model's file with its external data; of a PyTorch model of its saved state dict.", ("measured model",), "25557032")
INFERENCE_KERNEL_TIME: Final = _attribute("quant.inference.kernel_time", "double", "s", "Time of all kernels in a run, by the profiler.", ("measured model",), "0.0119")
INFERENCE_PROBLEM: Final = _attribute("quant.inference.problem", "string", "", "Why the model could not be measured. Absent when OTEL_QUANT_PATHS is off.", ("measured model",), "crashed with SIGSEGV")

_MODEL_LABELS: Final = (RUN_NAME, MODEL_NAME, MODEL_ROLE, INFERENCE_PROVIDER)
_OF_MODELS: Final = tuple(
    (Metric(name, "gauge", unit, brief, _MODEL_LABELS), example)
    for name, unit, brief, example in (
        (INFERENCE_MEDIAN, "s", "Time of a run of the model without the profiler: half of the runs were faster.", "0.0112"),
        (INFERENCE_P10, "s", "The same: a tenth of the runs was faster.", "0.0109"),
        (INFERENCE_P90, "s", "The same: nine tenths of the runs were faster.", "0.0131"),
        (INFERENCE_MEMORY_PEAK, "By", "Highest RSS of the model's process while the model ran; on a GPU, the most that its allocator held.", "183500800"),
        (INFERENCE_GPU_ENERGY, "J", "Energy of all visible GPUs in a run of the model, whatever program used it; absent where they do not count it, or the runs that were asked for took less than a second.", "0.41"),
        (INFERENCE_CPU_ENERGY, "J", "Energy of the processors' packages in a run of the model, the same.", "1.2"),
        (INFERENCE_SPEEDUP, "1", "How many times as fast as the first model, the baseline; absent where the machine was too noisy to tell.", "2.7"),
        (INFERENCE_SQNR, "dB", "Signal to quantization noise of the outputs compared with the first model's outputs, of the worst output; absent where they are equal.", "31.4"),
        (INFERENCE_FINDINGS, "{finding}", "Findings: kernels and conversions that ran otherwise than the model promises.", "3"),
        (INFERENCE_CONVERSIONS, "1", "Share of the time of all kernels in those that only convert: quantize, dequantize, cast, reorder or copy.", "0.12"),
    )
)
"""The gauges of an inference, which are attributes of its span as well, each with an example."""
for _gauge, _example in _OF_MODELS:
    _attribute(_gauge.name, "int" if _gauge.unit in ("By", "{finding}") else "double", _gauge.unit, _gauge.brief, ("measured model",), _example)

OPERATOR_TYPE: Final = _attribute("quant.inference.operator.type", "string", "", "The operator.", ("operator",), "QLinearConv")
OPERATOR_NAME: Final = _attribute("quant.inference.operator.name", "string", "", "Node of the model that the kernel does the work of; the kernel's own name where the runtime has put it in. Absent where the record is of all kernels of the operator.", ("operator",), "/layer1/conv1/Conv")
OPERATOR_KERNELS: Final = _attribute("quant.inference.operator.kernels", "int", "{kernel}", "Kernels that the record is of.", ("operator",), "53")
OPERATOR_DURATION: Final = _attribute("quant.inference.operator.duration", "double", "s", "Their time in a run, by the profiler.", ("operator",), "0.0081")
OPERATOR_SHARE: Final = _attribute("quant.inference.operator.share", "double", "1", "Their share of the time of all kernels.", ("operator",), "0.68")
OPERATOR_TYPES: Final = _attribute("quant.inference.operator.types", "string", "", "Types and shapes of the kernel's operands, without scalars, and of its results.", ("operator",), "uint8 1x64x56x56 -> uint8 1x64x56x56")
OPERATOR_MAC_RATE: Final = _attribute("quant.inference.operator.mac_rate", "double", "{mac}/s", "MACs per second.", ("operator",), "145000000000")
FINDING_KIND: Final = _attribute("quant.inference.finding.kind", "string", "", "Kind of the finding: see [inference](inference.md).", ("finding",), "unfused")
FINDING_NODE: Final = _attribute("quant.inference.finding.node", "string", "", "Node of the model.", ("finding",), "/layer1/exp/Exp")
FINDING_SHARE: Final = _attribute("quant.inference.finding.share", "double", "1", "Share of the time of all kernels.", ("finding",), "0.13")
_attribute(CUSTOM_PREFIX + "<name>", "double", "", _CUSTOM, ("run", "step", "checkpoint"), "97.8")
HW_ID: Final = _attribute("hw.id", "string", "", "Stable identifier of the GPU: its UUID or PCI address.", ("step", "forecast", "reading", "device", "metric"), "GPU-8f6d7a52-...")
HW_NAME: Final = _attribute("hw.name", "string", "", "Product name of the GPU.", ("device",), "NVIDIA H200")
GPU_SLOWED_BY: Final = _attribute("quant.gpu.device.slowed_by", "string[]", "", "What makes the GPU slower than it could be: `heat (by software)`, `heat (by hardware)`, `power brake`, `hardware slowdown`.", ("device",), "heat (by hardware)")
GPU_MEMORY_ERRORS: Final = _attribute("quant.gpu.device.memory_errors", "int", "{error}", "Errors of the GPU's memory that could not be corrected, since the driver was loaded.", ("device",), "2")

ATTRIBUTES: Final = tuple(_ATTRIBUTES)
"""Attributes that do not come from a resource, in the order of the documentation."""

ORIGIN: Final = frozenset(
    {
        PROCESS_COMMAND_LINE, PYTHON_VERSION, HOST_NAME, OS_DESCRIPTION, CPU_MODEL, CPU_COUNT, CPU_LIMIT,
        ADDRESS_SPACE_LIMIT, FILE_SIZE_LIMIT, OTEL_QUANT_VERSION, LIBRARIES, GPU_NAMES, GPU_DRIVERS,
        VCS_REVISION, VCS_REF, VCS_DIRTY, VCS_REPOSITORY, VCS_CHANGE, CI_PIPELINE, CI_RUN, CI_RUN_URL,
        CI_TASK, CI_TASK_RUN, CI_WORKER, RUN_JOB,
    }
)  # fmt: skip
"""The attributes that describe what made a run."""


COPIED_TO_RUN: Final = (LIBRARY_NAME, INPUT_PATH, RESUME_PATH, RESUME_DONE, CALIBRATION_METHOD, CONFIG_NAME, CONFIG_HASH)
"""Attributes of steps that the run's span has as well: the first value in the run, or all values."""
OF_ALL_STEPS: Final = COPIED_TO_RUN[4:]
"""Those of which the run has all values."""

# --- log records ------------------------------------------------------------------------

RUN_STARTED_EVENT: Final = _event("quant.run.started", "The run's span has started: its ids, and the attributes that it has by then.")
CHECKPOINT_EVENT: Final = _event("quant.checkpoint.taken", "One checkpoint.")
READING_EVENT: Final = _event("quant.reading.taken", "A reading between two checkpoints, at most every 28 s, if memory has moved by more than 1 % since the last record.")
FORECAST_EVENT: Final = _event("quant.forecast.exceeded", "A warning: memory that grows with the calibration samples or the layers would exceed the limit before the last one.")
STALL_EVENT: Final = _event("quant.forecast.step_stalled", "A warning: a step has stalled, the line of code that it is at, and what it waits for; once each time.")
LINES_EVENT: Final = _event("quant.lines.seen", "The ten lines of code with the most time of their own in a step, and the ten at which memory grew most; sent when a step ends of which the sampler has seen a second or more.")
LAYER_EVENT: Final = _event("quant.accuracy.measured", "How well the library has quantized one layer, as it computes that itself while it quantizes.")
OBSERVED_EVENT: Final = _event("quant.calibration.layer_observed", "What reached one layer in a calibration, from the library's observers; sent when the step ends.")
DEVICE_EVENT: Final = _event("quant.device.used", "What a step, or the run, used of one GPU; sent when it ends. A step of less than a second in which none of its memory changed has none.")
IMPAIRED_EVENT: Final = _event("quant.device.impaired", "A warning: something has begun to slow a GPU down, or its memory has failed.")
MODEL_COST_EVENT: Final = _event("quant.model.cost", "The nodes of a costed model with the most MACs, and those with the largest memory.")
ANSWER_EVENT: Final = _event("quant.run.answered", "What the run came to (`quant.run.answer`); sent when it ends.")
ENDING_EVENT: Final = _event("quant.run.killed", "How a program has ended that was killed or ran out of memory, with what would help; sent by `otel-quant run`, in the span that was open.")
OPERATOR_EVENT: Final = _event("quant.inference.operator.timed", "One of the operators, or of the kernels, that an inference spends most time in: of each the ten slowest.")
FINDING_EVENT: Final = _event("quant.inference.finding.made", "Something that went wrong in an inference: of each model the twenty that take most time.")
INFERENCE_FAILED_EVENT: Final = _event("quant.inference.failed", "A warning: a model could not be measured, and why.")
COST_FAILED_EVENT: Final = _event("quant.model.cost_failed", "A warning: why a model could not be costed (`message`). The model's span has an event of that name too.")
EVENTS: Final = tuple(_EVENTS)  # Every kind of log record, in the order of the documentation

# --- metrics ------------------------------------------------------------------------------

# Of the names that resources make, only those that dashboards refer to are here.
STEP_MEMORY_PEAK: Final = figures.STEP_MEMORY_PEAK.name
STEP_MEMORY_GROWTH: Final = figures.STEP_MEMORY_GROWTH.name
STEP_DISK_IO: Final = figures.STEP_DISK_IO.name
STEP_CPU_TIME: Final = figures.STEP_CPU_TIME.name
STEP_GPU_MEMORY_PEAK: Final = figures.STEP_GPU_MEMORY_PEAK.name
RUN_MEMORY_USAGE: Final = figures.TREE_MEMORY.live_metric
RUN_GPU_MEMORY_USAGE: Final = figures.GPU_MEMORY.live_metric
RUN_GPU_MEMORY_LIMIT: Final = figures.GPU_MEMORY_LIMIT.live_metric
GPU_UTILIZATION: Final = figures.GPU_UTILIZATION.live_metric
GPU_POWER: Final = figures.GPU_POWER.live_metric
GPU_TEMPERATURE: Final = figures.GPU_TEMPERATURE.live_metric
GPU_CLOCK: Final = figures.GPU_CLOCK.live_metric
RUN_DISK_IO: Final = figures.DISK_READ.live_metric

STEP_LABELS: Final = (STEP_KIND, STEP_NAME, LIBRARY_NAME)
"""Attributes of the points of every metric of steps."""

_MINUTE, _HOUR = 60, 3600
DURATION_BUCKETS: Final[tuple[float, ...]] = (
    0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 1 * _MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE,
    20 * _MINUTE, 40 * _MINUTE, 1 * _HOUR, 2 * _HOUR, 5 * _HOUR, 10 * _HOUR,
)
"""Seconds: steps last from 10 ms to 10 h."""

STEP_DURATION: Final = _metric("quant.step.duration", "histogram", "s", "Time from a step's start to its end.", (*STEP_LABELS, ERROR_TYPE), DURATION_BUCKETS)
STEP_ACTIVE: Final = _metric("quant.step.active", "observable_gauge", "{step}", "Steps of that kind that are open now; 0 after the last of them has ended.", STEP_LABELS)
RUN_START: Final = _metric("quant.run.start", "observable_gauge", "s", "When the run began, in seconds since the epoch. Its attributes name the run that a process belongs to: other metrics are joined with it by process.", (RUN_NAME, RUN_RANK, PROCESS_PID, RUN_TRACE_ID, INPUT_NAME, CALIBRATION_METHOD, CONFIG_NAME))
RUN_LAST_SEEN: Final = _metric("quant.run.last_seen", "observable_gauge", "s", "When the run was last seen, in seconds since the epoch: when its metrics were collected, or when it ended.", (RUN_NAME,))
RUN_MEMORY_PEAK: Final = _metric("quant.run.memory.peak", "observable_gauge", "By", "Highest RSS of the process tree since the run began.", (RUN_NAME,))
RUN_END: Final = _metric("quant.run.end", "observable_gauge", "s", "When the run ended, in seconds since the epoch; absent while it goes on, and for ever if it is killed.", (RUN_NAME,))
RUN_MEMORY_LIMIT: Final = _metric("quant.run.memory.limit", "observable_gauge", "By", "Memory the process may use.", ())
CALIBRATION_SAMPLES: Final = _metric("quant.calibration.samples", "counter", "{sample}", "Calibration samples consumed: calls of the data reader that returned data, a batch each.", STEP_LABELS)
CALIBRATION_PROGRESS: Final = _metric("quant.calibration.progress", "observable_gauge", "1", "Share of its calibration samples that the latest step of that kind has consumed; absent if the data reader has no length, or has returned more samples than its length.", STEP_LABELS)
STEP_LAYERS: Final = _metric("quant.step.layers", "counter", "{layer}", "Layers begun.", STEP_LABELS)
STEP_LAYER_PROGRESS: Final = _metric("quant.step.layer_progress", "observable_gauge", "1", "Share of its layers that the latest step of that kind has begun; absent if their number is not known.", STEP_LABELS)
STEP_PASSES: Final = _metric("quant.step.passes", "counter", "{pass}", "Forward passes through parts of a model that were begun.", STEP_LABELS)
STEP_PASS_PROGRESS: Final = _metric("quant.step.pass_progress", "observable_gauge", "1", "Share of its forward passes through parts of the model that the latest step of that kind has begun; absent if their number is not known.", STEP_LABELS)
_metric(FORECAST_TIME_LEFT, "observable_gauge", "s", "Estimate of the time until the last calibration sample of the step, or until its last layer is done.", STEP_LABELS)
_metric(FORECAST_STALLED, "observable_gauge", "s", "Time without progress, if the step has stalled: no further calibration sample or layer came for 20 s and for ten times as long as the longest so far took; or it was at one line for 30 s while its thread was blocked and nothing of the program ran. Absent otherwise.", STEP_LABELS)
_metric(FORECAST_MEMORY, "observable_gauge", "By", "Estimate of the RSS of the process tree after the last calibration sample or layer; absent unless memory grows with them. On the span of a step: the value in the warning.", STEP_LABELS)
_metric(FORECAST_GPU_MEMORY, "observable_gauge", "By", "Estimate of all memory in use on one GPU after the last calibration sample or layer; absent unless it grows with them.", (*STEP_LABELS, HW_ID))
MODEL_SIZE: Final = _metric("quant.model.size", "gauge", "By", "Size of the model's file, external data included.", (MODEL_ROLE,))
MODEL_PARAMS: Final = _metric("quant.model.params", "gauge", "{element}", "Elements of the model's static tensors, each counted once.", (MODEL_ROLE,))
MODEL_MACS_CONTRACTION: Final = _metric("quant.model.macs_contraction", "gauge", "{mac}", "Forward MACs of contractions only (Conv, Gemm, MatMul, recurrent, attention).", (MODEL_ROLE,))
MODEL_AUDIT_PROBLEMS: Final = _metric("quant.model.audit.problem_count", "gauge", "{problem}", "Problems that an [audit](audit.md) found in the model that was written; 0 if it passes. Absent if no audit was made.", (MODEL_ROLE,))
INFERENCE_START: Final = _metric("quant.inference.start", "gauge", "s", "When the measurement of inference began, in seconds since the epoch.", (RUN_NAME,))
_METRICS.extend(_gauge for _gauge, _ in _OF_MODELS)
_metric(CUSTOM_PREFIX + "<name>", "gauge", "", _CUSTOM, (STEP_KIND, STEP_NAME))

METRICS: Final = tuple(_METRICS)
"""Metrics that do not come from a resource, in the order of the documentation."""

# --- spans --------------------------------------------------------------------------------

PROGRAM_SPAN: Final = "program"
"""Name of the span above the runs of a program that is no Python itself; the launcher sends it."""

ROOT_SPAN: Final = "quantization"  # Name of a run's root span

COST_SPAN: Final = "model cost"
"""Name of the span of one model's costing; it is a child of the root span, never of a step."""

INFERENCE_SPAN: Final = "inference"
BENCHMARK_SPAN: Final = "benchmark"
MODEL_SPAN: Final = "model inference"
"""Names of the span of models that were measured beside each other, and of its child for each."""
